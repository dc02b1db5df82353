//! The metrics: each moves when its condition is there. Counters and gauges are those of the
//! test's own process, in which no other test runs.

use std::time::Duration;

use redis::AsyncCommands;
use reqwest::StatusCode;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{Connection, Executor};
use tally::domain::ItemId;
use tally::sync::{Repair, Schedule, SyncOptions};
use tokio::sync::oneshot;

use crate::helpers::eventually;
use crate::helpers::stores::blocker;
use crate::helpers::tally::{Tally, metric, metrics, options};

/// Set for a test that has a process of its own.
const ALONE: &str = "TALLY_TEST_ALONE";

/// `cargo test` runs all tests in one process, nextest gives each its own. Without that, this
/// runs the test in another process and returns true.
async fn passes_alone(name: &str) -> bool {
    if std::env::var_os("NEXTEST").is_some() || std::env::var_os(ALONE).is_some() {
        return false;
    }
    let mut test = tokio::process::Command::new(std::env::current_exe().expect("this program"));
    test.args(["--exact", &format!("metrics::{name}")])
        .env(ALONE, "1");
    let output = test.output().await.expect("this program runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
    true
}

/// Each of these samples has this value.
fn assert_values(values: &[(&str, f64)]) {
    for (sample, expected) in values {
        let found = metric(sample);
        assert!(
            (found - expected).abs() < 1e-9,
            "{sample} is {found}, not {expected}"
        );
    }
}

/// Waits until each of these samples is above 0.
async fn until_above_0(samples: &[&str]) {
    for sample in samples {
        eventually(&format!("{sample} is above 0"), async || {
            (metric(sample) > 0.0).then_some(())
        })
        .await;
    }
}

/// How many samples of this histogram are in its buckets. Only the Debug of the handle tells:
/// to render the metrics would put them there.
fn samples_in_buckets(histogram: &str) -> Option<u64> {
    let state = format!("{:?}", metrics());
    let (_, state) = state.split_once("distributions: ")?;
    let (_, state) = state.split_once(&format!("\"{histogram}\": "))?;
    let (_, state) = state.split_once("Histogram(Histogram { count: ")?;
    state.split(',').next()?.parse().ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn samples_are_worked_off_while_nobody_scrapes() {
    if passes_alone("samples_are_worked_off_while_nobody_scrapes").await {
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
    if passes_alone("a_servers_metrics_move_with_its_votes").await {
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
    // Postgres refuses the next one.
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
    if passes_alone("a_servers_metrics_move_while_redis_is_unavailable").await {
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
    // It is set by a scrape.
    tally
        .http
        .get(format!("{}/metrics", tally.base))
        .send()
        .await
        .expect("an answer");
    assert_values(&[("tally_suspect_items", 1.0)]);
    tally.stores.redis.start().await.expect("Redis starts");
    until_above_0(&[
        "tally_redis_available",
        "tally_live_invalidations_total{why=\"suspect\"}",
    ])
    .await;
    tally
        .http
        .get(format!("{}/metrics", tally.base))
        .send()
        .await
        .expect("an answer");
    assert_values(&[("tally_suspect_items", 0.0)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workers_metrics_move_with_what_it_does() {
    if passes_alone("a_workers_metrics_move_with_what_it_does").await {
        return;
    }
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let worker = tally.worker_with(SyncOptions {
        retention: Some(Duration::ZERO),
        ..options()
    });
    worker.enter_epoch().await.expect("an epoch");
    assert_values(&[("tally_epoch_changes_total", 1.0)]);
    tally.add(item, 1).await;
    worker.flush().await.expect("a flush");
    assert_values(&[
        ("tally_flushed_counts_total", 1.0),
        ("tally_flush_seconds_count", 1.0),
    ]);
    worker.flush().await.expect("a flush");
    assert_values(&[("tally_expired_counts_total", 1.0)]);
    // Another epoch: the live count goes, and is rebuilt.
    tally.add(item, 1).await;
    let mut redis = tally.stores.redis_connection().await;
    let () = redis.del("tally:epoch").await.expect("Redis answers");
    worker.enter_epoch().await.expect("an epoch");
    assert_values(&[
        ("tally_epoch_changes_total", 2.0),
        ("tally_live_invalidations_total{why=\"epoch\"}", 1.0),
    ]);
    worker.flush().await.expect("a flush");
    assert_values(&[("tally_rebuilt_counts_total", 1.0)]);
    // Age.
    let aging = tally.worker_with(SyncOptions {
        max_age: Some(Duration::ZERO),
        ..options()
    });
    tally.add(item, 1).await;
    aging.flush().await.expect("a flush");
    assert_values(&[
        ("tally_live_invalidations_total{why=\"age\"}", 1.0),
        ("tally_rebuilds_waiting_items", 1.0),
    ]);
    tally.worker().flush_until_quiescent().await.expect("a flush");
    assert_values(&[("tally_rebuilds_waiting_items", 0.0)]);
    // A wrong count.
    tally
        .pool
        .execute("update item set vote_count = vote_count + 5")
        .await
        .expect("a statement");
    let report = tally.worker().audit(Repair::Yes).await.expect("an audit");
    assert_eq!(report.wrong_items, 1, "{report:?}");
    assert_values(&[
        ("tally_audit_seconds_count", 1.0),
        ("tally_audit_wrong_items_total", 1.0),
        ("tally_audit_wrong_votes_total", 5.0),
        ("tally_audit_drift_votes", 5.0),
        ("tally_audit_items{verdict=\"wrong\"}", 1.0),
        ("tally_live_invalidations_total{why=\"audit\"}", 1.0),
    ]);
    assert!(metric("tally_audit_last_timestamp_seconds") > 1e9);
    tally.worker().flush_until_quiescent().await.expect("a flush");
    tally.worker().audit(Repair::Yes).await.expect("an audit");
    assert_values(&[
        ("tally_audit_drift_votes", 0.0),
        ("tally_audit_items{verdict=\"wrong\"}", 0.0),
        ("tally_audit_items{verdict=\"right\"}", 1.0),
    ]);
}

/// Votes go on meanwhile: the count's last change is always new, and its first unsaved one is
/// not.
#[tokio::test(flavor = "multi_thread")]
async fn the_oldest_unsaved_count_ages_while_its_row_is_locked_however_often_it_changes() {
    if passes_alone("the_oldest_unsaved_count_ages_while_its_row_is_locked_however_often_it_changes").await {
        return;
    }
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    let worker = tally.worker();
    worker.flush().await.expect("a flush");
    assert_values(&[
        ("tally_oldest_unsaved_seconds", 0.0),
        ("tally_unsaved_counts", 0.0),
    ]);
    let blocker = blocker(&tally.pool, "select from item for update").await;
    eventually("it ages", async || {
        tally.add(item, 1).await;
        let report = worker.flush().await.expect("a flush");
        (report.oldest_unsaved > Duration::from_secs(1)).then_some(())
    })
    .await;
    assert!(metric("tally_oldest_unsaved_seconds") > 1.0);
    assert_values(&[("tally_unsaved_counts", 1.0)]);
    blocker.rollback().await.expect("a rollback");
    eventually("it is saved", async || {
        worker.flush().await.expect("a flush");
        (metric("tally_oldest_unsaved_seconds") == 0.0).then_some(())
    })
    .await;
    assert_values(&[("tally_unsaved_counts", 0.0)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_whose_stores_hang_or_are_unavailable_shows_for_how_long() {
    if passes_alone("a_worker_whose_stores_hang_or_are_unavailable_shows_for_how_long").await {
        return;
    }
    let mut tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    let schedule = Schedule {
        scan_every: Duration::from_secs(3600),
        flush_every: Duration::from_millis(50),
        audit_cron: "* * * * * *".to_owned(),
        last_flush_limit: Duration::from_millis(1),
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let worker = tally.worker();
    let running =
        tokio::spawn(async move { tally::sync::run(worker, &schedule, async { drop(stopped.await) }).await });
    // Its first epoch throws the live count away.
    until_above_0(&["tally_rebuilt_counts_total", "tally_audit_seconds_count"]).await;
    let hangs = ["tally_job_running_seconds{job=\"flush\"}"];
    tally
        .stores
        .postgres
        .signal_all(nix::sys::signal::Signal::SIGSTOP)
        .expect("it runs");
    until_above_0(&hangs).await;
    eventually("it ages", async || (metric(hangs[0]) > 1.0).then_some(())).await;
    tally
        .stores
        .postgres
        .signal_all(nix::sys::signal::Signal::SIGCONT)
        .expect("it runs");
    eventually("the pass ends", async || (metric(hangs[0]) < 1.0).then_some(())).await;
    // Unavailable.
    tally.stores.postgres.crash().await;
    until_above_0(&[
        "tally_job_failures_total{job=\"flush\"}",
        "tally_job_failures_total{job=\"roll_up\"}",
        "tally_job_failures_total{job=\"audit\"}",
    ])
    .await;
    eventually("it ages", async || {
        (metric("tally_oldest_unsaved_seconds") > 1.0).then_some(())
    })
    .await;
    drop(stop);
    running.await.expect("no panic").expect("it ends well");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_watermarks_lag_grows_while_a_batch_writer_stands_still() {
    if passes_alone("the_watermarks_lag_grows_while_a_batch_writer_stands_still").await {
        return;
    }
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let options: PgConnectOptions = tally.stores.database_url.parse().expect("a URL");
    let still = PgConnection::connect_with(&options.application_name("a writer that stands still"))
        .await
        .expect("a connection");
    tally
        .pool
        .execute("insert into writer_connection (name) values ('a writer that stands still')")
        .await
        .expect("a statement");
    tally.add(item, 1).await;
    tally.add(item, 1).await;
    let worker = tally.worker();
    worker.audit(Repair::No).await.expect("an audit");
    assert_values(&[("tally_watermark_lag_votes", 2.0)]);
    still.close().await.expect("an end");
    eventually("the watermark moves", async || {
        worker.audit(Repair::No).await.expect("an audit");
        (metric("tally_watermark_lag_votes") == 0.0).then_some(())
    })
    .await;
    assert_values(&[("tally_live_invalidations_total{why=\"crashed_writer\"}", 1.0)]);
}
