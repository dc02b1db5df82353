//! What votes changed lately, summed by spans of time for top lists.

use super::WorkerLedger;
use super::jobs::JobLease;
use super::roll_up::last_unused;
use crate::ledger::LedgerError;

/// Vote ids in one statement, at the most.
const SUM_LIMIT_IDS: i64 = 100_000;
/// Rows that one statement takes away, at the most.
const SHRINK_LIMIT_ROWS: i64 = 50_000;

impl WorkerLedger {
    /// Adds the next votes up to the watermark to the recent changes, under the lease of
    /// [`super::Job::SumRecent`]. Returns how many ids it went on, and whether there are more.
    ///
    /// # Errors
    /// When the lease is lost ([`LedgerError::LeaseLost`]), or Postgres is unavailable or too slow.
    pub async fn sum_recent(&self, lease: &JobLease) -> Result<(i64, bool), LedgerError> {
        let pool = &self.database.pool;
        let progress = sqlx::query!(
            "select recent_progress.vote_id as \"from?\", watermark.vote_id as \"last!\"
             from recent_progress, watermark"
        )
        .fetch_one(pool)
        .await?;
        let last = progress.last;
        let from = match progress.from {
            Some(from) => from,
            None => self.begin_recent(last).await?,
        };
        let end = last_unused(pool, from, last)
            .await?
            .saturating_add(SUM_LIMIT_IDS)
            .min(last)
            .max(from);
        let summed = sqlx::query_file!(
            "src/ledger/sql/sum_recent.sql",
            from,
            end,
            lease.number(),
            lease.holder()
        )
        .fetch_one(pool)
        .await?;
        if !summed.is_held {
            return Err(lease.lost());
        }
        // Otherwise another one has moved it, which only happens past the lease.
        let ids = if summed.moved { end - from } else { 0 };
        Ok((ids, end < last))
    }

    /// Begins with the votes of the last day. Returns the last vote before them.
    async fn begin_recent(&self, last: i64) -> Result<i64, LedgerError> {
        let first = sqlx::query_file_scalar!("src/ledger/sql/first_vote_since.sql", last)
            .fetch_one(&self.database.pool)
            .await?;
        let begun = sqlx::query_scalar!(
            r#"update recent_progress set vote_id = coalesce(vote_id, $1) returning vote_id as "vote_id!""#,
            first.unwrap_or_default()
        )
        .fetch_one(&self.database.pool)
        .await?;
        Ok(begun)
    }

    /// Sums up what is older than an hour by hours, and deletes what is older than a day. Returns whether
    /// there may be more.
    ///
    /// # Errors
    /// As [`WorkerLedger::sum_recent`].
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
