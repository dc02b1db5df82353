//! The samples of the last hour, kept in memory.

use std::collections::VecDeque;

use crate::web::status::curves::{CURVES, Interval, Surroundings};
use crate::web::status::figures::Figures;

/// The time between two samples.
pub const SAMPLE_EVERY_SECONDS: u32 = 5;
/// The most samples that are kept: an hour. Each takes 4 bytes for each curve.
pub const SAMPLES_LIMIT: usize = 720;
/// The samples of the last minute.
const LATELY_SAMPLES: usize = 12;

/// One value of each curve.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Seconds since 1970.
    pub at: u32,
    /// In the order of [`CURVES`]. NaN means no value.
    values: [f32; CURVES.len()],
}

impl Sample {
    /// Returns the value of a curve, by its place in [`CURVES`].
    pub fn value(&self, curve: usize) -> Option<f32> {
        self.values.get(curve).copied().filter(|value| value.is_finite())
    }
}

/// The samples of the last hour.
#[derive(Default)]
pub struct History {
    samples: VecDeque<Sample>,
    /// The metrics at the last samples, with their times in seconds of a monotonic clock.
    lately: VecDeque<(f64, Figures)>,
}

impl History {
    /// Adds a sample. The first one only begins, because a rate needs two.
    pub fn add(&mut self, at: u32, clock_seconds: f64, figures: Figures, around: &Surroundings) {
        if let Some((before_at, before)) = self.lately.back() {
            let interval = Interval {
                before,
                now: &figures,
                seconds: clock_seconds - before_at,
                around,
            };
            let values = std::array::from_fn(|curve| {
                (CURVES[curve].value)(&interval).map_or(f32::NAN, |value| value as f32)
            });
            if self.samples.len() >= SAMPLES_LIMIT {
                self.samples.pop_front();
            }
            self.samples.push_back(Sample { at, values });
        }
        if self.lately.len() > LATELY_SAMPLES {
            self.lately.pop_front();
        }
        self.lately.push_back((clock_seconds, figures));
    }

    /// Returns the samples after this time (seconds since 1970), oldest first.
    pub fn after(&self, at: u32) -> Vec<Sample> {
        self.samples
            .iter()
            .filter(|sample| sample.at > at)
            .copied()
            .collect()
    }

    /// Returns the metrics of a minute ago, or of the first sample, with their time.
    pub fn lately(&self) -> Option<&(f64, Figures)> {
        self.lately.front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_is_kept_and_no_more() {
        let mut history = History::default();
        for at in 0..2000_u32 {
            let mut figures = Figures::default();
            figures.votes[0] = f64::from(at) * 50.0;
            let clock = f64::from(at * SAMPLE_EVERY_SECONDS);
            history.add(
                at * SAMPLE_EVERY_SECONDS,
                clock,
                figures,
                &Surroundings::default(),
            );
        }
        let all = history.after(0);
        assert_eq!(all.len(), SAMPLES_LIMIT);
        assert!(all.is_sorted_by_key(|sample| sample.at));
        let last = all.last().expect("samples");
        assert_eq!(
            (last.at, last.value(0)),
            (1999 * SAMPLE_EVERY_SECONDS, Some(10.0))
        );
        assert_eq!(history.after(last.at - SAMPLE_EVERY_SECONDS).len(), 1);
        assert_eq!(history.after(last.at).len(), 0);
        // A minute ago.
        let (clock, figures) = history.lately().expect("figures");
        assert_eq!(f64::from(last.at) - clock, 60.0);
        assert_eq!(figures.votes[0], (1999.0 - 12.0) * 50.0);
        // Nobody has voted, so there is no latency.
        let p50 = CURVES
            .iter()
            .position(|curve| curve.name == "latency_p50")
            .expect("a curve");
        assert_eq!(last.value(p50), None);
    }

    #[test]
    fn the_first_sample_only_begins() {
        let mut history = History::default();
        history.add(5, 0.0, Figures::default(), &Surroundings::default());
        assert!(history.after(0).is_empty());
        history.add(10, 5.0, Figures::default(), &Surroundings::default());
        assert_eq!(history.after(0).len(), 1);
    }
}
