//! Every setting: a flag, an environment variable, a default. `--help` prints the docstrings
//! of this file.

pub mod operator;
mod read;
mod server;
#[cfg(test)]
mod tests;
pub(crate) mod values;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

pub use read::{read, unknown_variables};
pub use server::{AddressSettings, Jwt, Server};
pub use values::{
    Cron, DURATION_LIMIT, PAGE_LIMIT, REPLAY_LIMIT_COLUMNS, REPLAY_LIMIT_CONNECTIONS,
    SERVED_LIMIT_CONNECTIONS, SecretUrl, WRITER_STALL_LEAST,
};
use values::{
    address_retention, choices, column, connections, duration, page, rate, rating, store_url, title,
    writer_stall_limit,
};

use crate::domain::ItemName;
use crate::live::KeyPrefix;
use crate::telemetry::LogFormat;

/// About how many counters a page of the scan holds, unless TALLY_FLUSH_PAGE says otherwise.
pub const FLUSH_PAGE_DEFAULT_COUNTERS: usize = 1000;
/// How many items a page of the audit holds, unless TALLY_AUDIT_PAGE says otherwise.
pub const AUDIT_PAGE_DEFAULT_ITEMS: usize = 10_000;
/// How often the live counts are scanned, unless TALLY_FLUSH_EVERY says otherwise.
pub const FLUSH_EVERY_DEFAULT: &str = "1s";
/// How long a stalled batch writer is waited for, unless TALLY_WRITER_STALL_LIMIT says
/// otherwise.
pub const WRITER_STALL_LIMIT_DEFAULT: &str = "60s";
/// How many connections `tally replay` opens, unless --connections says otherwise.
pub const REPLAY_DEFAULT_CONNECTIONS: usize = 64;

/// Ballots that `tally ballots` makes at once, at the most.
pub const BALLOTS_LIMIT: u64 = 10_000_000;

/// Where the stores are.
#[derive(Args, Clone)]
pub struct Stores {
    /// Postgres, the database of record: postgres://user:password@host:port/database
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, value_parser = store_url, value_name = "URL")]
    pub database_url: String,

    /// Redis, for the live counts: redis://user:password@host:port/number
    #[arg(long, env = "REDIS_URL", hide_env_values = true, value_parser = store_url, value_name = "URL")]
    pub redis_url: String,

    #[command(flatten)]
    pub keys: Keys,
}

/// What the keys in Redis are called.
#[derive(Args, Clone, Debug)]
pub struct Keys {
    /// What every key in Redis begins with, the same for all programs of one Tally
    #[arg(long, env = "TALLY_KEY_PREFIX", default_value_t, value_name = "PREFIX")]
    pub key_prefix: KeyPrefix,
}

/// Settings of the sync worker.
#[derive(Args, Clone, Debug)]
pub struct Worker {
    /// How often the live counts are scanned and written behind
    #[arg(long, env = "TALLY_FLUSH_EVERY", default_value = FLUSH_EVERY_DEFAULT, value_parser = duration, value_name = "DURATION")]
    pub flush_every: Duration,

    /// How often every counter is looked at, about: then idle and old ones are dropped
    #[arg(long, env = "TALLY_SCAN_EVERY", default_value = "10m", value_parser = duration, value_name = "DURATION")]
    pub scan_every: Duration,

    /// About how many counters a page of a scan holds
    #[arg(long, env = "TALLY_FLUSH_PAGE", default_value_t = FLUSH_PAGE_DEFAULT_COUNTERS, value_parser = page, value_name = "COUNTERS")]
    pub flush_page: usize,

    /// How long a saved live count stays in Redis after its last change
    #[arg(long, env = "TALLY_RETENTION", default_value = "10m", value_parser = duration, value_name = "DURATION")]
    pub retention: Duration,

    /// How old a live count may become, busy or not, before it is seeded again
    #[arg(long, env = "TALLY_MAX_AGE", default_value = "1h", value_parser = duration, value_name = "DURATION")]
    pub max_age: Duration,

    /// How long the hash of a vote's client address is kept
    #[arg(long, env = "TALLY_ADDRESS_RETENTION", default_value = "30d", value_parser = address_retention, value_name = "DURATION")]
    pub address_retention: Duration,

    /// When to audit, as six cron fields, seconds first, in UTC
    #[arg(
        long,
        env = "TALLY_AUDIT_CRON",
        default_value = "0 * * * * *",
        value_name = "CRON"
    )]
    pub audit_cron: Cron,

    #[command(flatten)]
    pub audit: Audit,

    /// How long the last flush may take, after SIGTERM or Ctrl-C
    #[arg(long, env = "TALLY_LAST_FLUSH_LIMIT", default_value = "20s", value_parser = duration, value_name = "DURATION")]
    pub last_flush_limit: Duration,
}

/// Settings of the audit.
#[derive(Args, Clone, Debug)]
pub struct Audit {
    /// How long the roll-up and the audit wait for a server that does not say that it has
    /// counted its votes
    #[arg(long, env = "TALLY_WRITER_STALL_LIMIT", default_value = WRITER_STALL_LIMIT_DEFAULT, value_parser = writer_stall_limit, value_name = "DURATION")]
    pub writer_stall_limit: Duration,

    /// How many items a page of the audit holds
    #[arg(long, env = "TALLY_AUDIT_PAGE", default_value_t = AUDIT_PAGE_DEFAULT_ITEMS, value_parser = page, value_name = "ITEMS")]
    pub audit_page: usize,
}

/// How logs are written.
#[derive(Args, Clone, Debug)]
pub struct Logs {
    /// How log lines are written; RUST_LOG says which lines
    #[arg(
        long,
        env = "TALLY_LOG_FORMAT",
        value_enum,
        default_value_t,
        global = true,
        value_name = "FORMAT"
    )]
    pub log_format: LogFormat,
}

/// Counts votes exactly: every vote a row in Postgres, counted at once in Redis
#[derive(Parser)]
#[command(name = "tally", version, propagate_version = true)]
pub struct Tally {
    #[command(flatten)]
    pub logs: Logs,
    #[command(subcommand)]
    pub command: Command,
}

/// What `tally` can be asked to do.
#[derive(Subcommand)]
pub enum Command {
    /// Run the server
    Serve(Serve),
    /// Run all of Tally on this machine: private Postgres and Redis, server and worker
    Dev(Dev),
    /// Bring the database's tables up to date, and grant the roles
    Migrate(Migrate),
    /// Make, show, edit and import items
    #[command(subcommand)]
    Item(operator::Item),
    /// Make, show and edit polls
    #[command(subcommand)]
    Poll(operator::Poll),
    /// Show counts as they change: a table in a terminal, else a line a change; until Ctrl-C
    Watch(operator::Watch),
    /// Make ballots, each of which buys one vote
    Ballots(operator::Ballots),
    /// Take votes back that should not have been cast, or undo that
    Void(operator::Void),
    /// Make, list, revoke and rotate API keys
    #[command(subcommand)]
    Key(operator::ApiKeyCommand),
    /// Show who did what: the trail of administrative acts, the newest first
    Trail(operator::Trail),
    /// Cast a file of votes, ratings or choices over HTTP
    Replay(Replay),
    /// Ask a server or worker whether it is well, for health checks; exit code 0 if it is
    Health(Health),
    /// Compare all counts with the ledger; exit code 0 only when nothing is wrong
    Audit(AuditCommand),
    /// Print the description of the HTTP interface: OpenAPI 3.1, as /openapi.json has it
    Openapi,
}

/// `tally serve`.
#[derive(Args)]
pub struct Serve {
    #[command(flatten)]
    pub stores: Stores,
    #[command(flatten)]
    pub server: Server,

    /// Bring the database's tables up to date first
    #[arg(long, env = "TALLY_MIGRATE", value_parser = clap::builder::BoolishValueParser::new())]
    pub migrate: bool,
}

/// `tally dev`.
#[derive(Args)]
pub struct Dev {
    /// Use this Postgres instead of a private one
    #[arg(
        long,
        env = "DATABASE_URL",
        hide_env_values = true,
        value_parser = store_url,
        value_name = "URL",
        requires = "redis_url"
    )]
    pub database_url: Option<String>,

    /// Use this Redis instead of a private one
    #[arg(
        long,
        env = "REDIS_URL",
        hide_env_values = true,
        value_parser = store_url,
        value_name = "URL",
        requires = "database_url"
    )]
    pub redis_url: Option<String>,

    /// Where the private Postgres and Redis keep their data
    #[arg(
        long,
        env = "TALLY_DEV_FOLDER",
        default_value = ".tally",
        value_name = "FOLDER"
    )]
    pub folder: PathBuf,

    #[command(flatten)]
    pub keys: Keys,
    #[command(flatten)]
    pub server: Server,
    #[command(flatten)]
    pub worker: Worker,
}

/// `tally migrate`.
#[derive(Args)]
pub struct Migrate {
    /// Postgres, the database of record: postgres://user:password@host:port/database
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, value_parser = store_url, value_name = "URL")]
    pub database_url: String,
}

/// `tally audit`.
#[derive(Args)]
pub struct AuditCommand {
    #[command(flatten)]
    pub stores: Stores,
    #[command(flatten)]
    pub audit: Audit,

    /// Throw wrong live counts away and rebuild them from the ledger
    #[arg(long)]
    pub repair: bool,
}

/// `tally health`.
#[derive(Args)]
pub struct Health {
    /// What to ask: a server's /health/ready, a worker's /metrics
    #[arg(
        long,
        default_value = "http://127.0.0.1:8080/health/ready",
        value_name = "URL"
    )]
    pub url: reqwest::Url,

    #[command(flatten)]
    pub credential: operator::Credential,
}

/// `tally replay`.
#[derive(Args)]
pub struct Replay {
    /// The file of votes, one a line, with columns separated by white space or commas; lines
    /// that begin with # are skipped; - reads standard input
    pub file: PathBuf,

    /// Where the server is; several servers, separated by commas, are used in turn
    #[arg(
        long,
        env = "TALLY_URL",
        hide_env_values = true,
        default_value = "http://127.0.0.1:8080",
        value_delimiter = ',',
        value_name = "URL"
    )]
    pub url: Vec<reqwest::Url>,

    /// Which column names the voter, counted from 1; 0: all votes are anonymous
    #[arg(long, default_value_t = 1, value_name = "COLUMN")]
    pub voter: usize,

    /// Which column names the item, counted from 1
    #[arg(long, default_value_t = 2, value_parser = column, value_name = "COLUMN")]
    pub item: usize,

    /// Which column holds the value, 1 or -1, counted from 1; 0: all are 1. The first vote of
    /// a voter on an item counts, whatever comes later
    #[arg(long, default_value_t = 0, value_name = "COLUMN", conflicts_with_all = ["rating", "poll"])]
    pub value: usize,

    /// Which column holds a rating instead, any number: above --neutral it is a vote of 1,
    /// below it one of -1, and equal to it, it takes the vote back. A later line of the same
    /// voter and item changes the vote
    #[arg(long, value_parser = column, value_name = "COLUMN")]
    pub rating: Option<usize>,

    /// The rating that is neither up nor down
    #[arg(long, default_value_t = 0.0, value_parser = rating, value_name = "RATING", requires = "rating", allow_negative_numbers = true)]
    pub neutral: f64,

    /// Make a poll of this title, whose choices are the file's items, 100 at most; vote in it,
    /// show its results, and compare them with the file. With --rating, one above --neutral
    /// chooses the item, and any other takes that choice back
    #[arg(long, value_parser = title, value_name = "TITLE")]
    pub poll: Option<ItemName>,

    /// How many choices of the poll a voter may hold; with 1, a later line of a voter moves
    /// the vote; 0: any number
    #[arg(long, default_value_t = 1, value_parser = choices, value_name = "CHOICES", requires = "poll")]
    pub max_choices: usize,

    /// How many requests are under way at once
    #[arg(long, default_value_t = REPLAY_DEFAULT_CONNECTIONS, value_parser = connections, value_name = "NUMBER")]
    pub connections: usize,

    /// Cast at this fixed rate, as far as --connections allow; a vote's latency counts from
    /// when it was due, even if it was sent later (an open loop)
    #[arg(long, value_parser = rate, value_name = "VOTES_PER_SECOND")]
    pub rate: Option<f64>,

    #[command(flatten)]
    pub credential: operator::Credential,
}

/// Writes live counts behind to their items, and audits them
#[derive(Parser)]
#[command(name = "sync-worker", version)]
pub struct SyncWorker {
    #[command(flatten)]
    pub logs: Logs,
    #[command(flatten)]
    pub stores: Stores,
    #[command(flatten)]
    pub worker: Worker,

    /// Make one full flush and audit, then exit; exit code 0 only when nothing was wrong
    #[arg(long)]
    pub once: bool,

    /// Serve metrics at http://ADDRESS:PORT/metrics
    #[arg(long, env = "TALLY_WORKER_METRICS_LISTEN", value_name = "ADDRESS:PORT")]
    pub metrics_listen: Option<SocketAddr>,
}
