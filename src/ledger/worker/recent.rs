//! Recent changes of counts, for top lists: sums by span of time. Roll-ups add to them.

use super::WorkerLedger;
use super::jobs::JobLease;
use crate::ledger::LedgerError;

/// The most rows that one statement deletes. Each hour, all rows of the hour before the last become
/// old at once: twelve of each item.
const SHRINK_LIMIT_ROWS: i64 = 2500;

impl WorkerLedger {
    /// Merges what is older than an hour into hours, and deletes what is older than a day. Works under
    /// the lease of [`super::Job::RollUp`]. Returns whether there may be more.
    ///
    /// # Errors
    /// When the lease is lost ([`Overtaken::LeaseLost`](crate::ledger::Overtaken::LeaseLost)).
    pub async fn shrink_recent(&self, lease: &JobLease) -> Result<bool, LedgerError> {
        let shrunk = sqlx::query_file!(
            "src/ledger/sql/shrink_recent.sql",
            lease.number(),
            lease.holder(),
            SHRINK_LIMIT_ROWS
        )
        .fetch_one(&self.database.pool)
        .await?;
        if !shrunk.is_held {
            return Err(lease.lost());
        }
        Ok(shrunk.rows >= SHRINK_LIMIT_ROWS)
    }
}
