//! Every setting: a flag, an environment variable and a default. `--help` prints their docstrings.

pub mod api_keys;
pub mod archive;
pub mod ballots;
pub mod cells;
pub mod data;
pub mod database;
pub mod events;
mod help;
pub mod items;
pub mod polls;
mod read;
pub mod remote;
mod secret_files;
mod server;
mod show;
#[cfg(test)]
mod tests;
pub mod trail;
pub(crate) mod values;
pub mod voiding;
pub mod voters;
pub mod watch;
mod webhook;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub use help::{completions, write_manual};
pub use read::{Settings, read, unknown_variables};
pub use server::{AddressSettings, Jwt, Seed, Server};
pub use show::effective;
pub use values::{
    Cron, DURATION_LIMIT, PAGE_LIMIT, REPLAY_LIMIT_COLUMNS, REPLAY_LIMIT_CONNECTIONS,
    SERVED_LIMIT_CONNECTIONS, WRITER_STALL_LEAST,
};
use values::{
    address_retention, choices, collector_url, column, connections, duration, item_id, login_url, page, path,
    rate, rating, store_url, title, writer_stall_limit,
};
pub use webhook::Webhook;

use crate::domain::{Cell, ItemId, ItemName};
use crate::live::KeyPrefix;
use crate::store_url::StoreUrl;
use crate::telemetry::LogFormat;

/// The default of TALLY_FLUSH_PAGE.
pub const FLUSH_PAGE_DEFAULT_COUNTERS: usize = 1000;
/// The default of TALLY_AUDIT_PAGE.
pub const AUDIT_PAGE_DEFAULT_ITEMS: usize = 10_000;
/// The default of TALLY_FLUSH_EVERY.
pub const FLUSH_EVERY_DEFAULT: &str = "1s";
/// The default of TALLY_WRITER_STALL_LIMIT.
pub const WRITER_STALL_LIMIT_DEFAULT: &str = "60s";
/// The default of `tally replay --connections`.
pub const REPLAY_DEFAULT_CONNECTIONS: usize = 64;

/// Where the stores are.
#[derive(Args, Clone)]
pub struct Stores {
    /// Postgres, the database of record: postgres://user:password@host:port/database, or several hosts
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, value_parser = login_url, value_name = "URL")]
    pub database_url: StoreUrl,

    /// Redis, for the live counts: redis://user:password@host:port/number, redis+sentinel://… or redis+cluster://…
    #[arg(long, env = "REDIS_URL", hide_env_values = true, value_parser = login_url, value_name = "URL")]
    pub redis_url: StoreUrl,

    #[command(flatten)]
    pub keys: Keys,
}

/// The keys in Redis.
#[derive(Args, Clone, Debug)]
pub struct Keys {
    /// The beginning of every key in Redis, the same for all programs of one Tally
    #[arg(long, env = "TALLY_KEY_PREFIX", default_value_t, value_name = "PREFIX")]
    pub key_prefix: KeyPrefix,
}

/// Settings of the sync worker.
#[derive(Args, Clone, Debug)]
pub struct Worker {
    /// How often to save changed live counts to Postgres; less often while thousands change, up to 5 s apart
    #[arg(long, env = "TALLY_FLUSH_EVERY", default_value = FLUSH_EVERY_DEFAULT, value_parser = duration, value_name = "DURATION")]
    pub flush_every: Duration,

    /// About how often to look at every counter, to drop idle and old ones
    #[arg(long, env = "TALLY_SCAN_EVERY", default_value = "10m", value_parser = duration, value_name = "DURATION")]
    pub scan_every: Duration,

    /// About how many counters a page of a scan holds
    #[arg(long, env = "TALLY_FLUSH_PAGE", default_value_t = FLUSH_PAGE_DEFAULT_COUNTERS, value_parser = page, value_name = "COUNTERS")]
    pub flush_page: usize,

    /// How long a saved live count stays in Redis after its last change
    #[arg(long, env = "TALLY_RETENTION", default_value = "10m", value_parser = duration, value_name = "DURATION")]
    pub retention: Duration,

    /// The greatest age of a live count, busy or not, before it is seeded again
    #[arg(long, env = "TALLY_MAX_AGE", default_value = "1h", value_parser = duration, value_name = "DURATION")]
    pub max_age: Duration,

    /// How long to keep the hash of a vote's client address
    #[arg(long, env = "TALLY_ADDRESS_RETENTION", default_value = "30d", value_parser = address_retention, value_name = "DURATION")]
    pub address_retention: Duration,

    /// When to audit: six cron fields, seconds first, in UTC
    #[arg(
        long,
        env = "TALLY_AUDIT_CRON",
        default_value = "0 * * * * *",
        value_name = "CRON"
    )]
    pub audit_cron: Cron,

    #[command(flatten)]
    pub audit: Audit,

    // In a box: the commands of `tally` are of much the same size.
    #[command(flatten)]
    pub webhook: Box<Webhook>,

    /// The longest time for the last flush, after SIGTERM or Ctrl-C
    #[arg(long, env = "TALLY_LAST_FLUSH_LIMIT", default_value = "20s", value_parser = duration, value_name = "DURATION")]
    pub last_flush_limit: Duration,
}

/// Settings of the audit.
#[derive(Args, Clone, Debug)]
pub struct Audit {
    /// How long the roll-up and the audit wait for a server that does not confirm that it has counted its
    /// votes
    #[arg(long, env = "TALLY_WRITER_STALL_LIMIT", default_value = WRITER_STALL_LIMIT_DEFAULT, value_parser = writer_stall_limit, value_name = "DURATION")]
    pub writer_stall_limit: Duration,

    /// How many items a page of the audit holds
    #[arg(long, env = "TALLY_AUDIT_PAGE", default_value_t = AUDIT_PAGE_DEFAULT_ITEMS, value_parser = page, value_name = "ITEMS")]
    pub audit_page: usize,
}

/// How logs are written.
#[derive(Args, Clone, Debug)]
pub struct Logs {
    /// The format of log lines; RUST_LOG selects the lines
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

/// Where traces go.
#[derive(Args, Clone, Debug)]
pub struct Traces {
    /// A collector of OpenTelemetry, without the path, to send spans of batches and jobs to
    #[arg(
        long,
        env = "OTEL_EXPORTER_OTLP_ENDPOINT",
        hide_env_values = true,
        value_parser = collector_url,
        value_name = "URL"
    )]
    pub otel_exporter_otlp_endpoint: Option<String>,
}

/// Counts votes exactly: each vote is a row in Postgres, and Redis counts it at once
#[derive(Parser)]
#[command(name = "tally", version = crate::telemetry::version(), propagate_version = true)]
pub struct Tally {
    #[command(flatten)]
    pub logs: Logs,
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands of `tally`.
#[derive(Subcommand)]
pub enum Command {
    /// Run the server
    Serve(Serve),
    /// Run all of Tally on this machine, with a private Postgres and Redis
    Dev(Dev),
    /// Bring the database's tables up to date, and grant the roles
    Migrate(Migrate),
    /// Create, show, edit and import items
    #[command(subcommand)]
    Item(items::Item),
    /// Create, show and edit polls
    #[command(subcommand)]
    Poll(polls::Poll),
    /// Make the next cell, and write the file of the router before the cells
    #[command(subcommand)]
    Cell(cells::CellCommand),
    /// Show counts as they change, until Ctrl-C: a table in a terminal, otherwise a line for each change
    Watch(watch::Watch),
    /// Create ballots; each buys one vote
    Ballots(ballots::Ballots),
    /// Void votes that should not have been cast, or undo a voiding
    Void(voiding::Void),
    /// Show, rename, merge and erase voters
    #[command(subcommand)]
    Voter(voters::Voter),
    /// Create, list, revoke and rotate API keys
    #[command(subcommand)]
    Key(api_keys::ApiKeyCommand),
    /// Show the trail of administrative acts, newest first
    Trail(trail::Trail),
    /// List, show and resend events, which a worker sends to the webhook
    #[command(subcommand)]
    Event(events::EventCommand),
    /// Export votes, items, polls, results or the trail as CSV or JSON Lines
    Export(data::Export),
    /// Import votes, items or polls from files
    #[command(subcommand)]
    Import(data::Import),
    /// Move the votes of items and polls that have closed to files, and check these files
    #[command(subcommand)]
    Archive(archive::Archive),
    /// Cast a file of votes, ratings or choices over HTTP
    Replay(Replay),
    /// Check the health of a server or worker; exit code 0 if it is healthy
    Health(Health),
    /// Compare all counts with the ledger; exit code 0 only if nothing is wrong
    Audit(AuditCommand),
    /// Look at everything that the stores of an installation can have wrong; exit code 0 if nothing is
    Doctor(Doctor),
    /// Show what Redis holds of an item; exit code 0 unless someone else's value stands there
    Counter(CounterCommand),
    /// Print completions for a shell: put them where it looks for them
    Completions(Completions),
    /// Write the manual pages of tally and sync-worker into a folder
    Man(Man),
    /// Show the settings that tally serve and sync-worker would start with here, with the source of each
    Config,
    /// Print the description of the HTTP API: OpenAPI 3.1, the same as /openapi.json
    Openapi,
}

/// `tally serve`.
#[derive(Args)]
pub struct Serve {
    #[command(flatten)]
    pub stores: Stores,
    #[command(flatten)]
    pub server: Server,
    #[command(flatten)]
    pub traces: Traces,
    #[command(flatten)]
    pub which: WhichCell,

    /// Bring the database's tables up to date first
    #[arg(long, env = "TALLY_MIGRATE", value_parser = clap::builder::BoolishValueParser::new())]
    pub migrate: bool,
}

/// Which Redis `tally dev` starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Topology {
    /// One, which keeps nothing on disk.
    Single,
    /// A primary, two replicas and three Sentinels.
    Sentinel,
    /// A Redis Cluster: three primaries, and a replica of each.
    Cluster,
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

    /// The folder for the data of the private Postgres and Redis
    #[arg(
        long,
        env = "TALLY_DEV_FOLDER",
        default_value = ".tally",
        value_parser = path,
        value_name = "FOLDER"
    )]
    pub folder: PathBuf,

    /// What to start: one of each, or two servers, two workers, a Postgres with a standby, and a Redis that Sentinels
    /// watch or a Redis Cluster
    #[arg(
        long,
        env = "TALLY_TOPOLOGY",
        value_enum,
        default_value_t = Topology::Single,
        hide_possible_values = true,
        value_name = "single|sentinel|cluster",
        conflicts_with = "redis_url"
    )]
    pub topology: Topology,

    #[command(flatten)]
    pub keys: Keys,
    #[command(flatten)]
    pub server: Server,
    #[command(flatten)]
    pub worker: Worker,
    #[command(flatten)]
    pub traces: Traces,
}

/// Which cell a database is.
#[derive(Args, Clone, Copy, Debug)]
pub struct WhichCell {
    /// The cell that the database is: from 0 to 8191. Migrating makes a new database this cell, by default 0; a database
    /// that is another one is refused
    #[arg(long, env = "TALLY_CELL", value_name = "CELL")]
    pub cell: Option<Cell>,
}

/// `tally migrate`.
#[derive(Args)]
pub struct Migrate {
    /// Postgres, the database of record: postgres://user:password@host:port/database, or several hosts
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, value_parser = store_url, value_name = "URL")]
    pub database_url: String,

    #[command(flatten)]
    pub which: WhichCell,

    /// Also split the ledger into ranges of vote ids, each a table of its own, while votes go on. By default a range has
    /// 100 million ids, some 10 GB
    #[arg(
        long,
        value_name = "IDS",
        num_args = 0..=1,
        default_missing_value = "100000000",
        value_parser = clap::value_parser!(i64).range(1_000_000..=1_000_000_000_000)
    )]
    pub partition: Option<i64>,
}

/// `tally audit`.
#[derive(Args)]
pub struct AuditCommand {
    #[command(flatten)]
    pub stores: Stores,
    #[command(flatten)]
    pub audit: Audit,

    /// Delete wrong live counts and rebuild them from the ledger
    #[arg(long)]
    pub repair: bool,
}

/// `tally doctor`.
#[derive(Args)]
pub struct Doctor {
    #[command(flatten)]
    pub stores: Stores,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `tally counter`.
#[derive(Args)]
pub struct CounterCommand {
    /// The item's id
    #[arg(value_parser = item_id)]
    pub item: ItemId,

    /// Redis, for the live counts: redis://user:password@host:port/number, redis+sentinel://… or redis+cluster://…
    #[arg(long, env = "REDIS_URL", hide_env_values = true, value_parser = store_url, value_name = "URL")]
    pub redis_url: String,

    #[command(flatten)]
    pub keys: Keys,
}

/// `tally completions`.
#[derive(Args)]
pub struct Completions {
    /// The shell
    pub shell: clap_complete::Shell,

    /// The program to complete
    #[arg(long, value_enum, default_value_t, value_name = "PROGRAM")]
    pub program: Program,
}

/// A program that has completions.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum Program {
    #[default]
    Tally,
    SyncWorker,
}

/// `tally man`.
#[derive(Args)]
pub struct Man {
    /// The folder, which must be there: /usr/local/share/man/man1, for example
    #[arg(value_parser = path)]
    pub folder: PathBuf,
}

/// `tally health`.
#[derive(Args)]
pub struct Health {
    /// The URL to check: a server's or a worker's /health/ready
    #[arg(
        long,
        default_value = "http://127.0.0.1:8080/health/ready",
        value_name = "URL"
    )]
    pub url: reqwest::Url,

    #[command(flatten)]
    pub credential: remote::Credential,
}

/// `tally replay`.
#[derive(Args)]
pub struct Replay {
    /// The file of votes, one on each line, with columns separated by white space or commas; skips lines that
    /// begin with #; - reads standard input
    pub file: PathBuf,

    /// The URL of the server; several servers, separated by commas, are used in turn
    #[arg(
        long,
        env = "TALLY_URL",
        hide_env_values = true,
        default_value = "http://127.0.0.1:8080",
        value_delimiter = ',',
        value_name = "URL"
    )]
    pub url: Vec<reqwest::Url>,

    /// The column of the voter, counted from 1; 0 makes all votes anonymous
    #[arg(long, default_value_t = 1, value_name = "COLUMN")]
    pub voter: usize,

    /// The column of the item, counted from 1
    #[arg(long, default_value_t = 2, value_parser = column, value_name = "COLUMN")]
    pub item: usize,

    /// The column of the value (1 or -1), counted from 1; 0 makes all values 1. The first vote of a voter on
    /// an item counts; later ones are ignored
    #[arg(long, default_value_t = 0, value_name = "COLUMN", conflicts_with_all = ["rating", "poll"])]
    pub value: usize,

    /// The column of a rating, instead of a value. Any number: above --neutral it is a vote of 1, below it a
    /// vote of -1, and equal to it takes the vote back. A later line with the same voter and item changes the
    /// vote
    #[arg(long, value_parser = column, value_name = "COLUMN")]
    pub rating: Option<usize>,

    /// The rating that is neither an up-vote nor a down-vote
    #[arg(long, default_value_t = 0.0, value_parser = rating, value_name = "RATING", requires = "rating", allow_negative_numbers = true)]
    pub neutral: f64,

    /// Create a poll with this title, and the file's items as its choices (at most 100); vote in it, show its
    /// results, and compare them with the file. With --rating, a rating above --neutral chooses the item, and
    /// any other takes the choice back
    #[arg(long, value_parser = title, value_name = "TITLE")]
    pub poll: Option<ItemName>,

    /// The most choices of the poll that a voter may hold; 0 means any number. With 1, a later line of a
    /// voter moves the vote
    #[arg(long, default_value_t = 1, value_parser = choices, value_name = "CHOICES", requires = "poll")]
    pub max_choices: usize,

    /// The number of requests under way at once
    #[arg(long, default_value_t = REPLAY_DEFAULT_CONNECTIONS, value_parser = connections, value_name = "NUMBER")]
    pub connections: usize,

    /// Cast at this fixed rate in votes per second, as far as --connections allow. Latency counts from the
    /// time when a vote was due, even if it was sent later (an open loop)
    #[arg(long, value_parser = rate, value_name = "VOTES_PER_SECOND")]
    pub rate: Option<f64>,

    #[command(flatten)]
    pub credential: remote::Credential,
}

/// Saves live counts to their items, and audits them
#[derive(Parser)]
#[command(name = "sync-worker", version = crate::telemetry::version())]
pub struct SyncWorker {
    #[command(flatten)]
    pub logs: Logs,
    #[command(flatten)]
    pub stores: Stores,
    #[command(flatten)]
    pub worker: Worker,
    #[command(flatten)]
    pub traces: Traces,

    /// Do one full flush and audit, then exit; exit code 0 only if nothing was wrong
    #[arg(long)]
    pub once: bool,

    /// Serve health and metrics at http://ADDRESS:PORT: /health/live, /health/ready, /metrics
    #[arg(long, env = "TALLY_WORKER_LISTEN", value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
}
