//! What the bench prints: a line for each run, then medians, then the targets.

use testkit::benchmark::{Latency, Line, Results, Row, Target, WorkerRow, median_row};

use crate::workloads::Workload;

/// Prints the medians of the rounds, the targets, and how busy the load generator was.
pub fn finish(results: &Results, workloads: &[Workload], targets: &[Target]) {
    println!("\nMedians of the rounds");
    for workload in workloads {
        title(workload);
        for case in results.cases(workload.name) {
            let rows: Vec<&Row> = results.rows(workload.name, case).collect();
            println!("{}", table_line(&median_row(&rows)));
        }
    }
    println!("\nTargets (medians of ratios within a round)");
    for target in targets {
        println!("{}", target_line(target));
    }
    let busiest = results
        .voting
        .iter()
        .max_by(|one, other| one.generator_busy.total_cmp(&other.generator_busy));
    if let Some(busiest) = busiest {
        println!(
            "\nThe load generator's one thread was busy for at most {:.0}% of a run ({}, {}).",
            busiest.generator_busy * 100.0,
            busiest.workload,
            busiest.system.name()
        );
    }
}

/// Prints a workload's title and the head of its table.
pub fn title(workload: &Workload) {
    println!("\n{}: {}", workload.name, workload.about);
    println!(
        "{:<24} {:>9} | {:^24} | {:^24} | {:^45} | {:>7}",
        "", "votes and", "closed loop, ms", "open loop at half, ms", "CPU µs a vote", "WAL"
    );
    println!(
        "{:<24} {:>9} | {:>7} {:>8} {:>7} | {:>7} {:>8} {:>7} | {:>7} {:>6} {:>8} {:>5} {:>7} {:>7} | {:>7}",
        "",
        "reads/s",
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

/// The line of one run.
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
        line.rate,
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

/// The line of a run of the worker.
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
    if let Some(cores) = row.cores {
        line += &format!("; worker and Redis: {cores:.4} of a core");
    }
    if let (Some(tail), Some(seed)) = (row.tail_seconds, row.seed_ms) {
        line += &format!("; tail at most {tail:.1} s of votes; hottest seed {seed:.1} ms");
    }
    if let Some(cost) = row.snapshot {
        line += &format!(
            "; table item {:.2} MB, then {:.2} MB; ten items looked up in {:.1} ms, then {:.1} ms",
            cost.item_bytes_before as f64 / 1e6,
            cost.item_bytes_after as f64 / 1e6,
            cost.lookup_ms_before,
            cost.lookup_ms_after
        );
    }
    if let Some(cost) = row.split {
        line += &format!(
            "; votes locked out for {:.1} ms; slowest answer {:.0} ms, before {:.0} ms; ledger {:.0} MB, then {:.0} MB",
            cost.locked_ms,
            cost.slowest_answer_ms,
            cost.slowest_answer_ms_before,
            cost.ledger_bytes_before as f64 / 1e6,
            cost.ledger_bytes_after as f64 / 1e6
        );
    }
    if let Some(disk) = row.disk_bytes_per_vote {
        line += &format!(
            "; bytes a vote {:.1}: table {:.1}, primary key {:.1}, vote_once {:.1}",
            disk.sum(),
            disk.table,
            disk.primary_key,
            disk.vote_once
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
        Some(measured) if target.met == Some(true) => {
            format!("{:<7} met, {}", short(measured), by(target, measured))
        }
        Some(measured) => format!("{:<7} MISSED, {}", short(measured), by(target, measured)),
    };
    format!("{:<68} {sign} {:<9} {verdict}", target.what, short(target.bound))
}

/// How far the measured value is from the bound, in percent of the bound.
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
