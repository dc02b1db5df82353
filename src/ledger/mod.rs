//! Postgres, the database of record. All SQL is in this room.

mod audit;
mod counts;
mod items;
mod known;
mod lanes;
mod own;
mod roles;
mod votes;

use std::time::Duration;

use sqlx::migrate::{Migrate, MigrateError, Migrator};
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions};
use sqlx::{Connection, Executor};

pub use audit::{AuditRow, FOLD_LIMIT_IDS, Folded};
pub use counts::Saved;
pub use items::{Item, ItemReader};
pub use roles::{Role, Roles, create_logins};
pub use votes::{InsertError, Inserted, VoteWriter};

static MIGRATIONS: Migrator = sqlx::migrate!();

/// How long one statement of the server may run before Postgres cancels it.
pub const SERVER_STATEMENT_LIMIT: Duration = Duration::from_secs(5);
/// How long one statement of the sync worker or an operator's command may run:
/// the audit reads millions of votes in one.
pub const WORKER_STATEMENT_LIMIT: Duration = Duration::from_secs(120);
/// How long a new connection may take.
pub const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// How long a caller waits for one of the pool's connections.
pub const ACQUIRE_LIMIT: Duration = Duration::from_secs(3);
/// How much longer than its statement limit a lane waits for an answer, so that
/// Postgres' own cancellation, which is certain, comes first.
const ANSWER_MARGIN: Duration = Duration::from_secs(1);
/// Connections in the pool, besides those of the lanes.
pub const POOL_LIMIT_CONNECTIONS: u32 = 8;

/// How long a transaction may stand idle before Postgres ends it. The audit's holds
/// row locks that every flush waits for, and its worker may be stopped or cut off.
const IDLE_TRANSACTION_LIMIT: Duration = Duration::from_secs(5);

/// What Postgres is asked to do differently for each of Tally's connections.
/// - `enable_seqscan`: no statement here ought to read a whole table, yet the
///   planner cannot know how little lies beyond the watermark and would.
/// - `enable_bitmapscan`: an item's newest votes are a few rows that the index alone
///   tells; reading them through a bitmap took more than twice as long (300 items with
///   20 votes each: 5.6 ms against 2.4 ms).
/// - `jit`: it would be compiled for the huge cost that the first line stands for.
const SESSION_OPTIONS: [(&str, &str); 3] = [
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
    ("jit", "off"),
];

/// Plans of the pool's statements are made afresh each time: what they read grows
/// from nothing to millions of rows, and a plan that was kept from the first minute
/// was seen to make a replay of repeats eight times slower than one of new votes.
const POOL_PLANS: (&str, &str) = ("plan_cache_mode", "force_custom_plan");
/// The lanes' statements have one good plan each, whatever the tables hold. Making it
/// takes as long as running it, so it is made once a connection.
const KEPT_PLANS: (&str, &str) = ("plan_cache_mode", "force_generic_plan");
/// A server whose machine is lost says no goodbye; Postgres finds out after
/// 5 s + 3 × 2 s, closes its lanes' connections, and a sync worker sees that. While an
/// answer is on its way no such probes are sent, and the system would repeat it for a
/// quarter of an hour; the last line ends that after 11 s too.
const WRITER_KEEPALIVE: [(&str, &str); 4] = [
    ("tcp_keepalives_idle", "5"),
    ("tcp_keepalives_interval", "2"),
    ("tcp_keepalives_count", "3"),
    ("tcp_user_timeout", "11000"),
];

/// What the ledger cannot do, or could not.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    #[error("Postgres (DATABASE_URL): {0}")]
    Postgres(#[from] sqlx::Error),
    #[error("migrating Postgres: {0}")]
    Migrate(#[from] MigrateError),
    #[error("DATABASE_URL: {0}; it takes postgres://user:password@host:port/database")]
    Url(#[source] sqlx::Error),
    #[error("Postgres did not answer within {0:?}")]
    Late(Duration),
    #[error("Postgres answered with what is no snapshot: {0}")]
    Snapshot(#[from] crate::domain::InvalidSnapshot),
    #[error("a transaction has held the ledger for over {0:?}; the audit needs it to end")]
    Undecided(Duration),
}

/// How far the database's migrations are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Migrations {
    /// All that this program knows of have run.
    Done,
    /// Some are still to be run: `tally migrate`.
    Pending,
}

/// The ledger. Cheap to clone.
#[derive(Clone)]
pub struct Ledger {
    pool: PgPool,
    options: PgConnectOptions,
    statement_limit: Duration,
}

/// sqlx's options would show their password.
impl std::fmt::Debug for Ledger {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Ledger")
            .field("pool", &self.pool)
            .finish_non_exhaustive()
    }
}

impl Ledger {
    /// Describes the connection; none is made until one is needed.
    /// `role` is what Postgres shows as the application's name.
    ///
    /// # Errors
    /// When the URL is none of Postgres.
    pub fn new(database_url: &str, role: &str, statement_limit: Duration) -> Result<Self, LedgerError> {
        // sqlx takes any scheme for Postgres' own.
        if !["postgres://", "postgresql://"]
            .iter()
            .any(|scheme| database_url.starts_with(scheme))
        {
            let why = "it is no URL of Postgres";
            return Err(LedgerError::Url(sqlx::Error::Configuration(why.into())));
        }
        warn_of_unknown_parameters(database_url);
        let options: PgConnectOptions = database_url.parse().map_err(LedgerError::Url)?;
        let options = options.application_name(role).options(SESSION_OPTIONS).options([
            ("statement_timeout", format!("{}ms", statement_limit.as_millis())),
            (
                "idle_in_transaction_session_timeout",
                format!("{}ms", IDLE_TRANSACTION_LIMIT.as_millis()),
            ),
        ]);
        let pool = PgPoolOptions::new()
            .max_connections(POOL_LIMIT_CONNECTIONS)
            .acquire_timeout(ACQUIRE_LIMIT)
            .connect_lazy_with(options.clone().options([POOL_PLANS]));
        Ok(Self {
            pool,
            options,
            statement_limit,
        })
    }

    /// A connection of its own for one lane of the gatherer.
    pub fn writer(&self) -> VoteWriter {
        let options = self
            .options
            .clone()
            .options([KEPT_PLANS])
            .options(WRITER_KEEPALIVE);
        VoteWriter::new(options, self.statement_limit)
    }

    /// Runs the migrations that have not run yet, then grants the roles. Safe to
    /// run several at once. A login that may not make roles is told so in the log.
    ///
    /// # Errors
    /// When Postgres is away, or a migration that has run was changed since.
    pub async fn migrate(&self) -> Result<Roles, LedgerError> {
        MIGRATIONS.run(&self.pool).await?;
        let roles = self.grant_roles().await?;
        if let Roles::Refused(_) = roles {
            tracing::warn!("{roles}");
        }
        Ok(roles)
    }

    /// Whether Postgres answers, and how far its migrations are.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn migrations(&self) -> Result<Migrations, LedgerError> {
        let mut connection = self.pool.acquire().await?;
        let done = match connection.list_applied_migrations().await {
            Ok(applied) => MIGRATIONS
                .iter()
                .all(|known| applied.iter().any(|one| one.version == known.version)),
            // The table of migrations is not there: none has run.
            Err(MigrateError::Execute(sqlx::Error::Database(_))) => false,
            Err(error) => return Err(error.into()),
        };
        Ok(if done {
            Migrations::Done
        } else {
            Migrations::Pending
        })
    }

    /// Ends all connections of the pool.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}

/// The parameters that sqlx knows in a URL; `options[…]` besides.
const URL_PARAMETERS: [&str; 18] = [
    "sslmode",
    "ssl-mode",
    "sslrootcert",
    "ssl-root-cert",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
    "statement-cache-capacity",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
];

/// Says which parameters of the URL are left out. sqlx would say it with their values,
/// which may be a misspelt password; `telemetry` turns that line off.
fn warn_of_unknown_parameters(database_url: &str) {
    let query = database_url.split_once('?').map_or("", |(_, query)| query);
    let query = query.split('#').next().unwrap_or_default();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let parameter = pair.split('=').next().unwrap_or_default();
        if !URL_PARAMETERS.contains(&parameter) && !parameter.starts_with("options[") {
            tracing::warn!(
                parameter,
                "DATABASE_URL: this parameter is not known, and is left out"
            );
        }
    }
}

/// Whether a name can stand in any statement as it is.
fn is_plain(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

/// Whether a Postgres answers at this URL.
pub async fn answers(database_url: &str) -> bool {
    let connecting = PgConnection::connect(database_url);
    matches!(tokio::time::timeout(CONNECT_LIMIT, connecting).await, Ok(Ok(_)))
}

/// Makes a database unless it is there; `name` may have letters and underscores only.
///
/// # Errors
/// When Postgres is away.
pub async fn create_database(admin_url: &str, name: &str) -> Result<(), LedgerError> {
    if !is_plain(name) {
        return Err(sqlx::Error::Configuration(format!("{name:?} is no plain database name").into()).into());
    }
    let mut connection = PgConnection::connect(admin_url).await?;
    let exists = sqlx::query_scalar!(
        r#"select exists (select from pg_database where datname = $1) as "exists!""#,
        name
    )
    .fetch_one(&mut connection)
    .await?;
    if !exists {
        connection
            .execute(format!("create database {name}").as_str())
            .await?;
    }
    Ok(())
}
