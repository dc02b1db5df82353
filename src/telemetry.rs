//! Logs and metrics: how they are set up, and what each metric is called.

use std::io::IsTerminal;
use std::net::SocketAddr;

use anyhow::Context;

use clap::ValueEnum;
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::EnvFilter;

/// How a log line is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

/// An error and its causes in one line. Some errors tell their cause themselves,
/// which is then not reported again.
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

/// Runs a program to its end. Its exit code is 0 if all was well; an error is one line on
/// standard error.
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

/// Prints a command's result. Whoever stopped reading (`| head`) is not reported.
pub fn print(text: impl std::fmt::Display) {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    let _ = write!(out, "{text}").and_then(|()| out.flush());
}

/// What is logged when RUST_LOG is not set. actix_http logs each malformed request as
/// an error, with which anyone could fill the log.
const DEFAULT_FILTER: &str = "info,actix_server=warn,tokio_cron_scheduler=warn,actix_http::h1::dispatcher=off,sqlx::postgres::notice=warn";

/// Starts logging, and warns of variables that look like settings and are none
/// (`config::unknown_variables`).
///
/// # Errors
/// When RUST_LOG is no filter.
pub fn start(format: LogFormat, unknown_variables: &[String]) -> anyhow::Result<()> {
    init_logs(format)?;
    for variable in unknown_variables {
        tracing::warn!(variable, "names no setting of Tally; is it misspelt?");
    }
    Ok(())
}

/// Logs to standard error, in the given format, filtered by RUST_LOG.
///
/// # Errors
/// When RUST_LOG is no filter.
fn init_logs(format: LogFormat) -> anyhow::Result<()> {
    let filter = match std::env::var("RUST_LOG") {
        Ok(text) if !text.trim().is_empty() => EnvFilter::try_new(&text).map_err(|error| {
            anyhow::anyhow!("RUST_LOG is {text:?}, which is no filter: {error}; one reads info,tally=debug")
        })?,
        _ => EnvFilter::new(DEFAULT_FILTER),
    };
    // It would tell the values of parameters that it does not know; the ledger tells
    // their names.
    let filter = filter.add_directive("sqlx_postgres::options::parse=off".parse()?);
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Text => builder.init(),
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
    Ok(())
}

/// The names of all metrics. Those that count end in `_total`, durations are in seconds.
pub mod name {
    /// Votes by `outcome`: accepted, repeated, unknown_item, refused (the queue was
    /// full), failed (the ledger did not confirm them).
    pub const VOTES: &str = "tally_votes_total";
    /// Votes in one batch.
    pub const BATCH_VOTES: &str = "tally_batch_votes";
    /// Votes that wait for a batch.
    pub const QUEUE_DEPTH: &str = "tally_queue_depth_votes";
    /// HTTP requests, by `route` and `status`.
    pub const HTTP_SECONDS: &str = "tally_http_request_seconds";
    /// Connections of clients that are open.
    pub const CONNECTIONS: &str = "tally_connections";
    /// Connections of clients that were turned away for want of module.
    pub const CONNECTIONS_REFUSED: &str = "tally_connections_refused_total";
    /// From a vote's entry into the queue to its answer.
    pub const VOTE_SECONDS: &str = "tally_vote_seconds";
    /// One batch's statement in Postgres.
    pub const LEDGER_SECONDS: &str = "tally_ledger_insert_seconds";
    /// One batch's pipeline in Redis.
    pub const LIVE_SECONDS: &str = "tally_live_count_seconds";
    /// Live counts that were missing when a batch came to add to them.
    pub const MISSES: &str = "tally_live_misses_total";
    /// Live counts seeded.
    pub const SEEDS: &str = "tally_live_seeds_total";
    /// Live counts thrown away, by `why`: suspect, age, epoch, crashed-writer recovery, audit.
    pub const INVALIDATIONS: &str = "tally_live_invalidations_total";
    /// Items whose live count this server suspects and has not yet invalidated.
    pub const SUSPECTS: &str = "tally_suspect_items";
    /// Items that could not even be suspect; see `live::SUSPECTS_LIMIT_ITEMS`.
    pub const SUSPECTS_DROPPED: &str = "tally_suspect_items_dropped_total";
    /// 1 while Redis answers the server, else 0.
    pub const REDIS_AVAILABLE: &str = "tally_redis_available";
    /// How often Redis stopped answering the server.
    pub const REDIS_FAILURES: &str = "tally_redis_failures_total";
    /// Counts written behind to their items.
    pub const FLUSHED: &str = "tally_flushed_counts_total";
    /// Counts dropped because they were saved and idle.
    pub const EXPIRED: &str = "tally_expired_counts_total";
    /// Counts written from the ledger.
    pub const REBUILT: &str = "tally_rebuilt_counts_total";
    /// One scan over all counters.
    pub const SCAN_SECONDS: &str = "tally_scan_seconds";
    /// How long the oldest unsaved count may have been unsaved, at the last scan.
    pub const OLDEST_UNSAVED_SECONDS: &str = "tally_oldest_unsaved_seconds";
    /// Counts that this worker's last scan left unsaved.
    pub const UNSAVED: &str = "tally_unsaved_counts";
    /// Items that this worker's last scan left to be rebuilt.
    pub const REBUILDS_WAITING: &str = "tally_rebuilds_waiting_items";
    /// How often the counters were found in another epoch.
    pub const EPOCHS: &str = "tally_epoch_changes_total";
    /// Passes of the worker that failed, by `job`: flush, audit.
    pub const JOB_FAILURES: &str = "tally_job_failures_total";
    /// One audit.
    pub const AUDIT_SECONDS: &str = "tally_audit_seconds";
    /// Items the audit found wrong, ever. 0 unless something failed.
    pub const AUDIT_WRONG_ITEMS: &str = "tally_audit_wrong_items_total";
    /// By how many votes they were wrong, ever.
    pub const AUDIT_WRONG_VOTES: &str = "tally_audit_wrong_votes_total";
    /// Items of the last audit, by `verdict`: right, in_flight, suspect, wrong.
    pub const AUDIT_ITEMS: &str = "tally_audit_items";
    /// By how many votes the counts that the last audit found wrong were wrong. 0
    /// unless something failed.
    pub const AUDIT_DRIFT: &str = "tally_audit_drift_votes";
    /// When the last audit ended, seconds since 1970.
    pub const AUDIT_LAST: &str = "tally_audit_last_timestamp_seconds";
}

/// Bounds of the histograms of durations, in seconds: from half a millisecond to
/// the longest that anything here may wait.
const SECONDS_BOUNDS: [f64; 14] = [
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0,
];
/// Bounds of the histogram of batch sizes, in votes.
const BATCH_BOUNDS: [f64; 11] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];

fn builder() -> Result<PrometheusBuilder, BuildError> {
    PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS_BOUNDS)?
        .set_buckets_for_metric(Matcher::Full(name::BATCH_VOTES.to_owned()), &BATCH_BOUNDS)
}

/// Starts collecting metrics; the handle renders them for `GET /metrics`.
///
/// # Errors
/// When metrics are collected already.
pub fn init_metrics() -> anyhow::Result<PrometheusHandle> {
    let handle = builder()?.install_recorder()?;
    describe();
    Ok(handle)
}

/// Starts collecting metrics and serves them at `http://{listen}/metrics`, for a
/// program that has no HTTP of its own.
///
/// # Errors
/// When metrics are collected already, or the address cannot be listened on.
pub fn serve_metrics(listen: SocketAddr) -> anyhow::Result<()> {
    builder()?
        .with_http_listener(listen)
        .install()
        .with_context(|| format!("TALLY_WORKER_METRICS_LISTEN: cannot listen on {listen}"))?;
    describe();
    Ok(())
}

/// Counters that an operator watches start at 0, not at their first event.
fn describe() {
    for outcome in ["accepted", "repeated", "unknown_item", "refused", "failed"] {
        metrics::counter!(name::VOTES, "outcome" => outcome).absolute(0);
    }
    for counter in [
        name::CONNECTIONS_REFUSED,
        name::MISSES,
        name::SEEDS,
        name::REDIS_FAILURES,
        name::SUSPECTS_DROPPED,
        name::FLUSHED,
        name::EXPIRED,
        name::REBUILT,
        name::EPOCHS,
        name::AUDIT_WRONG_ITEMS,
        name::AUDIT_WRONG_VOTES,
    ] {
        metrics::counter!(counter).absolute(0);
    }
    for why in ["suspect", "age", "epoch", "crashed_writer", "audit"] {
        metrics::counter!(name::INVALIDATIONS, "why" => why).absolute(0);
    }
    for job in ["flush", "audit"] {
        metrics::counter!(name::JOB_FAILURES, "job" => job).absolute(0);
    }
    metrics::describe_counter!(name::VOTES, "Votes by outcome.");
    metrics::describe_histogram!(name::BATCH_VOTES, "Votes in one batch.");
    metrics::describe_gauge!(name::QUEUE_DEPTH, "Votes that wait for a batch.");
    metrics::describe_counter!(
        name::AUDIT_WRONG_ITEMS,
        "Items the audit found wrong; 0 unless something failed."
    );
    metrics::describe_counter!(name::AUDIT_WRONG_VOTES, "By how many votes they were wrong.");
    metrics::describe_gauge!(
        name::AUDIT_DRIFT,
        "Votes by which counts were wrong at the last audit; 0 unless something failed."
    );
    metrics::describe_gauge!(
        name::OLDEST_UNSAVED_SECONDS,
        "How long the oldest unsaved count may have been unsaved."
    );
}
