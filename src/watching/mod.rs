//! Watching: what the streams of one thread show, read for all of them together.
//!
//! Nothing is written for a vote. At each tick, the thread reads the live counts of everything that
//! its streams watch, in one pipeline. It wakes the streams whose items or polls now show something
//! else. The cost of a tick depends on what is watched, and not on votes; so does that of the rare
//! reads of Postgres.
//!
//! When Postgres fails over or is started again, the streams end whose ids were looked up: those that
//! name a key, or watch a poll, whose choices were looked up. In another database these ids may be
//! other items'. The clients open their streams again.
//!
//! A stream shows the state, not a log. A slow reader gets the newest state, and nothing is queued
//! for it.
//!
//! - `state`: what is watched, by which streams, and what each was shown. No I/O.
//! - `reader`: the task that reads.
//! - `public_state`: what is shown of an item or a poll, and its fingerprint.
//! - `pace`: how far ticks are apart.

mod pace;
mod public_state;
mod reader;
mod state;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll as Polled};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use crate::counts::{CountReader, ItemCount, PollCount};
use crate::domain::{ItemId, PollId};
use crate::ledger::ServerLedger;
use crate::live::LiveCounts;

pub use pace::TICK_LEAST;
pub use public_state::{Fingerprint, PublicState};
pub use reader::Reads;
pub use state::{Changed, Event, Watched};
use state::{Readiness, State, StreamId};

/// How long a new stream waits until everything that it watches is read.
pub const OPEN_LIMIT: Duration = Duration::from_secs(5);
/// The most items that one thread's streams may watch, choices of polls included. A poll itself counts
/// as one, whether it exists or not. A tick reads each
/// once: some 1.4 µs in Redis (seen: 0.8 to 1.4).
pub const WATCHED_LIMIT_ITEMS_PER_THREAD: usize = 50_000;
/// How often a stream without events gets a heartbeat. Proxies close silent connections, often
/// after 60 s, some after 30.
pub const HEARTBEAT_EVERY: Duration = Duration::from_secs(15);

/// How items and polls are shown. The same state must always give the same text, on each server.
#[derive(Clone, Copy)]
pub struct Rendering {
    pub item: fn(&ItemCount) -> PublicState,
    pub poll: fn(&PollCount) -> PublicState,
}

/// Why a stream was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WatchError {
    #[error("the streams of this thread watch as many items as they may")]
    TooMuchWatched,
    #[error("the ledger did not answer")]
    LedgerUnavailable,
    #[error("the server is shutting down")]
    Closing,
}

/// One thread's streams. Cheap to clone. The thread's task ends when all clones and all streams are
/// gone, or with its runtime.
#[derive(Clone)]
pub struct Watching {
    shared: Arc<Shared>,
}

/// What a thread's streams share with the task that reads for them.
struct Shared {
    state: Mutex<State>,
    /// Wakes the task: something is to be read from Postgres.
    wanted: Notify,
    /// Wakes those who wait for a read of Postgres.
    read: Notify,
    /// Wakes the task: there is a stream.
    opened: Notify,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watching {
    /// Starts the task of one thread on the current runtime. All threads share `reads`. All streams
    /// end when `closing` becomes true.
    pub fn start(
        ledger: &ServerLedger,
        live_counts: &LiveCounts,
        counts: &CountReader,
        rendering: Rendering,
        reads: Reads,
        closing: watch::Receiver<bool>,
    ) -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::new(State::new(rendering, ledger.ends())),
            wanted: Notify::new(),
            read: Notify::new(),
            opened: Notify::new(),
        });
        reader::start(&shared, ledger, live_counts, counts, reads, closing);
        Self { shared }
    }

    /// Opens a stream of these items and polls, each given once. `seen` has the fingerprints that
    /// the client has seen of them, in their order. A state with the same fingerprint is not sent
    /// again. What does not exist is left out until it exists. With `is_by_key`, a key named one of
    /// them: then the stream ends when Postgres fails over or is started again.
    ///
    /// # Errors
    /// When too much is watched already, Postgres is needed and does not
    /// answer, or the server is shutting down.
    pub async fn open(
        &self,
        watched: Vec<Watched>,
        seen: Option<Vec<Fingerprint>>,
        is_by_key: bool,
    ) -> Result<Stream, WatchError> {
        let (stream, failures) = {
            let mut state = self.shared.state();
            let id = state.open(watched, seen, is_by_key)?;
            let stream = Stream {
                shared: Arc::clone(&self.shared),
                id,
            };
            (stream, state.failures())
        };
        self.shared.opened.notify_one();
        self.shared.wanted.notify_one();
        let ready = timeout(OPEN_LIMIT, self.ready(stream.id, failures)).await;
        ready.unwrap_or(Err(WatchError::LedgerUnavailable))?;
        Ok(stream)
    }

    /// Waits until everything that a stream watches is read.
    async fn ready(&self, stream: StreamId, failures: u64) -> Result<(), WatchError> {
        loop {
            let mut read = std::pin::pin!(self.shared.read.notified());
            // Before the check, so that it misses no read in between.
            read.as_mut().enable();
            match self.shared.state().readiness(stream, failures) {
                Readiness::Ready => return Ok(()),
                Readiness::Never(error) => return Err(error),
                Readiness::Later => {}
            }
            read.await;
        }
    }
}

/// What one client watches. Dropping it forgets what no other client watches.
pub struct Stream {
    shared: Arc<Shared>,
    id: StreamId,
}

impl Stream {
    /// What of it does not exist. Each is shown once it does.
    pub fn unknown(&self) -> Vec<Watched> {
        self.shared.state().unknown(self.id)
    }

    /// What to send the client next, as it stands now; `None`: the stream ends.
    pub fn poll_event(&mut self, context: &mut Context<'_>) -> Polled<Option<Event>> {
        self.shared.state().poll_event(self.id, context)
    }

    /// Has the stream woken at the next change, but takes none. The client has not read the last
    /// one yet. Ready when the stream ends.
    pub fn poll_end(&mut self, context: &mut Context<'_>) -> Polled<()> {
        self.shared.state().poll_end(self.id, context)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.shared.state().close(self.id);
    }
}

/// An item or a poll.
impl From<ItemId> for Watched {
    fn from(item: ItemId) -> Self {
        Self::Item(item)
    }
}

impl From<PollId> for Watched {
    fn from(poll: PollId) -> Self {
        Self::Poll(poll)
    }
}
