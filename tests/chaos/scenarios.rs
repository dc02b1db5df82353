//! Two long stress scenarios with figures of their own: a server at four times the load it
//! can carry, and Redis gone for half a minute.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::check;
use crate::cluster::Cluster;
use crate::load::Load;
use crate::rest;
use crate::schedule::{self, Settings};
use crate::stores;

/// How long a rate is measured. A server on the slow Postgres stores less than three batches
/// a second; over five seconds, one more or less was seen to pass for lost speed.
const MEASURE: Duration = Duration::from_secs(10);
const OVERLOAD: Duration = Duration::from_secs(60);
const OVERLOAD_TIMES: f64 = 4.0;
/// Postgres is made so slow that the generator, on the same machine, can ask four
/// times what the server can carry.
const SLOW_BY: Duration = Duration::from_millis(500);
/// Enough to fill both batch writers' batches and the queue behind them (`tally::votes`).
const SATURATING_CONNECTIONS: usize = 4000;
/// More than batch writers and queue hold, so that some are refused; fewer than the server
/// takes (`http::CONNECTIONS_LIMIT`).
const OVERLOAD_CONNECTIONS: usize = 8000;
/// What a server may hold in memory with all these connections and a full queue.
const MEMORY_LIMIT_MIB: u64 = 512;
/// How much of its speed it must have again.
const SPEED_AGAIN: f64 = 0.9;

const REDIS_GONE: Duration = Duration::from_secs(30);
const ITEMS: i64 = 1000;
const CONNECTIONS: usize = 64;

/// Plays the scenario of this name; whether all came out right.
pub async fn play(name: &str, folder: &Path) -> anyhow::Result<bool> {
    let template = stores::template(folder).await?;
    let settings = Settings {
        items: ITEMS,
        ..schedule::draw(0, None).settings
    };
    let settings = Settings {
        flush_every: "1s",
        flush_page: "1000",
        retention: "10m",
        max_age: "1h",
        ..settings
    };
    let cluster = Arc::new(Cluster::start(&folder.join(name), &template, &settings).await?);
    wait_until_ready(&cluster).await?;
    let played = match name {
        "overload" => overload(&cluster).await,
        "redis-gone" => redis_gone(&cluster).await,
        _ => bail!("SCENARIO is {name:?}; it takes overload or redis-gone"),
    };
    cluster.stop().await;
    let (figures, failures) = played?;
    println!("{}", serde_json::to_string_pretty(&figures)?);
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("target/chaos/{name}.json"));
    std::fs::write(results, serde_json::to_string_pretty(&figures)?)?;
    for failure in &failures {
        eprintln!("{failure}");
    }
    Ok(failures.is_empty())
}

async fn wait_until_ready(cluster: &Cluster) -> anyhow::Result<()> {
    let deadline = Instant::now() + rest::REST_LIMIT;
    for url in &cluster.urls {
        while !reqwest::get(format!("{url}/health/ready"))
            .await
            .is_ok_and(|answer| answer.status().is_success())
        {
            if Instant::now() > deadline {
                bail!("{url} did not become ready");
            }
            sleep(rest::LOOK_EVERY).await;
        }
    }
    Ok(())
}

fn addresses(cluster: &Cluster) -> anyhow::Result<Vec<SocketAddr>> {
    let parse = |url: &String| {
        url.strip_prefix("http://")
            .context("a URL")?
            .parse()
            .context("an address")
    };
    cluster.urls.iter().map(parse).collect()
}

/// Rows, and whether the three counts agree.
async fn ledger(cluster: &Cluster) -> anyhow::Result<(u64, bool)> {
    let owner = cluster.postgres.lock().await.owner();
    let rows: i64 = sqlx::query_scalar("select count(*) from vote")
        .fetch_one(&owner)
        .await?;
    let mut redis = cluster.redis.lock().await.connection().await?;
    let counts = check::counts(&owner, &mut redis).await?;
    Ok((u64::try_from(rows)?, check::are_exact(&counts)))
}

/// Waits until the three counts agree; how long after `since` that was.
async fn until_exact(cluster: &Cluster, since: Instant) -> anyhow::Result<Duration> {
    while since.elapsed() < rest::REST_LIMIT {
        if ledger(cluster).await?.1 {
            return Ok(since.elapsed());
        }
        sleep(rest::LOOK_EVERY).await;
    }
    bail!("it never was exact again");
}

async fn capacity(server: SocketAddr) -> anyhow::Result<(f64, u64, u64)> {
    let load = Load::closed(&[server], ITEMS, SATURATING_CONNECTIONS);
    // The first batches are small.
    sleep(MEASURE / 2).await;
    let rate = load.rate(MEASURE).await;
    let answers = load.finish().await?;
    Ok((rate, answers.accepted(), answers.other()))
}

async fn overload(cluster: &Cluster) -> anyhow::Result<(Value, Vec<String>)> {
    let server = *addresses(cluster)?.first().context("a server")?;
    let memory = async || cluster.servers[0].lock().await.memory_mib();
    let idle_mib = memory().await?.1;
    // While Postgres is quick: connecting takes many answers, and has a limit.
    let warm_up = Load::closed(&[server], ITEMS, CONNECTIONS);
    sleep(MEASURE / 2).await;
    let accepted_first = warm_up.finish().await?.accepted();
    cluster.slow_postgres(SLOW_BY);
    let (before, accepted_before, other_before) = capacity(server).await?;
    let offered = before * OVERLOAD_TIMES;
    let (answers, unsent) = Load::open(server, ITEMS, OVERLOAD_CONNECTIONS, offered, OVERLOAD).await?;
    let (peak_mib, _) = memory().await?;
    let (after, accepted_after, other_after) = capacity(server).await?;
    cluster.slow_postgres(Duration::ZERO);
    let exact = until_exact(cluster, Instant::now()).await?;
    let (rows, _) = ledger(cluster).await?;
    let acknowledged = accepted_first + accepted_before + answers.accepted() + accepted_after;
    let other = other_before + answers.other() + other_after;

    let mut failures = Vec::new();
    let mut check = |holds: bool, what: &str| {
        if !holds {
            failures.push(format!("does not hold: {what}"));
        }
    };
    check(
        other == 0,
        "every request is answered, with 201 or with 503 and Retry-After",
    );
    check(
        before > 0.0 && answers.refused() > 0,
        "more was asked than could be carried",
    );
    check(
        rows == acknowledged,
        "every acknowledged vote is a row, and no other is",
    );
    check(peak_mib <= MEMORY_LIMIT_MIB, "memory is bounded");
    check(after >= before * SPEED_AGAIN, "full speed again afterwards");
    let figures = json!({
        "scenario": "overload",
        "can_carry_votes_per_second": before,
        "offered_votes_per_second": offered,
        "seconds": OVERLOAD.as_secs(),
        "connections": OVERLOAD_CONNECTIONS,
        "accepted": answers.accepted(),
        "refused_with_retry_after": answers.refused(),
        "answered_otherwise_or_not": other,
        "not_sent_for_want_of_a_free_connection": unsent,
        "acknowledged_in_all": acknowledged,
        "rows": rows,
        "memory_idle_mib": idle_mib,
        "memory_peak_mib": peak_mib,
        "afterwards_votes_per_second": after,
        "seconds_to_exact": exact.as_secs_f64(),
    });
    Ok((figures, failures))
}

async fn redis_gone(cluster: &Cluster) -> anyhow::Result<(Value, Vec<String>)> {
    let load = Load::closed(&addresses(cluster)?, ITEMS, CONNECTIONS);
    sleep(MEASURE).await;
    let before = load.rate(MEASURE).await;
    let without_count = || load.answers.without_count.load(Ordering::Relaxed);
    let (began, accepted, uncounted) = (Instant::now(), load.answers.accepted(), without_count());
    cluster.redis.lock().await.killed(REDIS_GONE).await?;
    let returned = Instant::now();
    let accepted = load.answers.accepted() - accepted;
    let during = accepted as f64 / began.elapsed().as_secs_f64();
    let uncounted = without_count() - uncounted;
    let answers = load.finish().await?;
    let exact = until_exact(cluster, returned).await?;
    let (rows, _) = ledger(cluster).await?;

    let mut failures = Vec::new();
    let mut check = |holds: bool, what: &str| {
        if !holds {
            failures.push(format!("does not hold: {what}"));
        }
    };
    check(
        answers.other() == 0 && answers.refused() == 0,
        "every vote is accepted",
    );
    check(
        rows == answers.accepted(),
        "every acknowledged vote is a row, and no other is",
    );
    let figures = json!({
        "scenario": "redis-gone",
        "seconds_gone": REDIS_GONE.as_secs(),
        "votes_per_second_before": before,
        "votes_per_second_meanwhile": during,
        "accepted_meanwhile": accepted,
        "of_these_without_a_live_count": uncounted,
        "refused_or_unanswered": answers.other() + answers.refused(),
        "acknowledged_in_all": answers.accepted(),
        "rows": rows,
        "seconds_to_exact_after_its_return": exact.as_secs_f64(),
    });
    Ok((figures, failures))
}
