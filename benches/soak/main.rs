//! Votes for half an hour, and sees that nothing grows.
//!
//! `make soak`, or `cargo bench --bench soak`; `settings` has what can be chosen. Two servers
//! and two workers run on a Postgres (durable) and a Redis of the bench's own. There is no audit,
//! and nobody reads the servers' metrics. All kinds of requests come at once, at a part of the
//! rate that the system carries. Now and then a report holds a snapshot. Each sample is a point
//! of a curve. A curve that grows fails the soak, unless it is explained (`curves`). At the end
//! acknowledged votes = rows = counts.
//!
//! The table goes to the terminal, the samples to target/soak/samples.json, and a plot to
//! target/soak/soak.svg.

#![allow(clippy::expect_used, reason = "a bench that cannot go on stops")]

mod curves;
mod load;
mod plot;
mod processes;
mod report;
mod sampler;
mod settings;
mod system;

use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};

use curves::{Samples, Verdict};
use load::Mixed;
use settings::Settings;
use system::System;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The results are written after each of so many samples, so an interrupted soak leaves them.
const WRITE_EVERY_SAMPLES: usize = 60;

#[tokio::main]
async fn main() -> ExitCode {
    match soak(Settings::read()).await {
        Ok(faults) if faults.is_empty() => {
            println!("\nNothing grew, and all counts are exact.");
            ExitCode::SUCCESS
        }
        Ok(faults) => {
            for fault in faults {
                eprintln!("failed: {fault}");
            }
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("failed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns what was wrong.
async fn soak(settings: Settings) -> anyhow::Result<Vec<String>> {
    let mut system = System::start().await?;
    let (paced, earlier_votes) = load::pace(&system.addresses).await?;
    println!(
        "{:?} from now on, a sample every {:?}",
        settings.run, settings.sample_every
    );

    let mut samples = Samples::new(settings.run);
    let mut load = Mixed::start(&system.addresses, paced).await;
    let bar = progress(&settings);
    let sampled = sampler::run(
        &mut system,
        &mut load,
        earlier_votes,
        &settings,
        &mut samples,
        |samples| {
            bar.set_position(samples.seconds.len() as u64);
            if samples.seconds.len().is_multiple_of(WRITE_EVERY_SAMPLES) {
                write(samples);
            }
        },
    )
    .await;
    bar.finish_and_clear();
    let has_ended_early = sampled.is_err();
    let mut faults = Vec::new();
    faults.extend(sampled.err().map(|error| format!("{error:#}")));

    let checked = async {
        let acknowledged = earlier_votes + load.stop().await?;
        system.stop_programs().await?;
        system.check(acknowledged).await?;
        anyhow::Ok(acknowledged)
    };
    match checked.await {
        Ok(votes) => println!("{votes} votes acknowledged = rows, and every count is exact"),
        Err(error) => faults.push(format!("{error:#}")),
    }
    write(&samples);
    let judged = samples.judge();
    report::print(&judged);
    for one in &judged {
        // An interrupted run says nothing about curves.
        if let Verdict::Grew(why) = &one.verdict
            && !has_ended_early
        {
            let panel = one.curve.panel.title;
            faults.push(format!("{panel}: {} grew: {why}", one.curve.name));
        }
    }
    system.remove().await;
    Ok(faults)
}

fn write(samples: &Samples) {
    let written = report::write_json(samples, &samples.judge()).and_then(|()| plot::write(samples));
    written.expect("the results");
}

fn progress(settings: &Settings) -> ProgressBar {
    let samples = settings.run.as_secs_f64() / settings.sample_every.as_secs_f64();
    ProgressBar::new(samples as u64).with_style(
        ProgressStyle::with_template("{elapsed_precise} {wide_bar} {pos}/{len} samples").expect("a template"),
    )
}
