//! When exact counts cannot be read in time: Postgres is slow, or much lies beyond the watermark. A read takes
//! as long whatever its items, so no batch reads for a while, and items without a live count get none. Then
//! one batch tries. So slow reads hold up the votes behind them only now and then.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long nobody reads after a read was too slow. The first wait, and the longest: each wait is twice the
/// one before.
const WAIT_FIRST: Duration = Duration::from_secs(1);
const WAIT_LAST: Duration = Duration::from_secs(30);

/// The wait of a server, shared by all its writers. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct SeedBackoff(Arc<Mutex<Wait>>);

#[derive(Debug, Default)]
struct Wait {
    /// How many reads in a row were too slow, each begun after the wait of the one before.
    failures: u32,
    /// `None`: nobody waits.
    until: Option<Instant>,
}

/// Leave to read exact counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leave {
    /// The failures when it was given.
    failures: u32,
}

impl SeedBackoff {
    /// Leave to read exact counts now; `None`: nobody does for a while. After a wait, one caller gets it.
    pub fn may_read(&self, now: Instant) -> Option<Leave> {
        let mut wait = self.lock();
        let failures = wait.failures;
        match wait.until {
            Some(until) if now < until => None,
            Some(_) => {
                wait.until = Some(now + wait_after(failures + 1));
                Some(Leave { failures })
            }
            None => Some(Leave { failures }),
        }
    }

    /// Notes that a read with this leave was too slow. Of several that were under way together, the first counts.
    pub fn failed(&self, leave: Leave, now: Instant) {
        let mut wait = self.lock();
        if wait.failures == leave.failures {
            wait.failures = leave.failures.saturating_add(1);
            wait.until = Some(now + wait_after(wait.failures));
        }
    }

    /// Notes that exact counts were read.
    pub fn succeeded(&self) {
        *self.lock() = Wait::default();
    }

    fn lock(&self) -> MutexGuard<'_, Wait> {
        // No panic leaves it half changed, so the poison means nothing.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Pure: how long to wait after so many slow reads in a row, at least one.
fn wait_after(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(u32::BITS - 1);
    WAIT_FIRST.saturating_mul(1 << doublings).min(WAIT_LAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_slow_read_nobody_reads_for_twice_as_long_each_time_and_then_one_caller_does() {
        let backoff = SeedBackoff::default();
        let mut now = Instant::now();
        let mut leave = backoff.may_read(now).expect("nobody has failed");
        assert!(backoff.may_read(now).is_some());
        for wait in [1, 2, 4, 8, 16, 30, 30] {
            backoff.failed(leave, now);
            // Others were under way together with it.
            backoff.failed(leave, now);
            assert_eq!(backoff.may_read(now + Duration::from_secs(wait) / 2), None);
            now += Duration::from_secs(wait);
            leave = backoff.may_read(now).expect("the wait is over");
            assert_eq!(backoff.may_read(now), None, "one caller reads");
        }
        backoff.succeeded();
        let leave = backoff.may_read(now).expect("it has succeeded");
        assert!(backoff.may_read(now).is_some());
        backoff.failed(leave, now);
        assert!(
            backoff.may_read(now + WAIT_FIRST).is_some(),
            "the first wait again"
        );
    }

    #[test]
    fn nobody_reads_from_when_a_read_has_failed() {
        let backoff = SeedBackoff::default();
        let started = Instant::now();
        backoff.failed(backoff.may_read(started).expect("the first"), started);
        let read = started + WAIT_FIRST;
        let leave = backoff.may_read(read).expect("the wait is over");
        // The second wait is twice the first, and the read took as long.
        let failed = read + WAIT_FIRST * 2;
        backoff.failed(leave, failed);
        assert_eq!(backoff.may_read(failed + WAIT_FIRST), None);
    }
}
