//! Recent changes of counts, summed by spans of time for top lists.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::WorkerLedger;
use super::jobs::{JobLease, hold};
use super::roll_up::last_unused;
use super::spread::{Pacing, Statements};
use crate::ledger::LedgerError;
use crate::ledger::pool::InUse;

/// The most vote ids in one transaction.
const SUM_LIMIT_IDS: i64 = 100_000;
/// The most rows that one statement deletes. Each hour, all rows of the hour before the last become
/// old at once: twelve of each item.
const SHRINK_LIMIT_ROWS: i64 = 2500;

impl WorkerLedger {
    /// Adds the next votes to the recent changes, up to the watermark. Works under the lease of
    /// [`super::Job::SumRecent`]. Returns how many ids it covered, and whether there are more.
    ///
    /// # Errors
    /// When the lease is lost ([`Overtaken::LeaseLost`](crate::ledger::Overtaken::LeaseLost)).
    pub async fn sum_recent(&self, lease: &JobLease) -> Result<(i64, bool), LedgerError> {
        let mut transaction = self.database.pool.begin().await?;
        let summed = self.sum_next(&mut transaction, lease).await;
        transaction.end(summed).await
    }

    /// The same in this transaction. It sums before it locks anything, as a roll-up does.
    async fn sum_next(&self, connection: &mut InUse, lease: &JobLease) -> Result<(i64, bool), LedgerError> {
        let progress = sqlx::query!(
            "select recent_progress.vote_id as \"from?\", watermark.vote_id as \"last!\"
             from recent_progress, watermark"
        )
        .fetch_one(&mut *connection)
        .await?;
        let last = progress.last;
        let from = match progress.from {
            Some(from) => from,
            None => self.begin_recent(last).await?,
        };
        let passed = last_unused(&mut *connection, from, last).await?.max(from);
        let end = passed.saturating_add(SUM_LIMIT_IDS).min(last).max(from);
        let changes = recent_changes(connection, passed, end).await?;
        hold(&mut *connection, lease).await?;
        let moved = sqlx::query!(
            "update recent_progress
             set vote_id = $2, at = case when $3 then now() else at end
             where vote_id = $1",
            from,
            end,
            // Every vote up to the watermark at the begin of the transaction, which is `now()`.
            end >= last
        )
        .execute(&mut *connection)
        .await?;
        // Otherwise another worker has moved it, which only happens after the lease has run out.
        let mut ids = 0;
        if moved.rows_affected() > 0 {
            add_changes(connection, &changes).await?;
            ids = end - from;
        }
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

    /// Merges what is older than an hour into hours, and deletes what is older than a day. Returns
    /// whether there may be more.
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

/// An item, and how many five-minute spans have passed since 1970.
type ItemSpan = (i64, i64);

/// What votes changed.
#[derive(Default)]
struct Change {
    ups: i64,
    downs: i64,
}

/// What the votes with ids above `after`, up to `last`, changed.
async fn recent_changes(
    connection: &mut InUse,
    after: i64,
    last: i64,
) -> Result<BTreeMap<ItemSpan, Change>, LedgerError> {
    let mut changes = BTreeMap::<ItemSpan, Change>::new();
    let mut pieces = Statements::that_sum(last.abs_diff(after), Pacing::Spread);
    let mut from = after;
    while from < last {
        let started = Instant::now();
        let to = last.min(from.saturating_add(pieces.limit_ids()));
        let of_piece = sqlx::query_file!("src/ledger/sql/sum_recent.sql", from, to)
            .fetch_all(&mut *connection)
            .await?;
        for one in of_piece {
            let change = changes.entry((one.item_id, one.span)).or_default();
            change.ups += one.ups;
            change.downs += one.downs;
        }
        from = to;
        pieces.rest_after(started.elapsed()).await;
    }
    Ok(changes)
}

/// Adds changes to the stored ones, in this transaction.
async fn add_changes(
    connection: &mut InUse,
    changes: &BTreeMap<ItemSpan, Change>,
) -> Result<(), LedgerError> {
    let changes: Vec<(&ItemSpan, &Change)> = changes.iter().collect();
    let mut statements = Statements::that_write(changes.len(), Pacing::Spread);
    for some in changes.chunks(statements.limit_rows()) {
        let started = Instant::now();
        let items: Vec<i64> = some.iter().map(|((item, _), _)| *item).collect();
        let spans: Vec<i64> = some.iter().map(|((_, span), _)| *span).collect();
        let ups: Vec<i64> = some.iter().map(|(_, change)| change.ups).collect();
        let downs: Vec<i64> = some.iter().map(|(_, change)| change.downs).collect();
        sqlx::query_file!(
            "src/ledger/sql/add_recent_changes.sql",
            &items,
            &spans,
            &ups,
            &downs
        )
        .execute(&mut *connection)
        .await?;
        statements.rest_after(started.elapsed()).await;
    }
    Ok(())
}
