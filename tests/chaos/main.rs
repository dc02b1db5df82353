//! Chaos: real processes, real stores, a schedule of faults drawn from a seed, and
//! clients that record what was acknowledged. `make chaos` plays many rounds. `make test`
//! plays four rounds with fixed seeds, which together have every fault.

#![allow(clippy::expect_used, reason = "a test fails by panicking")]

mod answers;
mod asking;
mod ballots;
mod check;
mod clients;
mod cluster;
mod credentials;
mod faults;
mod inject;
mod keyed;
mod pair;
mod pause;
mod persons;
mod program_faults;
mod programs;
mod quiescence;
mod records;
mod redis_cluster;
mod report;
mod round;
mod ruled;
mod scenarios;
mod schedule;
mod sentinel;
mod stores;
mod tampering;
mod throttled;
mod voiding;
mod voters;
mod watchers;
mod webhook;
mod windows;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use libtest_mimic::{Arguments, Failed, Trial};
use tokio::task::JoinSet;

use faults::Fault;
use report::Report;
use round::Round;
use watchers::WATCHERS_PER_SERVER;

/// How many rounds run at once: they mostly wait.
const ROUNDS_AT_ONCE: usize = 3;
/// The seeds of the short run.
const SHORT_RUN: std::ops::Range<u64> = 0..4;
pub const DEFAULT_ROUNDS: u64 = 10;

fn main() -> ExitCode {
    own_mounts();
    if std::env::args().nth(1).as_deref() == Some("rounds") {
        return match runtime().and_then(|runtime| runtime.block_on(rounds())) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) => {
                eprintln!("chaos: {error:#}");
                ExitCode::FAILURE
            }
        };
    }
    // A trial for each round, so that each has the time of a test.
    let mut trials: Vec<Trial> = SHORT_RUN.map(short_round).collect();
    let tampering = Trial::test("whatever_breaks_votes_ballots_or_voidings_is_found", || {
        let play = async { tampering::play(&folder("tampering")?).await };
        runtime()
            .and_then(|runtime| runtime.block_on(play))
            .map_err(|error| Failed::from(format!("{error:#}")))
    });
    trials.push(tampering);
    trials.push(Trial::test(
        "an_answered_count_that_is_impossible_is_found",
        || voters::check_the_judge().map_err(|error| Failed::from(format!("{error:#}"))),
    ));
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// The test that every fault of the round with this seed leaves all counts exact.
fn short_round(seed: u64) -> Trial {
    let name = format!("every_fault_of_round_{seed}_leaves_all_counts_exact");
    Trial::test(name, move || {
        runtime()
            .and_then(|runtime| runtime.block_on(short_run(seed)))
            .map_err(|error| Failed::from(format!("{error:#}")))
    })
}

/// Ties the small disks to this process: they go when it ends, however it ends. Called before
/// any thread starts, since each thread has its own view of the mounts.
fn own_mounts() {
    use nix::mount::{MsFlags, mount};
    use nix::sched::{CloneFlags, unshare};
    if nix::unistd::Uid::effective().is_root() && unshare(CloneFlags::CLONE_NEWNS).is_ok() {
        let none: Option<&str> = None;
        let _ = mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none);
    }
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

/// An empty folder for rounds, within target/chaos.
fn folder(name: &str) -> anyhow::Result<PathBuf> {
    let name = format!("chaos/{name}");
    std::fs::remove_dir_all(testkit::stores::folder(&name)?)?;
    testkit::stores::folder(&name)
}

/// target/chaos, where results go.
fn results_folder() -> anyhow::Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/chaos");
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Writes a result to target/chaos.
fn write_result(name: &str, result: &serde_json::Value) -> anyhow::Result<()> {
    Ok(std::fs::write(
        results_folder()?.join(name),
        serde_json::to_string_pretty(result)?,
    )?)
}

/// Shows and keeps the figures. Returns whether there are no failures.
fn shown(name: &str, (figures, failures): (serde_json::Value, Vec<String>)) -> anyhow::Result<bool> {
    println!("{figures:#}");
    write_result(&format!("{name}.json"), &figures)?;
    for failure in &failures {
        eprintln!("{failure}");
    }
    Ok(failures.is_empty())
}

async fn short_run(seed: u64) -> anyhow::Result<()> {
    let mut report = Report::default();
    let mut failures = Vec::new();
    play(
        seed..seed + 1,
        None,
        WATCHERS_PER_SERVER,
        &folder(&format!("round-{seed}"))?,
        |round, folder| {
            if !round.is_exact() {
                failures.push(report::failure(&round, folder));
            }
            report.add(round);
        },
    )
    .await?;
    println!("{}", report.table());
    if !failures.is_empty() {
        bail!(failures.join("\n"));
    }
    Ok(())
}

/// A whole number from the environment.
pub fn number(name: &str) -> anyhow::Result<Option<u64>> {
    match std::env::var(name) {
        Ok(text) if !text.is_empty() => {
            let number = text.parse();
            Ok(Some(number.with_context(|| {
                format!("{name} is {text:?}; it takes a whole number, such as 7")
            })?))
        }
        _ => Ok(None),
    }
}

/// The number in this variable, which is one at least: with none, nothing would be tried.
///
/// # Errors
/// When it holds something else.
pub fn number_from_one(name: &str) -> anyhow::Result<Option<u64>> {
    let number = number(name)?;
    ensure!(
        number != Some(0),
        "{name} is 0; it takes a whole number from 1 on, such as 7"
    );
    Ok(number)
}

/// `make chaos`: plays `ROUNDS` rounds with the seeds from `SEED` on, with `WATCHERS` live streams
/// of each server, and only the fault `FAULT` if it is set; on a `TOPOLOGY` other than a single Redis, its faults instead;
/// or plays a `SCENARIO`. Returns whether all were exact.
async fn rounds() -> anyhow::Result<bool> {
    let named = |name| {
        std::env::var(name)
            .ok()
            .filter(|value: &String| !value.is_empty())
    };
    if let Some(scenario) = named("SCENARIO") {
        return scenarios::play(&scenario, &folder("scenario")?).await;
    }
    match named("TOPOLOGY").as_deref() {
        None | Some("single") => {}
        Some("sentinel") => return shown("sentinel", sentinel::play(&folder("sentinel")?).await?),
        Some("cluster") => return shown("cluster", redis_cluster::play(&folder("cluster")?).await?),
        Some(other) => bail!("TOPOLOGY is {other:?}; it takes single, sentinel or cluster"),
    }
    let seed = number("SEED")?;
    let rounds = number_from_one("ROUNDS")?.unwrap_or(if seed.is_some() { 1 } else { DEFAULT_ROUNDS });
    let first = seed.unwrap_or(0);
    let only = match std::env::var("FAULT") {
        Ok(name) if !name.is_empty() => Some(Fault::named(&name).with_context(|| {
            let names: Vec<&str> = Fault::ALL.iter().map(|fault| fault.name()).collect();
            format!("FAULT is {name:?}; it takes one of: {}", names.join("; "))
        })?),
        _ => None,
    };
    let watchers = match number("WATCHERS")? {
        Some(number) => i64::try_from(number).context("WATCHERS: so many are more than a server takes")?,
        None => WATCHERS_PER_SERVER,
    };
    let folder = folder("rounds")?;
    let mut report = Report::default();
    let bar = report::progress(rounds);
    play(first..first + rounds, only, watchers, &folder, |round, folder| {
        if !round.is_exact() {
            bar.suspend(|| eprintln!("{}", report::failure(&round, folder)));
        }
        report.add(round);
        bar.set_message(report.line());
        bar.inc(1);
    })
    .await?;
    bar.finish_and_clear();
    println!("{}", report.table());
    write_result("results.json", &report.results())?;
    std::fs::write(results_folder()?.join("results.md"), report.markdown())?;
    println!("target/chaos/results.json has every round, results.md the table for the documents");
    Ok(report.not_exact() == 0)
}

/// Plays the rounds of these seeds, a few at once, with this many watchers of each server. Keeps the
/// folders of the rounds that failed.
async fn play(
    mut seeds: std::ops::Range<u64>,
    only: Option<Fault>,
    watchers: i64,
    folder: &Path,
    mut ended: impl FnMut(Round, &Path),
) -> anyhow::Result<()> {
    let template = std::sync::Arc::new(stores::template(folder).await?);
    let mut playing = JoinSet::new();
    loop {
        while playing.len() < ROUNDS_AT_ONCE
            && let Some(seed) = seeds.next()
        {
            let (template, folder) = (template.clone(), folder.join(format!("seed-{seed}")));
            playing.spawn(async move {
                let schedule = schedule::draw(seed, only);
                let round = round::play(&schedule, watchers, &folder, &template).await;
                (round, folder)
            });
        }
        let Some(played) = playing.join_next().await else {
            return Ok(());
        };
        let (round, folder) = played?;
        let round = round?;
        let is_exact = round.is_exact();
        ended(round, &folder);
        if is_exact {
            std::fs::remove_dir_all(folder)?;
        }
    }
}
