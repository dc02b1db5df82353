//! Deletes old idempotency keys.

use std::time::Duration;

use super::WorkerLedger;
use super::jobs::JobLease;
use crate::ledger::LedgerError;

/// How long a key is kept, by Postgres' clock.
pub const IDEMPOTENCY_KEY_AGE: Duration = Duration::from_secs(24 * 60 * 60);
/// The most keys that one statement deletes.
const DELETE_LIMIT_KEYS: i64 = 2500;

impl WorkerLedger {
    /// Deletes keys that are older than [`IDEMPOTENCY_KEY_AGE`]. Works under the lease of
    /// [`super::Job::DeleteKeys`]. Returns how many, and whether there may be more.
    ///
    /// # Errors
    /// When the lease is lost ([`Overtaken::LeaseLost`](crate::ledger::Overtaken::LeaseLost)).
    pub async fn delete_old_keys(&self, lease: &JobLease) -> Result<(i64, bool), LedgerError> {
        let deleted = sqlx::query_file!(
            "src/ledger/sql/delete_old_keys.sql",
            IDEMPOTENCY_KEY_AGE.as_secs() as i64,
            DELETE_LIMIT_KEYS,
            lease.number(),
            lease.holder()
        )
        .fetch_one(&self.database.pool)
        .await?;
        if !deleted.is_held {
            return Err(lease.lost());
        }
        Ok((deleted.keys, deleted.keys == DELETE_LIMIT_KEYS))
    }
}
