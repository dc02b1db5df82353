//! Decides whether a curve that a soak has sampled grows.
//!
//! The rule: the median of the last quarter must not be worse than the median of the second quarter
//! by more than a percentage and an absolute slack together. Because of the medians, a checkpoint
//! or a vacuum in one sample decides nothing. The first quarter is no measure, because caches fill
//! and counters are seeded in it.

use std::ops::Range;

/// The first part of a run, which belongs to no quarter: the first minutes.
pub const WARM_UP_PART: f64 = 0.1;
/// The fewest samples of a quarter.
pub const QUARTER_SAMPLES: usize = 5;

const FIRST: Range<f64> = WARM_UP_PART..0.25;
const SECOND: Range<f64> = 0.25..0.5;
const LAST: Range<f64> = 0.75..f64::INFINITY;

/// Which way a curve gets worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worse {
    Higher,
    Lower,
}

/// How much worse the last quarter may be than the second.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    pub worse: Worse,
    /// In percent of the second quarter's median.
    pub percent: f64,
    /// In addition to that, in the curve's own unit.
    pub slack: f64,
}

/// The medians of a curve's quarters. The first quarter lacks the warm-up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quarters {
    pub first: f64,
    pub second: f64,
    pub last: f64,
}

impl Quarters {
    /// The quarters of samples, each with its place in the run (0 to 1).
    /// A sample that is no number was not measured. `None`: a quarter has too few samples.
    pub fn of(samples: impl Iterator<Item = (f64, f64)> + Clone) -> Option<Self> {
        let median_in = |quarter: Range<f64>| {
            let within = samples.clone().filter(|(part, _)| quarter.contains(part));
            let values: Vec<f64> = within
                .map(|(_, value)| value)
                .filter(|value| !value.is_nan())
                .collect();
            (values.len() >= QUARTER_SAMPLES)
                .then(|| median(values))
                .flatten()
        };
        Some(Self {
            first: median_in(FIRST)?,
            second: median_in(SECOND)?,
            last: median_in(LAST)?,
        })
    }
}

impl Limit {
    /// The worst median that the last quarter may have.
    pub fn bound(&self, quarters: &Quarters) -> f64 {
        let more = quarters.second.abs() * self.percent / 100.0 + self.slack;
        match self.worse {
            Worse::Higher => quarters.second + more,
            Worse::Lower => quarters.second - more,
        }
    }

    /// Whether the curve is flat, as far as the limit says.
    pub fn holds(&self, quarters: &Quarters) -> bool {
        match self.worse {
            Worse::Higher => quarters.last <= self.bound(quarters),
            Worse::Lower => quarters.last >= self.bound(quarters),
        }
    }
}

/// The middle value, or the mean of the two middle values.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}
