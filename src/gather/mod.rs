//! Gathering: many waiting requests become one batch. They wait in bounded queues;
//! a lane takes whatever is waiting, asks the stores once for all of it, answers, and
//! comes back for more. No timer: an idle system adds no delay, a busy one makes
//! large batches. For votes this is group commit.
//!
//! Each thread that serves requests has a gatherer of its own, and its lanes run on
//! that thread: an answer then wakes its request without a word to another thread,
//! which would cost a system call a vote.

mod reads;
mod votes;

use std::sync::Arc;

use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::task::yield_now;
use tokio::time::Instant;

pub use reads::{ItemRead, READ_BATCH_LIMIT_ITEMS, READ_QUEUE_LIMIT_READS, ReadError};
pub use votes::{
    BATCH_LIMIT_VOTES, Cast, CastError, LANES_PER_THREAD, QUEUE_LIMIT_VOTES, SEED_LIMIT, SEED_LIMIT_ROUNDS,
};

use crate::domain::{ItemId, NewVote};
use crate::ledger::Ledger;
use crate::live::Link;
use crate::telemetry::name;

/// How often a lane lets the requests go first that have arrived in the meantime,
/// before it is off with its batch. It goes at once when none has joined, so this only
/// bounds a stream that never pauses.
const JOIN_LIMIT_ROUNDS: usize = 8;

/// Where one thread's votes and reads are handed in. Cheap to clone; the lanes end
/// when all clones are gone and everything gathered is answered, or with their runtime.
#[derive(Clone)]
pub struct Gatherer {
    votes: mpsc::Sender<votes::Waiting>,
    reads: mpsc::Sender<reads::Waiting>,
    depth: metrics::Gauge,
    refused: metrics::Counter,
}

/// Starts one gatherer, with its lanes on the current runtime. `gatherers` of them
/// share the limits on what may wait.
///
/// A lane that ends with its runtime leaves its batch to the link's doubts: what it
/// had stored is counted afresh.
/// `alive` is dropped when the last lane for votes has ended.
pub fn start(ledger: &Ledger, link: &Link, gatherers: usize, alive: Option<mpsc::Sender<()>>) -> Gatherer {
    let depth = metrics::gauge!(name::QUEUE_DEPTH);
    let (votes, waiting) = mpsc::channel(QUEUE_LIMIT_VOTES.div_ceil(gatherers));
    let waiting = Arc::new(Mutex::new(waiting));
    for _ in 0..LANES_PER_THREAD {
        let lane = votes::Lane::new(ledger.writer(), link.clone(), depth.clone(), alive.clone());
        tokio::spawn(lane.run(Arc::clone(&waiting)));
    }
    let (reads, waiting) = mpsc::channel(READ_QUEUE_LIMIT_READS.div_ceil(gatherers));
    let lane = reads::Lane {
        reader: ledger.item_reader(),
        link: link.clone(),
    };
    tokio::spawn(lane.run(waiting));
    Gatherer {
        votes,
        reads,
        depth,
        refused: metrics::counter!(name::VOTES, "outcome" => "refused"),
    }
}

/// Takes what waits, and what joins it while there is something that does. Returns
/// how much that was; 0 when the queue is closed. Public for the bench, whose batched
/// contender gathers in the same way.
pub async fn take<One>(queue: &mut mpsc::Receiver<One>, batch: &mut Vec<One>, limit: usize) -> usize {
    let mut taken = queue.recv_many(batch, limit).await;
    if taken == 0 {
        return 0;
    }
    for _ in 0..JOIN_LIMIT_ROUNDS {
        // Whoever is ready runs before this goes on. Off with the first arrival, a
        // lane would be busy with a batch of one while all others wait for the next.
        yield_now().await;
        let before = taken;
        while taken < limit
            && let Ok(one) = queue.try_recv()
        {
            batch.push(one);
            taken += 1;
        }
        if taken == before {
            break;
        }
    }
    taken
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
        // Before a lane can take it away again.
        self.depth.increment(1.0);
        self.votes.try_send(waiting).map_err(|error| {
            self.depth.decrement(1.0);
            match error {
                mpsc::error::TrySendError::Full(_) => {
                    self.refused.increment(1);
                    CastError::QueueFull
                }
                mpsc::error::TrySendError::Closed(_) => CastError::Closing,
            }
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

    /// How many votes wait here for a batch.
    pub fn depth(&self) -> usize {
        self.votes.max_capacity() - self.votes.capacity()
    }
}
