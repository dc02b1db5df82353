//! The page of one run in docs/runs, with everything that it measured.

use anyhow::Result;

use super::System::Tally;
use super::medians::Line;
use super::numbers::{each, short, whole};
use super::results::Results;
use super::rows::{CpuEach, Latency, Row, Spread, WorkerRow};
use super::stamp::Stamp;
use super::tables::{caption, line_of};
use crate::curve::median;

const MIB: f64 = 1024.0 * 1024.0;

/// The head of the table of votes and reads: one for all workloads, since a page has a limit.
const VOTING: &str = "\n## Votes and reads\n\n| | votes and reads per second | each round | p50 · p99 · p99.9, ms | at half load, ms | CPU µs: server + worker + Postgres + Redis | = | WAL B |\n|---|--:|--:|--:|--:|--:|--:|--:|\n";

/// All tables of a run but the targets, which follow from them.
///
/// # Errors
/// When the results name no commit.
pub fn run_page(results: &Results) -> Result<String> {
    let mut text = format!("{}\n", caption(&results.run, &Stamp::of(&results.run)?));
    text += &format!(
        "`long_tail` and `open_snapshot` voted for {} s.\n",
        results.run.long_seconds
    );
    text += VOTING;
    for workload in &results.run.workloads {
        text += &voting(results, &workload.name, &workload.about);
    }
    text += &worker(results);
    text += &streams(results);
    text += &deaf(results);
    text += &credentials(results);
    Ok(text)
}

/// A workload of votes and reads: its own line, and one for each case.
fn voting(results: &Results, workload: &str, about: &str) -> String {
    let cases = results.cases(workload);
    if cases.is_empty() {
        return String::new();
    }
    let mut text = format!("| `{workload}`: {about} | | | | | | | |\n");
    for which in cases {
        let Some(line) = line_of(results, workload, which) else {
            continue;
        };
        let bold = if which.system == Tally { "**" } else { "" };
        text += &format!(
            "| {bold}{}{bold} | {} | {} | {} | {} | {} | {:.1} | {} |\n",
            line.name,
            whole(line.rate),
            each(results.rows(workload, which).map(Row::rate)),
            latency(line.closed),
            line.open.map(latency).unwrap_or_default(),
            cpu_of(&line),
            line.cpu.sum(),
            line.wal_bytes.map(whole).unwrap_or_default(),
        );
    }
    text
}

fn latency(of: Latency) -> String {
    format!("{:.2} · {:.2} · {:.2}", of.p50, of.p99, of.p99_9)
}

fn cpu_of(line: &Line) -> String {
    let cpu = line.cpu;
    format!(
        "{:.1} + {:.1} + {:.1} + {:.1}",
        cpu.server, cpu.worker, cpu.postgres, cpu.redis
    )
}

/// The worker's workloads: a line each, with all rounds.
fn worker(results: &Results) -> String {
    let mut kinds: Vec<(&str, bool)> = Vec::new();
    for row in &results.worker {
        if !kinds.contains(&kind(row)) {
            kinds.push(kind(row));
        }
    }
    if kinds.is_empty() {
        return String::new();
    }
    let mut text = "\n## The worker and the ledger\n\n| workload | seconds, each round | done per second, each round | CPU µs each: worker + Postgres + Redis | also, each round |\n|---|--:|--:|--:|---|\n".to_owned();
    for (workload, has_voters) in kinds {
        let rows: Vec<&WorkerRow> = (results.worker.iter())
            .filter(|row| kind(row) == (workload, has_voters))
            .collect();
        text += &format!(
            "| `{workload}`{} | {} | {} | {} | {} |\n",
            if has_voters { ", with voters" } else { "" },
            each(rows.iter().map(|row| row.seconds)),
            each(rows.iter().map(|row| row.count_per_second)),
            worker_cpu(&rows),
            also(&rows).join("; "),
        );
    }
    text
}

/// The kind of a row. `bytes_per_vote` has a row with voters and one without.
fn kind(row: &WorkerRow) -> (&str, bool) {
    let has_voters = row.disk_bytes_per_vote.is_some_and(|disk| disk.vote_once > 1.0);
    (&row.workload, has_voters)
}

fn worker_cpu(rows: &[&WorkerRow]) -> String {
    let of =
        |figure: fn(&CpuEach) -> f64| median(rows.iter().filter_map(|row| Some(figure(&row.cpu_us_each?))));
    of(|cpu| cpu.worker)
        .zip(of(|cpu| cpu.postgres))
        .zip(of(|cpu| cpu.redis))
        .map(|((worker, postgres), redis)| format!("{worker:.1} + {postgres:.1} + {redis:.1}"))
        .unwrap_or_default()
}

/// Figures that only some workloads of the worker have.
fn also(rows: &[&WorkerRow]) -> Vec<String> {
    let of = |about: &str, figure: &dyn Fn(&WorkerRow) -> Option<f64>| {
        let values: Vec<f64> = rows.iter().filter_map(|row| figure(row)).collect();
        (!values.is_empty()).then(|| format!("{about} {}", each(values)))
    };
    [
        of("bytes of Redis a counter", &|row| row.redis_bytes_per_counter),
        of("cores of worker and Redis", &|row| row.cores),
        of("most votes beyond the watermark, s of voting", &|row| {
            row.tail_seconds
        }),
        of("slowest exact count of the hottest item, ms", &|row| row.seed_ms),
        of("votes per second before", &|row| row.votes_per_second_before),
        of("votes per second meanwhile", &|row| row.votes_per_second),
        of("bytes a vote", &|row| Some(row.disk_bytes_per_vote?.sum())),
        of("table", &|row| Some(row.disk_bytes_per_vote?.table)),
        of("primary key", &|row| Some(row.disk_bytes_per_vote?.primary_key)),
        of("`vote_once`", &|row| Some(row.disk_bytes_per_vote?.vote_once)),
        of("table `item` before, MB", &|row| {
            Some(row.snapshot?.item_bytes_before as f64 / 1e6)
        }),
        of("after, MB", &|row| {
            Some(row.snapshot?.item_bytes_after as f64 / 1e6)
        }),
        of("ten items looked up before, ms", &|row| {
            Some(row.snapshot?.lookup_ms_before)
        }),
        of("after, ms", &|row| Some(row.snapshot?.lookup_ms_after)),
        of("votes locked out, ms", &|row| Some(row.split?.locked_ms)),
        of("slowest answer before, ms", &|row| {
            Some(row.split?.slowest_answer_ms_before)
        }),
        of("slowest answer meanwhile, ms", &|row| {
            Some(row.split?.slowest_answer_ms)
        }),
        of("votes and indexes before, MB", &|row| {
            Some(row.split?.ledger_bytes_before as f64 / 1e6)
        }),
        of("afterwards, MB", &|row| {
            Some(row.split?.ledger_bytes_after as f64 / 1e6)
        }),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Live streams: a line for each workload and round.
fn streams(results: &Results) -> String {
    if results.streams.is_empty() {
        return String::new();
    }
    let mut text = "\n## Live streams\n\n| workload, round | streams | votes per second without, before · after | with | ratio | events per second at full speed | CPU µs an event: server · Redis | from answer to event, ms: median · p99 | KB a stream |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|\n".to_owned();
    for row in &results.streams {
        text += &format!(
            "| `{}`, {} | {} | {} | {} | {:.2} | {} | {:.1} · {:.1} | {:.0} · {:.0} | {:.1} |\n",
            row.workload,
            row.round + 1,
            row.watchers,
            each(row.votes_per_second_without),
            whole(row.votes_per_second_with),
            row.speed_ratio,
            whole(row.events_per_second_at_full_speed),
            row.cpu_us_per_event_of_server,
            row.cpu_us_per_event_of_redis,
            row.delay_ms_p50,
            row.delay_ms_p99,
            row.bytes_per_stream / 1024.0,
        );
    }
    text
}

/// Streams that nobody reads: a line for each round.
fn deaf(results: &Results) -> String {
    if results.deaf.is_empty() {
        return String::new();
    }
    let mut text = "\n## Streams that nobody reads\n\n| round | streams | votes per second without | with | ratio | server's memory before · at the most · after, MiB | KB a stream | half cut off: ended after, s | the others, s |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|\n".to_owned();
    for row in &results.deaf {
        text += &format!(
            "| {} | {} | {} | {} | {:.2} | {} | {:.1} | {:.1} | {:.1} |\n",
            row.round + 1,
            row.streams,
            whole(row.votes_per_second_without),
            whole(row.votes_per_second_with),
            row.speed_ratio,
            each(row.memory_bytes.map(|bytes| bytes as f64 / MIB)),
            row.bytes_per_stream() / 1024.0,
            row.cut_off_seconds,
            row.ended_seconds,
        );
    }
    text
}

/// Credentials and throttles: a line for each kind and round.
fn credentials(results: &Results) -> String {
    if results.credentials.is_empty() {
        return String::new();
    }
    let mut text = "\n## Credentials and throttles\n\n| a vote with, round | CPU µs a request | of it the server | more than with nothing: median (quarters) | the server alone |\n|---|--:|--:|--:|--:|\n".to_owned();
    for row in &results.credentials {
        let more = |spread: Option<Spread>| {
            spread.map_or_else(String::new, |one| {
                format!(
                    "{} ({} to {})",
                    short(one.median),
                    short(one.quarter),
                    short(one.three_quarters)
                )
            })
        };
        text += &format!(
            "| {}, {} | {:.1} | {:.1} | {} | {} |\n",
            row.with.title(),
            row.round + 1,
            row.cpu_us_per_request,
            row.server_us_per_request,
            more(row.more_us),
            more(row.server_more_us),
        );
    }
    text
}
