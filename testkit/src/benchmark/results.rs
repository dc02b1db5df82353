//! Results: everything that a run of the bench measured, as in results.json.

use serde::{Deserialize, Serialize};

use super::rows::{CredentialRow, DeafRow, Row, StreamRow, WorkerRow};
use super::{System, Topology};

/// What ran, when and where.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// When it began, UTC: YYYY-MM-DD.
    pub date: String,
    /// The commit that was measured, abbreviated; `None` outside of a clone.
    pub commit: Option<String>,
    /// Whether the code had uncommitted changes.
    pub has_changes: bool,
    pub machine: Machine,
    /// Whether it ran with `QUICK=1`.
    pub quick: bool,
    pub rounds: usize,
    /// How long a workload was measured, and how long it ran before that.
    pub run_seconds: f64,
    pub warm_up_seconds: f64,
    /// How long the workloads `long_tail` and `open_snapshot` voted.
    pub long_seconds: f64,
    /// All workloads of votes and reads in the bench, measured or not.
    pub workloads: Vec<Workload>,
}

/// What the bench ran on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    pub cores: usize,
    pub memory_gib: f64,
    /// The median time to write and sync a page of 8 KiB.
    pub sync_ms: f64,
    /// Postgres and Redis, with their versions.
    pub stores: String,
}

/// The name of a workload, and a description.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Workload {
    pub name: String,
    pub about: String,
}

/// A run, and all of its rows so far.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    pub run: Run,
    pub voting: Vec<Row>,
    pub worker: Vec<WorkerRow>,
    pub streams: Vec<StreamRow>,
    pub deaf: Vec<DeafRow>,
    pub credentials: Vec<CredentialRow>,
}

/// A case of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Which {
    pub system: System,
    /// The rows in its ledger at the start.
    pub ledger_rows: i64,
    pub in_ranges: bool,
    pub votes_per_request: usize,
    pub topology: Topology,
}

impl Which {
    pub fn of(row: &Row) -> Self {
        Self {
            system: row.system,
            ledger_rows: row.ledger_rows,
            in_ranges: row.in_ranges,
            votes_per_request: row.votes_per_request,
            topology: row.topology,
        }
    }
}

impl Results {
    /// Results without rows.
    pub fn new(run: Run) -> Self {
        Self {
            run,
            voting: Vec::new(),
            worker: Vec::new(),
            streams: Vec::new(),
            deaf: Vec::new(),
            credentials: Vec::new(),
        }
    }

    /// A workload's cases, in the order of their turns.
    pub fn cases(&self, workload: &str) -> Vec<Which> {
        let mut cases = Vec::new();
        for row in self.voting.iter().filter(|row| row.workload == workload) {
            let case = Which::of(row);
            if !cases.contains(&case) {
                cases.push(case);
            }
        }
        cases
    }

    /// A case's rows, in the order of rounds.
    pub fn rows<'a>(&'a self, workload: &'a str, which: Which) -> impl Iterator<Item = &'a Row> {
        self.voting
            .iter()
            .filter(move |row| row.workload == workload && Which::of(row) == which)
    }

    /// The reasons why rows were not verified.
    pub fn faults(&self) -> Vec<String> {
        let voting = self.voting.iter().filter_map(|row| {
            let fault = row.fault.as_ref()?;
            Some(format!("{} {}: {fault}", row.workload, row.system.name()))
        });
        let others = (self.worker.iter().map(|row| (&row.workload, &row.fault)))
            .chain(self.streams.iter().map(|row| (&row.workload, &row.fault)))
            .chain(self.deaf.iter().map(|row| (&row.workload, &row.fault)))
            .chain(self.credentials.iter().map(|row| (&row.workload, &row.fault)))
            .filter_map(|(workload, fault)| Some(format!("{workload}: {}", fault.as_ref()?)));
        voting.chain(others).collect()
    }
}
