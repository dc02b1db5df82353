//! Turns of batches: how many of a server's batches Postgres works on at once.
//!
//! What a statement costs whatever it holds (its message, its plan's start, its commit) is paid for each batch.
//! While one thread's batch is stored, the votes of the others wait, and make larger batches.

use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// The most batches that Postgres works on at once, however many threads there are.
const TURNS_LIMIT: usize = 4;
/// How long a batch may keep its turn: a few times as long as most take. One that waits for a lock or for a
/// standby, or whose connection hangs, holds the other threads up for no longer.
const TURN_LIMIT: Duration = Duration::from_millis(5);

/// The turns of one server. Cheap to clone.
#[derive(Clone, Debug)]
pub struct BatchTurns(Arc<Semaphore>);

/// A turn. It ends when it is dropped.
#[derive(Debug)]
pub struct BatchTurn {
    /// `None`: nobody ends the semaphore, so there is always one.
    permit: Option<OwnedSemaphorePermit>,
}

impl Default for BatchTurns {
    /// One for two of this machine's processors.
    fn default() -> Self {
        let processors = available_parallelism().map_or(1, usize::from);
        Self(Arc::new(Semaphore::new((processors / 2).clamp(1, TURNS_LIMIT))))
    }
}

impl BatchTurns {
    /// Waits for a turn.
    pub async fn take(&self) -> BatchTurn {
        let permit = Arc::clone(&self.0).acquire_owned().await;
        BatchTurn { permit: permit.ok() }
    }
}

impl BatchTurn {
    /// Does this in the turn. What takes longer goes on, and another batch has the turn meanwhile.
    pub async fn store<Stored>(self, storing: impl Future<Output = Stored>) -> Stored {
        let mut storing = std::pin::pin!(storing);
        if let Ok(stored) = timeout(TURN_LIMIT, &mut storing).await {
            return stored;
        }
        drop(self.permit);
        storing.await
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::task::Poll;

    use super::*;

    async fn is_ready(task: impl Future) -> bool {
        let mut task = std::pin::pin!(task);
        std::future::poll_fn(|context| Poll::Ready(task.as_mut().poll(context).is_ready())).await
    }

    #[tokio::test]
    async fn a_batch_waits_until_one_before_it_is_stored_or_takes_too_long() {
        let turns = BatchTurns(Arc::new(Semaphore::new(1)));
        let first = turns.take().await;
        assert!(!is_ready(turns.take()).await);
        assert_eq!(first.store(std::future::ready(1)).await, 1);
        let second = turns.take().await;
        let hanging = tokio::spawn(second.store(pending::<()>()));
        // It would wait for ever for one that keeps its turn.
        let third = turns.take().await;
        assert!(!hanging.is_finished());
        drop(third);
        hanging.abort();
        assert!(is_ready(turns.take()).await);
    }
}
