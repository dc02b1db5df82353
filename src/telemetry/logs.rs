//! The log.

use std::fmt::{self, Debug};
use std::io::{self, IsTerminal, Write};

use clap::ValueEnum;
use tracing::field::Field;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::fmt::format::{self, Writer};

use super::plain::{Plain, PlainLines};

/// How a log line is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

/// The filter of the log when RUST_LOG is not set. actix_http logs each malformed request as an
/// error, so anyone could fill the log.
const DEFAULT_FILTER: &str = "info,actix_server=warn,tokio_cron_scheduler=warn,actix_http::h1::dispatcher=off,sqlx::postgres::notice=warn";

/// Starts the log on standard error, filtered by RUST_LOG. Warns of each of `unknown_variables`,
/// which look like settings but are none (`config::unknown_variables`).
///
/// # Errors
/// When RUST_LOG is no filter.
pub fn start(format: LogFormat, unknown_variables: &[String]) -> anyhow::Result<()> {
    let filter = match std::env::var("RUST_LOG") {
        Ok(text) if !text.trim().is_empty() => EnvFilter::try_new(&text).map_err(|error| {
            anyhow::anyhow!(
                "RUST_LOG is {text:?}, which is no filter: {error}; it takes one like info,tally=debug"
            )
        })?,
        _ => EnvFilter::new(DEFAULT_FILTER),
    };
    // sqlx would log unknown parameters of a URL with their values, which may be a
    // password. The ledger logs their names.
    let filter = filter.add_directive("sqlx_postgres::options::parse=off".parse()?);
    // A pool would log each connection that Tally does not take, ten a second. The ledger logs the cause.
    let filter = filter.add_directive("sqlx_core::pool::inner=off".parse()?);
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(io::stderr().is_terminal());
    match format {
        LogFormat::Text => builder
            .fmt_fields(format::debug_fn(write_field).delimited(" "))
            .with_writer(io::stderr)
            .init(),
        LogFormat::Json => builder
            .json()
            .flatten_event(true)
            .with_writer(|| PlainWriter(io::stderr()))
            .init(),
    }
    for variable in unknown_variables {
        tracing::warn!(variable, "names no setting of Tally; is it misspelt?");
    }
    Ok(())
}

/// Writes a field of a log line. Whatever it has, it is one line that does nothing to a terminal: what clients,
/// stores and files say is in it.
fn write_field(out: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> fmt::Result {
    let value = Plain(format_args!("{value:?}"));
    match field.name() {
        "message" => write!(out, "{value}"),
        // Where a line of another logging crate is from, which the line begins with.
        name if name.starts_with("log.") => Ok(()),
        name => write!(out, "{name}={value}"),
    }
}

/// Writes log lines in JSON, without what would act on a terminal. They mean the same.
struct PlainWriter<W>(W);

impl<W: Write> Write for PlainWriter<W> {
    /// A log line comes whole.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        write!(self.0, "{}", PlainLines(String::from_utf8_lossy(bytes)))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex, PoisonError};

    use super::*;

    /// Where a test's log goes.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Log {
        fn text(&self) -> String {
            let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            String::from_utf8(bytes.clone()).expect("UTF-8")
        }
    }

    #[test]
    fn a_log_line_is_one_line_that_does_nothing_to_a_terminal_in_both_formats() {
        let foreign = "a\u{1b}[2J\nforged\u{9b}1m\u{202e}";
        for is_json in [false, true] {
            let log = Log::default();
            let (to, in_json) = (log.clone(), log.clone());
            let builder = tracing_subscriber::fmt().with_ansi(false);
            let say = || tracing::warn!(error = %foreign, name = foreign, "said {foreign}");
            if is_json {
                let layer = builder.json().flatten_event(true);
                let layer = layer.with_writer(move || PlainWriter(in_json.clone()));
                tracing::subscriber::with_default(layer.finish(), say);
            } else {
                let layer = builder.fmt_fields(format::debug_fn(write_field).delimited(" "));
                let layer = layer.with_writer(move || to.clone());
                tracing::subscriber::with_default(layer.finish(), say);
            }
            let text = log.text();
            assert_eq!(text.matches('\n').count(), 1, "{text}");
            assert!(text.ends_with('\n') && text.contains("forged"), "{text}");
            let acts = |one: char| one.is_control() && one != '\n' || one == '\u{202e}';
            assert!(!text.contains(acts), "{text:?}");
        }
    }
}
