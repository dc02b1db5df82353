//! The batch writer: stores each batch with one statement and counts it with one
//! pipeline.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, mpsc};
use tokio::time::Instant;

use super::backoff::SeedBackoff;
use super::batch::{BatchMetrics, StoredBatch, StoredBatchVote};
use super::cast::{Answer, Cast, CastError, QueuedRequest, QueuedVote};
use super::counting::Counting;
use super::seeding::Seeding;
use crate::batching::take;
use crate::domain::{ItemId, NewVote, VoteOutcome, VoteRequest};
use crate::ledger::{InsertError, Inserted, SERVER_STATEMENT_LIMIT, VoteWriter};
use crate::live::LiveCounts;

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
    /// Where votes go that need a decision.
    to_decide: mpsc::Sender<QueuedRequest>,
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
            suspect_once_decided(&self.live_counts, items(self.votes));
        }
    }
}

fn items(votes: &[NewVote]) -> impl Iterator<Item = ItemId> {
    votes.iter().map(|vote| vote.item_id)
}

/// Makes the items of a batch suspect. Postgres may still commit the batch, and nobody will count
/// it. Postgres ends a statement within its limit, so a seed is exact from then on.
pub(super) fn suspect_once_decided(live_counts: &LiveCounts, items: impl Iterator<Item = ItemId>) {
    live_counts.suspect_from(items, Instant::now() + SERVER_STATEMENT_LIMIT);
}

impl BatchWriter {
    pub fn new(
        writer: VoteWriter,
        live_counts: LiveCounts,
        backoff: SeedBackoff,
        depth: metrics::Gauge,
        to_decide: mpsc::Sender<QueuedRequest>,
        alive: Option<mpsc::Sender<()>>,
    ) -> Self {
        Self {
            writer,
            live_counts,
            backoff,
            metrics: BatchMetrics::new(depth),
            to_decide,
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
        let outcomes = votes.iter().zip(inserted.outcomes);
        let stored = outcomes
            .zip(answers)
            .filter_map(|((vote, outcome), (queued_at, answer))| {
                let ended = match ended(outcome) {
                    Some(ended) => ended,
                    None => {
                        self.pass_on(vote, queued_at, answer);
                        return None;
                    }
                };
                Some(StoredBatchVote {
                    item_id: Some(vote.item_id),
                    ended,
                    queued_at,
                    answer: Some(answer),
                })
            });
        let mut batch = StoredBatch::new(stored.collect(), &self.metrics);
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

    /// Hands a vote to the writer that decides. Nothing is stored for it yet.
    fn pass_on(&self, vote: &NewVote, queued_at: Instant, answer: Answer) {
        let request = QueuedRequest {
            request: VoteRequest::Cast(vote.clone()),
            queued_at,
            answer,
        };
        self.metrics.depth.increment(1.0);
        if let Err(error) = self.to_decide.try_send(request) {
            self.metrics.depth.decrement(1.0);
            let refusal = match error {
                mpsc::error::TrySendError::Full(_) => CastError::QueueFull,
                mpsc::error::TrySendError::Closed(_) => CastError::Closing,
            };
            self.metrics.failed.increment(1);
            // A voter that no longer waits needs no answer.
            let _ = error.into_inner().answer.send(Err(refusal));
        }
    }

    /// Answers a batch that was not stored, or not for certain.
    fn fail(&self, votes: &[NewVote], answers: Vec<(Instant, Answer)>, error: &InsertError) {
        tracing::error!(%error, votes = votes.len(), "a batch of votes was not stored");
        let refusal = match error {
            InsertError::NotStored(_) => CastError::NotStored,
            InsertError::Unknown(_) => {
                suspect_once_decided(&self.live_counts, items(votes));
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

/// How a vote ended, without its count; `None`: it needs a decision.
fn ended(outcome: VoteOutcome) -> Option<Result<Cast, CastError>> {
    let count = None;
    Some(match outcome {
        VoteOutcome::Accepted(vote) => Ok(Cast::Accepted { vote, count }),
        VoteOutcome::Repeated(vote) => Ok(Cast::Repeated { vote, count }),
        VoteOutcome::UnknownItem => Ok(Cast::UnknownItem),
        VoteOutcome::Refused(refusal) => Ok(Cast::Refused(refusal)),
        VoteOutcome::UnresolvedRepeat => Err(CastError::UnresolvedRepeat),
        VoteOutcome::NeedsDecision => return None,
    })
}
