//! What Tally requires of a connection to Postgres. It must be a session of its own, with the
//! limits that Tally set when it connected. A pooler in between may drop the limits silently, or
//! give each transaction another session.
//!
//! These statements use the simple protocol: a prepared statement would already need what is
//! checked here.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{Connection, Executor, Row};
use tokio::time::timeout;

use super::{LedgerError, UnfitDatabase};

/// How long a new connection may take.
pub const CONNECT_LIMIT: Duration = Duration::from_secs(2);

/// Checks new connections. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct SessionCheck {
    /// Settings of Postgres that are durations.
    limits: Vec<(&'static str, Duration)>,
    /// Whether a connection was found to be a session of its own. Shared by clones: a pooler treats
    /// all connections alike.
    is_own: Arc<AtomicBool>,
}

impl SessionCheck {
    pub fn new(limits: Vec<(&'static str, Duration)>) -> Self {
        Self {
            limits,
            is_own: Arc::default(),
        }
    }

    /// The limits, as Postgres takes them at connect.
    pub fn options(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.limits.iter().map(|(name, limit)| (*name, written(*limit)))
    }

    /// Makes a connection and checks it.
    ///
    /// # Errors
    /// When the session does not suit Tally.
    pub async fn connect(&self, options: &PgConnectOptions) -> Result<PgConnection, LedgerError> {
        self.connect_within(CONNECT_LIMIT, options).await
    }

    /// The same with another time limit.
    ///
    /// # Errors
    /// As [`SessionCheck::connect`].
    pub async fn connect_within(
        &self,
        limit: Duration,
        options: &PgConnectOptions,
    ) -> Result<PgConnection, LedgerError> {
        let connecting = async {
            let mut connection = PgConnection::connect_with(options).await?;
            self.check(&mut connection, options).await?;
            Ok(connection)
        };
        timeout(limit, connecting)
            .await
            .unwrap_or(Err(LedgerError::Timeout(limit)))
    }

    /// Checks a connection that was made with these options.
    ///
    /// # Errors
    /// When the session does not suit Tally.
    pub async fn check(
        &self,
        connection: &mut PgConnection,
        options: &PgConnectOptions,
    ) -> Result<(), LedgerError> {
        if !self.is_own.load(Ordering::Relaxed) {
            if !is_own_session(connection, options).await? {
                return Err(LedgerError::Unfit(UnfitDatabase::SharedSession));
            }
            self.is_own.store(true, Ordering::Relaxed);
        }
        let wanted: Vec<String> = self
            .options()
            .map(|(name, limit)| format!("('{name}', '{limit}')"))
            .collect();
        // Postgres shows 5000ms as 5s.
        let differing = format!(
            "select name, current_setting(name), wanted from (values {}) as one (name, wanted) \
             where current_setting(name)::interval <> wanted::interval",
            wanted.join(", ")
        );
        let rows = connection.fetch_all(differing.as_str()).await?;
        let differing = rows.iter().map(|row| {
            let [name, is, wanted] = [row.try_get(0)?, row.try_get(1)?, row.try_get::<String, _>(2)?];
            Ok(format!("{name} = {is} and not {wanted}"))
        });
        let differing: Vec<String> = differing.collect::<Result<_, sqlx::Error>>()?;
        if differing.is_empty() {
            Ok(())
        } else {
            Err(LedgerError::Unfit(UnfitDatabase::Settings(differing.join(", "))))
        }
    }
}

fn written(limit: Duration) -> String {
    format!("{}ms", limit.as_millis())
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
