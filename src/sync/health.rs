//! Whether a worker does its work, for whoever watches it.

use std::time::Duration;

use tokio::time::Instant;

use super::{SyncError, Worker};

/// A flush that takes longer than this hangs: it has several statements, each of which may wait for a lock.
const FLUSH_HANGS_AFTER: Duration = Duration::from_secs(60);
/// A roll-up that takes this much longer than it may wait for a stalled server hangs.
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
    /// It has been under way for so long.
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
        }
    }
}

/// What is known of one part of the work.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    pub has_ended_well: bool,
    /// Since when it fails, and why.
    pub failing: Option<(Instant, Why)>,
    /// Since when it has been under way; `None`: it is not.
    pub running: Option<Instant>,
}

impl Work {
    fn going(self, now: Instant, hangs_after: Duration) -> Going {
        let running = self.running.map(|since| now.duration_since(since));
        match (running, self.failing) {
            (Some(running), _) if running >= hangs_after => Going::Hanging(running),
            (_, Some((since, why))) => Going::Failing(why, now.duration_since(since)),
            (_, None) if self.has_ended_well => Going::Well,
            (_, None) => Going::Starting,
        }
    }
}

impl Worker {
    /// How the work goes now.
    pub fn health(&self) -> Health {
        let now = Instant::now();
        let hangs_after = self.options.writer_stall_limit + ROLL_UP_HANGS_AFTER;
        Health {
            flush: self.watch.work("flush").going(now, FLUSH_HANGS_AFTER),
            roll_up: self.watch.work("roll_up").going(now, hangs_after),
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
        assert_eq!(work.going(now, limit), Going::Starting);
        work.failing = Some((start, Why::Redis));
        assert_eq!(work.going(now, limit), Going::Failing(Why::Redis, limit));
        work.failing = None;
        work.has_ended_well = true;
        assert_eq!(work.going(now, limit), Going::Well);
        work.running = Some(start);
        assert_eq!(work.going(now - Duration::from_millis(1), limit), Going::Well);
        assert_eq!(work.going(now, limit), Going::Hanging(limit));
    }
}
