//! Medians over the rounds of a case, for a line of a table.

use super::results::Which;
use super::rows::{CpuEach, Latency, Row};
use crate::curve::median;

/// What a line of the table shows.
pub struct Line {
    pub name: String,
    /// Votes and reads per second.
    pub rate: f64,
    pub closed: Latency,
    pub open: Option<Latency>,
    /// For each vote; for each request if the workload has no votes.
    pub cpu: CpuEach,
    pub wal_bytes: Option<f64>,
    pub fault: Option<String>,
}

fn case_name(which: Which) -> String {
    let title = which.system.title();
    if let Some(topology) = which.topology.title() {
        return format!("{title}, {topology}");
    }
    match which {
        Which {
            votes_per_request: 2..,
            ..
        } => format!("{title}, {} a request", which.votes_per_request),
        Which {
            ledger_rows: 1_000_000..,
            in_ranges,
            ..
        } => {
            let layout = if in_ranges { " in ranges" } else { "" };
            format!("{title}, {} M rows{layout}", which.ledger_rows / 1_000_000)
        }
        _ => title,
    }
}

/// A line with the median of each figure by itself.
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
        name: case_name(Which::of(rows[0])),
        rate: of(Row::rate),
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
