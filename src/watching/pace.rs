//! How far ticks are apart: further, the more they cost.

use std::time::Duration;

/// From one tick to the next, at the least: a change is shown half of it later, about.
pub const TICK_LEAST: Duration = Duration::from_millis(250);
/// What an event costs: mostly writing it to its connection. Seen: 11 µs.
const EVENT_COST: Duration = Duration::from_micros(11);
/// What one watched item costs at a tick, in this process.
const ITEM_COST: Duration = Duration::from_micros(2);
/// The part of a thread's time that streams may take, one in so many. With 2,500 streams on a
/// thread that all get an event, ticks are 330 ms apart.
const SHARE: u32 = 12;
/// A tick that waits long for its turn or for Redis shows that the thread, or Redis, has much to
/// do: the next one begins so many times later.
const WAITED_SHARE: u32 = 4;
/// But not later than this. A call that waited for a Redis that was gone says nothing of the one that
/// is back.
const WAITED_MOST: Duration = Duration::from_secs(1);

/// From the beginning of a tick to that of the next one. `took` is how long it waited for Redis
/// and until all streams were woken.
pub fn until_next(items: usize, events: usize, took: Duration) -> Duration {
    let times = |cost: Duration, count: usize| cost * u32::try_from(count).unwrap_or(u32::MAX);
    let cost = times(EVENT_COST, events).saturating_add(times(ITEM_COST, items));
    TICK_LEAST
        .max(cost.saturating_mul(SHARE))
        .max(took.saturating_mul(WAITED_SHARE).min(WAITED_MOST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_further_apart_the_more_they_cost() {
        let quick = Duration::from_millis(1);
        assert_eq!(until_next(1, 10, quick), TICK_LEAST);
        assert_eq!(
            until_next(1, 2_500, quick),
            Duration::from_micros(12 * (27_500 + 2))
        );
        assert!(until_next(50_000, 0, quick) > Duration::from_secs(1));
        assert_eq!(
            until_next(1, 0, Duration::from_millis(200)),
            Duration::from_millis(800)
        );
        assert_eq!(until_next(1, 0, Duration::from_secs(9)), WAITED_MOST);
        // No number of them panics.
        until_next(usize::MAX, usize::MAX, Duration::MAX);
    }
}
