//! Sessions of Postgres as Tally needs them. A session must be Tally's own, and have the settings that
//! Tally's statements rely on.
//!
//! A program asks for the most urgent settings when it connects. A pooler in between may drop them
//! silently, or give each transaction another session. And a login or a database may have settings
//! of its own. So each new session is looked at, and set up by one statement.
//!
//! These statements use the simple protocol: a prepared statement would already need what is
//! checked here.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{Connection, Executor, Row};
use tokio::time::{Instant, timeout};

use super::hosts::{Hosts, PATIENCE, no_primary};
use super::settings::{EXACT, PLANS, shown};
use super::{LedgerError, UnfitDatabase};

/// How long a new connection may take.
pub const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// How long a connection is used that may take no writes, though new ones would.
const READ_ONLY_LIMIT_AGE: Duration = Duration::from_secs(1);

/// Makes new sessions what Tally needs. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct SessionSetup {
    /// The time limits of Postgres: a setting's name, and its value as Postgres shows it.
    limits: Vec<(&'static str, String)>,
    /// Settings that only make Tally faster, or notice earlier what is lost.
    hints: Vec<(&'static str, &'static str)>,
    /// Whether a connection was found to be a session of its own. Shared by clones: a pooler treats
    /// all connections alike.
    is_own: Arc<AtomicBool>,
    /// When a new session was last found to take no writes. Shared by clones.
    read_only_at: Arc<Mutex<Option<Instant>>>,
    /// Where Postgres may be.
    hosts: Hosts,
}

impl SessionSetup {
    /// Settings with these time limits, on one of these hosts.
    pub fn new(limits: Vec<(&'static str, String)>, hosts: Hosts) -> Self {
        Self {
            limits,
            hints: PLANS.to_vec(),
            is_own: Arc::default(),
            read_only_at: Arc::default(),
            hosts,
        }
    }

    /// Where Postgres may be.
    pub fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// Whether a connection of this age may be one that takes no writes, though new ones would.
    ///
    /// A session keeps the `default_transaction_read_only` with which it began, also after the database
    /// or the login has lost that setting. So whatever was made until a session was last found read-only
    /// is used for [`READ_ONLY_LIMIT_AGE`] only.
    pub fn may_have_stayed_read_only(&self, age: Duration) -> bool {
        let last = *self.read_only_at.lock().unwrap_or_else(PoisonError::into_inner);
        // A pool counts the age from just after the session was looked at.
        last.is_some_and(|last| age > READ_ONLY_LIMIT_AGE && age + READ_ONLY_LIMIT_AGE >= last.elapsed())
    }

    /// The same with more hints.
    pub fn with(&self, hints: &[(&'static str, &'static str)]) -> Self {
        let mut more = self.clone();
        more.hints.extend(hints);
        more
    }

    /// The same with another `statement_timeout`.
    pub fn with_statement_limit(&self, limit: Duration) -> Self {
        let mut other = self.clone();
        for (name, value) in &mut other.limits {
            if *name == "statement_timeout" {
                *value = shown(Some(limit));
            }
        }
        other
    }

    /// What Tally asks for at connect, as the parameter `options` has it. Without the limits, a login
    /// with a tiny `statement_timeout` could not even set up its session.
    pub fn options(&self) -> impl Iterator<Item = (&'static str, String)> {
        let limits = self.limits.iter().map(|(name, limit)| (*name, limit.clone()));
        // A space in an option is written with a backslash.
        let hints = self.hints.iter();
        limits.chain(hints.map(|(name, value)| (*name, value.replace(' ', "\\ "))))
    }

    /// Makes a connection and sets it up.
    ///
    /// # Errors
    /// When the session or the database does not suit Tally.
    pub async fn connect(&self, options: &PgConnectOptions) -> Result<PgConnection, LedgerError> {
        self.connect_within(CONNECT_LIMIT, options).await
    }

    /// The same with another time limit.
    ///
    /// # Errors
    /// As [`SessionSetup::connect`].
    pub async fn connect_within(
        &self,
        limit: Duration,
        options: &PgConnectOptions,
    ) -> Result<PgConnection, LedgerError> {
        // In a box: it stands deep in the futures of all programs.
        let connecting = Box::pin(async {
            if self.hosts.are_several() {
                self.connect_to_primary(options).await
            } else {
                self.connect_to(self.hosts.at(), options).await
            }
        });
        timeout(limit, connecting)
            .await
            .unwrap_or(Err(LedgerError::Timeout(limit)))
    }

    /// Connects to the host with this number.
    async fn connect_to(&self, at: usize, options: &PgConnectOptions) -> Result<PgConnection, LedgerError> {
        let connected = self.hosts.connect(at, options).await;
        let mut connection = connected.map_err(LedgerError::of_connecting)?;
        self.set_up(&mut connection, options).await?;
        Ok(connection)
    }

    /// Connects to the host that took writes last, or, if that does not, to the one that does.
    async fn connect_to_primary(&self, options: &PgConnectOptions) -> Result<PgConnection, LedgerError> {
        if !self.hosts.were_asked() {
            self.hosts.look(options).await;
        }
        let at = self.hosts.at();
        let mut connecting = pin!(self.connect_to(at, options));
        let first = timeout(PATIENCE, &mut connecting).await;
        if let Ok(Ok(connection)) = first {
            return Ok(connection);
        }
        self.hosts.look(options).await;
        if self.hosts.at() != at {
            return self.connect_to(self.hosts.at(), options).await;
        }
        match first {
            Ok(failed) => failed,
            Err(_) => connecting.await,
        }
    }

    /// Sets up a connection that was made with these options.
    ///
    /// # Errors
    /// When the session or the database does not suit Tally.
    pub async fn set_up(
        &self,
        connection: &mut PgConnection,
        options: &PgConnectOptions,
    ) -> Result<(), LedgerError> {
        // First: what is set in another client's session would stay there.
        if !self.is_own.load(Ordering::Relaxed) {
            if !is_own_session(connection, &self.hosts.lead(options)).await? {
                return Err(LedgerError::Unfit(UnfitDatabase::SharedSession));
            }
            self.is_own.store(true, Ordering::Relaxed);
        }
        let row = connection.fetch_one(self.statement().as_str()).await?;
        let [encoding, role, differing] = [row.try_get::<String, _>(0)?, row.try_get(1)?, row.try_get(2)?];
        if row.try_get::<String, _>(4)? == "on" {
            *self.read_only_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
            // Another one of them may be the primary.
            if self.hosts.are_several() {
                return Err(LedgerError::Postgres(no_primary()));
            }
        }
        // Begun before another one was found to be promoted later.
        if self.hosts.are_several() && row.try_get::<i32, _>(5)?.cast_unsigned() < self.hosts.timeline() {
            return Err(LedgerError::Postgres(no_primary()));
        }
        if encoding != ENCODING {
            return Err(LedgerError::Unfit(UnfitDatabase::Encoding(encoding)));
        }
        // With `replica`, no trigger guards the ledger. Only a superuser may change that.
        let mut wrong = differing;
        if !["origin", "local"].contains(&role.as_str()) {
            wrong = format!("session_replication_role = {role} and not origin; {wrong}");
        }
        match wrong.trim_end_matches("; ") {
            "" => Ok(()),
            wrong => Err(LedgerError::Unfit(UnfitDatabase::Settings(wrong.to_owned()))),
        }
    }

    /// The statement that sets up a session. It returns the database's encoding, how the session's
    /// writes are replicated, which settings are still wrong, whether the session is read-only, and the timeline of a
    /// primary, if there are several hosts.
    fn statement(&self) -> String {
        let needed = EXACT.iter().map(|(name, value)| line(name, value, true));
        let limits = self.limits.iter().map(|(name, value)| line(name, value, true));
        let hints = self.hints.iter().map(|(name, value)| line(name, value, false));
        let lines: Vec<String> = needed.chain(limits).chain(hints).collect();
        format!(
            "with wanted (name, value, is_needed) as (values {}), given as materialized (
                 select name, value, is_needed, set_config(name, value, false) as found
                 from wanted
                 -- Older versions of Postgres know fewer settings.
                 where current_setting(name, true) is not null
             ), home as materialized ({HOME}), path as materialized ({PATH}), led as materialized (
                 select set_config('search_path', coalesce(path.names, current_setting('search_path')), false)
                 from path
             )
             select current_setting('server_encoding'), current_setting('session_replication_role'),
                    coalesce(string_agg(name || ' = ' || found || ' and not ' || value, '; ')
                             filter (where is_needed and found <> value), ''),
                    (select count(*) from led), current_setting('transaction_read_only'), {}
             from given",
            lines.join(", "),
            if self.hosts.are_several() { TIMELINE } else { "0" }
        )
    }
}

/// The encoding of names, keys and voters.
const ENCODING: &str = "UTF8";

/// The schema of Tally's tables: the first one in the search path. If the path leads to no schema at
/// all: the only one that has such tables.
const HOME: &str = "
    select coalesce(
        (select relnamespace::regnamespace::text from pg_class where oid = to_regclass('writer_connection')),
        (select case when count(*) = 1 then min(one.relnamespace::regnamespace::text) end
         from pg_class as one
         join pg_class as other on other.relnamespace = one.relnamespace and other.relname = 'watermark'
         where one.relname = 'writer_connection' and current_schema() is null)) as name";
/// A search path in which Tally's schema is the first, and nobody's temporary table hides one of
/// Tally's. Null: there is no schema.
const PATH: &str = "
    select string_agg(name, ', ' order by position) || ', pg_temp' as names
    from (
        select home.name, 0 as position from home where home.name is not null
        union all
        select quote_ident(other.name), other.position
        from unnest(current_schemas(false)) with ordinality as other (name, position), home
        where not starts_with(other.name, 'pg_') and quote_ident(other.name) is distinct from home.name
    ) as one";

/// The timeline of a primary; 0 of a standby.
const TIMELINE: &str = "
    case when pg_is_in_recovery() then 0
         else ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int end";

/// A setting in a list of values.
fn line(name: &str, value: &str, is_needed: bool) -> String {
    format!("('{name}', '{value}', {is_needed})")
}

/// Whether the session keeps its settings while another connection uses Postgres. A connection that
/// gets a session for each transaction finds a mark that is not its own, or none.
async fn is_own_session(
    connection: &mut PgConnection,
    options: &PgConnectOptions,
) -> Result<bool, sqlx::Error> {
    let mark = format!("{:032x}", rand::random::<u128>());
    let set = format!("select set_config('tally.session', '{mark}', false)");
    connection.fetch_one(set.as_str()).await?;
    // A pooler gives the session that was used last to the next client. This transaction takes it,
    // and holds it.
    let mut other = PgConnection::connect_with(options).await?;
    other.execute("begin").await?;
    let kept = connection
        .fetch_one("select current_setting('tally.session', true)")
        .await?;
    let kept: Option<String> = kept.try_get(0)?;
    other.close().await?;
    Ok(kept == Some(mark))
}

/// Checks the session's name, by which workers know whose connection is gone.
///
/// # Errors
/// When a pooler has changed the name.
pub(super) async fn check_name(connection: &mut PgConnection, name: &str) -> Result<(), LedgerError> {
    let row = connection
        .fetch_one("select current_setting('application_name')")
        .await?;
    let is: String = row.try_get(0)?;
    if is == name {
        Ok(())
    } else {
        Err(LedgerError::Unfit(UnfitDatabase::Name(is)))
    }
}
