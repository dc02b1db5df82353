//! What a program prints, and its exit code. The one way out: nothing else writes to standard output or
//! standard error (tests/it/layout), so no text from elsewhere reaches a terminal as it came.

use std::fmt::Display;
use std::io::Write;

use super::plain::{Plain, PlainLines};

/// An error and its causes in one line. A cause that the line already holds is left out: some
/// errors print their own cause.
pub fn one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain() {
        let text = cause.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        if line.is_empty() {
            line = text;
        } else if !line.contains(&text) {
            line = format!("{line}: {text}");
        }
    }
    line
}

/// Runs a program to its end. The exit code is 0 if all was well. An error is one line on standard
/// error.
pub async fn exit_code(
    program: &str,
    run: impl Future<Output = anyhow::Result<bool>>,
) -> std::process::ExitCode {
    match run.await {
        Ok(true) => std::process::ExitCode::SUCCESS,
        Ok(false) => std::process::ExitCode::FAILURE,
        Err(error) => {
            complain(format_args!("{program}: {}", one_line(&error)));
            std::process::ExitCode::FAILURE
        }
    }
}

/// Prints a command's result. It is no error when the reader has gone (`| head`).
///
/// The lines are the caller's. A foreign text within a line goes through [`Plain`] first, so that it ends no
/// line.
pub fn print(text: impl Display) {
    let mut out = std::io::stdout().lock();
    let _ = write!(out, "{}", PlainLines(text)).and_then(|()| out.flush());
}

/// Prints one line on standard error. It is no error when the reader has gone.
pub fn complain(line: impl Display) {
    let _ = writeln!(std::io::stderr().lock(), "{}", Plain(line));
}
