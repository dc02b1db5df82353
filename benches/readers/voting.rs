//! Votes at a fixed rate, and probes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use reqwest::{Client, StatusCode};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval_at, sleep_until};

use crate::data::PLAIN_ITEMS;
use crate::system::System;

/// Votes a second by each of id and key: far below what a server carries.
const RATE: u64 = 200;
/// How often a probe asks.
const PROBE_EVERY: Duration = Duration::from_millis(100);
/// Slower requests count as this slow.
const LATENCY_LIMIT_US: u64 = 60_000_000;

/// What the voters have seen.
pub struct Seen {
    pub by_id: Histogram<u64>,
    pub by_key: Histogram<u64>,
    pub probe: Histogram<u64>,
    pub probes: u64,
    pub not_ready: u64,
    pub acknowledged: u64,
    pub failed: u64,
    pub first_failure: Option<String>,
}

enum Ended {
    Vote {
        by_key: bool,
        took: Duration,
        answer: Result<(), String>,
    },
    Probe {
        took: Duration,
        is_ready: bool,
    },
}

/// Numbers that no two runs share.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// An item of the million: each call another one, in no order.
fn drawn(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % PLAIN_ITEMS.unsigned_abs() + 1
}

/// Votes for as long as this. Each vote is sent when it is due, whether or not earlier ones are answered,
/// and its latency counts from then.
///
/// # Errors
/// When no client can be made.
pub async fn run(system: &System, run: Duration) -> anyhow::Result<Seen> {
    let http = Client::builder().timeout(Duration::from_secs(30)).build()?;
    let base: Arc<str> = system.base.as_str().into();
    let mut asked = JoinSet::new();
    let began = Instant::now();
    let until = began + run;
    let mut due = interval_at(began, Duration::from_secs(1) / u32::try_from(2 * RATE)?);
    let mut next_probe = began;
    loop {
        let at = due.tick().await;
        if at >= until {
            break;
        }
        let (number, http, base) = (
            NUMBER.fetch_add(1, Ordering::Relaxed),
            http.clone(),
            Arc::clone(&base),
        );
        asked.spawn(async move {
            let by_key = number % 2 == 1;
            let item = drawn(number);
            let path = if by_key {
                format!("key:post-{item}")
            } else {
                item.to_string()
            };
            let vote = http
                .post(format!("{base}/v1/items/{path}/votes"))
                .json(&json!({ "voter_id": format!("voter-{number}") }));
            let answer = match vote.send().await {
                Ok(answer) if answer.status() == StatusCode::CREATED => Ok(()),
                Ok(answer) => Err(format!(
                    "{}: {}",
                    answer.status(),
                    answer.text().await.unwrap_or_default()
                )),
                Err(error) => Err(error.to_string()),
            };
            Ended::Vote {
                by_key,
                took: at.elapsed(),
                answer,
            }
        });
        if at >= next_probe {
            next_probe = at + PROBE_EVERY;
            let probe = http_probe(&system.base);
            asked.spawn(async move {
                let is_ready = probe.await;
                Ended::Probe {
                    took: at.elapsed(),
                    is_ready,
                }
            });
        }
    }
    sleep_until(until).await;
    let histogram = || Histogram::new_with_bounds(1, LATENCY_LIMIT_US, 3);
    let mut seen = Seen {
        by_id: histogram()?,
        by_key: histogram()?,
        probe: histogram()?,
        probes: 0,
        not_ready: 0,
        acknowledged: 0,
        failed: 0,
        first_failure: None,
    };
    while let Some(ended) = asked.join_next().await {
        match ended? {
            Ended::Vote { by_key, took, answer } => {
                let latency = if by_key { &mut seen.by_key } else { &mut seen.by_id };
                latency.saturating_record(micros(took));
                match answer {
                    Ok(()) => seen.acknowledged += 1,
                    Err(error) => {
                        seen.failed += 1;
                        seen.first_failure.get_or_insert(error);
                    }
                }
            }
            Ended::Probe { took, is_ready } => {
                seen.probe.saturating_record(micros(took));
                seen.probes += 1;
                seen.not_ready += u64::from(!is_ready);
            }
        }
    }
    Ok(seen)
}

fn micros(took: Duration) -> u64 {
    u64::try_from(took.as_micros()).unwrap_or(u64::MAX)
}

/// Asks as a load balancer does, over a connection of its own.
fn http_probe(base: &str) -> impl Future<Output = bool> + Send + 'static {
    let url = format!("{base}/health/ready");
    async move {
        let answer = reqwest::get(url).await;
        answer.is_ok_and(|answer| answer.status() == StatusCode::OK)
    }
}
