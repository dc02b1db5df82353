//! What a program prints, and its exit code.

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
            eprintln!("{program}: {}", one_line(&error));
            std::process::ExitCode::FAILURE
        }
    }
}

/// Prints a command's result. It is no error when the reader has gone (`| head`).
pub fn print(text: impl std::fmt::Display) {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    let _ = write!(out, "{text}").and_then(|()| out.flush());
}
