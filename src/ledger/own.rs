//! A connection that belongs to one lane.

use std::time::Duration;

use sqlx::Connection;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use tokio::time::timeout;

use super::{CONNECT_LIMIT, LedgerError};

/// A connection for reading. It is taken out for each statement and put back only
/// after a clean end: thrown away after any doubt about its state.
pub(super) struct OwnConnection {
    options: PgConnectOptions,
    pub answer_limit: Duration,
    kept: Option<PgConnection>,
}

impl OwnConnection {
    pub fn new(options: PgConnectOptions, answer_limit: Duration) -> Self {
        Self {
            options,
            answer_limit,
            kept: None,
        }
    }

    /// The connection that was kept, or a fresh one; and whether it was kept, and
    /// may have been gone for long.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn take(&mut self) -> Result<(PgConnection, bool), LedgerError> {
        if let Some(connection) = self.kept.take() {
            return Ok((connection, true));
        }
        match timeout(CONNECT_LIMIT, PgConnection::connect_with(&self.options)).await {
            Ok(connected) => Ok((connected?, false)),
            Err(_) => Err(LedgerError::Late(CONNECT_LIMIT)),
        }
    }

    pub fn keep(&mut self, connection: PgConnection) {
        self.kept = Some(connection);
    }
}

/// Whether the connection, not the statement, is what failed. Class 57P is Postgres
/// going away.
pub(super) fn is_gone(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(error) => error.code().is_some_and(|code| code.starts_with("57P")),
        sqlx::Error::Io(_) | sqlx::Error::Protocol(_) => true,
        _ => false,
    }
}
