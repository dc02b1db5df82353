//! Whether a database is one that Tally can work with: asked once, at the start.

use sqlx::Connection;
use std::time::Duration;

use sqlx::migrate::{Migrate, MigrateError};
use sqlx::postgres::PgConnection;

use super::LedgerError;
use super::connect::{Database, Writes, writes};
use super::owner::MIGRATIONS;

/// How long the connection for it may take. Nobody waits for an answer yet, and `tally migrate`
/// ends when it fails.
const START_LIMIT: Duration = Duration::from_secs(5);

impl Database {
    /// Makes a connection and looks whether this database is fit for Tally.
    ///
    /// # Errors
    /// When it is not ([`LedgerError::is_unfit`]), or Postgres is unavailable.
    pub async fn check(&self) -> Result<(), LedgerError> {
        let mut connection = self.session.connect_within(START_LIMIT, &self.options).await?;
        match writes(&mut connection).await? {
            Writes::Taken => {}
            Writes::Standby => return Err(LedgerError::Standby),
            Writes::ReadOnly => return Err(LedgerError::ReadOnly),
        }
        let tables = sqlx::query_scalar!(
            r#"select to_regclass('item') is not null or to_regclass('vote') is not null as "exist!""#
        )
        .fetch_one(&mut connection)
        .await?;
        if tables && !is_migrated_by_tally(&mut connection).await? {
            return Err(LedgerError::ForeignTables);
        }
        Ok(connection.close().await?)
    }
}

/// Whether Tally's first migration has run here. Another application's migrations may have the
/// same number, but not the same checksum.
async fn is_migrated_by_tally(connection: &mut PgConnection) -> Result<bool, LedgerError> {
    const UNDEFINED_TABLE: &str = "42P01";
    match connection.list_applied_migrations().await {
        Ok(applied) => Ok(MIGRATIONS.iter().take(1).all(|first| {
            applied
                .iter()
                .any(|one| one.version == first.version && one.checksum == first.checksum)
        })),
        Err(MigrateError::Execute(sqlx::Error::Database(error))) => {
            // A login that may not read it cannot tell.
            Ok(error.code().as_deref() != Some(UNDEFINED_TABLE))
        }
        Err(error) => Err(error.into()),
    }
}
