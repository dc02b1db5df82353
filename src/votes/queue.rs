//! The queue of votes that wait for a batch.

use std::sync::Arc;

use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::Instant;

use super::backoff::SeedBackoff;
use super::batch_writer::{BATCH_LIMIT_VOTES, BATCH_WRITERS_PER_THREAD, BatchWriter};
use super::cast::{AnswerSender, Cast, CastError, QueuedRequest, QueuedVote};
use super::decision_writer::DecisionWriter;
use super::entrance::Entrance;
use crate::domain::{NewVote, PostgresRun, VoteRequest, VoteSource};
use crate::ledger::ServerLedger;
use crate::live::LiveCounts;
use crate::telemetry::name;

/// The most votes that may wait for a batch: four batches. The limit is for all queues of a server
/// together. Beyond that, a voter is refused at once and does not wait longer. `limit_relations.rs` says how
/// this relates to the number of connections.
pub const QUEUE_LIMIT_VOTES: usize = 4 * BATCH_LIMIT_VOTES;

/// The most requests that may wait for a decision, in all queues of a server.
pub const DECISION_QUEUE_LIMIT_REQUESTS: usize = 4 * BATCH_LIMIT_VOTES;

/// One thread's queue takes at least this many votes, whatever its share is. It takes all votes of
/// one request.
pub const QUEUE_LEAST_VOTES: usize = BATCH_LIMIT_VOTES;

/// One thread's queue of votes. Cheap to clone. Its batch writers end with their runtime, or when
/// all clones are gone and every vote is answered.
#[derive(Clone)]
pub struct VoteQueue {
    votes: Entrance<QueuedVote>,
    requests: Entrance<QueuedRequest>,
}

impl VoteQueue {
    /// Starts one queue, with its batch writers on the current runtime. All `queues` share
    /// `backoff` and [`QUEUE_LIMIT_VOTES`]; each takes at least [`QUEUE_LEAST_VOTES`]. `alive` is
    /// dropped when the last batch writer has ended.
    ///
    /// A batch writer that ends with its runtime leaves the items of its batch suspect. Their
    /// counts are then rebuilt with whatever the batch has stored.
    pub fn start(
        ledger: &ServerLedger,
        live_counts: &LiveCounts,
        backoff: &SeedBackoff,
        queues: usize,
        alive: Option<mpsc::Sender<()>>,
    ) -> Self {
        let depth = metrics::gauge!(name::QUEUE_DEPTH);
        let share = |limit: usize| limit.div_ceil(queues).max(QUEUE_LEAST_VOTES);
        let (votes, queued) = Entrance::new(share(QUEUE_LIMIT_VOTES), depth.clone());
        let queued = Arc::new(Mutex::new(queued));
        let (requests, to_decide) = Entrance::new(share(DECISION_QUEUE_LIMIT_REQUESTS), depth.clone());
        let decisions = DecisionWriter::new(
            ledger.writer(),
            live_counts.clone(),
            backoff.clone(),
            depth.clone(),
            alive.clone(),
        );
        tokio::spawn(decisions.run(to_decide));
        for _ in 0..BATCH_WRITERS_PER_THREAD {
            let writer = BatchWriter::new(
                ledger.writer(),
                live_counts.clone(),
                backoff.clone(),
                depth.clone(),
                requests.clone(),
                alive.clone(),
            );
            tokio::spawn(writer.run(Arc::clone(&queued)));
        }
        Self { votes, requests }
    }

    /// Hands in a vote from this source, and waits for its answer. If the
    /// caller stops waiting, the vote is not taken back: the batch goes on.
    ///
    /// # Errors
    /// When the queue is full, Postgres fails, or the server is shutting down. The error
    /// says whether the vote is stored.
    pub async fn cast(&self, vote: NewVote, source: VoteSource) -> Result<Cast, CastError> {
        self.only_in(None).cast(vote, source).await
    }

    /// The queue for what names ids of this run of Postgres: nothing of it is stored in another run.
    /// `None`: the client named the ids.
    pub fn only_in(&self, run: Option<PostgresRun>) -> QueueOfRun<'_> {
        QueueOfRun { queue: self, run }
    }

    /// Hands in what always needs a decision, and waits for its answer.
    ///
    /// # Errors
    /// As [`VoteQueue::cast`].
    pub async fn decide(&self, request: VoteRequest, source: VoteSource) -> Result<Cast, CastError> {
        self.only_in(None).decide(request, source).await
    }
}

/// A queue for what names ids of one run of Postgres.
#[derive(Clone, Copy)]
pub struct QueueOfRun<'q> {
    queue: &'q VoteQueue,
    run: Option<PostgresRun>,
}

impl QueueOfRun<'_> {
    /// As [`VoteQueue::cast`].
    ///
    /// # Errors
    /// As [`VoteQueue::cast`]. Also when the vote would reach another run ([`CastError::OtherRun`]).
    pub async fn cast(&self, vote: NewVote, source: VoteSource) -> Result<Cast, CastError> {
        handed_in(&self.queue.votes, |queued_at, answer| QueuedVote {
            vote,
            run: self.run,
            source,
            queued_at,
            answer,
        })
        .await
    }

    /// As [`VoteQueue::decide`].
    ///
    /// # Errors
    /// As [`QueueOfRun::cast`].
    pub async fn decide(&self, request: VoteRequest, source: VoteSource) -> Result<Cast, CastError> {
        handed_in(&self.queue.requests, |queued_at, answer| QueuedRequest {
            request,
            run: self.run,
            source,
            queued_at,
            is_partly_stored: false,
            answer,
        })
        .await
    }
}

/// Hands in one vote or request, and waits for its answer.
async fn handed_in<Queued>(
    entrance: &Entrance<Queued>,
    queued: impl FnOnce(Instant, AnswerSender) -> Queued,
) -> Result<Cast, CastError> {
    let (answer, answered) = oneshot::channel();
    entrance
        .hand_in(queued(Instant::now(), answer))
        .map_err(|(error, _)| error)?;
    // A batch writer drops an answer only when it is cut off. Then nobody knows whether the vote is
    // stored.
    answered.await.unwrap_or(Err(CastError::Unconfirmed))
}
