//! What is deleted once it is old: idempotency keys, and hashes of client addresses.

use std::time::Duration;

use super::WorkerLedger;
use super::jobs::JobLease;
use crate::domain::Moment;
use crate::ledger::LedgerError;

/// How long an idempotency key is kept, by the clocks of Postgres and of the worker.
pub const IDEMPOTENCY_KEY_AGE: Duration = Duration::from_secs(24 * 60 * 60);
/// Rows that one statement deletes, at the most.
pub(super) const DELETE_LIMIT_ROWS: i64 = 2500;

impl WorkerLedger {
    /// Deletes idempotency keys that are older than [`IDEMPOTENCY_KEY_AGE`], under the lease of
    /// [`super::Job::DeleteKeys`]. The worker's clock shows `now`. Returns how many, and whether there
    /// may be more.
    ///
    /// # Errors
    /// When the lease is lost ([`Overtaken::LeaseLost`](crate::ledger::Overtaken::LeaseLost)), or Postgres is unavailable.
    pub async fn delete_old_keys(&self, now: Moment, lease: &JobLease) -> Result<(i64, bool), LedgerError> {
        let deleted = sqlx::query_file!(
            "src/ledger/sql/delete_old_keys.sql",
            seconds(IDEMPOTENCY_KEY_AGE),
            DELETE_LIMIT_ROWS,
            lease.number(),
            lease.holder(),
            now.micros()
        )
        .fetch_one(&self.database.pool)
        .await?;
        ended(lease, deleted.is_held, deleted.keys)
    }

    /// Deletes hashes of client addresses that are older than this, by Postgres' clock, under the lease
    /// of [`super::Job::DeleteAddresses`]. Returns how many, and whether there may be more.
    ///
    /// # Errors
    /// As [`WorkerLedger::delete_old_keys`].
    pub async fn delete_old_addresses(
        &self,
        age: Duration,
        lease: &JobLease,
    ) -> Result<(i64, bool), LedgerError> {
        let deleted = sqlx::query_file!(
            "src/ledger/sql/delete_old_addresses.sql",
            seconds(age),
            DELETE_LIMIT_ROWS,
            lease.number(),
            lease.holder()
        )
        .fetch_one(&self.database.pool)
        .await?;
        ended(lease, deleted.is_held, deleted.addresses)
    }
}

pub(super) fn seconds(age: Duration) -> i64 {
    i64::try_from(age.as_secs()).unwrap_or(i64::MAX)
}

/// How many rows were deleted, and whether there may be more, if the lease was still held.
pub(super) fn ended(lease: &JobLease, is_held: bool, rows: i64) -> Result<(i64, bool), LedgerError> {
    if !is_held {
        return Err(lease.lost());
    }
    Ok((rows, rows == DELETE_LIMIT_ROWS))
}
