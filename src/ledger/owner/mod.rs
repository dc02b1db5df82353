//! What the login that owns the tables does: migrations and roles. And what a private
//! Postgres needs besides: a database and logins.

mod private;
mod roles;

pub use private::{create_database, create_logins};
pub use roles::{Role, Roles};

use sqlx::migrate::Migrator;

use super::LedgerError;
use super::connect::{Database, WORKER_STATEMENT_LIMIT};

pub(super) static MIGRATIONS: Migrator = sqlx::migrate!();

/// The ledger as the login that owns its tables may use it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct OwnerLedger {
    database: Database,
}

impl OwnerLedger {
    /// Describes the connection; none is made until one is needed. Postgres shows
    /// `application_name` to its operator.
    ///
    /// # Errors
    /// When the URL is none of Postgres.
    pub fn new(database_url: &str, application_name: &str) -> Result<Self, LedgerError> {
        let database = Database::new(database_url, application_name, WORKER_STATEMENT_LIMIT)?;
        Ok(Self { database })
    }

    /// Runs the migrations that have not run yet, then grants the roles. Safe to
    /// run several at once. A login that may not make roles is reported so in the log.
    ///
    /// # Errors
    /// When Postgres is unavailable, or a migration that has run was changed since.
    pub async fn migrate(&self) -> Result<Roles, LedgerError> {
        MIGRATIONS.run(&self.database.pool).await?;
        let roles = self.grant_roles().await?;
        if let Roles::Refused(_) = roles {
            tracing::warn!("{roles}");
        }
        Ok(roles)
    }

    /// Ends all connections of the pool.
    pub async fn close(&self) {
        self.database.pool.close().await;
    }
}
