//! A connection that belongs to one task, for reading.

use std::time::Duration;

use sqlx::Connection;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use tokio::time::timeout;

use crate::ledger::LedgerError;
use crate::ledger::connect::CONNECT_LIMIT;

/// A connection for reading. It is taken for each statement and kept only after a clean end:
/// a connection whose state is uncertain is closed.
pub(super) struct DedicatedConnection {
    options: PgConnectOptions,
    pub answer_limit: Duration,
    kept: Option<PgConnection>,
}

impl DedicatedConnection {
    pub fn new(options: PgConnectOptions, answer_limit: Duration) -> Self {
        Self {
            options,
            answer_limit,
            kept: None,
        }
    }

    /// The connection that was kept, or a fresh one; and whether it was kept: a kept one may
    /// have failed since.
    ///
    /// # Errors
    /// When Postgres is unavailable.
    pub async fn take(&mut self) -> Result<(PgConnection, bool), LedgerError> {
        if let Some(connection) = self.kept.take() {
            return Ok((connection, true));
        }
        match timeout(CONNECT_LIMIT, PgConnection::connect_with(&self.options)).await {
            Ok(connected) => Ok((connected?, false)),
            Err(_) => Err(LedgerError::Timeout(CONNECT_LIMIT)),
        }
    }

    /// Keeps a connection after a clean end, for the next statement.
    pub fn keep(&mut self, connection: PgConnection) {
        self.kept = Some(connection);
    }
}
