//! The curves, and what each may do.

use std::time::Duration;

use serde::Serialize;
use testkit::curve::{Limit, Quarters, Worse};

use crate::load::ITEMS;

/// Curves that share axes in the plot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Panel {
    pub title: &'static str,
    pub is_logarithmic: bool,
}

const fn panel(title: &'static str) -> Panel {
    Panel {
        title,
        is_logarithmic: false,
    }
}

pub const SERVERS: Panel = panel("Memory of the servers, resident, MiB");
pub const WORKERS: Panel = panel("Memory of the workers, resident, MiB");
pub const REDIS: Panel = panel("Memory of Redis, MiB");
pub const POSTGRES: Panel = panel("Memory of Postgres without shared buffers, MiB");
pub const TAIL: Panel = panel("Votes beyond the watermark, seconds of voting");
pub const SAVED: Panel = panel("Age of the hot item's saved count, s");
pub const DISK: Panel = panel("Disk, bytes a vote");
pub const TABLES: Panel = panel("Disk of other tables with their indexes, MiB");
pub const RATES: Panel = panel("Requests a second");
pub const CPU: Panel = panel("CPU µs a vote, the reads beside it included");
pub const VOTE_LATENCY: Panel = Panel {
    title: "Latency of votes, ms",
    is_logarithmic: true,
};
pub const READ_LATENCY: Panel = Panel {
    title: "Latency of reads, ms",
    is_logarithmic: true,
};
pub const OTHERS: Panel = panel("Cores that other programs of the machine took");

/// What a curve may do.
#[derive(Clone, Copy, Debug)]
pub enum Rule {
    /// Stay flat.
    Flat(Limit),
    /// Stay flat too. But this is a time or a rate: if other programs took more of the machine
    /// in the last quarter, it says nothing about Tally.
    FlatUnlessBusy(Limit),
    /// Move, for a known reason, up to a bound.
    Explained { why: &'static str, most: f64 },
}

const fn at_most_more(percent: f64, slack: f64) -> Limit {
    Limit {
        worse: Worse::Higher,
        percent,
        slack,
    }
}

/// A leak of 0.8 MB/s, as servers once had, is 700 MiB between the two quarters of a run of
/// half an hour.
pub const OF_PROGRAMS: Rule = Rule::Flat(at_most_more(10.0, 8.0));
/// Buffers of replies come and go.
pub const OF_REDIS: Rule = Rule::Flat(at_most_more(10.0, 8.0));
/// Some 40 backends, each with its caches.
pub const OF_POSTGRES: Rule = Rule::Flat(at_most_more(10.0, 32.0));
/// A roll-up every 5 s makes the curve a saw: one tooth more is no growth.
pub const OF_TAIL: Rule = Rule::Flat(at_most_more(25.0, 5.0));
/// One more tick of a worker (1 s).
pub const OF_SAVED: Rule = Rule::FlatUnlessBusy(at_most_more(25.0, 1.0));
/// An index's pages fill and split at about the same time. That moves its size by some bytes
/// per vote.
pub const OF_DISK: Rule = Rule::Flat(at_most_more(15.0, 4.0));
pub const OF_P50: Rule = Rule::FlatUnlessBusy(at_most_more(50.0, 5.0));
/// One quarter may have a checkpoint more than another.
pub const OF_P99: Rule = Rule::FlatUnlessBusy(at_most_more(100.0, 25.0));
/// Deeper indexes, larger tables.
pub const OF_CPU: Rule = Rule::FlatUnlessBusy(at_most_more(30.0, 3.0));
/// The load is an open loop, so the rate falls only where requests wait.
pub const OF_RATE: Rule = Rule::FlatUnlessBusy(Limit {
    worse: Worse::Lower,
    percent: 10.0,
    slack: 0.0,
});
pub const OF_OTHERS: Rule = Rule::Explained {
    why: "no part of Tally; says what else ran",
    most: f64::INFINITY,
};

/// A row version of `item` takes about this much.
const ITEM_BYTES: f64 = 128.0;
/// How often an item is saved at most, with the default `TALLY_FLUSH_EVERY`.
const SAVES_PER_SECOND: f64 = 1.0;
/// A row version of `audited_count` or `recent_change` takes about this much, with its index entries.
const SUM_BYTES: f64 = 160.0;
/// A row of `recent_change` takes about this much, with the space for its next version.
const RECENT_ROW_BYTES: f64 = 270.0;
/// How often roll-ups write an item: at most every 3.75 s.
const SUMS_PER_SECOND: f64 = 0.27;
/// The span of a row of `recent_change`.
const SPAN: Duration = Duration::from_secs(300);
/// When autovacuum looks at a database again (Postgres' default).
const VACUUM_EVERY: Duration = Duration::from_secs(60);
/// A table itself, with the space that its pages leave free.
const TABLE_SLACK_MIB: f64 = 16.0;
/// Jobs' last runs and heartbeats: nothing that grows with votes.
pub const OF_OTHER_TABLES: Rule = Rule::Flat(at_most_more(10.0, 2.0));

/// The MiB of row versions that stay while reports hold a snapshot for `report_for` at a time. That is two
/// reports' worth, since the space of one may not be free before the next, and that of the time until
/// autovacuum comes.
fn versions_mib(bytes: f64, per_second: f64, report_for: Duration) -> f64 {
    let seconds = (2 * report_for + VACUUM_EVERY).as_secs_f64();
    ITEMS as f64 * per_second * seconds * bytes / 1024.0 / 1024.0
}

/// What the table `item` may take while reports hold a snapshot for `report_for` at a time.
pub fn of_item(report_for: Duration) -> Rule {
    Rule::Explained {
        why: "while a report holds its snapshot, each saved count leaves a row version",
        most: versions_mib(ITEM_BYTES, SAVES_PER_SECOND, report_for) + TABLE_SLACK_MIB,
    }
}

/// The same for `audited_count`.
pub fn of_audited_count(report_for: Duration) -> Rule {
    Rule::Explained {
        why: "while a report holds its snapshot, each roll-up leaves a row version",
        most: versions_mib(SUM_BYTES, SUMS_PER_SECOND, report_for) + TABLE_SLACK_MIB,
    }
}

/// The same for `recent_change`, with a row of each item for each five minutes of the run. After an hour,
/// these rows become one.
pub fn of_recent_change(report_for: Duration, run: Duration) -> Rule {
    let spans = run.as_secs_f64() / SPAN.as_secs_f64() + 2.0;
    let rows_mib = ITEMS as f64 * spans * RECENT_ROW_BYTES / 1024.0 / 1024.0;
    Rule::Explained {
        why: "a row of each item for each five minutes, and what reports keep of their versions",
        most: rows_mib + versions_mib(SUM_BYTES, SUMS_PER_SECOND, report_for) + TABLE_SLACK_MIB,
    }
}

/// If other programs take this many cores more in the last quarter, times say nothing.
const OTHERS_LIMIT_CORES: f64 = 0.15;

pub struct Curve {
    pub panel: Panel,
    pub name: String,
    pub rule: Rule,
    /// A value for each sample; NaN where nothing was measured.
    pub values: Vec<f64>,
}

/// All samples of a run.
pub struct Samples {
    run: Duration,
    /// When each was taken, in seconds since the load began.
    pub seconds: Vec<f64>,
    /// Whether a report held its snapshot.
    pub report_open: Vec<bool>,
    pub curves: Vec<Curve>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    Flat,
    Explained(&'static str),
    /// Times on a machine that others made slower.
    NotJudged(String),
    Grew(String),
}

/// A curve, judged.
pub struct Judged<'a> {
    pub curve: &'a Curve,
    pub quarters: Option<Quarters>,
    /// The worst value that its last quarter, or the whole of an explained curve, may have.
    pub bound: Option<f64>,
    pub verdict: Verdict,
}

impl Samples {
    pub fn new(run: Duration) -> Self {
        Self {
            run,
            seconds: Vec::new(),
            report_open: Vec::new(),
            curves: Vec::new(),
        }
    }

    /// Begins a sample.
    pub fn begin(&mut self, seconds: f64, report_open: bool) {
        self.seconds.push(seconds);
        self.report_open.push(report_open);
    }

    /// Adds a value to the sample that has begun.
    pub fn push(&mut self, panel: Panel, name: &str, rule: Rule, value: f64) {
        let known = self
            .curves
            .iter()
            .position(|one| one.panel == panel && one.name == name);
        let at = known.unwrap_or_else(|| {
            self.curves.push(Curve {
                panel,
                name: name.to_owned(),
                rule,
                values: Vec::new(),
            });
            self.curves.len() - 1
        });
        let values = &mut self.curves[at].values;
        // Fills the samples in which it was missing.
        values.resize(self.seconds.len() - 1, f64::NAN);
        values.push(value);
    }

    fn quarters(&self, curve: &Curve) -> Option<Quarters> {
        let run = self.run.as_secs_f64();
        let parts = self.seconds.iter().map(move |seconds| seconds / run);
        Quarters::of(parts.zip(curve.values.iter().copied()))
    }

    /// How many cores more other programs took in the last quarter than in the second.
    fn others_grew_by(&self) -> f64 {
        let others = self.curves.iter().find(|curve| curve.panel == OTHERS);
        let quarters = others.and_then(|curve| self.quarters(curve));
        quarters.map_or(0.0, |quarters| quarters.last - quarters.second)
    }

    pub fn judge(&self) -> Vec<Judged<'_>> {
        self.curves.iter().map(|curve| self.judge_one(curve)).collect()
    }

    fn judge_one<'a>(&self, curve: &'a Curve) -> Judged<'a> {
        let quarters = self.quarters(curve);
        let others = self.others_grew_by();
        let (bound, verdict) = match (curve.rule, quarters) {
            (_, None) => (
                None,
                Verdict::Grew("too few samples to say that it did not".to_owned()),
            ),
            (Rule::Explained { why, most }, Some(_)) => {
                let highest = curve.values.iter().copied().fold(f64::MIN, f64::max);
                let verdict = if highest > most {
                    Verdict::Grew(format!("to {highest:.1}, more than {why} explains"))
                } else {
                    Verdict::Explained(why)
                };
                (most.is_finite().then_some(most), verdict)
            }
            (Rule::Flat(limit) | Rule::FlatUnlessBusy(limit), Some(quarters)) => {
                let is_time = matches!(curve.rule, Rule::FlatUnlessBusy(_));
                let verdict = if limit.holds(&quarters) {
                    Verdict::Flat
                } else if is_time && others > OTHERS_LIMIT_CORES {
                    Verdict::NotJudged(format!("others took {others:.2} cores more"))
                } else {
                    Verdict::Grew("beyond its bound".to_owned())
                };
                (Some(limit.bound(&quarters)), verdict)
            }
        };
        Judged {
            curve,
            quarters,
            bound,
            verdict,
        }
    }
}
