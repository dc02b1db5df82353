//! Every setting: a flag, an environment variable, a default. `--help` prints this
//! file's docstrings.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::telemetry::LogFormat;

/// Where the stores are.
#[derive(Args, Clone)]
pub struct Stores {
    /// Postgres, the database of record: postgres://user:password@host:port/database
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, value_name = "URL")]
    pub database_url: String,

    /// Redis, for the live counts: redis://user:password@host:port/number
    #[arg(long, env = "REDIS_URL", hide_env_values = true, value_name = "URL")]
    pub redis_url: String,
}

/// Settings of the server.
#[derive(Args, Clone, Debug)]
pub struct Server {
    /// Address and port to listen on; port 0 takes a free one
    #[arg(
        long,
        env = "TALLY_LISTEN",
        default_value = "127.0.0.1:8080",
        value_name = "ADDRESS:PORT"
    )]
    pub listen: SocketAddr,

    /// How long a shutdown waits for requests under way
    #[arg(long, env = "TALLY_SHUTDOWN_LIMIT", default_value = "10s", value_parser = duration, value_name = "DURATION")]
    pub shutdown_limit: Duration,
}

/// Settings of the sync worker.
#[derive(Args, Clone, Debug)]
pub struct Worker {
    /// How often the live counts are walked and written behind
    #[arg(long, env = "TALLY_FLUSH_EVERY", default_value = "1s", value_parser = duration, value_name = "DURATION")]
    pub flush_every: Duration,

    /// How many counters one page of the walk holds, about
    #[arg(long, env = "TALLY_FLUSH_PAGE", default_value_t = 1000, value_parser = page, value_name = "COUNTERS")]
    pub flush_page: usize,

    /// How long a saved live count stays after its last change
    #[arg(long, env = "TALLY_RETENTION", default_value = "10m", value_parser = duration, value_name = "DURATION")]
    pub retention: Duration,

    /// How long a live count may live, busy or not, before it is seeded afresh
    #[arg(long, env = "TALLY_MAX_AGE", default_value = "1h", value_parser = duration, value_name = "DURATION")]
    pub max_age: Duration,

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

    /// How long the last flush may take after SIGTERM
    #[arg(long, env = "TALLY_LAST_FLUSH_LIMIT", default_value = "20s", value_parser = duration, value_name = "DURATION")]
    pub last_flush_limit: Duration,
}

/// Settings of the audit.
#[derive(Args, Clone, Debug)]
pub struct Audit {
    /// How long a vote may be between its batch's beginning and its live count; the
    /// audit takes a count that is off by younger votes for right
    #[arg(long, env = "TALLY_IN_FLIGHT_LIMIT", default_value = "15s", value_parser = duration, value_name = "DURATION")]
    pub in_flight_limit: Duration,

    /// How many items one page of the audit holds
    #[arg(long, env = "TALLY_AUDIT_PAGE", default_value_t = 10_000, value_parser = page, value_name = "ITEMS")]
    pub audit_page: usize,
}

/// How logs are written.
#[derive(Args, Clone, Debug)]
pub struct Logs {
    /// How log lines are written; RUST_LOG says which
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
    /// Bring the database's tables up to date
    Migrate(Migrate),
    /// Cast a file of votes over HTTP
    Replay(Replay),
    /// Ask whether a server or worker is well, for health checks: exit code 0 if so
    Health(Health),
    /// Prove the counts against the ledger; exit code 0 only when nothing is wrong
    Audit(AuditCommand),
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
        value_name = "URL",
        requires = "redis_url"
    )]
    pub database_url: Option<String>,

    /// Use this Redis instead of a private one
    #[arg(
        long,
        env = "REDIS_URL",
        hide_env_values = true,
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
    pub server: Server,
    #[command(flatten)]
    pub worker: Worker,
}

/// `tally migrate`.
#[derive(Args)]
pub struct Migrate {
    /// Postgres, the database of record: postgres://user:password@host:port/database
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, value_name = "URL")]
    pub database_url: String,
}

/// `tally audit`.
#[derive(Args)]
pub struct AuditCommand {
    #[command(flatten)]
    pub stores: Stores,
    #[command(flatten)]
    pub audit: Audit,

    /// Have what is wrong thrown away and counted afresh
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
}

/// `tally replay`.
#[derive(Args)]
pub struct Replay {
    /// The file of votes, one a line, columns separated by white space or commas;
    /// lines that begin with # are left out; - reads standard input
    pub file: PathBuf,

    /// Where the server is; several, separated by commas, are used in turn
    #[arg(
        long,
        env = "TALLY_URL",
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

    /// Which column holds the value, 1 or -1, counted from 1; 0: all are 1
    #[arg(long, default_value_t = 0, value_name = "COLUMN")]
    pub value: usize,

    /// How many requests are under way at once
    #[arg(long, default_value_t = 64, value_parser = connections, value_name = "NUMBER")]
    pub connections: usize,

    /// Cast at this fixed rate, whether or not the answers keep up (an open loop)
    #[arg(long, value_parser = rate, value_name = "VOTES_PER_SECOND")]
    pub rate: Option<f64>,
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

    /// One full flush and audit, then exit: 0 only when nothing was wrong
    #[arg(long)]
    pub once: bool,

    /// Serve metrics at http://ADDRESS:PORT/metrics
    #[arg(long, env = "TALLY_WORKER_METRICS_LISTEN", value_name = "ADDRESS:PORT")]
    pub metrics_listen: Option<SocketAddr>,
}

/// A cron expression of six fields, seconds first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cron(String);

impl Cron {
    /// The six fields.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Cron {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl FromStr for Cron {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("{why}; it takes six fields, seconds first, like 0 * * * * *");
        let fields = text.split_whitespace().count();
        if fields != 6 {
            return Err(wrong(&format!("it has {fields} fields")));
        }
        // The scheduler's own parser decides.
        tokio_cron_scheduler::Job::new(text, |_, _| {}).map_err(|_| wrong("it is no cron expression"))?;
        Ok(Self(text.to_owned()))
    }
}

/// A duration above 0, like `500ms`, `10s`, `10m`.
fn duration(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(duration) if duration > DURATION_LIMIT => Err(format!(
            "it takes at most {} days",
            DURATION_LIMIT.as_secs() / 86_400
        )),
        Ok(duration) if duration.is_zero() => {
            Err("it takes a duration above 0, like 500ms, 10s, 10m".to_owned())
        }
        Ok(duration) => Ok(duration),
        Err(_) => Err("it takes a duration like 500ms, 10s, 10m".to_owned()),
    }
}

/// The longest duration of any setting; Postgres and Redis can reckon with it.
pub const DURATION_LIMIT: Duration = Duration::from_secs(10 * 365 * 86_400);
/// The largest page of the walk or the audit: a larger one would hold row locks
/// for too long, and gains nothing.
pub const PAGE_LIMIT: usize = 100_000;
/// The most requests `tally replay` has under way at once.
pub const REPLAY_LIMIT_CONNECTIONS: usize = 4096;
/// The most columns a file of votes may have.
pub const REPLAY_LIMIT_COLUMNS: usize = 1000;

fn page(text: &str) -> Result<usize, String> {
    whole(text, PAGE_LIMIT)
}

fn connections(text: &str) -> Result<usize, String> {
    whole(text, REPLAY_LIMIT_CONNECTIONS)
}

fn column(text: &str) -> Result<usize, String> {
    whole(text, REPLAY_LIMIT_COLUMNS)
}

fn whole(text: &str, limit: usize) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|number| (1..=limit).contains(number))
        .ok_or_else(|| format!("it takes a whole number from 1 to {limit}"))
}

fn rate(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|rate: &f64| rate.is_finite() && *rate >= 0.1 && *rate <= 1_000_000.0)
        .ok_or_else(|| "it takes a number from 0.1 to 1000000".to_owned())
}

/// Reads the settings from the command line and the environment. A wrong one ends
/// the program with one line that names it, and exit code 2.
pub fn read<P: Parser + CommandFactory>() -> P {
    match P::try_parse() {
        Ok(settings) => settings,
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => error.exit(),
            _ => {
                let command = P::command();
                eprintln!("{}: {}", command.get_name(), one_line(&error, &command));
                std::process::exit(2);
            }
        },
    }
}

/// clap's message in one line, with the environment variable's name where the
/// setting has one.
fn one_line(error: &clap::Error, command: &clap::Command) -> String {
    let text = error.render().to_string();
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut line = lines
        .next()
        .unwrap_or_default()
        .trim_start_matches("error: ")
        .to_owned();
    if let Some(values) = text
        .lines()
        .map(str::trim)
        .find(|line| line.starts_with("[possible values"))
    {
        line = format!("{line} {values}");
    }
    // A list, such as that of missing arguments, follows its headline.
    if line.ends_with(':') {
        let list: Vec<&str> = lines
            .take_while(|line| line.starts_with("--") || line.starts_with('<'))
            .collect();
        line = format!("{line} {}", list.join(", "));
    }
    let named = error.context().find_map(|(kind, value)| match (kind, value) {
        (ContextKind::InvalidArg, ContextValue::String(one)) => Some(vec![one.clone()]),
        (ContextKind::InvalidArg, ContextValue::Strings(all)) => Some(all.clone()),
        _ => None,
    });
    let variables: Vec<String> = named
        .unwrap_or_default()
        .iter()
        .filter_map(|flag| variable_of(command, flag))
        .collect();
    if variables.is_empty() {
        line
    } else {
        format!("{line} (environment: {})", variables.join(", "))
    }
}

/// The environment variable of the argument that clap shows as `flag`.
fn variable_of(command: &clap::Command, flag: &str) -> Option<String> {
    let long = flag.trim_start_matches("--").split([' ', '=']).next()?;
    // Two subcommands may have a flag of the same name: the one in use counts.
    let used = std::env::args()
        .nth(1)
        .and_then(|name| command.find_subcommand(name));
    std::iter::once(command)
        .chain(used)
        .flat_map(clap::Command::get_arguments)
        .find(|argument| argument.get_long() == Some(long))
        .and_then(|argument| argument.get_env())
        .map(|variable| variable.to_string_lossy().into_owned())
}

/// The variables that begin with TALLY_ and name no setting: misspelt, most likely.
pub fn unknown_variables() -> Vec<String> {
    let commands = [Tally::command(), SyncWorker::command()];
    let known: Vec<String> = commands
        .iter()
        .flat_map(|command| std::iter::once(command).chain(command.get_subcommands()))
        .flat_map(clap::Command::get_arguments)
        .filter_map(|argument| argument.get_env())
        .map(|variable| variable.to_string_lossy().into_owned())
        .collect();
    std::env::vars_os()
        .filter_map(|(variable, _)| variable.into_string().ok())
        .filter(|variable| variable.starts_with("TALLY_") && !known.contains(variable))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint(arguments: &[&str]) -> String {
        let error = match SyncWorker::try_parse_from(
            [
                "sync-worker",
                "--database-url=postgres://x/y",
                "--redis-url=redis://z",
            ]
            .iter()
            .chain(arguments),
        ) {
            Ok(_) => panic!("{arguments:?} was accepted"),
            Err(error) => error,
        };
        one_line(&error, &SyncWorker::command())
    }

    #[test]
    fn the_definitions_of_both_programs_hold_together() {
        Tally::command().debug_assert();
        SyncWorker::command().debug_assert();
    }

    #[test]
    fn a_wrong_setting_is_one_line_that_names_flag_and_variable_and_says_what_would_be_right() {
        for (argument, flag, variable, right) in [
            (
                "--flush-every=0s",
                "--flush-every",
                "TALLY_FLUSH_EVERY",
                "above 0",
            ),
            ("--retention=soon", "--retention", "TALLY_RETENTION", "10m"),
            (
                "--audit-cron=* * * * *",
                "--audit-cron",
                "TALLY_AUDIT_CRON",
                "six fields",
            ),
            (
                "--audit-cron=x * * * * *",
                "--audit-cron",
                "TALLY_AUDIT_CRON",
                "six fields",
            ),
            (
                "--flush-page=0",
                "--flush-page",
                "TALLY_FLUSH_PAGE",
                "1 to 100000",
            ),
        ] {
            let line = complaint(&[argument]);
            assert!(!line.contains('\n'), "{line}");
            for part in [flag, variable, right] {
                assert!(line.contains(part), "{line} should contain {part}");
            }
        }
    }
}
