//! How Tally connects to Postgres.

use std::time::Duration;

use sqlx::ConnectOptions as _;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPoolOptions};
use sqlx::{Connection, PgExecutor};

use super::destination::Destination;
use super::hosts::Hosts;
use super::pool::Pool;
use super::runs::Runs;
use super::session::{CONNECT_LIMIT, SessionSetup};
use super::settings::{POOL_PLANS, shown};
use super::{InvalidDatabaseUrl, LedgerError};
use crate::store_url::{StoreUrl, check_user};
use crate::{telemetry, tls};

/// How long one statement of the server may run before Postgres cancels it.
pub const SERVER_STATEMENT_LIMIT: Duration = Duration::from_secs(5);
/// How long a worker's or an operator's statement may run. The audit reads millions of votes in
/// one.
pub const WORKER_STATEMENT_LIMIT: Duration = Duration::from_secs(120);
/// How long the check of an idle connection may take.
pub const CHECK_LIMIT: Duration = Duration::from_secs(1);
/// How long a caller waits for one of the pool's connections.
pub const ACQUIRE_LIMIT: Duration = Duration::from_secs(3);
/// How much longer than the statement limit a caller waits for an answer. Postgres' own
/// cancellation then comes first, and it is certain that nothing was stored.
pub const ANSWER_MARGIN: Duration = Duration::from_secs(1);
/// Connections in the pool. Connections that belong to one task are extra.
pub const POOL_LIMIT_CONNECTIONS: u32 = 8;
/// Connections in the pool of a server's operator login. One is for a voiding or an edit that runs, and one
/// for whoever asks meanwhile.
pub const OPERATOR_POOL_LIMIT_CONNECTIONS: u32 = 2;
/// Connections of a server for what votes and their voters need: keys, API keys, receipts.
pub const SERVER_POOL_LIMIT_CONNECTIONS: u32 = 4;
/// Connections of a server for public reads: lists, searches, histories, polls, exact counts. Whoever
/// fills them delays other readers, and no vote.
pub const PUBLIC_POOL_LIMIT_CONNECTIONS: u32 = 2;
/// How long a statement of a public read may run.
pub const PUBLIC_STATEMENT_LIMIT: Duration = Duration::from_secs(2);
/// Connections of a server for what load balancers ask. A commit that is tried may hang in one.
pub const PROBE_POOL_LIMIT_CONNECTIONS: u32 = 2;
/// An operator's connection is closed when it was idle for this long. An operator acts now and
/// then, and Postgres' connections are for votes.
const OPERATOR_IDLE_LIMIT: Duration = Duration::from_secs(30);
/// A connection of a server's pools is closed when it was idle for this long.
const IDLE_LIMIT: Duration = Duration::from_secs(60);

/// Postgres ends a transaction that is idle for longer. A roll-up's transaction holds the job and
/// the watermark, and its worker may be stopped or cut off.
pub(crate) const IDLE_TRANSACTION_LIMIT: Duration = Duration::from_secs(5);

/// How long a worker's statement waits for a lock. Then the worker leaves the locked rows for
/// later. Flushes hold row locks for less. A roll-up may hold its job and the watermark for longer.
pub const LOCK_LIMIT: Duration = Duration::from_millis(500);

/// Where Postgres is, and a pool of connections to it. Cheap to clone.
#[derive(Clone)]
pub(super) struct Database {
    pub pool: Pool,
    pub options: PgConnectOptions,
    pub statement_limit: Duration,
    /// Sets up connections outside the pool. The pool sets up its own.
    pub session: SessionSetup,
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
    /// Describes the connection, and makes none yet. `application_name` is shown to Postgres'
    /// operator. With a `lock_limit`, no statement waits longer for a lock.
    ///
    /// # Errors
    /// When `database_url` is no URL of a Postgres.
    pub fn new(
        database_url: impl Into<StoreUrl>,
        application_name: &str,
        statement_limit: Duration,
        lock_limit: Option<Duration>,
    ) -> Result<Self, LedgerError> {
        let url: StoreUrl = database_url.into();
        let database_url = url.as_str();
        // sqlx takes any scheme.
        if !["postgres://", "postgresql://"]
            .iter()
            .any(|scheme| database_url.starts_with(scheme))
        {
            let why = "it is no URL of Postgres";
            return Err(InvalidDatabaseUrl::Url(sqlx::Error::Configuration(why.into())).into());
        }
        let (database_url, hosts) = Hosts::of_url(&url)?;
        warn_of_unknown_parameters(&database_url, application_name);
        check_certificates(&database_url)?;
        let options: PgConnectOptions = database_url.parse().map_err(InvalidDatabaseUrl::Url)?;
        check_user(options.get_username())
            .map_err(|why| InvalidDatabaseUrl::Url(sqlx::Error::Configuration(why.into())))?;
        let limits = vec![
            ("statement_timeout", shown(Some(statement_limit))),
            (
                "idle_in_transaction_session_timeout",
                shown(Some(IDLE_TRANSACTION_LIMIT)),
            ),
            ("lock_timeout", shown(lock_limit)),
        ];
        let session = SessionSetup::new(limits, hosts);
        // sqlx would log each slow statement with its text, kilobytes at a time: while a table is locked, two every
        // five seconds. The metrics have the times, and Postgres' own log what is slow.
        let options = options
            .disable_statement_logging()
            .application_name(application_name)
            .options(session.options());
        let of_many = PgPoolOptions::new().max_connections(POOL_LIMIT_CONNECTIONS);
        Ok(Self {
            pool: pool(of_many, &options, &session, None, statement_limit),
            options,
            statement_limit,
            session,
        })
    }

    /// A pool of a program that remembers what Postgres said, for one purpose. What fills it takes no
    /// connection from anything else. New connections note their run of Postgres in `runs`, and the pool
    /// uses none from before the last change.
    pub fn pool_for(&self, limit_connections: u32, statement_limit: Duration, runs: &Runs) -> Pool {
        let session = self.session.with_statement_limit(statement_limit);
        let options = self.options.clone().options(session.options());
        let of_few = PgPoolOptions::new()
            .max_connections(limit_connections)
            .idle_timeout(IDLE_LIMIT);
        pool(of_few, &options, &session, Some(runs), statement_limit)
    }

    /// The same with the small pool of an operator's login.
    pub fn with_operator_pool(self, runs: &Runs) -> Self {
        let of_few = PgPoolOptions::new()
            .max_connections(OPERATOR_POOL_LIMIT_CONNECTIONS)
            .idle_timeout(OPERATOR_IDLE_LIMIT);
        Self {
            pool: self.pool_of(of_few, Some(runs)),
            ..self
        }
    }

    fn pool_of(&self, of: PgPoolOptions, runs: Option<&Runs>) -> Pool {
        pool(of, &self.options, &self.session, runs, self.statement_limit)
    }
}

fn pool(
    of: PgPoolOptions,
    options: &PgConnectOptions,
    session: &SessionSetup,
    runs: Option<&Runs>,
    statement_limit: Duration,
) -> Pool {
    let options = options.clone().options(POOL_PLANS);
    let (checked, session) = (options.clone(), session.with(&POOL_PLANS));
    let (noting, looking, fit) = (runs.cloned(), runs.cloned(), session.clone());
    let hosts = session.hosts().clone();
    let url = hosts.url().clone();
    // Before the options of the pool: those may only be later ones.
    let destination = (hosts.are_several() || hosts.url().is_in_file())
        .then(|| Destination::new(hosts.clone(), options.clone()));
    let connections = of
        .acquire_timeout(ACQUIRE_LIMIT)
        .after_connect(move |connection, _| {
            let (options, session, runs) = (checked.clone(), session.clone(), noting.clone());
            Box::pin(async move {
                session.set_up(connection, &options).await.map_err(|error| {
                    // The pool tries again until it gives up, and does not say why.
                    if telemetry::is_news("a new connection to Postgres is not used", &error) {
                        tracing::warn!(%error, "a new connection to Postgres is not used");
                    }
                    match error {
                        LedgerError::Postgres(error) => error,
                        unfit => sqlx::Error::Configuration(unfit.into()),
                    }
                })?;
                match runs {
                    Some(runs) => runs.learn(connection).await,
                    None => Ok(()),
                }
            })
        })
        .before_acquire(move |_, meta| {
            let is_used = looking.as_ref().is_none_or(|runs| runs.are_since(meta.age))
                && !fit.may_have_stayed_read_only(meta.age)
                // The login from before may lack a right.
                && !url.may_be_of_other_login(meta.age);
            Box::pin(async move { Ok(is_used) })
        })
        .connect_lazy_with(hosts.lead(&options));
    let pool = Pool::new(connections, statement_limit + ANSWER_MARGIN);
    match destination {
        Some(destination) => pool.that_leads_to(destination),
        None => pool,
    }
}

/// The parameters that sqlx knows in a URL, besides `options[…]`.
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

/// Checks that the certificate files that the URL names can be read. sqlx would read them only with
/// each connection.
fn check_certificates(database_url: &str) -> Result<(), InvalidDatabaseUrl> {
    // What is no URL, sqlx refuses.
    let Ok(url) = reqwest::Url::parse(database_url) else {
        return Ok(());
    };
    for (name, value) in url.query_pairs() {
        let checked = match &*name {
            "sslrootcert" | "ssl-root-cert" | "ssl-ca" | "sslcert" | "ssl-cert" => {
                tls::certificates(&name, &value).map(drop)
            }
            "sslkey" | "ssl-key" => tls::file(&name, &value).map(drop),
            _ => continue,
        };
        checked.map_err(InvalidDatabaseUrl::Tls)?;
    }
    Ok(())
}

/// Logs which parameters of the URL are ignored. sqlx would log their values too, and a misspelt
/// name may come with a password. `telemetry` turns sqlx's line off.
fn warn_of_unknown_parameters(database_url: &str, application_name: &str) {
    let query = database_url.split_once('?').map_or("", |(_, query)| query);
    let query = query.split('#').next().unwrap_or_default();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let parameter = pair.split('=').next().unwrap_or_default();
        // psql needs it where a URL has several hosts; Tally always uses the primary.
        let is_of_psql = parameter == "target_session_attrs";
        if !is_of_psql && !URL_PARAMETERS.contains(&parameter) && !parameter.starts_with("options[") {
            tracing::warn!(
                application_name,
                parameter,
                "this parameter of the database URL is not known, and is ignored"
            );
        }
    }
}

/// Whether a Postgres takes writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writes {
    /// It does.
    Taken,
    /// It is a standby: another one is the primary.
    Standby,
    /// Its transactions are read-only (`default_transaction_read_only`).
    ReadOnly,
}

/// Asks whether this Postgres takes writes.
pub(super) async fn writes(executor: impl PgExecutor<'_>) -> Result<Writes, sqlx::Error> {
    let state = sqlx::query!(
        r#"select pg_is_in_recovery() as "is_standby!",
                  current_setting('transaction_read_only') = 'on' as "is_read_only!""#
    )
    .fetch_one(executor)
    .await?;
    // Transactions on a standby are read-only too.
    Ok(if state.is_standby {
        Writes::Standby
    } else if state.is_read_only {
        Writes::ReadOnly
    } else {
        Writes::Taken
    })
}

/// Whether a Postgres answers at this URL.
pub async fn answers(database_url: &str) -> bool {
    let connecting = PgConnection::connect(database_url);
    matches!(tokio::time::timeout(CONNECT_LIMIT, connecting).await, Ok(Ok(_)))
}
