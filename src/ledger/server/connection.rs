//! A connection that belongs to one task, for reading.

use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection};

use crate::ledger::LedgerError;
use crate::ledger::session::SessionSetup;

/// A connection for reading. It is taken for each statement, and kept only after a clean end. A
/// connection whose state is uncertain is closed.
pub(super) struct DedicatedConnection {
    options: PgConnectOptions,
    session: SessionSetup,
    pub answer_limit: Duration,
    kept: Option<PgConnection>,
}

impl DedicatedConnection {
    pub fn new(options: PgConnectOptions, session: SessionSetup, answer_limit: Duration) -> Self {
        Self {
            options,
            session,
            answer_limit,
            kept: None,
        }
    }

    /// The kept connection, or a fresh one, and whether it was kept. A kept connection may have
    /// failed meanwhile.
    pub async fn take(&mut self) -> Result<(PgConnection, bool), LedgerError> {
        if let Some(connection) = self.kept.take() {
            return Ok((connection, true));
        }
        Ok((self.session.connect(&self.options).await?, false))
    }

    /// Keeps a connection after a clean end, for the next statement.
    pub fn keep(&mut self, connection: PgConnection) {
        self.kept = Some(connection);
    }
}
