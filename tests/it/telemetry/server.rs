//! The server's metrics.

use std::time::Duration;

use reqwest::{Method, StatusCode};
use sqlx::Executor;
use tally::domain::ItemId;
use tally::web::ClientLimits;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::{assert_values, passes_alone, until_above_0};
use crate::helpers::eventually;
use crate::helpers::metrics::{metric, metrics};
use crate::helpers::tally::{Tally, live_counts_limited_to};

/// How many samples of this histogram are in its buckets.
/// Only the handle's Debug output says so: to render the metrics would move samples there.
fn samples_in_buckets(histogram: &str) -> Option<u64> {
    let state = format!("{:?}", metrics());
    let (_, state) = state.split_once("distributions: ")?;
    let (_, state) = state.split_once(&format!("\"{histogram}\": "))?;
    let (_, state) = state.split_once("Histogram(Histogram { count: ")?;
    state.split(',').next()?.parse().ok()
}

/// Scrapes once: some gauges are set by a scrape.
async fn scrape(tally: &Tally) {
    let metrics = tally.http.get(format!("{}/metrics", tally.base));
    metrics.send().await.expect("an answer");
}

#[tokio::test(flavor = "multi_thread")]
async fn samples_are_worked_off_while_nobody_scrapes() {
    if passes_alone("telemetry::server::samples_are_worked_off_while_nobody_scrapes").await {
        return;
    }
    let mut tally = Tally::start().await;
    let item = tally.item("x").await;
    for _ in 0..20 {
        tally.add(item, 1).await;
    }
    eventually("the samples are in their buckets", async || {
        (samples_in_buckets("tally_vote_seconds") == Some(20)).then_some(())
    })
    .await;
    tally.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_servers_metrics_move_with_its_votes() {
    if passes_alone("telemetry::server::a_servers_metrics_move_with_its_votes").await {
        return;
    }
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let outcome = |outcome: &str| metric(&format!("tally_votes_total{{outcome=\"{outcome}\"}}"));
    assert_values(&[("tally_live_misses_total", 0.0), ("tally_live_seeds_total", 0.0)]);
    assert_eq!(tally.vote(item, "ada").await.0, StatusCode::CREATED);
    assert_eq!(tally.vote(item, "ada").await.0, StatusCode::OK);
    let unknown = ItemId::new(item.get() + 1).expect("positive");
    assert_eq!(tally.vote(unknown, "ada").await.0, StatusCode::NOT_FOUND);
    assert_eq!(
        ["accepted", "repeated", "unknown_item", "refused", "failed"].map(outcome),
        [1.0, 1.0, 1.0, 0.0, 0.0]
    );
    assert_eq!(
        ["changed", "taken_back", "declined"].map(outcome),
        [0.0, 0.0, 0.0]
    );
    assert_values(&[
        ("tally_live_misses_total", 1.0),
        ("tally_live_seeds_total", 1.0),
        ("tally_batch_votes_count", 3.0),
        ("tally_batch_votes_sum", 3.0),
        ("tally_vote_seconds_count", 3.0),
        ("tally_ledger_insert_seconds_count", 3.0),
        ("tally_live_count_seconds_count", 3.0),
        ("tally_queue_depth_votes", 0.0),
        ("tally_redis_available", 1.0),
    ]);
    until_above_0(&["tally_connections"]).await;
    let text = metrics().render();
    let is_timed = |line: &str| {
        line.starts_with("tally_http_request_seconds_count{")
            && line.contains("/votes\"")
            && line.ends_with("status=\"201\"} 1")
    };
    assert!(text.lines().any(is_timed), "{text}");
    // Postgres refuses the next connection.
    tally
        .pool
        .execute("revoke insert on vote from tally_server")
        .await
        .expect("a statement");
    assert_eq!(tally.vote(item, "bob").await.0, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(outcome("failed"), 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_servers_metrics_move_while_redis_is_unavailable() {
    if passes_alone("telemetry::server::a_servers_metrics_move_while_redis_is_unavailable").await {
        return;
    }
    let mut tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    assert_values(&[
        ("tally_redis_available", 1.0),
        ("tally_redis_failures_total", 0.0),
    ]);
    tally.stores.redis.crash().await;
    tally.add(item, 1).await;
    assert_values(&[
        ("tally_redis_available", 0.0),
        ("tally_redis_failures_total", 1.0),
    ]);
    scrape(&tally).await;
    assert_values(&[("tally_suspect_items", 1.0)]);
    tally.stores.redis.start().await.expect("Redis starts");
    until_above_0(&[
        "tally_redis_available",
        "tally_live_invalidations_total{why=\"suspect\"}",
    ])
    .await;
    scrape(&tally).await;
    assert_values(&[("tally_suspect_items", 0.0)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_too_many_are_seen_as_refused() {
    if passes_alone("telemetry::server::connections_that_are_too_many_are_seen_as_refused").await {
        return;
    }
    let tally = Tally::start_limited_to(ClientLimits::with_connections(3)).await;
    assert_values(&[("tally_connections_refused_total", 0.0)]);
    let address = tally.base.trim_start_matches("http://");
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(TcpStream::connect(address).await.expect("it listens"));
    }
    until_above_0(&["tally_connections_refused_total"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn suspects_that_are_too_many_are_seen() {
    if passes_alone("telemetry::server::suspects_that_are_too_many_are_seen").await {
        return;
    }
    let tally = Tally::start().await;
    let live_counts = live_counts_limited_to(&tally, 1);
    assert_values(&[("tally_suspect_items_dropped_total", 0.0)]);
    let items = (1..=3).filter_map(ItemId::new);
    live_counts.suspect_later(items, Instant::now() + Duration::from_secs(3600));
    assert_values(&[("tally_suspect_items_dropped_total", 2.0)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_servers_metrics_move_with_its_decisions() {
    if passes_alone("telemetry::server::a_servers_metrics_move_with_its_decisions").await {
        return;
    }
    let tally = Tally::start().await;
    let item = tally.item_with(serde_json::json!({ "max_votes": 1 })).await;
    let ada = format!("/v1/items/{item}/votes/ada");
    let down = serde_json::json!({ "value": -1 });
    assert_eq!(tally.vote(item, "ada").await.0, StatusCode::CREATED);
    assert_eq!(tally.vote(item, "bob").await.0, StatusCode::CONFLICT);
    assert_eq!(tally.send(Method::PUT, &ada, Some(&down)).await.0, StatusCode::OK);
    for _ in 0..2 {
        assert_eq!(tally.send(Method::DELETE, &ada, None).await.0, StatusCode::OK);
    }
    let outcome = |outcome: &str| metric(&format!("tally_votes_total{{outcome=\"{outcome}\"}}"));
    assert_eq!(
        [
            "accepted",
            "declined",
            "changed",
            "taken_back",
            "repeated",
            "failed"
        ]
        .map(outcome),
        [1.0, 1.0, 1.0, 1.0, 1.0, 0.0]
    );
    assert_values(&[("tally_queue_depth_votes", 0.0)]);
}
