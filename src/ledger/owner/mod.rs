//! The statements of the login that owns the tables: migrations and roles. A private Postgres
//! gets its database and its logins here too.

mod private;
mod roles;

pub use private::{create_database, create_logins};
pub use roles::{Role, Roles};

use sqlx::migrate::Migrator;

use super::LedgerError;
use super::connect::{Database, WORKER_STATEMENT_LIMIT};

/// The files of `migrations/`.
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
    /// When `database_url` is no URL of a Postgres.
    pub fn new(database_url: &str, application_name: &str) -> Result<Self, LedgerError> {
        let database = Database::new(database_url, application_name, WORKER_STATEMENT_LIMIT, None)?;
        Ok(Self { database })
    }

    /// Runs the migrations that have not run yet, then grants the roles. Several may do so at
    /// once. If the login may not create roles, the log says so.
    ///
    /// # Errors
    /// When Postgres is unavailable or not fit for Tally, or a migration was edited after it had
    /// run.
    pub async fn migrate(&self) -> Result<Roles, LedgerError> {
        self.database.check().await?;
        MIGRATIONS.run(&self.database.pool).await?;
        let roles = self.grant_roles().await?;
        if let Roles::Refused(_) = roles {
            tracing::warn!("{roles}");
        }
        Ok(roles)
    }

    /// Closes all connections of the pool.
    pub async fn close(&self) {
        self.database.pool.close().await;
    }
}
