//! The queue of votes that wait for a batch.

use std::sync::Arc;

use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::Instant;

use super::backoff::SeedBackoff;
use super::cast::{Cast, CastError, QueuedRequest, QueuedVote};
use super::deciding::DecisionWriter;
use super::writer::{BATCH_LIMIT_VOTES, BATCH_WRITERS_PER_THREAD, BatchWriter};
use crate::domain::{NewVote, VoteRequest};
use crate::ledger::ServerLedger;
use crate::live::LiveCounts;
use crate::telemetry::name;

/// The most votes that may wait for a batch, in all queues of a server together: four
/// batches. Instead of waiting longer, a voter is refused at once. How it relates to the
/// number of connections stands in `limits.rs`.
pub const QUEUE_LIMIT_VOTES: usize = 4 * BATCH_LIMIT_VOTES;

/// The most requests that may wait for a decision, in all queues of a server together.
pub const DECISION_QUEUE_LIMIT_REQUESTS: usize = 4 * BATCH_LIMIT_VOTES;

/// One thread's queue of votes. Cheap to clone. Its batch writers end with their runtime, or
/// when all clones are gone and every vote is answered.
#[derive(Clone)]
pub struct VoteQueue {
    votes: mpsc::Sender<QueuedVote>,
    requests: mpsc::Sender<QueuedRequest>,
    depth: metrics::Gauge,
    refused: metrics::Counter,
}

impl VoteQueue {
    /// Starts one queue, with its batch writers on the current runtime. `queues` of them
    /// share [`QUEUE_LIMIT_VOTES`] and `backoff`. `alive` is dropped when the last batch writer has
    /// ended.
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
        let (votes, queued) = mpsc::channel(QUEUE_LIMIT_VOTES.div_ceil(queues));
        let queued = Arc::new(Mutex::new(queued));
        let (requests, to_decide) = mpsc::channel(DECISION_QUEUE_LIMIT_REQUESTS.div_ceil(queues));
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
        Self {
            votes,
            requests,
            depth,
            refused: metrics::counter!(name::VOTES, "outcome" => "refused"),
        }
    }

    /// Hands a vote in and waits for its answer. A caller that stops waiting does not take the
    /// vote back: the batch goes on.
    ///
    /// # Errors
    /// When the queue is full, Postgres fails, or the server is shutting down. The error
    /// says whether the vote is stored.
    pub async fn cast(&self, vote: NewVote) -> Result<Cast, CastError> {
        let (answer, answered) = oneshot::channel();
        let queued = QueuedVote {
            vote,
            queued_at: Instant::now(),
            answer,
        };
        self.hand_in(&self.votes, queued)?;
        // A batch writer drops an answer only when it is cut off. Whether the vote is stored
        // is then unknown.
        answered.await.unwrap_or(Err(CastError::Unconfirmed))
    }

    /// Hands in what needs a decision in any case, and waits for its answer.
    ///
    /// # Errors
    /// As [`VoteQueue::cast`].
    pub async fn decide(&self, request: VoteRequest) -> Result<Cast, CastError> {
        let (answer, answered) = oneshot::channel();
        let queued = QueuedRequest {
            request,
            queued_at: Instant::now(),
            answer,
        };
        self.hand_in(&self.requests, queued)?;
        answered.await.unwrap_or(Err(CastError::Unconfirmed))
    }

    fn hand_in<Queued>(&self, queue: &mpsc::Sender<Queued>, one: Queued) -> Result<(), CastError> {
        // The gauge goes up first: a writer may take it at once and lower it.
        self.depth.increment(1.0);
        queue.try_send(one).map_err(|error| {
            self.depth.decrement(1.0);
            match error {
                mpsc::error::TrySendError::Full(_) => {
                    self.refused.increment(1);
                    CastError::QueueFull
                }
                mpsc::error::TrySendError::Closed(_) => CastError::Closing,
            }
        })
    }

    /// How many votes wait here for a batch.
    pub fn depth(&self) -> usize {
        self.votes.max_capacity() - self.votes.capacity()
    }
}
