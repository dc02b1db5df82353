//! How far apart a worker's flushes are.
//!
//! A saved count costs some 12 µs of processor time in all processes, however many votes it holds.
//! With thousands of counts that change all the time, a flush a second would save each of them for
//! a few votes. So the interval stretches with what a flush had to write, up to a limit.

use std::time::Duration;

use tokio::time::Instant;

use super::FlushReport;
use crate::telemetry::name;

/// How many counts a worker writes a second before its flushes get rarer: a twenty-fifth of a
/// processor, by calculation. Over 10,000 items that all change, a flush every 3 s instead of
/// every second gave 0.96 to 1.26 times the votes (docs/decisions/worker/flushes-get-rarer.md).
pub(crate) const SAVES_BEFORE_STRETCH_PER_SECOND: u32 = 3000;
/// How long after a flush the next one is due at the latest, unless TALLY_FLUSH_EVERY is longer. Saved counts should
/// not be older than the sums over an hour or a day, which take about as long.
pub(crate) const FLUSH_INTERVAL_LIMIT: Duration = Duration::from_secs(5);

/// When the next flush is due. Asked at each tick.
#[derive(Debug)]
pub(super) struct FlushInterval {
    /// The time between two ticks.
    every: Duration,
    /// When the last flush began, and how long after that the next one is due. `None`: at the next tick.
    last: Option<(Instant, Duration)>,
}

impl FlushInterval {
    pub fn new(every: Duration) -> Self {
        Self { every, last: None }
    }

    /// Whether a flush is due at this tick, or was since the one before.
    pub fn is_due(&self, now: Instant) -> bool {
        // Ticks may be a little early.
        self.last
            .is_none_or(|(began, interval)| now + self.every / 2 >= began + interval)
    }

    /// Takes what a flush did that ended well.
    pub fn ended(&mut self, began: Instant, report: &FlushReport) {
        if report.rebuilds_left > 0 {
            return self.hurry();
        }
        // A count that changed while it was written, and one whose row was locked, cost as much as one that is saved.
        let interval = self.after(report.flushed + report.unsaved);
        self.last = Some((began, interval));
        metrics::gauge!(name::FLUSH_INTERVAL_SECONDS).set(interval.as_secs_f64());
    }

    /// The next flush is due at the next tick.
    pub fn hurry(&mut self) {
        self.last = None;
        metrics::gauge!(name::FLUSH_INTERVAL_SECONDS).set(self.every.as_secs_f64());
    }

    /// The next flush's time after one that wrote so many counts: whole ticks.
    fn after(&self, written: usize) -> Duration {
        let every = self.every.as_millis().max(1);
        let wanted = written as u128 * 1000 / u128::from(SAVES_BEFORE_STRETCH_PER_SECOND);
        let limit = FLUSH_INTERVAL_LIMIT.as_millis() / every;
        let ticks = ((wanted + every / 2) / every).min(limit).max(1);
        self.every
            .saturating_mul(u32::try_from(ticks).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// How many ticks after a flush with this report the next one is due.
    fn ticks_after(every: Duration, report: &FlushReport) -> u32 {
        let mut interval = FlushInterval::new(every);
        let began = Instant::now();
        assert!(interval.is_due(began), "nothing was flushed yet");
        interval.ended(began, report);
        // Ticks are late by a little, and a flush begins a little after its tick.
        let is_due = |tick: &u32| interval.is_due(began + every * *tick - Duration::from_millis(1));
        (1..).find(is_due).expect("it is due some time")
    }

    fn ticks(every: Duration, flushed: usize) -> u32 {
        let report = FlushReport {
            flushed,
            ..FlushReport::default()
        };
        ticks_after(every, &report)
    }

    #[test]
    fn flushes_get_rarer_with_what_they_write_up_to_the_limit() {
        let wrote = [0, 1, 3000, 4499, 4500, 10_000, 15_000, 50_000, 10_000_000];
        let due = wrote.map(|written| ticks(SECOND, written));
        assert_eq!(due, [1, 1, 1, 1, 2, 3, 5, 5, 5]);
        assert_eq!(ticks(Duration::from_millis(50), 1500), 10);
    }

    #[test]
    fn ticks_that_are_far_apart_do_not_pass_the_limit() {
        let every = [2000, 2500, 3000, 3300, 5000, 60_000].map(Duration::from_millis);
        let due = every.map(|every| ticks(every, 50_000));
        assert_eq!(due, [2, 2, 1, 1, 1, 1]);
    }

    #[test]
    fn counts_that_changed_while_they_were_written_cost_as_much() {
        let report = FlushReport {
            flushed: 3000,
            unsaved: 3000,
            ..FlushReport::default()
        };
        assert_eq!(ticks_after(SECOND, &report), 2);
    }

    #[test]
    fn items_that_are_to_be_rebuilt_and_what_a_failure_left_do_not_wait() {
        let busy = FlushReport {
            flushed: 15_000,
            ..FlushReport::default()
        };
        let waiting = FlushReport {
            rebuilds_left: 1,
            ..busy
        };
        assert_eq!(ticks_after(SECOND, &waiting), 1);
        let mut interval = FlushInterval::new(SECOND);
        let began = Instant::now();
        interval.ended(began, &busy);
        assert!(!interval.is_due(began + SECOND));
        interval.hurry();
        assert!(interval.is_due(began + SECOND));
    }
}
