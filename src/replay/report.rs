//! The result of a replay.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::client::Outcome;
use crate::telemetry::Plain;

/// How many digits of a latency are kept.
const LATENCY_DIGITS: u8 = 3;
/// The longest latency that is measured, in microseconds: an hour.
pub(crate) const LATENCY_LIMIT_US: u64 = 3600 * 1_000_000;
/// How many different reasons of refusals and failures are shown. All are counted.
const REASONS_LIMIT: usize = 10;
/// How wide the histogram's longest bar is, in characters.
const BAR_WIDTH: u64 = 40;

/// Totals, and a histogram of latencies.
#[derive(Debug)]
pub struct Report {
    pub accepted: u64,
    pub changed: u64,
    pub taken_back: u64,
    pub repeated: u64,
    pub refused: u64,
    pub failed: u64,
    pub took: Duration,
    /// Whether lines took effect in order, so that votes could be changed.
    in_order: bool,
    latencies_us: Histogram<u64>,
    reasons: BTreeMap<String, u64>,
}

impl Report {
    /// The report of no votes.
    ///
    /// # Errors
    /// Never: the bounds above are valid.
    pub fn new(in_order: bool) -> anyhow::Result<Self> {
        Ok(Self {
            in_order,
            accepted: 0,
            changed: 0,
            taken_back: 0,
            repeated: 0,
            refused: 0,
            failed: 0,
            took: Duration::ZERO,
            latencies_us: Histogram::new_with_bounds(1, LATENCY_LIMIT_US, LATENCY_DIGITS)?,
            reasons: BTreeMap::new(),
        })
    }

    /// Whether every line took effect, by this replay or before it.
    pub fn is_clean(&self) -> bool {
        self.refused == 0 && self.failed == 0
    }

    /// Adds one vote.
    pub fn add(&mut self, outcome: Outcome, latency: Duration) {
        self.latencies_us
            .saturating_record(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX));
        match outcome {
            Outcome::Accepted => self.accepted += 1,
            Outcome::Changed => self.changed += 1,
            Outcome::TakenBack => self.taken_back += 1,
            Outcome::Repeated => self.repeated += 1,
            Outcome::Refused(why) => {
                self.refused += 1;
                self.note(format!("refused: {why}"), 1);
            }
            Outcome::Failed(why) => {
                self.failed += 1;
                self.note(format!("failed: {why}"), 1);
            }
        }
    }

    /// Adds the totals and latencies of another report.
    ///
    /// # Errors
    /// Never: the histograms have the same bounds.
    pub fn merge(&mut self, other: Self) -> anyhow::Result<()> {
        self.accepted += other.accepted;
        self.changed += other.changed;
        self.taken_back += other.taken_back;
        self.repeated += other.repeated;
        self.refused += other.refused;
        self.failed += other.failed;
        self.latencies_us.add(other.latencies_us)?;
        for (reason, times) in other.reasons {
            self.note(reason, times);
        }
        Ok(())
    }

    fn note(&mut self, reason: String, times: u64) {
        if self.reasons.len() < REASONS_LIMIT || self.reasons.contains_key(&reason) {
            *self.reasons.entry(reason).or_default() += times;
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = [
            ("new", self.accepted),
            ("changed", self.changed),
            ("taken back", self.taken_back),
            ("repeated", self.repeated),
            ("refused", self.refused),
            ("failed", self.failed),
        ];
        let total: u64 = lines.iter().map(|(_, votes)| votes).sum();
        for (name, votes) in lines {
            if !self.in_order && matches!(name, "changed" | "taken back") {
                continue;
            }
            writeln!(out, "{name:<10} {votes:>10}")?;
        }
        for (reason, times) in &self.reasons {
            writeln!(out, "  {times} × {}", Plain(reason))?;
        }
        let seconds = self.took.as_secs_f64();
        writeln!(
            out,
            "{total} in {seconds:.2} s: {:.0} a second",
            total as f64 / seconds.max(1e-9)
        )?;
        writeln!(out, "\nlatency, from when each vote was due")?;
        for (label, quantile) in [
            ("p50", 0.5),
            ("p90", 0.9),
            ("p99", 0.99),
            ("p99.9", 0.999),
            ("max", 1.0),
        ] {
            let ms = self.latencies_us.value_at_quantile(quantile) as f64 / 1000.0;
            writeln!(out, "  {label:<6} {ms:>10.2} ms")?;
        }
        let bars: Vec<(u64, u64)> = self
            .latencies_us
            .iter_log(250, 2.0)
            .map(|step| (step.value_iterated_to(), step.count_since_last_iteration()))
            .collect();
        let longest = bars.iter().map(|(_, votes)| *votes).max().unwrap_or(0).max(1);
        writeln!(out)?;
        for (limit_us, votes) in bars {
            let bar = "█".repeat(usize::try_from(votes * BAR_WIDTH / longest).unwrap_or(0));
            writeln!(
                out,
                "  up to {:>9.2} ms {votes:>9} {bar}",
                (limit_us + 1) as f64 / 1000.0
            )?;
        }
        Ok(())
    }
}
