//! Whether a worker does its work, for whoever watches it.

use std::time::Duration;

use tokio::time::Instant;

use super::{SyncError, Worker};

/// A flush that takes longer than this hangs: it has several statements, each of which may wait for a lock.
const FLUSH_HANGS_AFTER: Duration = Duration::from_secs(60);
/// A roll-up that takes this much longer than it may wait for a stalled server hangs. So does one of which
/// nothing was seen for as long: its task may be gone.
const ROLL_UP_HANGS_AFTER: Duration = Duration::from_secs(30);

/// How a worker's work goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// Saving counts.
    pub flush: Going,
    /// Moving the watermark.
    pub roll_up: Going,
}

/// How one part of the work goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Going {
    /// It has not ended yet since the start.
    Starting,
    Well,
    /// It fails for so long.
    Failing(Why, Duration),
    /// It has been under way for so long, or has not ended well for so long.
    Hanging(Duration),
}

/// Why a part of the work fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    Postgres,
    Redis,
    /// Another worker has the job for too long.
    JobTaken,
}

impl From<&SyncError> for Why {
    fn from(error: &SyncError) -> Self {
        match error {
            SyncError::Ledger(_) => Self::Postgres,
            SyncError::Live(_) => Self::Redis,
            SyncError::JobTaken(..) => Self::JobTaken,
            SyncError::Elsewhere => Self::Redis,
        }
    }
}

/// What is known of one part of the work.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    /// When it last ended well.
    pub ended_well: Option<Instant>,
    /// Since when it fails, and why.
    pub failing: Option<(Instant, Why)>,
    /// Since when it has been under way without getting anything done; `None`: it is not.
    pub running: Option<Instant>,
}

impl Work {
    /// `ends_often`: without an end for as long, something is wrong, too.
    fn going(self, now: Instant, hangs_after: Duration, ends_often: bool) -> Going {
        let running = self.running.map(|since| now.duration_since(since));
        match (running, self.failing) {
            (Some(running), _) if running >= hangs_after => Going::Hanging(running),
            (_, Some((since, why))) => Going::Failing(why, now.duration_since(since)),
            (_, None) => match self.ended_well.map(|ended| now.duration_since(ended)) {
                Some(since) if ends_often && since >= hangs_after => Going::Hanging(since),
                Some(_) => Going::Well,
                None => Going::Starting,
            },
        }
    }
}

impl Worker {
    /// How the work goes now.
    pub fn health(&self) -> Health {
        let now = Instant::now();
        let hangs_after = self.options.writer_stall_limit + ROLL_UP_HANGS_AFTER;
        Health {
            // TALLY_FLUSH_EVERY may be long. It is in no task that could be gone while the program runs.
            flush: self.watch.work("flush").going(now, FLUSH_HANGS_AFTER, false),
            roll_up: self.watch.work("roll_up").going(now, hangs_after, true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_goes_well_once_it_has_ended_well_and_while_it_neither_fails_nor_hangs() {
        let start = Instant::now();
        let limit = Duration::from_secs(15);
        let now = start + limit;
        let mut work = Work::default();
        assert_eq!(work.going(now, limit, true), Going::Starting);
        work.failing = Some((start, Why::Redis));
        assert_eq!(work.going(now, limit, true), Going::Failing(Why::Redis, limit));
        work.failing = None;
        work.ended_well = Some(now);
        assert_eq!(work.going(now, limit, true), Going::Well);
        work.running = Some(start);
        assert_eq!(
            work.going(now - Duration::from_millis(1), limit, true),
            Going::Well
        );
        assert_eq!(work.going(now, limit, true), Going::Hanging(limit));
        // Its task is gone.
        work.running = None;
        assert_eq!(work.going(now + limit, limit, true), Going::Hanging(limit));
        assert_eq!(work.going(now + limit, limit, false), Going::Well);
    }
}
