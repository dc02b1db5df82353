//! Which Tally this database is.

use sqlx::PgExecutor;

use super::LedgerError;
use crate::domain::Owner;

/// Which Tally this is.
///
/// # Errors
/// When the database is not migrated.
pub(super) async fn owner(executor: impl PgExecutor<'_>) -> Result<Owner, LedgerError> {
    let row = sqlx::query!(r#"select id, current_database()::text as "database!" from identity"#)
        .fetch_one(executor)
        .await?;
    Ok(Owner {
        id: row.id,
        database: row.database,
    })
}
