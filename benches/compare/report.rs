//! What the runs showed: a line a run, then medians, then the targets.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::measure::CpuEach;
use crate::systems::System;
use crate::targets::{self, Target};
use crate::voting::{Latency, Row};
use crate::worker::WorkerRow;
use crate::workloads::Workload;

/// All rows so far.
#[derive(Default)]
pub struct Report {
    pub voting: Vec<Row>,
    pub worker: Vec<WorkerRow>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum AnyRow<'a> {
    Voting(&'a Row),
    Worker(&'a WorkerRow),
}

/// Where the results go.
pub fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/bench");
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

impl Report {
    /// Writes all rows. Called after each run, so that what is cut off has left its
    /// results.
    pub fn write(&self) {
        let rows: Vec<AnyRow> = self
            .voting
            .iter()
            .map(AnyRow::Voting)
            .chain(self.worker.iter().map(AnyRow::Worker))
            .collect();
        write_json("results.json", &rows);
    }

    /// Prints the medians and the targets, and writes those.
    pub fn finish(&self, workloads: &[Workload]) {
        println!("\nMedians of the rounds");
        for workload in workloads {
            title(workload);
            for case in self.cases(workload.name) {
                let rows: Vec<&Row> = self.rows(workload.name, case).collect();
                println!("{}", table_line(&median_row(&rows)));
            }
        }
        let targets = targets::all(self);
        println!("\nTargets (medians of ratios within a round)");
        for target in &targets {
            println!("{}", target_line(target));
        }
        write_json("targets.json", &targets);
        if let Some(busiest) = self
            .voting
            .iter()
            .max_by(|one, other| one.generator_busy.total_cmp(&other.generator_busy))
        {
            println!(
                "\nThe load generator's one thread was busy for at most {:.0}% of a run ({}, {}).",
                busiest.generator_busy * 100.0,
                busiest.workload,
                busiest.system.name()
            );
        }
    }

    /// A workload's cases, each by its system and how full its ledger is, in the
    /// order in which they took their turns.
    pub fn cases(&self, workload: &str) -> Vec<(System, i64)> {
        let mut cases = Vec::new();
        for row in self.voting.iter().filter(|row| row.workload == workload) {
            let case = (row.system, row.ledger_rows);
            if !cases.contains(&case) {
                cases.push(case);
            }
        }
        cases
    }

    /// A case's rows, in the order of rounds.
    pub fn rows<'a>(
        &'a self,
        workload: &'a str,
        (system, ledger_rows): (System, i64),
    ) -> impl Iterator<Item = &'a Row> {
        self.voting.iter().filter(move |row| {
            row.workload == workload && row.system == system && row.ledger_rows == ledger_rows
        })
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
        voting.chain(worker).collect()
    }
}

fn write_json(name: &str, value: &impl Serialize) {
    let text = serde_json::to_string_pretty(value).expect("JSON");
    std::fs::write(folder().join(name), text).expect("the results");
}

/// The middle one; of an even number, the mean of the two.
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

/// What a line of the table shows.
pub struct Line {
    pub name: String,
    pub requests_per_second: f64,
    pub closed: Latency,
    pub open: Option<Latency>,
    /// A vote's; a request's where the workload has no votes.
    pub cpu: CpuEach,
    pub wal_bytes: Option<f64>,
    pub fault: Option<String>,
}

fn case_name(system: System, ledger_rows: i64) -> String {
    let name = system.name().replace('_', " ");
    match ledger_rows {
        0 => name,
        rows => format!("{name}, {} M rows", rows / 1_000_000),
    }
}

/// Each figure's own median.
pub fn median_row(rows: &[&Row]) -> Line {
    let of = |figure: fn(&Row) -> f64| median(rows.iter().map(|row| figure(row))).unwrap_or(f64::NAN);
    let cpu = |row: &Row| row.cpu_us_per_vote.unwrap_or(row.cpu_us_per_request);
    let of_cpu =
        |figure: fn(&CpuEach) -> f64| median(rows.iter().map(|row| figure(&cpu(row)))).unwrap_or(f64::NAN);
    let of_open = |figure: fn(&Latency) -> f64| {
        median(
            rows.iter()
                .filter_map(|row| Some(figure(&row.open_loop_ms.as_ref()?.latency))),
        )
    };
    Line {
        name: case_name(rows[0].system, rows[0].ledger_rows),
        requests_per_second: of(|row| row.requests_per_second),
        closed: Latency {
            p50: of(|row| row.closed_loop_ms.p50),
            p99: of(|row| row.closed_loop_ms.p99),
            p99_9: of(|row| row.closed_loop_ms.p99_9),
        },
        open: of_open(|one| one.p50)
            .zip(of_open(|one| one.p99))
            .zip(of_open(|one| one.p99_9))
            .map(|((p50, p99), p99_9)| Latency { p50, p99, p99_9 }),
        cpu: CpuEach {
            server: of_cpu(|one| one.server),
            worker: of_cpu(|one| one.worker),
            postgres: of_cpu(|one| one.postgres),
            redis: of_cpu(|one| one.redis),
            generator: of_cpu(|one| one.generator),
        },
        wal_bytes: median(rows.iter().filter_map(|row| row.wal_bytes_per_vote)),
        fault: rows.iter().find_map(|row| row.fault.clone()),
    }
}

/// A workload's title and the table's head.
pub fn title(workload: &Workload) {
    println!("\n{}: {}", workload.name, workload.about);
    println!(
        "{:<24} {:>9} | {:^24} | {:^24} | {:^45} | {:>7}",
        "", "requests", "closed loop, ms", "open loop at half, ms", "CPU µs a vote", "WAL"
    );
    println!(
        "{:<24} {:>9} | {:>7} {:>8} {:>7} | {:>7} {:>8} {:>7} | {:>7} {:>6} {:>8} {:>5} {:>7} {:>7} | {:>7}",
        "",
        "a second",
        "p50",
        "p99",
        "p99.9",
        "p50",
        "p99",
        "p99.9",
        "server",
        "worker",
        "Postgres",
        "Redis",
        "sum",
        "(load)",
        "B a vote"
    );
}

/// A line while the runs go on.
pub fn voting_line(row: &Row) -> String {
    table_line(&median_row(&[row]))
}

fn table_line(line: &Line) -> String {
    let latency = |latency: Option<Latency>| {
        latency.map_or(format!("{:>24}", ""), |one| {
            format!("{:>7.2} {:>8.2} {:>7.2}", one.p50, one.p99, one.p99_9)
        })
    };
    format!(
        "{:<24} {:>9.0} | {} | {} | {:>7.1} {:>6.1} {:>8.1} {:>5.1} {:>7.1} {:>7.1} | {:>7}{}",
        line.name,
        line.requests_per_second,
        latency(Some(line.closed)),
        latency(line.open),
        line.cpu.server,
        line.cpu.worker,
        line.cpu.postgres,
        line.cpu.redis,
        line.cpu.sum(),
        line.cpu.generator,
        line.wal_bytes
            .map_or(String::new(), |bytes| format!("{bytes:.0}")),
        line.fault
            .as_ref()
            .map_or(String::new(), |fault| format!("  NOT VERIFIED: {fault}")),
    )
}

/// A line of the worker's bench.
pub fn worker_line(row: &WorkerRow) -> String {
    let mut line = format!(
        "{:<24} {:>9} in {:.2} s: {:.0} a second",
        row.workload, row.count, row.seconds, row.count_per_second
    );
    if let Some(cpu) = row.cpu_us_each {
        line += &format!(
            "; CPU µs each: worker {:.2}, Postgres {:.2}, Redis {:.2}",
            cpu.worker, cpu.postgres, cpu.redis
        );
    }
    if let Some(bytes) = row.redis_bytes_per_counter {
        line += &format!("; {bytes:.0} bytes of Redis a counter");
    }
    if let (Some(before), Some(during)) = (row.votes_per_second_before, row.votes_per_second) {
        line += &format!(
            "; votes a second {during:.0}, before {before:.0} ({:.2})",
            during / before
        );
    }
    if let Some(fault) = &row.fault {
        line += &format!("  NOT VERIFIED: {fault}");
    }
    line
}

fn target_line(target: &Target) -> String {
    let sign = if target.at_least { "≥" } else { "≤" };
    let verdict = match target.measured {
        None => "not measured".to_owned(),
        Some(measured) if target.is_met() => format!("{:<7} met, {}", short(measured), by(target, measured)),
        Some(measured) => format!("{:<7} MISSED, {}", short(measured), by(target, measured)),
    };
    format!("{:<68} {sign} {:<9} {verdict}", target.what, short(target.bound))
}

/// How far from its bound, as a part of it.
fn by(target: &Target, measured: f64) -> String {
    format!("{:+.0}%", (measured / target.bound - 1.0) * 100.0)
}

fn short(number: f64) -> String {
    if number >= 1000.0 {
        format!("{number:.0}")
    } else if number >= 100.0 {
        format!("{number:.1}")
    } else {
        format!("{number:.2}")
    }
}
