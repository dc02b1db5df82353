//! What the runs showed: lines while they run, then a table of medians.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::voting::Row;
use crate::workloads::Workload;

#[derive(Default)]
pub struct Report {
    rows: Vec<Row>,
}

/// Where the results go.
pub fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/bench");
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

impl Report {
    pub fn add(&mut self, row: Row) {
        self.rows.push(row);
        // After each run, so that what was cut off has left its results.
        let text = serde_json::to_string_pretty(&self.rows).expect("JSON");
        std::fs::write(folder().join("results.json"), text).expect("the results");
    }

    pub fn finish(&self) -> ExitCode {
        if self.rows.iter().all(|row| row.verified) {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}

pub fn title(workload: &Workload) {
    println!("\n{}: {}", workload.name, workload.about);
    println!(
        "  {:<20} {:>9} | {:>8} {:>8} {:>8} | {:>8} {:>8} {:>8} | {:>7} {:>7} {:>7} {:>7} {:>7} | {:>7}",
        "", "per s", "p50 ms", "p99", "p99.9", "open p50", "p99", "p99.9", "server", "worker", "Postgr.", "Redis", "load", "WAL B"
    );
}

pub fn line(row: &Row) {
    let open = |of: fn(&crate::voting::Latency) -> f64| {
        row.open_loop_ms
            .as_ref()
            .map_or(String::new(), |open| format!("{:.2}", of(&open.latency)))
    };
    let cpu = row.cpu_us_per_vote.unwrap_or(row.cpu_us_per_request);
    println!(
        "  {:<20} {:>9.0} | {:>8.2} {:>8.2} {:>8.2} | {:>8} {:>8} {:>8} | {:>7.1} {:>7.1} {:>7.1} {:>7.1} {:>7.1} | {:>7} {}",
        row.contender.name(),
        row.requests_per_second,
        row.closed_loop_ms.p50,
        row.closed_loop_ms.p99,
        row.closed_loop_ms.p99_9,
        open(|one| one.p50),
        open(|one| one.p99),
        open(|one| one.p99_9),
        cpu.server,
        cpu.worker,
        cpu.postgres,
        cpu.redis,
        cpu.generator,
        row.wal_bytes_per_vote.map_or(String::new(), |bytes| format!("{bytes:.0}")),
        row.fault.as_deref().unwrap_or(""),
    );
}
