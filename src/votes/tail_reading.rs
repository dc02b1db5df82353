//! Reads votes beyond the watermark while nobody rolls up. Exact counts are then as quick as with a worker: without
//! this, the first one after a while would read all votes that came meanwhile.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::domain::VoteId;
use crate::ledger::{LedgerError, ServerLedger};

/// The time between two looks at the watermark.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long the watermark has stood still when a server begins to read: twice the longest pause between two roll-ups.
/// Behind a watermark that moves few votes are left, and a long tail that was read would be read again.
pub const TAIL_STILL_LIMIT: Duration = Duration::from_secs(10);
/// How long it pauses after a read that failed or was in vain: a busy Postgres is then left to voters.
const PAUSE: Duration = Duration::from_secs(10);
/// So many votes are left to whoever asks for an exact count: by calculation some milliseconds.
const UNREAD_LIMIT_VOTES: i64 = 10_000;

/// Reads on for one server.
pub struct TailReading {
    ledger: ServerLedger,
    still_limit: Duration,
    /// The watermark, and when it was first seen there.
    watermark: Option<(VoteId, Instant)>,
    /// The watermark of a tail that is too long to keep.
    too_long: Option<VoteId>,
    /// When the next pause ends.
    paused_until: Option<Instant>,
}

impl TailReading {
    /// Reads on behind a watermark that has stood still for so long.
    pub fn new(ledger: ServerLedger, still_limit: Duration) -> Self {
        Self {
            ledger,
            still_limit,
            watermark: None,
            too_long: None,
            paused_until: None,
        }
    }

    /// Looks again and again. Never ends.
    pub async fn run(&mut self) {
        loop {
            sleep(LOOK_EVERY).await;
            if let Err(error) = self.read_on().await {
                // Whoever asks for an exact count has logged it as well.
                tracing::debug!(%error, "votes beyond the watermark were not read");
            }
        }
    }

    /// Reads all votes beyond the watermark, if it stands still.
    ///
    /// # Errors
    /// When Postgres is unavailable or too slow.
    pub async fn read_on(&mut self) -> Result<(), LedgerError> {
        if self.paused_until.is_some_and(|until| Instant::now() < until) {
            return Ok(());
        }
        let read = self.read_to_the_end().await;
        if !matches!(read, Ok(true)) {
            self.paused_until = Some(Instant::now() + PAUSE);
        }
        read.map(|_| ())
    }

    /// Returns whether all went well: false if a read was in vain.
    async fn read_to_the_end(&mut self) -> Result<bool, LedgerError> {
        let mut read_before = None;
        loop {
            let tail = self.ledger.tail_progress().await?;
            let since = match self.watermark {
                Some((watermark, since)) if watermark == tail.watermark => since,
                _ => {
                    let now = Instant::now();
                    self.watermark = Some((tail.watermark, now));
                    now
                }
            };
            let is_short = tail.drawn.get() - tail.read.get() < UNREAD_LIMIT_VOTES;
            let is_too_long = self.too_long == Some(tail.watermark);
            if since.elapsed() < self.still_limit || is_short || is_too_long {
                return Ok(true);
            }
            // Behind too many unused ids, a read keeps nothing.
            if read_before.is_some_and(|before| tail.read <= before) {
                return Ok(false);
            }
            read_before = Some(tail.read);
            match self.ledger.read_on().await {
                Ok(()) => {}
                Err(LedgerError::LongTail) => {
                    // With too many items nothing is kept. With too many unused ids it may go on in a while.
                    let tail = self.ledger.tail_progress().await?;
                    if tail.read == tail.watermark {
                        self.too_long = Some(tail.watermark);
                    }
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
    }
}
