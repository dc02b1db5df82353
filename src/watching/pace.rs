//! How far ticks are apart: the more they cost, the further.

use std::time::Duration;

/// The shortest time between two ticks. On average, a change is shown after half of it.
pub const TICK_LEAST: Duration = Duration::from_millis(250);
/// The cost of an event: mostly writing it to its connection. Seen: 11 µs.
const EVENT_COST: Duration = Duration::from_micros(11);
/// The cost of one watched item at a tick, in this process.
const ITEM_COST: Duration = Duration::from_micros(2);
/// The part of a thread's time that streams may take: one in this many. With 2,500 streams on a
/// thread that all get an event, ticks are 330 ms apart.
const SHARE: u32 = 12;
/// The next tick comes after this many times what the last one waited. A long wait for its turn or
/// for Redis shows that the thread, or Redis, has much to do.
const WAITED_SHARE: u32 = 4;
/// The longest delay for what a tick waited. A call that waited for a lost Redis says nothing about
/// the one that is back.
const WAITED_MOST: Duration = Duration::from_secs(1);

/// The time from the beginning of a tick to that of the next one. `took` is how long the tick
/// waited for Redis and until all streams were woken.
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
