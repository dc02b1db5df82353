//! The allowance of seeds. As long as few live counts are seeded, any vote may have its item's seeded: most
//! installations then have a live count of each item that is voted on. Beyond that, votes on cold items make none.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The most seeds at once: live counts of by calculation 2.4 MB in Redis.
const LIMIT_SEEDS: u32 = 20_000;
/// How long it takes until one more is allowed. By calculation, from 0.1 ms for a seed with all that
/// follows it, so many cost 0.5% of one processor.
const ONE_MORE_EVERY: Duration = Duration::from_millis(20);
/// Seeds beyond the allowance are held against it up to so many: those of warm items, and of batches that were on
/// their way when it was used up.
const DEBT_LIMIT_SEEDS: u32 = LIMIT_SEEDS;

/// How many seeds a server is allowed.
#[derive(Debug)]
pub(super) struct SeedAllowance {
    /// When all of it is there again, if nothing is seeded until then.
    whole_at: Mutex<Instant>,
}

impl SeedAllowance {
    /// All of it is there.
    pub fn new(now: Instant) -> Self {
        Self {
            whole_at: Mutex::new(now),
        }
    }

    /// Whether one more seed is allowed.
    pub fn has_some(&self, now: Instant) -> bool {
        self.whole_at().saturating_duration_since(now) <= ONE_MORE_EVERY * (LIMIT_SEEDS - 1)
    }

    /// Notes that so many live counts are missing, and were leased to be seeded.
    pub fn spend(&self, seeds: usize, now: Instant) {
        if seeds == 0 {
            return;
        }
        let seeds = u32::try_from(seeds).unwrap_or(u32::MAX);
        let latest = now + ONE_MORE_EVERY * (LIMIT_SEEDS + DEBT_LIMIT_SEEDS);
        let mut whole_at = self.whole_at();
        *whole_at = ((*whole_at).max(now) + ONE_MORE_EVERY.saturating_mul(seeds)).min(latest);
    }

    fn whole_at(&self) -> MutexGuard<'_, Instant> {
        // No panic leaves it half changed, so the poison means nothing.
        self.whole_at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_seeds_are_allowed_at_once_and_then_one_more_each_time() {
        let mut now = Instant::now();
        let allowance = SeedAllowance::new(now);
        allowance.spend(LIMIT_SEEDS as usize - 1, now);
        assert!(allowance.has_some(now));
        allowance.spend(1, now);
        assert!(!allowance.has_some(now));
        for _ in 0..3 {
            now += ONE_MORE_EVERY - Duration::from_millis(1);
            assert!(!allowance.has_some(now));
            now += Duration::from_millis(1);
            assert!(allowance.has_some(now));
            allowance.spend(1, now);
            assert!(!allowance.has_some(now));
        }
        now += ONE_MORE_EVERY * 2 * LIMIT_SEEDS;
        allowance.spend(LIMIT_SEEDS as usize - 1, now);
        assert!(allowance.has_some(now), "no more than all of it is saved up");
        allowance.spend(1, now);
        assert!(!allowance.has_some(now));
    }

    #[test]
    fn what_is_seeded_beyond_it_is_held_against_it_up_to_a_limit() {
        let mut now = Instant::now();
        let allowance = SeedAllowance::new(now);
        allowance.spend(LIMIT_SEEDS as usize + 10, now);
        now += ONE_MORE_EVERY * 10;
        assert!(!allowance.has_some(now));
        now += ONE_MORE_EVERY;
        assert!(allowance.has_some(now));
        allowance.spend(usize::MAX, now);
        now += ONE_MORE_EVERY * DEBT_LIMIT_SEEDS;
        assert!(!allowance.has_some(now));
        now += ONE_MORE_EVERY;
        assert!(allowance.has_some(now));
    }
}
