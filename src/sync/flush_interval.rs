//! How far apart a worker's flushes are.
//!
//! A saved count costs some 12 µs of processor time in all processes, however many votes it holds.
//! With thousands of counts that change all the time, a flush a second would save each of them for
//! a few votes. So the interval stretches with what a flush had to write, up to a limit.

use std::time::Duration;

use tokio::time::Instant;

use crate::telemetry::name;

/// How many counts a worker writes a second before its flushes get rarer: a twenty-fifth of a
/// processor, by calculation. Over 10,000 items that all change, a flush every 3 s instead of
/// every second gave 1.05 to 1.26 times the votes (docs/decisions/worker/flushes-get-rarer.md).
pub(crate) const SAVES_BEFORE_STRETCH_PER_SECOND: u32 = 3000;
/// The longest time between two flushes, unless TALLY_FLUSH_EVERY is longer. Saved counts should
/// not be older than the sums over an hour or a day, which take about as long.
pub(crate) const FLUSH_INTERVAL_LIMIT: Duration = Duration::from_secs(5);

/// When the next flush is due. Asked at each tick.
#[derive(Debug)]
pub(super) struct FlushInterval {
    /// The time between two ticks.
    every: Duration,
    /// When the last flush that ended well began, and how long after that the next one is due.
    last: Option<(Instant, Duration)>,
}

impl FlushInterval {
    pub fn new(every: Duration) -> Self {
        Self { every, last: None }
    }

    /// Whether a flush is due at this tick, which is the nearest to its time.
    pub fn is_due(&self, now: Instant) -> bool {
        let half_a_tick = self.every / 2;
        self.last
            .is_none_or(|(began, interval)| now + half_a_tick >= began + interval)
    }

    /// Takes how a flush ended: `written` counts were written to their items. `None`: it failed, so
    /// the next tick tries again.
    pub fn ended(&mut self, began: Instant, written: Option<usize>) {
        self.last = written.map(|written| (began, self.after(written)));
        let interval = self.last.map_or(self.every, |(_, interval)| interval);
        metrics::gauge!(name::FLUSH_INTERVAL_SECONDS).set(interval.as_secs_f64());
    }

    fn after(&self, written: usize) -> Duration {
        let written = u32::try_from(written).unwrap_or(u32::MAX);
        let stretched = Duration::from_secs(written.into()) / SAVES_BEFORE_STRETCH_PER_SECOND;
        stretched.min(FLUSH_INTERVAL_LIMIT).max(self.every)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many ticks after a flush that wrote `written` counts the next one is due.
    fn ticks(every: Duration, written: Option<usize>) -> u32 {
        let mut interval = FlushInterval::new(every);
        let began = Instant::now();
        assert!(interval.is_due(began), "nothing was flushed yet");
        interval.ended(began, written);
        // Ticks are late by a little, and a flush begins a little after its tick.
        let is_due = |tick: &u32| interval.is_due(began + every * *tick - Duration::from_millis(1));
        (1..).find(is_due).expect("it is due some time")
    }

    #[test]
    fn flushes_get_rarer_with_what_they_write_up_to_the_limit() {
        let second = Duration::from_secs(1);
        let wrote = [0, 1, 3000, 4000, 6000, 10_000, 15_000, 50_000, usize::MAX];
        let due = wrote.map(|written| ticks(second, Some(written)));
        assert_eq!(due, [1, 1, 1, 1, 2, 3, 5, 5, 5]);
    }

    #[test]
    fn a_flush_is_due_at_the_next_tick_after_one_that_failed_and_never_before() {
        assert_eq!(ticks(Duration::from_secs(1), None), 1);
        assert_eq!(ticks(Duration::from_secs(60), Some(usize::MAX)), 1);
        assert_eq!(ticks(Duration::from_millis(50), Some(1500)), 10);
    }
}
