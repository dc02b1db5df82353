//! Two long stress scenarios with figures of their own: a server under four times the load
//! that it can carry, and Redis unavailable for half a minute.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::{Value, json};
use testkit::load::{Load, Mix, Outcome, Pace, Requests, Spread};
use testkit::programs::until_ready;
use tokio::time::{Instant, sleep};

use crate::check;
use crate::cluster::Cluster;
use crate::quiescence::{LOOK_EVERY, QUIESCENCE_LIMIT};
use crate::schedule::{self, Settings};
use crate::stores;

/// How long a rate is measured. A server on the slow Postgres stores less than three batches
/// per second. In a measurement of five seconds, one batch less looked like lost speed.
const MEASURE: Duration = Duration::from_secs(10);
const OVERLOAD: Duration = Duration::from_secs(60);
const OVERLOAD_TIMES: f64 = 4.0;
/// How much slower Postgres answers: so slow that the generator, on the same machine, can send
/// four times what the server can carry.
const SLOW_BY: Duration = Duration::from_millis(500);
/// Enough to fill both batch writers' batches and the queue before them (`tally::votes`).
const SATURATING_CONNECTIONS: usize = 4000;
/// More than fit into the batches and the queue, so that the server refuses some votes; fewer
/// than it takes (`web::limits::CONNECTIONS_LIMIT`).
const OVERLOAD_CONNECTIONS: usize = 8000;
/// How much memory a server may use with all these connections and a full queue.
const MEMORY_LIMIT_MIB: u64 = 512;
/// The part of its speed that it must reach again.
const SPEED_AGAIN: f64 = 0.9;

const REDIS_UNAVAILABLE: Duration = Duration::from_secs(30);
const ITEMS: i64 = 1000;
const CONNECTIONS: usize = 64;

/// Plays the scenario of this name. Returns whether all was right.
pub async fn play(name: &str, folder: &Path) -> anyhow::Result<bool> {
    let template = stores::template(folder).await?;
    let settings = Settings {
        items: ITEMS,
        ..schedule::draw(0, None).settings
    };
    let settings = Settings {
        flush_every: "1s",
        flush_page: "1000",
        scan_every: "5m",
        retention: "10m",
        max_age: "1h",
        is_open: true,
        sessions: Vec::new(),
        ..settings
    };
    let cluster = Arc::new(Cluster::start(&folder.join(name), &template, &settings).await?);
    for url in &cluster.urls {
        until_ready(url).await?;
    }
    let played = match name {
        "overload" => overload(&cluster).await,
        "redis-gone" => redis_gone(&cluster).await,
        _ => bail!("SCENARIO is {name:?}; it takes overload or redis-gone"),
    };
    cluster.stop().await;
    crate::shown(name, played?)
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

/// The number of rows, and whether the three counts agree.
async fn ledger(cluster: &Cluster) -> anyhow::Result<(u64, bool)> {
    let owner = cluster.postgres.lock().await.owner();
    let rows: i64 = sqlx::query_scalar("select count(*) from vote")
        .fetch_one(&owner)
        .await?;
    let mut redis = cluster.redis.lock().await.connection().await?;
    let counts = check::counts(&owner, &mut redis).await?;
    Ok((u64::try_from(rows)?, check::are_exact(&counts)))
}

/// Waits until the three counts agree. Returns how long after `since` that was.
async fn until_exact(cluster: &Cluster, since: Instant) -> anyhow::Result<Duration> {
    while since.elapsed() < QUIESCENCE_LIMIT {
        if ledger(cluster).await?.1 {
            return Ok(since.elapsed());
        }
        sleep(LOOK_EVERY).await;
    }
    bail!("it never was exact again");
}

/// Anonymous votes on all items.
fn start_load(servers: &[SocketAddr], connections: usize, pace: Pace) -> anyhow::Result<Load> {
    let requests = Requests::render(usize::try_from(ITEMS)?, Spread::Uniform, Mix::Votes, false);
    Ok(Load::start(servers, connections, Arc::new(requests), pace, 0))
}

/// How many votes per second a server can carry, and what the load has seen.
async fn capacity(server: SocketAddr) -> anyhow::Result<(f64, Outcome)> {
    let load = start_load(&[server], SATURATING_CONNECTIONS, Pace::Closed)?;
    // The first batches are small.
    sleep(MEASURE / 2).await;
    let rate = load.rate(MEASURE).await;
    Ok((rate, load.stop().await))
}

async fn overload(cluster: &Cluster) -> anyhow::Result<(Value, Vec<String>)> {
    let server = *addresses(cluster)?.first().context("a server")?;
    let memory = async || cluster.servers[0].lock().await.memory_mib();
    let idle_mib = memory().await?.1;
    // The server connects while Postgres is quick: that needs many answers within a limit.
    let warm_up = start_load(&[server], CONNECTIONS, Pace::Closed)?;
    sleep(MEASURE / 2).await;
    let warm_up = warm_up.stop().await;
    cluster.slow_postgres(SLOW_BY);
    let (before, load_before) = capacity(server).await?;
    let per_second = before * OVERLOAD_TIMES;
    let overload = start_load(&[server], OVERLOAD_CONNECTIONS, Pace::Overload { per_second })?;
    sleep(OVERLOAD).await;
    let overload = overload.stop().await;
    let (peak_mib, _) = memory().await?;
    let (after, load_after) = capacity(server).await?;
    cluster.slow_postgres(Duration::ZERO);
    let exact = until_exact(cluster, Instant::now()).await?;
    let (rows, _) = ledger(cluster).await?;
    let loads = [&warm_up, &load_before, &overload, &load_after];
    let acknowledged: u64 = loads.iter().map(|load| load.acknowledged_votes).sum();
    let other: u64 = loads.iter().map(|load| load.failures).sum();

    let mut failures = Vec::new();
    let mut check = |is_true: bool, what: &str| {
        if !is_true {
            failures.push(format!("not true: {what}"));
        }
    };
    check(
        other == 0,
        "every request is answered, with 201 or with 503 and Retry-After",
    );
    check(
        before > 0.0 && overload.refused > 0,
        "more was sent than could be carried",
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
        "offered_votes_per_second": per_second,
        "seconds": OVERLOAD.as_secs(),
        "connections": OVERLOAD_CONNECTIONS,
        "accepted": overload.acknowledged_votes,
        "refused_with_retry_after": overload.refused,
        "answered_otherwise_or_not": other,
        "not_sent_for_want_of_a_free_connection": overload.unsent,
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
    let load = start_load(&addresses(cluster)?, CONNECTIONS, Pace::Closed)?;
    sleep(MEASURE).await;
    let before = load.rate(MEASURE).await;
    let began = Instant::now();
    let (accepted, uncounted) = (load.acknowledged_votes(), load.without_count());
    cluster.redis.lock().await.killed(REDIS_UNAVAILABLE).await?;
    let returned = Instant::now();
    let accepted = load.acknowledged_votes() - accepted;
    let during = accepted as f64 / began.elapsed().as_secs_f64();
    let uncounted = load.without_count() - uncounted;
    let load = load.stop().await;
    let exact = until_exact(cluster, returned).await?;
    let (rows, _) = ledger(cluster).await?;

    let mut failures = Vec::new();
    let mut check = |is_true: bool, what: &str| {
        if !is_true {
            failures.push(format!("not true: {what}"));
        }
    };
    check(load.failures == 0 && load.refused == 0, "every vote is accepted");
    check(
        rows == load.acknowledged_votes,
        "every acknowledged vote is a row, and no other is",
    );
    let figures = json!({
        "scenario": "redis-gone",
        "seconds_gone": REDIS_UNAVAILABLE.as_secs(),
        "votes_per_second_before": before,
        "votes_per_second_meanwhile": during,
        "accepted_meanwhile": accepted,
        "of_these_without_a_live_count": uncounted,
        "refused_or_unanswered": load.failures + load.refused,
        "acknowledged_in_all": load.acknowledged_votes,
        "rows": rows,
        "seconds_to_exact_after_its_return": exact.as_secs_f64(),
    });
    Ok((figures, failures))
}
