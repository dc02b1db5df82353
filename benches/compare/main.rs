//! Compares Tally with other ways of counting votes, in one run.
//!
//! `make bench`, or `cargo bench --bench compare`; `settings` has what can be chosen. The
//! bench starts its own Postgres (durable) and Redis. Each system is a process of its own.
//! The systems take turns, A B C A B C, each time on a fresh database. One thread of this
//! program is the load; its CPU time is reported separately. After each run the bench checks,
//! item by item, that acknowledged votes = rows = counts.
//!
//! The table goes to the terminal, one row for each run to target/bench/results.json, the
//! targets to target/bench/targets.json, and a plot to target/bench/plot.svg.
//!
//! With the word `tables` (`make bench-tables`) it measures nothing: it writes the tables of the
//! last results into the documents. With the word `growth` it measures how the cost of a vote grows.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a bench that cannot go on stops"
)]

mod counters;
mod credentials;
mod deaf;
mod growth;
mod ledger;
mod machine;
mod measure;
mod plot;
mod report;
mod results;
mod servers;
mod settings;
mod stores;
mod streams;
mod systems;
mod turns;
mod version;
mod voting;
mod worker;
mod workloads;

use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};

use settings::Settings;
use stores::Stores;
use testkit::benchmark::{self, Results, Run, WorkerRow, targets};
use workloads::Workload;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    if let Ok(name) = std::env::var(systems::VARIABLE) {
        systems::serve(&name).await;
        return ExitCode::SUCCESS;
    }
    if let Ok(name) = std::env::var(worker::VARIABLE) {
        worker::take_step(&name).await;
        return ExitCode::SUCCESS;
    }
    if std::env::args().any(|word| word == "tables") {
        return write_tables();
    }
    let settings = Settings::read();
    if std::env::args().any(|word| word == growth::WORD) {
        return growth::measure(&settings).await;
    }
    let workloads = chosen(&settings);
    let worker_workloads: Vec<&str> = worker::WORKLOADS
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| settings.systems.contains(&systems::System::Tally) && settings.includes(name, true))
        .collect();
    let streams: Vec<(&str, i64)> = streams::WORKLOADS
        .into_iter()
        .filter(|(name, _)| {
            settings.systems.contains(&systems::System::Tally) && settings.includes(name, false)
        })
        .collect();
    let has_deaf =
        settings.systems.contains(&systems::System::Tally) && settings.includes(deaf::WORKLOAD, false);
    let has_credentials =
        settings.systems.contains(&systems::System::Tally) && settings.includes(turns::WORKLOAD, false);
    let runs = settings.rounds
        * (streams.len()
            + usize::from(has_credentials)
            + usize::from(has_deaf)
            + workloads.iter().map(|one| one.cases.len()).sum::<usize>()
            + worker_workloads.len());
    let bar = ProgressBar::new(runs as u64).with_style(
        ProgressStyle::with_template("{elapsed_precise} {wide_bar} {pos}/{len} {msg}").expect("a template"),
    );
    println!(
        "{runs} runs: {} rounds of {:?} a run after {:?} of warm-up",
        settings.rounds, settings.run, settings.warm_up
    );

    let stores = Stores::start().await;
    let run = describe(&stores, &settings).await;
    println!("{}", machine::line(&run.machine));
    let mut bench = Bench {
        stores,
        results: Results::new(run),
        number: 0,
        bar,
        settings,
    };
    bench.vote(&workloads).await;
    if has_credentials {
        bench.show_credentials().await;
    }
    bench.stream(&streams, has_deaf).await;
    bench.work(&worker_workloads).await;
    bench.bar.finish_and_clear();
    bench.stores.stop().await;
    let targets = targets::all(&bench.results);
    results::write_json("targets.json", &targets);
    report::finish(&bench.results, &workloads, &targets);
    plot::write(&bench.results, &workloads);

    let faults = bench.results.faults();
    for fault in &faults {
        eprintln!("not verified: {fault}");
    }
    if faults.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Writes the tables of the last results into the documents.
fn write_tables() -> ExitCode {
    match results::read().and_then(|results| benchmark::write_pages(results::root(), &results)) {
        Ok(pages) => {
            println!("written: {}", pages.join(", "));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// What is run, when and where.
async fn describe(stores: &Stores, settings: &Settings) -> Run {
    let workload = |one: Workload| benchmark::Workload {
        name: one.name.to_owned(),
        about: one.about.to_owned(),
    };
    Run {
        date: time::OffsetDateTime::now_utc().date().to_string(),
        commit: version::commit(),
        has_changes: version::has_changes(),
        machine: machine::measure(stores.folder(), stores.versions().await),
        quick: settings.quick,
        rounds: settings.rounds,
        run_seconds: settings.run.as_secs_f64(),
        warm_up_seconds: settings.warm_up.as_secs_f64(),
        long_seconds: settings.long.as_secs_f64(),
        workloads: workloads::all(settings).into_iter().map(workload).collect(),
    }
}

/// The chosen workloads, with the chosen systems.
fn chosen(settings: &Settings) -> Vec<Workload> {
    let workloads = workloads::all(settings);
    let worker = worker::WORKLOADS.iter().map(|(name, _)| *name);
    settings.check(
        &workloads
            .iter()
            .map(|one| one.name)
            .chain(worker)
            .chain(streams::WORKLOADS.map(|(name, _)| name))
            .chain([deaf::WORKLOAD, turns::WORKLOAD])
            .collect::<Vec<_>>(),
    );
    workloads
        .into_iter()
        .filter(|one| settings.includes(one.name, one.in_quick))
        .map(|mut one| {
            one.cases.retain(|case| settings.systems.contains(&case.system));
            one
        })
        .filter(|one| !one.cases.is_empty())
        .collect()
}

struct Bench {
    stores: Stores,
    results: Results,
    /// The runs so far.
    number: u32,
    bar: ProgressBar,
    settings: Settings,
}

impl Bench {
    /// Runs the systems in turn.
    async fn vote(&mut self, workloads: &[Workload]) {
        for workload in workloads {
            self.bar.suspend(|| report::title(workload));
            for round in 0..self.settings.rounds {
                for case in &workload.cases {
                    self.bar
                        .set_message(format!("{} {}", workload.name, case.system.name()));
                    let row = voting::measure(
                        &self.stores,
                        case,
                        workload.name,
                        round,
                        self.number,
                        &self.settings,
                    )
                    .await;
                    self.bar.suspend(|| println!("{}", report::voting_line(&row)));
                    self.results.voting.push(row);
                    self.ran();
                }
            }
        }
    }

    /// Runs votes with each kind of credential, in short turns.
    async fn show_credentials(&mut self) {
        self.bar.suspend(|| println!("\nCredentials and throttles"));
        for round in 0..self.settings.rounds {
            self.bar.set_message(turns::WORKLOAD);
            for row in turns::measure(&self.stores, round, &self.settings).await {
                self.bar.suspend(|| println!("{}", turns::line(&row)));
                self.results.credentials.push(row);
            }
            self.ran();
        }
    }

    /// Runs the workloads of live streams, and the workload of streams that nobody reads.
    async fn stream(&mut self, workloads: &[(&'static str, i64)], has_deaf: bool) {
        if !workloads.is_empty() || has_deaf {
            self.bar.suspend(|| println!("\nLive streams"));
        }
        for round in 0..self.settings.rounds {
            for workload in workloads {
                self.bar.set_message(workload.0);
                let row = streams::measure(&self.stores, *workload, round, self.number, &self.settings).await;
                self.bar.suspend(|| println!("{}", streams::line(&row)));
                self.results.streams.push(row);
                self.ran();
            }
            if has_deaf {
                self.bar.set_message(deaf::WORKLOAD);
                let row = deaf::measure(&self.stores, round, self.number, &self.settings).await;
                self.bar.suspend(|| println!("{}", deaf::line(&row)));
                self.results.deaf.push(row);
                self.ran();
            }
        }
    }

    /// Runs the worker's own workloads.
    async fn work(&mut self, workloads: &[&str]) {
        if !workloads.is_empty() {
            self.bar.suspend(|| println!("\nThe sync worker"));
        }
        for round in 0..self.settings.rounds {
            for name in workloads {
                self.bar.set_message((*name).to_owned());
                let (stores, number, settings) =
                    (&self.stores, voting::LOADS_LIMIT * self.number, &self.settings);
                let rows: Vec<WorkerRow> = match *name {
                    "reseed" => vec![worker::reseed(stores, round, number, settings).await],
                    "long_tail" => vec![ledger::long_tail(stores, round, number, settings).await],
                    "open_snapshot" => {
                        vec![ledger::open_snapshot(stores, round, number, settings).await]
                    }
                    "bytes_per_vote" => ledger::bytes_per_vote(stores, round).await,
                    "split" => vec![ledger::split(stores, round, number, settings).await],
                    "audit_idle" => vec![worker::audit_idle(stores, round, settings).await],
                    "audit" => vec![worker::audit(stores, round, number, settings).await],
                    // All workloads of one set of counters run together.
                    name if Some(&name) == workloads.iter().find(|one| counters::WORKLOADS.contains(one)) => {
                        counters::all(stores, round, settings).await
                    }
                    _ => Vec::new(),
                };
                for row in rows {
                    self.bar.suspend(|| println!("{}", report::worker_line(&row)));
                    self.results.worker.push(row);
                }
                self.ran();
            }
        }
    }

    fn ran(&mut self) {
        self.number += 1;
        self.bar.inc(1);
        results::write(&self.results);
    }
}
