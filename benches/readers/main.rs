//! Votes while others search, list and page as hard as they can, on a million items and 200,000 polls.
//!
//! `make readers`, or `cargo bench --bench readers`; READ_SECONDS=20 and READERS=64 can be chosen. A server runs
//! on a Postgres (durable) and a Redis of the bench's own. Votes by id and by key come at a fixed rate, and
//! probes ask whether the server is ready. Once they are alone; once with readers who share one address; once
//! with readers of an address each. Fails when a probe is not answered with 200, a vote is lost, or the
//! votes' 99th percentile is more than three times that without readers.

#![allow(clippy::expect_used, reason = "a bench that cannot go on stops")]

mod data;
mod readers;
mod system;
mod voting;

use std::env;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use readers::Addresses;
use system::System;
use voting::Seen;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The votes' 99th percentile with readers is at most so many times that without them.
const SLOWER_LIMIT: f64 = 3.0;
/// Before the first measurement: caches fill, and counters are seeded.
const WARM_UP: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> ExitCode {
    match measure().await {
        Ok(faults) if faults.is_empty() => ExitCode::SUCCESS,
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

fn chosen<T: FromStr>(name: &str, default: T) -> T {
    let text = env::var(name).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Returns what was wrong.
async fn measure() -> anyhow::Result<Vec<String>> {
    let run = Duration::from_secs(chosen("READ_SECONDS", 20));
    let count: usize = chosen("READERS", 64);
    let system = System::start().await?;
    voting::run(&system, WARM_UP).await?;

    let alone = voting::run(&system, run).await?;
    print("without readers", &alone);
    let mut faults = Vec::new();
    let mut acknowledged = alone.acknowledged;
    for addresses in [Addresses::Shared, Addresses::Own] {
        let readers = readers::start(&system.base, count, addresses);
        let seen = voting::run(&system, run).await?;
        let read = readers.stop().await;
        let name = format!("with {count} readers, {}", addresses.name());
        print(&name, &seen);
        read.print(run);
        for (kind, with, without) in [
            ("by id", &seen.by_id, &alone.by_id),
            ("by key", &seen.by_key, &alone.by_key),
        ] {
            let times = p99_ms(with) / p99_ms(without);
            println!("  votes {kind}: {times:.1} times the 99th percentile without readers");
            if times > SLOWER_LIMIT {
                faults.push(format!("{name}: votes {kind} are {times:.1} times as slow"));
            }
        }
        if seen.not_ready > 0 {
            faults.push(format!(
                "{name}: {} of {} probes were not ready",
                seen.not_ready, seen.probes
            ));
        }
        if seen.failed > 0 {
            faults.push(format!(
                "{name}: {} votes failed: {:?}",
                seen.failed, seen.first_failure
            ));
        }
        acknowledged += seen.acknowledged;
    }
    println!("{acknowledged} votes acknowledged");
    system.remove().await;
    Ok(faults)
}

fn p99_ms(latency_us: &hdrhistogram::Histogram<u64>) -> f64 {
    latency_us.value_at_quantile(0.99) as f64 / 1000.0
}

fn print(name: &str, seen: &Seen) {
    println!("{name}:");
    for (kind, latency_us) in [("by id", &seen.by_id), ("by key", &seen.by_key)] {
        println!(
            "  votes {kind}: {} answered, median {:.1} ms, 99th percentile {:.1} ms, longest {:.1} ms",
            latency_us.len(),
            latency_us.value_at_quantile(0.5) as f64 / 1000.0,
            p99_ms(latency_us),
            latency_us.max() as f64 / 1000.0
        );
    }
    println!(
        "  probes: {} of {} ready, 99th percentile {:.1} ms",
        seen.probes - seen.not_ready,
        seen.probes,
        p99_ms(&seen.probe)
    );
}
