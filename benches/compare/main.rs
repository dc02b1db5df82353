//! Tally against every other way of counting votes, in one run.
//!
//! `make bench`, or `cargo bench --bench compare`; `settings` says what can be
//! chosen. The bench starts its own Postgres (durable) and Redis. The contenders, each
//! a process of its own, take turns, A B C A B C, each time on a fresh database. One
//! thread of this program is the load; its CPU time is told apart. After each run,
//! acknowledged votes = rows = counts is checked, item by item.
//!
//! The table goes to the terminal, a row a run to target/bench/results.json, what
//! became of the targets to target/bench/targets.json, a plot to
//! target/bench/plot.svg.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a bench that cannot go on stops"
)]

mod contenders;
mod load;
mod measure;
mod report;
mod servers;
mod settings;
mod stores;
mod voting;
mod workloads;

use indicatif::{ProgressBar, ProgressStyle};

use report::Report;
use settings::Settings;
use stores::Stores;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> std::process::ExitCode {
    if let Ok(name) = std::env::var(contenders::VARIABLE) {
        contenders::serve(&name).await;
        return std::process::ExitCode::SUCCESS;
    }
    let settings = Settings::read();
    let workloads = workloads::all(&settings);
    settings.check(&workloads.iter().map(|one| one.name).collect::<Vec<_>>());
    let workloads: Vec<_> = workloads
        .into_iter()
        .filter(|one| settings.includes(one.name, one.in_quick))
        .map(|mut one| {
            one.cases.retain(|case| settings.contenders.contains(&case.contender));
            one
        })
        .collect();
    let runs: usize = workloads.iter().map(|one| one.cases.len() * settings.rounds).sum();
    let bar = ProgressBar::new(runs as u64).with_style(
        ProgressStyle::with_template("{elapsed_precise} {wide_bar} {pos}/{len} {msg}").expect("a template"),
    );

    let stores = Stores::start().await;
    let mut report = Report::default();
    let mut number = 0;
    for workload in &workloads {
        bar.suspend(|| report::title(workload));
        for round in 0..settings.rounds {
            for case in &workload.cases {
                bar.set_message(format!("{} {}", workload.name, case.contender.name()));
                let row = voting::measure(&stores, case, workload.name, round, number, &settings).await;
                number += 1;
                bar.suspend(|| report::line(&row));
                bar.inc(1);
                report.add(row);
            }
        }
    }
    bar.finish_and_clear();
    stores.stop().await;
    report.finish()
}
