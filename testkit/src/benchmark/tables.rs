//! The tables in README and docs/benchmarks.md, each of one run.

use anyhow::{Result, bail};

use super::System::{self, BatchedTransaction, LockingTransaction, NoOp, Recipe, Tally, Transaction};
use super::medians::{Line, median_row};
use super::numbers::{counted, short, whole};
use super::results::{Results, Run, Which};
use super::rows::Row;
use super::stamp::Stamp;
use super::system::Topology;
use super::targets::{self, Target};

/// README's rows: a system, how it counts, and whether a failure leaves it exact.
const WAYS: [(System, &str, &str); 4] = [
    (Transaction, "one transaction per vote", "yes"),
    (Recipe, "one INSERT, and a counter in Redis", "no"),
    (
        BatchedTransaction,
        "batched transaction: one statement inserts many votes and updates their items; no Redis",
        "yes",
    ),
    (Tally, "**Tally**", "yes"),
];

/// README's columns: a workload and its title.
const WAYS_WORKLOADS: [(&str, &str); 4] = [
    ("hot", "one hot item"),
    ("uniform", "10,000 items"),
    ("hot_three_servers", "hot, three servers"),
    (
        "hot_three_servers_slow_sync",
        "hot, three servers, commits 2 ms slower",
    ),
];

/// README's table needs these.
const NEEDED: [(&str, System); 4] = [
    ("hot", Transaction),
    ("hot", Tally),
    ("uniform", Transaction),
    ("uniform", Tally),
];

/// The columns of the table of now.
const SYSTEMS: [System; 6] = [
    NoOp,
    Transaction,
    LockingTransaction,
    BatchedTransaction,
    Recipe,
    Tally,
];

/// The line below a table: when, what and where.
pub fn caption(run: &Run, stamp: &Stamp) -> String {
    let machine = &run.machine;
    format!(
        "{stamp}: medians of {} of {} s after {} s of warm-up; {}, {:.0} GiB of memory, {:.2} ms to write and sync 8 KiB; {}.",
        counted(run.rounds, "round"),
        run.run_seconds,
        run.warm_up_seconds,
        counted(machine.cores, "core"),
        machine.memory_gib,
        machine.sync_ms,
        machine.stores,
    )
}

/// README's table: votes per second by the ways of counting.
///
/// # Errors
/// When something that it needs was not measured. The message says what to run.
pub fn ways(results: &Results) -> Result<String> {
    let missing: Vec<String> = NEEDED
        .iter()
        .filter(|(workload, system)| rate_of(results, workload, *system).is_none())
        .map(|(workload, system)| format!("{workload} of {}", system.name()))
        .collect();
    if !missing.is_empty() {
        bail!(
            "the results have no {}; run: make bench WORKLOADS=hot,uniform,hot_three_servers,hot_three_servers_slow_sync",
            missing.join(", no ")
        );
    }
    let stamp = Stamp::of(&results.run)?;
    let titles: Vec<&str> = WAYS_WORKLOADS.iter().map(|(_, title)| *title).collect();
    let mut text = format!(
        "| votes per second | {} | exact after a failure? |\n|---|{}---|\n",
        titles.join(" | "),
        "--:|".repeat(titles.len())
    );
    for (system, about, exact) in WAYS {
        let cells = WAYS_WORKLOADS.map(|(workload, _)| {
            let rate = rate_of(results, workload, system);
            let is_best = rate.is_some() && rate == best(results, workload);
            match rate.map(whole) {
                Some(rate) if is_best => format!(" **{rate}** "),
                Some(rate) => format!(" {rate} "),
                None => " ".to_owned(),
            }
        });
        text += &format!("| {about} |{}| {exact} |\n", cells.join("|"));
    }
    let times = |workload| {
        let ratio = targets::rate_against(results, workload, Transaction);
        ratio.map(short).unwrap_or_default()
    };
    text += &format!(
        "\nTally takes {} times the votes of one transaction per vote on one hot item, and {} times over 10,000 items (medians of the rounds' own ratios). An empty cell was not measured in this run.\n\n{}\n",
        times("hot"),
        times("uniform"),
        caption(&results.run, &stamp)
    );
    Ok(text)
}

/// The table of now: each workload of votes and reads, each system.
///
/// # Errors
/// When the results name no commit.
pub fn now(results: &Results) -> Result<String> {
    let stamp = Stamp::of(&results.run)?;
    let titles = SYSTEMS.map(System::title);
    let mut text = format!(
        "| votes and reads per second | {} | Tally: CPU µs | p99, ms | p99 at half load, ms |\n|---|{}\n",
        titles.join(" | "),
        "--:|".repeat(titles.len() + 3)
    );
    for workload in &results.run.workloads {
        let cases = results.cases(&workload.name);
        for variant in variants(&cases) {
            let line = |system| {
                let which = Which { system, ..variant };
                line_of(results, &workload.name, which)
            };
            let tally = line(Tally);
            let rates = SYSTEMS.map(|system| cell(line(system), |line| whole(line.rate)));
            text += &format!(
                "| `{}`: {}{} |{}|{}|{}|{}|\n",
                workload.name,
                workload.about,
                suffix(variant),
                rates.join("|"),
                cell(tally.as_ref(), |line| format!("{:.1}", line.cpu.sum())),
                cell(tally.as_ref(), |line| format!("{:.1}", line.closed.p99)),
                cell(tally.as_ref().and_then(|line| line.open), |open| {
                    format!("{:.1}", open.p99)
                }),
            );
        }
    }
    text += &format!(
        "\n{} An empty cell was not measured in this run. [All figures of the run](runs/{}).\n",
        caption(&results.run, &stamp),
        stamp.file()
    );
    Ok(text)
}

/// The table of targets: what was reached, and how far each missed target is.
///
/// # Errors
/// When the results name no commit.
pub fn targets(results: &Results) -> Result<String> {
    let stamp = Stamp::of(&results.run)?;
    let mut text = "| what | target | reached | |\n|---|--:|--:|---|\n".to_owned();
    for target in targets::all(results) {
        let measured = cell(target.measured.filter(|value| value.is_finite()), short);
        text += &format!(
            "| {} | {} {} |{measured}|{}|\n",
            target.what,
            if target.at_least { "≥" } else { "≤" },
            short(target.bound),
            cell(verdict(&target), |verdict| verdict),
        );
    }
    text += &format!(
        "\n{} Where two systems are compared: medians of the rounds' own ratios. An empty cell was not measured in this run.\n",
        caption(&results.run, &stamp)
    );
    Ok(text)
}

/// `met`, or by how much the target was missed; `None`: not measured.
fn verdict(target: &Target) -> Option<String> {
    let measured = target.measured?;
    if target.met == Some(true) {
        return Some("met".to_owned());
    }
    let percent = (measured / target.bound - 1.0).abs() * 100.0;
    Some(match percent {
        // A count that is not exact afterwards was never reached.
        percent if !percent.is_finite() => "missed".to_owned(),
        percent if percent < 1.0 => "missed by less than 1%".to_owned(),
        percent => format!("missed by {percent:.0}%"),
    })
}

/// The variants of a workload, without systems. One if it did not run.
pub fn variants(cases: &[Which]) -> Vec<Which> {
    let mut variants = Vec::new();
    for case in cases {
        let variant = Which {
            system: Tally,
            ..*case
        };
        if !variants.contains(&variant) {
            variants.push(variant);
        }
    }
    if variants.is_empty() {
        variants.push(Which {
            system: Tally,
            ledger_rows: 0,
            in_ranges: false,
            votes_per_request: 1,
            topology: Topology::Single,
        });
    }
    variants
}

/// What a variant adds to its workload's description.
fn suffix(variant: Which) -> String {
    if let Some(topology) = variant.topology.title() {
        return format!("; {topology}");
    }
    match variant {
        Which {
            votes_per_request: 2..,
            ..
        } => format!("; {} a request", variant.votes_per_request),
        Which {
            ledger_rows: 1_000_000..,
            in_ranges,
            ..
        } => {
            let layout = if in_ranges { " in ranges" } else { "" };
            format!("; {} million rows{layout}", variant.ledger_rows / 1_000_000)
        }
        _ => String::new(),
    }
}

/// The medians of a case; `None` if it did not run.
pub fn line_of(results: &Results, workload: &str, which: Which) -> Option<Line> {
    let rows: Vec<&Row> = results.rows(workload, which).collect();
    (!rows.is_empty()).then(|| median_row(&rows))
}

/// The rate of a system under a workload that has one variant.
fn rate_of(results: &Results, workload: &str, system: System) -> Option<f64> {
    let which = results
        .cases(workload)
        .into_iter()
        .find(|case| case.system == system)?;
    Some(line_of(results, workload, which)?.rate)
}

/// The highest rate in a column of README's table.
fn best(results: &Results, workload: &str) -> Option<f64> {
    WAYS.iter()
        .filter_map(|(system, ..)| rate_of(results, workload, *system))
        .max_by(f64::total_cmp)
}

/// A cell's text between its bars; nothing if it was not measured.
fn cell<T>(value: Option<T>, text: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| " ".to_owned(), |value| format!(" {} ", text(value)))
}
