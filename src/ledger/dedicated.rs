//! A connection that belongs to one task, for reading.

use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use tokio::time::timeout;

use super::LedgerError;
use super::runs::{Runs, run_of};
use super::session::SessionSetup;
use crate::domain::PostgresRun;

/// A connection for reading. It is taken for each statement, and kept only after a clean end. A
/// connection whose state is uncertain is closed.
pub(in crate::ledger) struct DedicatedConnection {
    options: PgConnectOptions,
    session: SessionSetup,
    pub answer_limit: Duration,
    runs: Runs,
    /// [`Runs::changes`] when the last connection was made.
    changes: u64,
    /// The number of the login with which the last connection was made.
    login: u64,
    /// The run of Postgres that the last connection reached.
    run: Option<PostgresRun>,
    kept: Option<PgConnection>,
}

impl DedicatedConnection {
    pub fn new(options: PgConnectOptions, session: SessionSetup, answer_limit: Duration, runs: Runs) -> Self {
        Self {
            options,
            session,
            answer_limit,
            runs,
            changes: 0,
            login: 0,
            run: None,
            kept: None,
        }
    }

    /// Whether no connection has reached another run of Postgres since the last one was made.
    pub fn is_of_last_run(&self) -> bool {
        self.changes == self.runs.changes()
    }

    /// Whether the next one that is taken is the kept one. It may have failed meanwhile.
    pub fn is_kept(&self) -> bool {
        // The login from before may lack a right, and then every statement over it fails.
        let login = self.session.hosts().url().login_number();
        self.kept.is_some() && self.is_of_last_run() && self.login == login
    }

    /// The kept connection, or a fresh one, and whether it was kept. A kept connection may have
    /// failed meanwhile.
    pub async fn take(&mut self) -> Result<(PgConnection, bool), LedgerError> {
        if self.is_kept()
            && let Some(connection) = self.kept.take()
        {
            return Ok((connection, true));
        }
        self.kept = None;
        self.login = self.session.hosts().url().login_number();
        let mut connection = self.session.connect(&self.options).await?;
        let limit = self.answer_limit;
        let run = timeout(limit, run_of(&mut connection)).await;
        let run = run.map_err(|_| LedgerError::Timeout(limit))??;
        self.changes = self.runs.note(run);
        self.run = Some(run);
        Ok((connection, false))
    }

    /// The run of Postgres that the last connection reached; `None`: there was none yet.
    pub fn run(&self) -> Option<PostgresRun> {
        self.run
    }

    /// Keeps a connection after a clean end, for the next statement.
    pub fn keep(&mut self, connection: PgConnection) {
        self.kept = Some(connection);
    }
}
