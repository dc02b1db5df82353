//! The batch writer: stores each batch with one statement and counts it with one
//! pipeline.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, mpsc};
use tokio::time::Instant;

use super::backoff::SeedBackoff;
use super::batch::{BatchMetrics, StoredBatch};
use super::cast::{Answer, CastError, QueuedVote};
use super::counting::{Counting, Step};
use crate::batching::take;
use crate::domain::{ItemId, NewVote};
use crate::ledger::{InsertError, Inserted, LedgerError, SERVER_STATEMENT_LIMIT, VoteWriter};
use crate::live::LiveCounts;
use crate::telemetry::name;

/// Batch writers of one thread. They take turns at storing, so batches are as large as with
/// one writer. While one counts and answers, the other stores.
pub const BATCH_WRITERS_PER_THREAD: usize = 2;
/// The most votes in one batch.
pub const BATCH_LIMIT_VOTES: usize = 1024;
/// How long a batch may take to seed its missing live counts, in all rounds together.
pub const SEED_LIMIT: Duration = Duration::from_secs(4);
/// How long one read of exact counts may take. Then its items wait, without a count, and the
/// batch writer goes on.
pub const SEED_READ_LIMIT: Duration = Duration::from_secs(2);

/// Takes batch after batch, until the queue is closed.
pub(super) struct BatchWriter {
    writer: VoteWriter,
    live_counts: LiveCounts,
    backoff: SeedBackoff,
    metrics: BatchMetrics,
    /// Dropped when this batch writer ends. If it is cut off in mid-batch, the batch's items
    /// are suspect by then.
    _alive: Option<mpsc::Sender<()>>,
}

/// Makes a batch's items suspect if its batch writer is cut off in mid-batch: the batch may be
/// stored, and nobody would count it.
struct UnfinishedBatch<'a> {
    live_counts: LiveCounts,
    votes: &'a [NewVote],
    is_finished: bool,
}

impl UnfinishedBatch<'_> {
    fn finish(mut self) {
        self.is_finished = true;
    }
}

impl Drop for UnfinishedBatch<'_> {
    fn drop(&mut self) {
        if !self.is_finished {
            suspect_once_decided(&self.live_counts, self.votes);
        }
    }
}

/// Makes the items of these votes suspect. Postgres may still commit the batch, and nobody
/// will count it. Postgres ends a statement within its limit, so a seed is exact from then
/// on.
fn suspect_once_decided(live_counts: &LiveCounts, votes: &[NewVote]) {
    let items = votes.iter().map(|vote| vote.item_id);
    live_counts.suspect_from(items, Instant::now() + SERVER_STATEMENT_LIMIT);
}

impl BatchWriter {
    pub fn new(
        writer: VoteWriter,
        live_counts: LiveCounts,
        backoff: SeedBackoff,
        depth: metrics::Gauge,
        alive: Option<mpsc::Sender<()>>,
    ) -> Self {
        Self {
            writer,
            live_counts,
            backoff,
            metrics: BatchMetrics::new(depth),
            _alive: alive,
        }
    }

    pub async fn run(mut self, queue: Arc<Mutex<mpsc::Receiver<QueuedVote>>>) {
        let mut queued = Vec::with_capacity(BATCH_LIMIT_VOTES);
        loop {
            // Held until the batch is stored. Meanwhile the other writer's next batch grows.
            let mut turn = queue.lock().await;
            let taken = take(&mut turn, &mut queued, BATCH_LIMIT_VOTES).await;
            if taken == 0 {
                return;
            }
            self.metrics.depth.decrement(taken as f64);
            self.metrics.batch_votes.record(taken as f64);
            let (votes, answers): (Vec<NewVote>, Vec<_>) = queued
                .drain(..)
                .map(|one| (one.vote, (one.queued_at, one.answer)))
                .unzip();
            let unfinished = UnfinishedBatch {
                live_counts: self.live_counts.clone(),
                votes: &votes,
                is_finished: false,
            };
            let inserted = self.store(&votes).await;
            drop(turn);
            match inserted {
                Ok(inserted) => self.finalize(&votes, inserted, answers).await,
                Err(error) => self.fail(&votes, answers, &error),
            }
            unfinished.finish();
            self.writer.end_batch();
        }
    }

    async fn store(&mut self, votes: &[NewVote]) -> Result<Inserted, InsertError> {
        let started = Instant::now();
        let inserted = self.writer.insert(votes).await;
        self.metrics
            .ledger_seconds
            .record(started.elapsed().as_secs_f64());
        inserted
    }

    /// Counts a stored batch, and answers every vote in it.
    async fn finalize(&mut self, votes: &[NewVote], inserted: Inserted, answers: Vec<(Instant, Answer)>) {
        let started = Instant::now();
        let mut batch = StoredBatch::new(votes, inserted.outcomes, answers, &self.metrics);
        let counting = Counting::new(inserted.transaction, batch.deltas());
        let mut seeding = Seeding {
            live_counts: &self.live_counts,
            writer: &mut self.writer,
            backoff: &self.backoff,
            deadline: started + SEED_LIMIT,
        };
        seeding.count(counting, &mut batch).await;
        self.metrics.live_seconds.record(started.elapsed().as_secs_f64());
        batch.answer_rest();
    }

    /// Answers a batch that was not stored, or not for certain.
    fn fail(&self, votes: &[NewVote], answers: Vec<(Instant, Answer)>, error: &InsertError) {
        tracing::error!(%error, votes = votes.len(), "a batch of votes was not stored");
        let refusal = match error {
            InsertError::NotStored(_) => CastError::NotStored,
            InsertError::Unknown(_) => {
                suspect_once_decided(&self.live_counts, votes);
                CastError::Unconfirmed
            }
        };
        self.metrics.failed.increment(votes.len() as u64);
        for (_, answer) in answers {
            // A voter that no longer waits needs no answer.
            let _ = answer.send(Err(refusal));
        }
    }
}

/// The counting of one committed batch.
struct Seeding<'a> {
    live_counts: &'a LiveCounts,
    writer: &'a mut VoteWriter,
    backoff: &'a SeedBackoff,
    deadline: Instant,
}

impl Seeding<'_> {
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

    /// Reads the exact counts of the missing items and seeds them; items whose exact counts
    /// cannot be read in time are left without. Returns the counts of those that this call
    /// seeded.
    async fn seed(
        &mut self,
        counting: &mut Counting,
        missing: &[ItemId],
    ) -> anyhow::Result<Vec<(ItemId, i64)>> {
        let due = self.backoff.due(missing, Instant::now());
        let mut left = due.waiting().to_vec();
        let mut exact = Vec::with_capacity(missing.len());
        let mut is_slow = false;
        for items in due.reads() {
            let now = Instant::now();
            // One slow read a batch: its items wait for no further one.
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
                Err(LedgerError::Cancelled) => {
                    tracing::warn!(
                        items = items.len(),
                        "exact counts were not read in time: their items wait"
                    );
                    metrics::counter!(name::SEED_TIMEOUTS).increment(1);
                    // A read that had less time may not be a slow one.
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
