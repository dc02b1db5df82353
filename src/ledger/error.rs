//! Why a call of Postgres failed, and what that says about its effect.

use std::time::Duration;

use sqlx::migrate::MigrateError;

use crate::domain::{Cell, OtherCell};
use crate::tls::TlsFault;

/// Why a call of Postgres failed.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    #[error("Postgres: {0}")]
    Postgres(#[source] sqlx::Error),
    /// Nothing was sent, not even the login's name.
    #[error("Postgres is refused: {0}")]
    Tls(TlsFault),
    #[error("Postgres did not answer within {0:?}")]
    Timeout(Duration),
    #[error(transparent)]
    Url(#[from] InvalidDatabaseUrl),
    #[error(transparent)]
    Unfit(#[from] UnfitDatabase),
    #[error("migrating Postgres: {0}")]
    Migrate(#[from] MigrateError),
    /// From creating an item or a poll.
    #[error("another one has this key")]
    KeyTaken,
    /// From creating an item or a poll.
    #[error("a server of a version without rules is connected: stop it before the first rule is created")]
    OlderServers,
    /// From creating a voiding.
    #[error(
        "edit {0} of this voter is not done: some of the votes have another voter id already; tally voter list shows it"
    )]
    VoterEditUnderWay(i64),
    /// From deciding a vote.
    #[error("Postgres answered a request for a vote with {0:?}, which this version does not know")]
    Decision(String),
    #[error("exact counts were not read in time: the read was cancelled")]
    Cancelled,
    /// From reading exact counts.
    #[error(
        "too many votes lie beyond the watermark: exact counts cannot be read until a worker has rolled them up; \
         if one runs, look for a transaction that has been writing votes for long"
    )]
    LongTail,
    #[error("Postgres answered with no valid snapshot: {0}")]
    Snapshot(#[from] crate::domain::InvalidSnapshot),
    #[error("a transaction has been writing votes for over {0:?}; the audit waits for its end")]
    Undecided(Duration),
    /// From splitting the ledger.
    #[error(
        "votes come faster than the ledger can be split: the ids of its first range would end before; split it \
         when fewer votes come, or take larger ranges (tally migrate --partition RANGE)"
    )]
    RangeEnds,
    #[error("{0} tries to read Postgres' incarnation failed: others keep replacing its token")]
    Incarnation(u32),
    #[error(transparent)]
    OtherRun(#[from] OtherRun),
    /// From finding what a request names.
    #[error(transparent)]
    OtherCell(#[from] OtherCell),
    /// From a worker's statement.
    #[error(transparent)]
    Overtaken(#[from] Overtaken),
}

/// Why a text is no address of a Postgres. Whoever knows where the text is from says so before it.
#[derive(Debug, thiserror::Error)]
pub enum InvalidDatabaseUrl {
    #[error("{0}; it takes postgres://user:password@host:port/database")]
    Url(#[source] sqlx::Error),
    #[error("{0}; it takes postgres://user:password@host1:5432,host2:5432/database")]
    Hosts(String),
    /// The URL's TLS parameters are wrong.
    #[error("{0}")]
    Tls(String),
}

/// Why Tally cannot work with a database, or with a pooler before it. Waiting does not help.
#[derive(Debug, thiserror::Error)]
pub enum UnfitDatabase {
    #[error(
        "this session of Postgres has {0}, and Tally cannot change that; reset it for the login and for \
         the database (alter role … reset …, alter database … reset …)"
    )]
    Settings(String),
    /// With Postgres' or the pooler's own words.
    #[error(
        "what Tally asks for when it connects is refused ({0}); if a pooler or a proxy is in between, \
         let it pass the parameter options on, or ignore it (pgbouncer: ignore_startup_parameters = \
         extra_float_digits, options), since Tally then sets the settings itself; if the URL has options, \
         look at them"
    )]
    Startup(String),
    /// With the database's encoding.
    #[error(
        "this database has the encoding {0}, and Tally's names and keys are UTF-8; give Tally a database \
         with that (create database tally encoding 'UTF8' template template0)"
    )]
    Encoding(String),
    #[error(
        "this session of Postgres has the application_name {0:?}: something in \
         between, perhaps a pooler, has changed the name that Tally gave it; workers see by the name \
         whose connection is gone; let it pass application_name on"
    )]
    Name(String),
    #[error(
        "something between Tally and Postgres, perhaps a pooler, gives each \
         transaction another session; let it pool sessions (pgbouncer: pool_mode = session)"
    )]
    SharedSession,
    #[error("Postgres is a standby and takes no writes; give the address of the primary")]
    Standby,
    #[error(
        "Postgres is read-only (default_transaction_read_only is on) and takes no \
         votes; turn that off, or give the address of a Postgres that takes writes"
    )]
    ReadOnly,
    #[error("this database has a table item or vote that is not Tally's; give Tally a database of its own")]
    ForeignTables,
    #[error(
        "other migrations, from before the first release of Tally, made this database; \
         give Tally a new one (migrations/README.md)"
    )]
    UnreleasedSchema,
    /// Every program of this version refuses it.
    #[error(
        "a newer version of Tally has migrated this database: its migration {migration} is not known \
         here, where the last one is {known}; install that version, or give this one another database"
    )]
    NewerSchema { migration: i64, known: i64 },
    #[error(
        "another version of Tally has made this database: its migration {0} is not the one of this \
         version; install that version, or give this one another database"
    )]
    OtherSchema(i64),
    /// What it is, and what the settings say.
    #[error(
        "this database is cell {held}, and was to be cell {asked}: a database stays the cell that its first \
         migration made it; give the address of the other one, or set TALLY_CELL={held}"
    )]
    OtherCell { held: Cell, asked: Cell },
    #[error("this database is cell {held}, and TALLY_CELLS says that there are {cells}: raise it")]
    CellBeyond { held: Cell, cells: u16 },
    #[error("vote ids must only go up, one by one, and vote_id_seq in Postgres {0}")]
    Sequence(String),
    /// With the statement that mends it.
    #[error(
        "new rows would get ids that are taken, as after a dump or a replication that leaves sequences \
         out: in Postgres {0}"
    )]
    LateSequences(String),
    /// With the primary key's name.
    #[error(
        "a new row got an id that is taken ({0}): its sequence is behind its table, as after a dump or a \
         replication that leaves sequences out; a program that starts says the statement that mends it"
    )]
    TakenId(String),
}

/// An id was looked up in one run of Postgres, and another run would have got it.
#[derive(Debug, thiserror::Error)]
#[error("an id was looked up before Postgres failed over or was started again; look it up again")]
pub struct OtherRun;

/// What overtook a worker's statement, which then did nothing.
#[derive(Debug, thiserror::Error)]
pub enum Overtaken {
    #[error("another worker has taken over the job {0}")]
    LeaseLost(&'static str),
    #[error("another epoch has begun since the counts were read: they are read again")]
    EpochEnded,
    #[error("Postgres crashed or failed over since the safe vote id was read: it is read again")]
    OtherIncarnation,
}

impl From<sqlx::Error> for LedgerError {
    fn from(error: sqlx::Error) -> Self {
        // sqlx has a text of its own for a Postgres without TLS.
        let fault = TlsFault::of(&error).or_else(|| match &error {
            sqlx::Error::Tls(error) if error.to_string().contains("does not support TLS") => {
                Some(TlsFault::NoTls)
            }
            _ => None,
        });
        fault.map_or(Self::Postgres(error), Self::Tls)
    }
}

impl LedgerError {
    /// What Postgres says of a value that it cannot read (class 22: data exception). `None`: it is another error.
    pub fn of_a_value(&self) -> Option<String> {
        let Self::Postgres(error) = self else { return None };
        let error = error.as_database_error()?;
        error
            .code()
            .is_some_and(|code| code.starts_with("22"))
            .then(|| error.message().to_owned())
    }

    /// The error of a connection that could not be made.
    pub(super) fn of_connecting(error: sqlx::Error) -> Self {
        // What a proxy, a pooler or Postgres says to a parameter that it does not take:
        // feature_not_supported, protocol_violation, undefined_object, invalid_parameter_value,
        // cant_change_runtime_param, syntax_error.
        const CODES: [&str; 6] = ["0A000", "08P01", "42704", "22023", "55P02", "42601"];
        match error.as_database_error() {
            Some(refusal) if CODES.iter().any(|code| has_code(&error, code)) => {
                Self::Unfit(UnfitDatabase::Startup(refusal.message().to_owned()))
            }
            _ => error.into(),
        }
    }

    /// The error of a statement that creates an item or a rule.
    pub(super) fn of_rule(error: sqlx::Error) -> Self {
        // object_in_use: the trigger rule_is_known_to_writers.
        if has_code(&error, "55006") {
            return Self::OlderServers;
        }
        // unique_violation.
        let violated = error.as_database_error().and_then(|one| one.constraint());
        match violated.filter(|_| has_code(&error, "23505")) {
            Some("item_key" | "rule_key") => Self::KeyTaken,
            // Postgres draws all other unique values.
            Some(other) => Self::Unfit(UnfitDatabase::TakenId(other.to_owned())),
            None => Self::Postgres(error),
        }
    }

    /// Whether Postgres answers but refuses this login, or what it asks.
    pub fn refuses_login(&self) -> bool {
        // invalid_authorization_specification, invalid_password, invalid_catalog_name,
        // insufficient_privilege.
        const CODES: [&str; 4] = ["28000", "28P01", "3D000", "42501"];
        match self {
            Self::Postgres(error) => CODES.iter().any(|code| has_code(error, code)),
            _ => false,
        }
    }

    /// Whether Postgres answers but Tally cannot work with it. Waiting does not help.
    pub fn is_unfit(&self) -> bool {
        // A pooler says this when it does not know a parameter that Tally asks for.
        const PROTOCOL_VIOLATION: &str = "08P01";
        match self {
            Self::Postgres(error) => has_code(error, PROTOCOL_VIOLATION),
            Self::Tls(_) | Self::Unfit(_) => true,
            _ => false,
        }
    }

    /// Whether it is about the database or its URL. Whoever knows which setting the URL is from should
    /// name that setting.
    pub fn is_about_database(&self) -> bool {
        matches!(
            self,
            Self::Postgres(_) | Self::Tls(_) | Self::Url(_) | Self::Unfit(_)
        )
    }

    /// Whether the statement was cancelled on demand.
    pub fn is_cancelled(&self) -> bool {
        const QUERY_CANCELED: &str = "57014";
        matches!(self, Self::Postgres(error) if has_code(error, QUERY_CANCELED))
    }

    /// Whether someone else held a lock for too long.
    pub fn is_lock_timeout(&self) -> bool {
        matches!(self, Self::Postgres(error) if is_lock_timeout(error))
    }

    /// Whether this login lacks a right.
    pub fn is_denied(&self) -> bool {
        const INSUFFICIENT_PRIVILEGE: &str = "42501";
        matches!(self, Self::Postgres(error) if has_code(error, INSUFFICIENT_PRIVILEGE))
    }

    /// Whether a function or a table is missing: `tally migrate` has not made it yet.
    pub fn is_not_migrated(&self) -> bool {
        matches!(self, Self::Postgres(error) if is_not_migrated(error))
    }

    /// Why it failed, for metrics: one of [`LEDGER_FAILURES`](crate::telemetry::LEDGER_FAILURES).
    pub fn failure(&self) -> &'static str {
        match self {
            Self::Postgres(error) => failure(error),
            Self::Tls(_) => "unreachable",
            Self::Timeout(_) | Self::Cancelled => "no_answer",
            Self::OtherRun(_) => "other_run",
            _ => "other",
        }
    }
}

/// The codes are in Postgres' documentation, appendix A.
fn failure(error: &sqlx::Error) -> &'static str {
    let Some(error) = error.as_database_error() else {
        return match error {
            sqlx::Error::PoolTimedOut => "no_connection",
            sqlx::Error::Io(error) if error.kind() == std::io::ErrorKind::TimedOut => "no_answer",
            sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) => "unreachable",
            _ => "other",
        };
    };
    match error.code().as_deref().unwrap_or_default() {
        "53100" => "disk_full",
        "53300" => "no_connection",
        "25006" => "read_only",
        "55P03" | "40P01" => "locked",
        "57014" => "no_answer",
        code if code.starts_with("57P") => "shutting_down",
        _ => "other",
    }
}

/// Whether a function or a table is missing: `tally migrate` has not made it yet.
pub(super) fn is_not_migrated(error: &sqlx::Error) -> bool {
    const UNDEFINED_FUNCTION: &str = "42883";
    const UNDEFINED_TABLE: &str = "42P01";
    has_code(error, UNDEFINED_FUNCTION) || has_code(error, UNDEFINED_TABLE)
}

/// Whether Postgres itself reported this error.
fn has_code(error: &sqlx::Error, code: &str) -> bool {
    error
        .as_database_error()
        .is_some_and(|error| error.code().as_deref() == Some(code))
}

/// Whether Postgres ended the statement because of a deadlock.
pub(super) fn is_deadlock(error: &sqlx::Error) -> bool {
    const DEADLOCK_DETECTED: &str = "40P01";
    has_code(error, DEADLOCK_DETECTED)
}

/// Whether a statement waited for a lock for more than [`super::connect::LOCK_LIMIT`].
pub(super) fn is_lock_timeout(error: &sqlx::Error) -> bool {
    const LOCK_NOT_AVAILABLE: &str = "55P03";
    has_code(error, LOCK_NOT_AVAILABLE)
}

/// Whether the connection failed, not the statement. Class 57P: Postgres is shutting down.
pub(super) fn is_disconnect(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(error) => error.code().is_some_and(|code| code.starts_with("57P")),
        sqlx::Error::Io(_) | sqlx::Error::Protocol(_) => true,
        _ => false,
    }
}

/// Whether the statement certainly had no effect: Postgres itself reported the error. Class 57P
/// (Postgres is shutting down) is not certain: it may come after a commit.
pub(super) fn is_certain(error: &sqlx::Error) -> bool {
    error
        .as_database_error()
        .is_some_and(|error| !error.code().is_some_and(|code| code.starts_with("57P")))
}
