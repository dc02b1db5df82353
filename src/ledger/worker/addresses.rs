//! Deletes old hashes of client addresses.

use std::time::Duration;

use super::WorkerLedger;
use super::jobs::JobLease;
use crate::ledger::LedgerError;

/// The most hashes that one statement deletes.
const DELETE_LIMIT_ADDRESSES: i64 = 2500;

impl WorkerLedger {
    /// Deletes hashes of client addresses that are older than `age`. It uses Postgres' clock, and
    /// the lease of [`super::Job::DeleteAddresses`]. Returns how many, and whether there may be
    /// more.
    ///
    /// # Errors
    /// When the lease is lost ([`Overtaken::LeaseLost`](crate::ledger::Overtaken::LeaseLost)).
    pub async fn delete_old_addresses(
        &self,
        age: Duration,
        lease: &JobLease,
    ) -> Result<(i64, bool), LedgerError> {
        let deleted = sqlx::query_file!(
            "src/ledger/sql/delete_old_addresses.sql",
            i64::try_from(age.as_secs()).unwrap_or(i64::MAX),
            DELETE_LIMIT_ADDRESSES,
            lease.number(),
            lease.holder()
        )
        .fetch_one(&self.database.pool)
        .await?;
        if !deleted.is_held {
            return Err(lease.lost());
        }
        Ok((deleted.addresses, deleted.addresses == DELETE_LIMIT_ADDRESSES))
    }
}
