//! The statements of the login that owns the tables: migrations, functions, reports and roles. Also creates
//! the database and the logins of a private Postgres.

mod apply;
mod functions;
mod private;
mod ranges;
mod reports;
mod roles;

pub use private::{create_database, create_logins};
pub use ranges::{Partitioned, RANGE_LEAST_IDS};
pub use roles::{Role, Roles};

use reports::Reports;
use serde_json::json;
use sqlx::migrate::{Migrate as _, MigrateError, Migrator};

use super::connect::{Database, WORKER_STATEMENT_LIMIT};
use super::{LedgerError, UnfitDatabase, runs, trail};
use crate::domain::{ActKind, Cell, NewAct};
use crate::store_url::StoreUrl;

/// The tables: the numbered files of `migrations/`. Each runs once in a database.
pub(super) static MIGRATIONS: Migrator = sqlx::migrate!();

/// What migrating a database came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migrated {
    pub roles: Roles,
    /// Which cell the database is.
    pub cell: Cell,
}

/// The ledger as the login that owns its tables may use it. Cheap to clone. Every call fails when
/// Postgres is unavailable.
#[derive(Clone, Debug)]
pub struct OwnerLedger {
    database: Database,
    /// What the trail calls the program: its application_name.
    tool: String,
}

impl OwnerLedger {
    /// Describes the connection, and makes none yet. `application_name` is shown to Postgres'
    /// operator.
    ///
    /// # Errors
    /// When `database_url` is no URL of a Postgres.
    pub fn new(database_url: impl Into<StoreUrl>, application_name: &str) -> Result<Self, LedgerError> {
        let database = Database::new(database_url, application_name, WORKER_STATEMENT_LIMIT, None)?;
        Ok(Self {
            database,
            tool: application_name.to_owned(),
        })
    }

    /// Runs the missing migrations, replaces all functions, makes the views of analysts, then grants the roles. Several programs
    /// may do so at once. If the login may not create the views or the roles, the log says so. A new database becomes
    /// the first cell.
    ///
    /// # Errors
    /// When Postgres is not fit for Tally, a migration was edited after it had run, or a newer
    /// version of Tally has migrated.
    pub async fn migrate(&self) -> Result<Roles, LedgerError> {
        Ok(self.migrate_as(None).await?.roles)
    }

    /// Migrates as [`OwnerLedger::migrate`] does. A new database becomes this cell, by default the first.
    ///
    /// # Errors
    /// When Postgres is not fit for Tally, a migration was edited after it had run, a newer
    /// version of Tally has migrated, or the database is another cell.
    pub async fn migrate_as(&self, cell: Option<Cell>) -> Result<Migrated, LedgerError> {
        self.database.check().await?;
        let done = self.versions().await?;
        // A newer version's functions must not become older ones.
        if let Some(unknown) = done.iter().find(|version| !MIGRATIONS.version_exists(**version)) {
            let known = MIGRATIONS.iter().map(|one| one.version).max();
            return Err(UnfitDatabase::NewerSchema {
                migration: *unknown,
                known: known.unwrap_or_default(),
            }
            .into());
        }
        self.create_missing_functions().await?;
        MIGRATIONS.run(self.database.pool.unlimited().await).await?;
        self.replace_functions().await?;
        let cell = self.become_cell(cell).await?;
        sqlx::query!(r#"select add_ranges() as "made!""#)
            .fetch_one(self.database.pool.unlimited().await)
            .await?;
        let (before, after) = (done.last().copied(), self.versions().await?.last().copied());
        if after != before {
            // After the migrations, since one of them creates the trail. `_sqlx_migrations` has
            // each with its time.
            let act =
                NewAct::with(ActKind::Migrate, &self.tool).details(json!({ "from": before, "to": after }));
            trail::note(&self.database.pool, &act, None).await?;
        }
        let reports = self.make_reports().await?;
        if reports != Reports::Made {
            tracing::warn!("{reports}");
        }
        let roles = self.grant_roles().await?;
        if let Roles::Refused(_) = roles {
            tracing::warn!("{roles}");
        }
        Ok(Migrated { roles, cell })
    }

    /// Makes a new database this cell, by default the first. Returns which one the database is.
    async fn become_cell(&self, asked: Option<Cell>) -> Result<Cell, LedgerError> {
        let number = asked.map(|cell| i32::from(cell.get()));
        let held = sqlx::query_scalar!(r#"select set_cell($1) as "cell!""#, number)
            .fetch_one(self.database.pool.unlimited().await)
            .await?;
        let held = runs::cell(held).unwrap_or(Cell::FIRST);
        match asked {
            Some(asked) if asked != held => Err(LedgerError::Unfit(UnfitDatabase::OtherCell { held, asked })),
            _ => Ok(held),
        }
    }

    /// The migrations that have run, in their order.
    async fn versions(&self) -> Result<Vec<i64>, LedgerError> {
        let mut connection = self.database.pool.unlimited().await.acquire().await?;
        match connection.list_applied_migrations().await {
            Ok(done) => Ok(done.iter().map(|one| one.version).collect()),
            // There is no table of migrations.
            Err(MigrateError::Execute(sqlx::Error::Database(_))) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }

    /// Closes all connections of the pool.
    pub async fn close(&self) {
        self.database.pool.close().await;
    }
}
