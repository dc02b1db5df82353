//! The rows that the runs have produced, and the files in target/bench.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::deaf::DeafRow;
use crate::streams::StreamRow;
use crate::systems::System;
use crate::turns::CredentialRow;
use crate::voting::Row;
use crate::worker::WorkerRow;

/// All rows so far.
#[derive(Default)]
pub struct Results {
    pub voting: Vec<Row>,
    pub worker: Vec<WorkerRow>,
    pub streams: Vec<StreamRow>,
    pub deaf: Vec<DeafRow>,
    pub credentials: Vec<CredentialRow>,
}

/// Which case of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Which {
    pub system: System,
    /// In its ledger at the start.
    pub ledger_rows: i64,
    pub votes_per_request: usize,
}

impl Which {
    pub fn of(row: &Row) -> Self {
        Self {
            system: row.system,
            ledger_rows: row.ledger_rows,
            votes_per_request: row.votes_per_request,
        }
    }
}

#[derive(Serialize)]
#[serde(untagged)]
enum AnyRow<'a> {
    Voting(&'a Row),
    Worker(&'a WorkerRow),
    Streams(&'a StreamRow),
    Deaf(&'a DeafRow),
    Credentials(&'a CredentialRow),
}

/// Where the results go.
pub fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/bench");
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// Writes a file of results.
pub fn write_json(name: &str, value: &impl Serialize) {
    let text = serde_json::to_string_pretty(value).expect("JSON");
    std::fs::write(folder().join(name), text).expect("the results");
}

impl Results {
    /// Writes all rows to results.json. Called after each run, so that a bench that is
    /// interrupted leaves its results.
    pub fn write(&self) {
        let voting = self.voting.iter().map(AnyRow::Voting);
        let rows: Vec<AnyRow> = voting
            .chain(self.worker.iter().map(AnyRow::Worker))
            .chain(self.streams.iter().map(AnyRow::Streams))
            .chain(self.deaf.iter().map(AnyRow::Deaf))
            .chain(self.credentials.iter().map(AnyRow::Credentials))
            .collect();
        write_json("results.json", &rows);
    }

    /// A workload's cases in the order in which they took their turns.
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

    /// What was not verified.
    pub fn faults(&self) -> Vec<String> {
        let voting = self.voting.iter().filter_map(|row| {
            let fault = row.fault.as_ref()?;
            Some(format!("{} {}: {fault}", row.workload, row.system.name()))
        });
        let worker = self
            .worker
            .iter()
            .filter_map(|row| Some(format!("{}: {}", row.workload, row.fault.as_ref()?)));
        let streams = self
            .streams
            .iter()
            .filter_map(|row| Some(format!("{}: {}", row.workload, row.fault.as_ref()?)));
        let deaf = self
            .deaf
            .iter()
            .filter_map(|row| Some(format!("{}: {}", row.workload, row.fault.as_ref()?)));
        let credentials = self
            .credentials
            .iter()
            .filter_map(|row| Some(format!("{}: {}", row.workload, row.fault.as_ref()?)));
        voting
            .chain(worker)
            .chain(streams)
            .chain(deaf)
            .chain(credentials)
            .collect()
    }
}
