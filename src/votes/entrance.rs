//! The way into a queue: bounded, counted, and closed when the server stops.

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::cast::CastError;
use crate::telemetry::name;

/// The way into one thread's queue. Cheap to clone.
pub(super) struct Entrance<Queued> {
    queue: mpsc::Sender<Queued>,
    depth: metrics::Gauge,
    refused: metrics::Counter,
}

impl<Queued> Entrance<Queued> {
    /// Makes a queue of this length. Its reader lowers `depth`.
    pub fn new(limit: usize, depth: metrics::Gauge) -> (Self, mpsc::Receiver<Queued>) {
        let (queue, queued) = mpsc::channel(limit);
        let entrance = Self {
            queue,
            depth,
            refused: metrics::counter!(name::VOTES, "outcome" => "refused"),
        };
        (entrance, queued)
    }

    /// Hands in one vote or request.
    ///
    /// # Errors
    /// When the queue is full, or the server is shutting down. Gives back what was not taken.
    pub fn hand_in(&self, one: Queued) -> Result<(), (CastError, Queued)> {
        // The gauge goes up first: a writer may take the vote at once and lower it.
        self.depth.increment(1.0);
        self.queue.try_send(one).map_err(|error| {
            self.depth.decrement(1.0);
            match error {
                TrySendError::Full(one) => {
                    self.refused.increment(1);
                    (CastError::QueueFull, one)
                }
                TrySendError::Closed(one) => (CastError::Closing, one),
            }
        })
    }
}

impl<Queued> Clone for Entrance<Queued> {
    fn clone(&self) -> Self {
        Self {
            queue: self.queue.clone(),
            depth: self.depth.clone(),
            refused: self.refused.clone(),
        }
    }
}
