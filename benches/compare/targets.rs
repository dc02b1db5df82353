//! What Tally is to reach, and what it reached.

use serde::Serialize;

use crate::report::{Report, median};
use crate::systems::System::{self, BatchedTransaction, NoOp, Recipe, Tally, Transaction};
use crate::voting::Row;

/// One target.
#[derive(Clone, Debug, Serialize)]
pub struct Target {
    pub what: String,
    /// Whether `bound` is the least or the most that is allowed.
    pub at_least: bool,
    pub bound: f64,
    /// The median; null when its workload did not run.
    pub measured: Option<f64>,
    pub met: Option<bool>,
}

impl Target {
    fn new(what: impl Into<String>, at_least: bool, bound: f64, measured: Option<f64>) -> Self {
        let mut target = Self {
            what: what.into(),
            at_least,
            bound,
            measured,
            met: None,
        };
        target.met = measured.map(|_| target.is_met());
        target
    }

    pub fn is_met(&self) -> bool {
        self.measured.is_some_and(|measured| {
            if self.at_least {
                measured >= self.bound
            } else {
                measured <= self.bound
            }
        })
    }
}

/// Every target, measured or not.
pub fn all(report: &Report) -> Vec<Target> {
    let rate = |row: &Row| Some(row.requests_per_second);
    let cpu = |row: &Row| Some(row.cpu_us_per_vote?.sum());
    let p99_at_half = |row: &Row| Some(row.open_loop_ms.as_ref()?.latency.p99);
    let ratio = |workload, other: System, figure: &dyn Fn(&Row) -> Option<f64>| {
        ratio(report, workload, (Tally, 0), (other, 0), figure)
    };
    let mut targets = Vec::new();
    for (workload, about, bounds) in [
        (
            "hot",
            "hot item",
            [(Transaction, 30.0), (Recipe, 8.0), (NoOp, 0.70)],
        ),
        (
            "uniform",
            "10,000 items",
            [(Transaction, 9.0), (Recipe, 6.0), (NoOp, 0.55)],
        ),
    ] {
        for (other, bound) in bounds {
            targets.push(Target::new(
                format!("{about}: rate against {}", other.name()),
                true,
                bound,
                ratio(workload, other, &rate),
            ));
        }
    }
    for (workload, about, bound) in [
        ("hot", "hot item, one server", 1.2),
        ("hot_three_servers", "hot item, three servers", 3.0),
    ] {
        targets.push(Target::new(
            format!("{about}: rate against batched transaction"),
            true,
            bound,
            ratio(workload, BatchedTransaction, &rate),
        ));
    }
    for (workload, about, bound) in [("hot", "hot item", 2.5), ("uniform", "10,000 items", 3.5)] {
        targets.push(Target::new(
            format!("{about}: CPU a vote against the no-op baseline's"),
            false,
            bound,
            ratio(workload, NoOp, &cpu),
        ));
    }
    targets.push(Target::new(
        "reads of a live count: rate against the no-op baseline",
        true,
        0.8,
        ratio("reads", NoOp, &rate),
    ));
    for (workload, about) in [("hot", "hot item"), ("uniform", "10,000 items")] {
        targets.push(Target::new(
            format!("{about}: open loop p99 at half load against transaction's"),
            false,
            1.0,
            ratio(workload, Transaction, &p99_at_half),
        ));
    }
    let ledger = report
        .cases("full_ledger")
        .into_iter()
        .map(|(_, rows)| rows)
        .max()
        .unwrap_or(0);
    targets.push(Target::new(
        if ledger > 0 {
            format!(
                "{} million rows in the ledger: rate against an empty one",
                ledger / 1_000_000
            )
        } else {
            "10 million rows in the ledger: rate against an empty one".to_owned()
        },
        true,
        0.85,
        (self::ratio(report, "full_ledger", (Tally, ledger), (Tally, 0), &rate)).filter(|_| ledger > 0),
    ));
    let worker = |workload, figure: &dyn Fn(&crate::worker::WorkerRow) -> Option<f64>| {
        median(
            report
                .worker
                .iter()
                .filter(|row| row.workload == workload)
                .filter_map(figure),
        )
    };
    targets.push(Target::new(
        "Redis wiped under full load: seconds to 90% of the rate, exact",
        false,
        2.0,
        worker("reseed", &|row| {
            Some(if row.verified { row.seconds } else { f64::INFINITY })
        }),
    ));
    targets.push(Target::new(
        "flush: changed counters a second",
        true,
        150_000.0,
        worker("flush", &|row| Some(row.count_per_second)),
    ));
    targets.push(Target::new(
        "sweep: saved counters a second",
        true,
        1_000_000.0,
        worker("sweep", &|row| Some(row.count_per_second)),
    ));
    targets.push(Target::new(
        "Redis: bytes a counter",
        false,
        160.0,
        worker("sweep", &|row| row.redis_bytes_per_counter),
    ));
    targets.push(Target::new(
        "audit: votes a second, while nobody votes (while voters are at work it rests for their sake)",
        true,
        1_000_000.0,
        worker("audit_idle", &|row| Some(row.count_per_second)),
    ));
    targets.push(Target::new(
        "voting under the audit: rate against before",
        true,
        0.9,
        worker("audit", &|row| {
            Some(row.votes_per_second? / row.votes_per_second_before?)
        }),
    ));
    targets
}

/// The median over the rounds of the ratio within a round, of one case's figure to
/// another's.
fn ratio(
    report: &Report,
    workload: &str,
    one: (System, i64),
    other: (System, i64),
    figure: &dyn Fn(&Row) -> Option<f64>,
) -> Option<f64> {
    median(report.rows(workload, one).filter_map(|row| {
        let other = report
            .rows(workload, other)
            .find(|other| other.round == row.round)?;
        Some(figure(row)? / figure(other)?)
    }))
}
