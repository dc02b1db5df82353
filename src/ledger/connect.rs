//! How Tally connects to Postgres.

use std::time::Duration;

use sqlx::Connection;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions};

use super::LedgerError;

/// How long one statement of the server may run before Postgres cancels it.
pub const SERVER_STATEMENT_LIMIT: Duration = Duration::from_secs(5);
/// How long one statement of the sync worker or an operator's command may run: the audit
/// reads millions of votes in one.
pub const WORKER_STATEMENT_LIMIT: Duration = Duration::from_secs(120);
/// How long a new connection may take.
pub const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// How long a caller waits for one of the pool's connections.
pub const ACQUIRE_LIMIT: Duration = Duration::from_secs(3);
/// How much longer than its statement limit a batch writer waits for an answer, so that
/// Postgres' own cancellation, which is certain, comes first.
pub const ANSWER_MARGIN: Duration = Duration::from_secs(1);
/// Connections in the pool, besides those that belong to one task each.
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

/// Plans of the pool's statements are made anew each time: what they read grows
/// from nothing to millions of rows, and a plan that was kept from the first minute
/// was seen to make a replay of repeats eight times slower than one of new votes.
const POOL_PLANS: (&str, &str) = ("plan_cache_mode", "force_custom_plan");
/// The batch writers' statements have one good plan each, whatever the tables hold. Making it
/// takes as long as running it, so it is made once a connection.
pub(super) const KEPT_PLANS: (&str, &str) = ("plan_cache_mode", "force_generic_plan");
/// A server whose machine is lost says no goodbye; Postgres finds out after
/// 5 s + 3 × 2 s, closes its batch writers' connections, and a sync worker sees that. While an
/// answer is on its way no such probes are sent, and the system would repeat it for a
/// quarter of an hour; the last line ends that after 11 s too.
pub(super) const WRITER_KEEPALIVE: [(&str, &str); 4] = [
    ("tcp_keepalives_idle", "5"),
    ("tcp_keepalives_interval", "2"),
    ("tcp_keepalives_count", "3"),
    ("tcp_user_timeout", "11000"),
];

/// Where Postgres is, and a pool of connections to it. Cheap to clone.
#[derive(Clone)]
pub(super) struct Database {
    pub pool: PgPool,
    pub options: PgConnectOptions,
    pub statement_limit: Duration,
}

/// sqlx's options would show their password.
impl std::fmt::Debug for Database {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Database")
            .field("pool", &self.pool)
            .finish_non_exhaustive()
    }
}

impl Database {
    /// Describes the connection; none is made until one is needed. Postgres shows
    /// `application_name` to its operator.
    ///
    /// # Errors
    /// When the URL is none of Postgres.
    pub fn new(
        database_url: &str,
        application_name: &str,
        statement_limit: Duration,
    ) -> Result<Self, LedgerError> {
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
        let options = options
            .application_name(application_name)
            .options(SESSION_OPTIONS)
            .options([
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

/// Whether a Postgres answers at this URL.
pub async fn answers(database_url: &str) -> bool {
    let connecting = PgConnection::connect(database_url);
    matches!(tokio::time::timeout(CONNECT_LIMIT, connecting).await, Ok(Ok(_)))
}
