//! Counts one committed batch, with the calls that [`Counting`] asks for.

use std::time::Duration;

use tokio::time::Instant;

use super::backoff::SeedBackoff;
use super::batch::StoredBatch;
use super::counting_steps::{Counting, Step};
use crate::domain::{Count, CountDelta, ItemId, TransactionId};
use crate::ledger::{LedgerError, VoteWriter};
use crate::live::LiveCounts;
use crate::telemetry::name;

/// How long a batch may take to seed its missing live counts, in all rounds.
pub const SEED_LIMIT: Duration = Duration::from_secs(4);
/// How long one read of exact counts may take. Then its items wait without a count, and the batch
/// writer goes on.
pub const SEED_READ_LIMIT: Duration = Duration::from_secs(2);

/// The counting of one committed batch.
pub(super) struct BatchCounting<'a> {
    live_counts: &'a LiveCounts,
    writer: &'a mut VoteWriter,
    backoff: &'a SeedBackoff,
    started: Instant,
    /// When it gives up what is still missing.
    deadline: Instant,
}

impl<'a> BatchCounting<'a> {
    pub fn new(
        live_counts: &'a LiveCounts,
        writer: &'a mut VoteWriter,
        backoff: &'a SeedBackoff,
        started: Instant,
    ) -> Self {
        Self {
            live_counts,
            writer,
            backoff,
            started,
            deadline: started + SEED_LIMIT,
        }
    }

    /// Counts the batch, which this transaction stored, and answers every vote in it.
    pub async fn finish(
        mut self,
        transaction: TransactionId,
        deltas: Vec<CountDelta>,
        mut batch: StoredBatch<'_>,
    ) {
        self.count(Counting::new(transaction, deltas), &mut batch).await;
        batch.answer_rest(self.started);
    }

    /// Counts the batch, and seeds the live counts that are missing. Votes on items that have a
    /// live count are answered before the missing ones are seeded.
    async fn count(&mut self, mut counting: Counting, batch: &mut StoredBatch<'_>) {
        loop {
            match counting.step() {
                Step::Done => return,
                Step::GiveUp => break,
                Step::Count(_) if Instant::now() >= self.deadline => break,
                Step::Count(deltas) => {
                    // After a failure the items are suspect already, and the votes are
                    // acknowledged without a count.
                    let Ok(replies) = self.live_counts.count(&deltas, counting.transaction()).await else {
                        return;
                    };
                    batch.answer(&counting.counted(replies));
                }
                Step::Seed(missing) => {
                    metrics::counter!(name::MISSES).increment(missing.len() as u64);
                    match self.seed(&mut counting, &missing).await {
                        Ok(counts) => {
                            metrics::counter!(name::SEEDS).increment(counts.len() as u64);
                            batch.answer(&counts);
                        }
                        Err(error) => {
                            tracing::warn!(%error, items = missing.len(), "missing live counts were not seeded");
                            break;
                        }
                    }
                }
            }
        }
        self.live_counts.suspect(counting.give_up());
    }

    /// Reads the exact counts of the missing items and seeds them. Items whose exact counts cannot
    /// be read in time stay without a live count. Returns the counts of those that this call
    /// seeded.
    async fn seed(
        &mut self,
        counting: &mut Counting,
        missing: &[ItemId],
    ) -> anyhow::Result<Vec<(ItemId, Count)>> {
        let due = self.backoff.due(missing, Instant::now());
        let mut left = due.waiting().to_vec();
        let mut exact = Vec::with_capacity(missing.len());
        let mut is_slow = false;
        for items in due.reads() {
            let now = Instant::now();
            // One slow read is enough for a batch: its items wait for no further one.
            if is_slow || now >= self.deadline {
                left.extend(items);
                continue;
            }
            let whole = now + SEED_READ_LIMIT;
            match self.writer.exact_counts(&items, whole.min(self.deadline)).await {
                Ok(counts) => {
                    self.backoff.succeeded(&items);
                    exact.extend(counts);
                }
                Err(error @ (LedgerError::Cancelled | LedgerError::LongTail)) => {
                    tracing::warn!(
                        %error,
                        items = items.len(),
                        "exact counts were not read in time: their items wait"
                    );
                    metrics::counter!(name::SEED_TIMEOUTS).increment(1);
                    // A read that had less time may not be slow.
                    if whole <= self.deadline {
                        self.backoff.failed(&items, Instant::now());
                    }
                    left.extend(items);
                    is_slow = true;
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.live_counts.suspect(counting.leave(&left));
        let seeds = counting.seeds(exact);
        let replies = self.live_counts.seed(&seeds).await?;
        Ok(counting.seeded(&seeds, &replies))
    }
}
