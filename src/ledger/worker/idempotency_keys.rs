//! Idempotency keys, once they are old.

use std::time::Duration;

use super::WorkerLedger;
use crate::ledger::LedgerError;

/// How long a key is kept, by Postgres' clock.
pub const IDEMPOTENCY_KEY_AGE: Duration = Duration::from_secs(24 * 60 * 60);
/// Keys that one statement deletes, at the most.
const DELETE_LIMIT_KEYS: i64 = 10_000;

impl WorkerLedger {
    /// Deletes keys that are older than [`IDEMPOTENCY_KEY_AGE`]. Returns whether there may be more.
    ///
    /// # Errors
    /// When Postgres is unavailable.
    pub async fn delete_old_keys(&self) -> Result<bool, LedgerError> {
        let deleted = sqlx::query!(
            "delete from idempotency_key where key_hash = any(array(
                 select key_hash from idempotency_key
                 where created_at < now() - $1::bigint * interval '1 second'
                 order by created_at limit $2))",
            IDEMPOTENCY_KEY_AGE.as_secs() as i64,
            DELETE_LIMIT_KEYS
        )
        .execute(&self.database.pool)
        .await?;
        Ok(i64::try_from(deleted.rows_affected()) == Ok(DELETE_LIMIT_KEYS))
    }
}
