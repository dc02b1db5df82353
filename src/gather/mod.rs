//! Gathering: many waiting requests become one batch. They wait in bounded queues;
//! each lane takes whatever is waiting, asks the stores once for all of it, answers,
//! and comes back for more. No timer: an idle system adds no delay, a busy one makes
//! large batches. For votes this is group commit.

mod reads;
mod votes;

use std::sync::Arc;

use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

pub use reads::{ItemRead, READ_BATCH_LIMIT_ITEMS, READ_LANES, READ_QUEUE_LIMIT_READS, ReadError};
pub use votes::{
    BATCH_LIMIT_VOTES, Cast, CastError, LANES, QUEUE_LIMIT_VOTES, SEED_LIMIT, SEED_LIMIT_ROUNDS,
};

use crate::domain::{ItemId, NewVote};
use crate::ledger::Ledger;
use crate::live::Link;
use crate::telemetry::name;

/// Where votes and reads are handed in. Cheap to clone; the lanes end when all are gone.
#[derive(Clone)]
pub struct Gatherer {
    votes: mpsc::Sender<votes::Waiting>,
    reads: mpsc::Sender<reads::Waiting>,
}

/// The running lanes.
pub struct Lanes {
    tasks: JoinSet<()>,
}

impl Lanes {
    /// Waits until everything gathered is answered. Drop all [`Gatherer`]s first.
    pub async fn finish(mut self) {
        while let Some(ended) = self.tasks.join_next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "a lane of the gatherer failed");
            }
        }
    }
}

/// Starts the lanes on the current runtime.
pub fn start(ledger: &Ledger, link: &Link) -> (Gatherer, Lanes) {
    let mut tasks = JoinSet::new();
    let (votes, waiting) = mpsc::channel(QUEUE_LIMIT_VOTES);
    let waiting = Arc::new(Mutex::new(waiting));
    for _ in 0..LANES {
        let lane = votes::Lane {
            writer: ledger.writer(),
            link: link.clone(),
        };
        tasks.spawn(lane.run(Arc::clone(&waiting)));
    }
    let (reads, waiting) = mpsc::channel(READ_QUEUE_LIMIT_READS);
    let waiting = Arc::new(Mutex::new(waiting));
    for _ in 0..READ_LANES {
        let lane = reads::Lane {
            ledger: ledger.clone(),
            link: link.clone(),
        };
        tasks.spawn(lane.run(Arc::clone(&waiting)));
    }
    (Gatherer { votes, reads }, Lanes { tasks })
}

impl Gatherer {
    /// Hands a vote in and waits for its answer. Giving up waiting does not take
    /// the vote back: its batch goes on.
    ///
    /// # Errors
    /// When the queue is full, the ledger away, or the server shutting down.
    pub async fn cast(&self, vote: NewVote) -> Result<Cast, CastError> {
        let (answer, answered) = oneshot::channel();
        let waiting = votes::Waiting {
            vote,
            since: Instant::now(),
            answer,
        };
        self.votes.try_send(waiting).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => {
                metrics::counter!(name::VOTES, "outcome" => "refused").increment(1);
                CastError::QueueFull
            }
            mpsc::error::TrySendError::Closed(_) => CastError::Closing,
        })?;
        // A lane drops an answer only by failing, which says nothing of the vote.
        answered.await.unwrap_or(Err(CastError::LedgerAway))
    }

    /// The item with this id and its live count; `None` if there is no such item.
    ///
    /// # Errors
    /// When the queue is full, the ledger away, or the server shutting down.
    pub async fn read(&self, item: ItemId) -> Result<Option<ItemRead>, ReadError> {
        let (answer, answered) = oneshot::channel();
        let waiting = reads::Waiting { item, answer };
        self.reads.try_send(waiting).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => ReadError::QueueFull,
            mpsc::error::TrySendError::Closed(_) => ReadError::Closing,
        })?;
        answered.await.unwrap_or(Err(ReadError::LedgerAway))
    }

    /// How many votes wait for a batch.
    pub fn depth(&self) -> usize {
        self.votes.max_capacity() - self.votes.capacity()
    }
}
