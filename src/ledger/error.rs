//! What Postgres cannot do, or could not.

use std::time::Duration;

use sqlx::migrate::MigrateError;

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
    Timeout(Duration),
    #[error("Postgres answered with what is no snapshot: {0}")]
    Snapshot(#[from] crate::domain::InvalidSnapshot),
    #[error("a transaction has held the ledger for over {0:?}; the audit needs it to end")]
    Undecided(Duration),
    #[error("Postgres' incarnation could not be read {0} times in a row: others keep replacing it")]
    Incarnation(u32),
}

/// Whether Postgres ended a statement because it and others waited for each other.
pub(super) fn is_deadlock(error: &sqlx::Error) -> bool {
    const DEADLOCK_DETECTED: &str = "40P01";
    error
        .as_database_error()
        .is_some_and(|error| error.code().as_deref() == Some(DEADLOCK_DETECTED))
}

/// Whether the connection, not the statement, is what failed. Class 57P is Postgres
/// shutting down.
pub(super) fn is_disconnect(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(error) => error.code().is_some_and(|code| code.starts_with("57P")),
        sqlx::Error::Io(_) | sqlx::Error::Protocol(_) => true,
        _ => false,
    }
}

/// Whether the error says that the statement had no effect: Postgres reported it and goes
/// on. Class 57P is Postgres shutting down, which may come after a commit.
pub(super) fn is_certain(error: &sqlx::Error) -> bool {
    error
        .as_database_error()
        .is_some_and(|error| !error.code().is_some_and(|code| code.starts_with("57P")))
}
