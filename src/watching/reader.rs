//! The task that reads for a thread's streams. It reads live counts at each tick, and now and then
//! what only Postgres knows.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::Shared;
use super::pace::until_next;
use super::state::{READ_AGAIN_EVERY, StreamId};
use crate::counts::CountReader;
use crate::domain::ItemId;
use crate::ledger::{LedgerError, OtherRun, ServerLedger};
use crate::live::{LiveCounts, LiveRead};
use crate::telemetry::{name, trouble};

/// Items in one pipeline of a tick. Redis serves others between two pipelines.
const PIPELINE_LIMIT_ITEMS: usize = 1000;
/// Items in one statement.
const STATEMENT_LIMIT_ITEMS: usize = 1000;
/// Polls in one statement.
const STATEMENT_LIMIT_POLLS: usize = 100;
/// The most streams that are woken before other tasks have their turn. It takes about half a
/// millisecond.
const WAKE_LIMIT_STREAMS: usize = 48;
/// How many reads of Postgres the streams of a server have under way at once.
const READS_LIMIT: usize = 2;
/// How long a thread waits for one answer of Postgres. A lost answer would hold up everything after
/// it.
const READ_LIMIT: Duration = Duration::from_secs(2);
/// The time between two looks for silent streams.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// The shortest rest between two reads of Postgres. Streams that open meanwhile share the next
/// read.
const REST_LEAST: Duration = Duration::from_millis(5);
/// A thread rests this many times as long as it waited for Postgres.
const REST_SHARE: u32 = 3;
/// The longest rest. After an outage, the first read may have waited for a dead connection, and
/// streams show the right counts only after the next read.
const REST_MOST: Duration = Duration::from_millis(500);

pub fn start(
    shared: &Arc<Shared>,
    ledger: &ServerLedger,
    live_counts: &LiveCounts,
    counts: &CountReader,
    reads: Reads,
    mut closing: watch::Receiver<bool>,
) {
    let reader = Reader {
        reads,
        shared: Arc::clone(shared),
        ledger: ledger.clone(),
        live_counts: live_counts.clone(),
        counts: counts.clone(),
    };
    tokio::spawn(async move {
        tokio::select! {
            () = reader.tick() => {}
            () = reader.read() => {}
            () = reader.read_finals() => {}
            // An error means that the sender is gone.
            _ = closing.wait_for(|closing| *closing) => {}
        }
        let wakers = reader.shared.state().end_all();
        wakers.into_iter().for_each(Waker::wake);
        reader.shared.read.notify_waiters();
    });
}

/// How many of the connections to Postgres the streams of a server may use at once. All requests
/// share these connections.
#[derive(Clone)]
pub struct Reads(Arc<Semaphore>);

impl Default for Reads {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(READS_LIMIT)))
    }
}

/// How long a thread rests after it waited this long for Postgres.
fn rest_after(waited: Duration) -> Duration {
    waited.saturating_mul(REST_SHARE).clamp(REST_LEAST, REST_MOST)
}

struct Reader {
    reads: Reads,
    shared: Arc<Shared>,
    ledger: ServerLedger,
    live_counts: LiveCounts,
    counts: CountReader,
}

impl Reader {
    /// Reads the live counts at each tick, as long as there are streams.
    async fn tick(&self) {
        let mut swept_at = Instant::now();
        loop {
            while !self.shared.state().has_streams() {
                self.shared.opened.notified().await;
            }
            let began = Instant::now();
            let items = {
                let mut state = self.shared.state();
                state.follow();
                state.ticking()
            };
            let reads = self.live_reads(&items).await;
            let (behind, is_due) = self.shared.state().ticked(&items, reads);
            if is_due {
                self.shared.wanted.notify_one();
            }
            self.wake(&behind).await;
            if swept_at.elapsed() >= SWEEP_EVERY {
                swept_at = Instant::now();
                let silent = self.shared.state().silent(swept_at);
                self.wake(&silent).await;
            }
            let interval = until_next(items.len(), behind.len(), began.elapsed());
            sleep_until(began + interval).await;
            // As it was, and not as it was planned: the thread may have had no time.
            metrics::histogram!(name::STREAM_TICK_SECONDS).record(began.elapsed().as_secs_f64());
        }
    }

    /// `None`: Redis is unavailable; its client has logged that.
    async fn live_reads(&self, items: &[ItemId]) -> Option<Vec<LiveRead>> {
        let mut reads = Vec::with_capacity(items.len());
        for some in items.chunks(PIPELINE_LIMIT_ITEMS) {
            reads.extend(self.live_counts.read(some).await.ok()?);
        }
        Some(reads)
    }

    /// Wakes these streams, and lets other tasks have their turn in between.
    async fn wake(&self, streams: &[StreamId]) {
        for some in streams.chunks(WAKE_LIMIT_STREAMS) {
            let wakers = self.shared.state().wakers(some);
            wakers.into_iter().for_each(Waker::wake);
            yield_now().await;
        }
    }

    /// Reads from Postgres what is due.
    async fn read(&self) {
        loop {
            let due = self.shared.state().next_due();
            match due {
                None => self.shared.wanted.notified().await,
                // Whichever comes first.
                Some(at) => drop(timeout_at(at, self.shared.wanted.notified()).await),
            }
            let began = Instant::now();
            let ended = self.read_due().await;
            if let Err(error) = &ended {
                trouble!(error, %error; "the ledger did not answer the streams");
            }
            sleep(rest_after(began.elapsed())).await;
        }
    }

    /// Reads from Postgres within the limits. `ended` is from [`State::follow`], before it was known
    /// what to read.
    async fn limited<T>(
        &self,
        ended: u64,
        read: impl Future<Output = Result<T, LedgerError>>,
    ) -> Result<T, LedgerError> {
        // An error cannot happen: the semaphore is never closed.
        let _turn = self.reads.0.acquire().await;
        let read = timeout(READ_LIMIT, read)
            .await
            .unwrap_or(Err(LedgerError::Timeout(READ_LIMIT)))?;
        if self.ledger.changes() == ended {
            Ok(read)
        } else {
            Err(OtherRun.into())
        }
    }

    async fn read_due(&self) -> Result<(), LedgerError> {
        let now = Instant::now();
        let (ended_before, polls) = {
            let mut state = self.shared.state();
            (state.follow(), state.due_polls(now, STATEMENT_LIMIT_POLLS))
        };
        let mut ended = Ok(());
        let mut behind = Vec::new();
        if !polls.is_empty() {
            let found = self.limited(ended_before, self.ledger.polls(&polls)).await;
            let mut state = self.shared.state();
            behind.extend(match found {
                Ok(found) => state.read_polls(&polls, found),
                Err(error) => {
                    ended = Err(error);
                    state.not_read(&[], &polls)
                }
            });
        }
        // Choices of polls that were just read are among them.
        let (items, since) = {
            let state = self.shared.state();
            let items = state.due_items(Instant::now(), STATEMENT_LIMIT_ITEMS);
            (items, state.ticks())
        };
        if !items.is_empty() {
            let found = async {
                self.counts
                    .with_counts(self.ledger.items_by_id(&items).await?)
                    .await
            };
            let found = self.limited(ended_before, found).await;
            let mut state = self.shared.state();
            behind.extend(match found {
                Ok(found) => state.read_items(&items, found, since),
                Err(error) => {
                    ended = Err(error);
                    state.not_read(&items, &[])
                }
            });
        }
        self.shared.read.notify_waiters();
        self.wake(&behind).await;
        ended
    }

    /// Reads the final counts of closed polls, in a read of their own. Postgres answers only when
    /// the last votes are committed.
    async fn read_finals(&self) {
        loop {
            let (ended, due) = {
                let mut state = self.shared.state();
                (
                    state.follow(),
                    state.due_finals(Instant::now(), STATEMENT_LIMIT_POLLS),
                )
            };
            for (poll, known) in due {
                let counts = self.counts.final_counts(poll, known.as_deref());
                // Errors show in the other reads.
                let counts = self.limited(ended, counts).await.unwrap_or_default();
                let behind = self.shared.state().read_finals(poll, counts);
                self.shared.read.notify_waiters();
                self.wake(&behind).await;
            }
            // A new stream of a closed poll waits for this.
            drop(timeout_at(Instant::now() + READ_AGAIN_EVERY, self.shared.read.notified()).await);
            sleep(REST_LEAST).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_rests_longer_the_longer_it_waited_but_not_long_after_an_outage() {
        assert_eq!(rest_after(Duration::ZERO), REST_LEAST);
        assert_eq!(rest_after(Duration::from_millis(100)), Duration::from_millis(300));
        assert_eq!(rest_after(READ_LIMIT), REST_MOST);
    }
}
