//! The log.

use std::io::IsTerminal;

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

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
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Text => builder.init(),
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
    for variable in unknown_variables {
        tracing::warn!(variable, "names no setting of Tally; is it misspelt?");
    }
    Ok(())
}
