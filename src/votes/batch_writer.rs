//! The batch writer: stores each batch with one statement, and counts it with one pipeline.

use std::sync::Arc;

use tokio::sync::{Mutex, mpsc};
use tokio::time::Instant;

use super::backoff::SeedBackoff;
use super::batch::{BatchMetrics, StoredBatch, StoredBatchVote};
use super::batch_counting::BatchCounting;
use super::cast::{AnswerSender, Cast, CastError, QueuedRequest, QueuedVote, refuse_other_runs};
use super::entrance::Entrance;
use super::unfinished::UnfinishedBatch;
use crate::batching::take;
use crate::domain::{NewVote, PostgresRun, VoteOutcome, VoteRequest, VoteSource};
use crate::ledger::{InsertedBatch, VoteWriter};
use crate::live::LiveCounts;
use crate::telemetry::Span;

/// The batch writers of one thread. They take turns: a batch keeps the turn until it is stored, counted and answered,
/// so that the next one has all votes that came meanwhile. While one reads exact counts, or waits for a Redis that
/// hangs, the other goes on.
pub const BATCH_WRITERS_PER_THREAD: usize = 2;
/// The most votes in one batch.
pub const BATCH_LIMIT_VOTES: usize = 1024;

/// Takes batch after batch, until the queue is closed.
pub(super) struct BatchWriter {
    writer: VoteWriter,
    live_counts: LiveCounts,
    backoff: SeedBackoff,
    metrics: BatchMetrics,
    /// The way of votes that need a decision.
    to_decide: Entrance<QueuedRequest>,
    /// Dropped when this batch writer ends. If it is cut off in the middle of a batch, the batch's
    /// items are suspect by then.
    _alive: Option<mpsc::Sender<()>>,
}

impl BatchWriter {
    pub fn new(
        writer: VoteWriter,
        live_counts: LiveCounts,
        backoff: SeedBackoff,
        depth: metrics::Gauge,
        to_decide: Entrance<QueuedRequest>,
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
            // Held until the batch is counted. Meanwhile the other writer's next batch grows.
            let mut turn = queue.lock().await;
            let taken = take(&mut turn, &mut queued, BATCH_LIMIT_VOTES).await;
            if taken == 0 {
                return;
            }
            self.metrics.depth.decrement(taken as f64);
            self.metrics.batch_votes.record(taken as f64);
            let mut span = Span::begin("batch");
            span.set_number("tally.votes", taken);
            let started = Instant::now();
            let storing = span.call("store");
            let ready = self.writer.ready().await;
            if let Ok(ready) = &ready {
                refuse_other_runs(&mut queued, ready.run(), &self.metrics.failed);
            }
            let sources: Vec<VoteSource> = queued.iter().map(|one| one.source).collect();
            let (votes, answers): (Vec<NewVote>, Vec<_>) = queued
                .drain(..)
                .map(|one| (one.vote, (one.run, one.queued_at, one.answer)))
                .unzip();
            let items = votes.iter().map(|vote| vote.item_id);
            let unfinished = UnfinishedBatch::new(&self.live_counts, items);
            let inserted = match ready {
                Ok(ready) if votes.is_empty() => {
                    ready.keep();
                    None
                }
                Ok(ready) => Some(ready.insert(&votes, &sources).await),
                Err(error) => Some(Err(error)),
            };
            self.metrics
                .ledger_seconds
                .record(started.elapsed().as_secs_f64());
            drop(storing);
            match inserted {
                None => unfinished.finish(),
                Some(Ok(inserted)) => {
                    let _counting = span.call("count");
                    self.finalize(&votes, &sources, inserted, answers, started, turn)
                        .await;
                    unfinished.finish();
                }
                Some(Err(error)) => {
                    span.fail(&error);
                    let answers = answers.into_iter().map(|(.., answer)| answer);
                    unfinished.fail(&error, answers, &self.metrics.failed);
                }
            }
            self.writer.end_batch();
            drop(span);
            if let Err(error) = self.writer.read_ahead().await {
                tracing::debug!(%error, "items were not read ahead");
            }
        }
    }

    /// Counts a stored batch, and answers every vote in it.
    async fn finalize<Turn>(
        &mut self,
        votes: &[NewVote],
        sources: &[VoteSource],
        inserted: InsertedBatch,
        answers: Vec<(Option<PostgresRun>, Instant, AnswerSender)>,
        begun: Instant,
        turn: Turn,
    ) {
        let mut stored = Vec::with_capacity(votes.len());
        let asked = votes.iter().zip(sources);
        for (((vote, source), outcome), (run, queued_at, answer)) in asked.zip(inserted.outcomes).zip(answers)
        {
            match result_of(outcome) {
                Some(result) => stored.push(StoredBatchVote {
                    item_id: Some(vote.item_id),
                    result,
                    queued_at,
                    answer: Some(answer),
                }),
                None => self.pass_on(QueuedRequest {
                    request: VoteRequest::Cast(vote.clone()),
                    run,
                    source: *source,
                    queued_at,
                    is_partly_stored: false,
                    answer,
                }),
            }
        }
        let batch = StoredBatch::new(stored, &self.metrics);
        let deltas = batch.deltas();
        let counting = BatchCounting::new(&self.live_counts, &mut self.writer, &self.backoff, begun);
        counting.finish(inserted.transaction, deltas, batch, turn).await;
    }

    /// Hands a vote to the writer that decides. Nothing is stored for it yet.
    fn pass_on(&self, request: QueuedRequest) {
        if let Err((error, request)) = self.to_decide.hand_in(request) {
            // A voter who no longer waits needs no answer.
            let _ = request.answer.send(Err(error));
        }
    }
}

/// The result of a vote, without its count; `None`: it needs a decision.
fn result_of(outcome: VoteOutcome) -> Option<Result<Cast, CastError>> {
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
