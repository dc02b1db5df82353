//! The worker's metrics.

use std::time::Duration;

use redis::AsyncCommands;
use reqwest::StatusCode;
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{Connection, Executor};
use tally::ledger::{Job, Role, RunOutcome};
use tally::sync::{Repair, Schedule, SyncOptions};
use tokio::sync::oneshot;

use super::{assert_values, passes_alone, until_above_0};
use crate::helpers::eventually;
use crate::helpers::metrics::metric;
use crate::helpers::stores::blocker;
use crate::helpers::tally::{Tally, ledger, options};

#[tokio::test(flavor = "multi_thread")]
async fn a_workers_metrics_move_with_what_it_does() {
    if passes_alone("telemetry::worker::a_workers_metrics_move_with_what_it_does").await {
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
    // A scan over all counters expires counts, too.
    tally.add(item, 1).await;
    worker.flush().await.expect("a flush");
    worker.scan_page().await.expect("a page");
    assert_values(&[("tally_expired_counts_total", 2.0)]);
    // In the next epoch the live count is dropped and rebuilt.
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
    // Eviction by age.
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
    // The audit finds a wrong count. The roll-up before has left it nothing to save.
    tally.roll_up_all().await;
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
        ("tally_job_runs_total{job_name=\"audit\",outcome=\"done\"}", 1.0),
        ("tally_job_seconds_count{job_name=\"audit\"}", 1.0),
    ]);
    assert!(metric("tally_job_runs_total{job_name=\"roll_up\",outcome=\"done\"}") > 1.0);
    for job in ["audit", "roll_up"] {
        assert!(
            metric(&format!(
                "tally_job_success_timestamp_seconds{{job_name=\"{job}\"}}"
            )) > 1e9
        );
    }
    tally.worker().flush_until_quiescent().await.expect("a flush");
    tally.worker().audit(Repair::Yes).await.expect("an audit");
    assert_values(&[
        ("tally_audit_drift_votes", 0.0),
        ("tally_audit_items{verdict=\"wrong\"}", 0.0),
        ("tally_audit_items{verdict=\"right\"}", 1.0),
    ]);
    // Another worker has finished this job, and runs it again.
    let other = ledger(&tally.stores.login_url(Role::Worker));
    let take = async || {
        let taken = other.take_job(Job::DeleteKeys).await.expect("Postgres answers");
        taken.lease.expect("nobody else is at it")
    };
    other
        .end_job(&take().await, RunOutcome::Done, Duration::ZERO, &json!(null))
        .await
        .expect("Postgres answers");
    take().await;
    worker.delete_old_keys().await.expect("Postgres answers");
    assert!(metric("tally_job_success_timestamp_seconds{job_name=\"delete_keys\"}") > 1e9);
}

/// Votes go on.
/// The count's last change is always new, but its first unsaved change is old.
#[tokio::test(flavor = "multi_thread")]
async fn the_oldest_unsaved_count_ages_while_its_row_is_locked_however_often_it_changes() {
    if passes_alone(
        "telemetry::worker::the_oldest_unsaved_count_ages_while_its_row_is_locked_however_often_it_changes",
    )
    .await
    {
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
    if passes_alone("telemetry::worker::a_worker_whose_stores_hang_or_are_unavailable_shows_for_how_long")
        .await
    {
        return;
    }
    let mut tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    let schedule = Schedule {
        address_retention: Duration::from_secs(86_400),
        scan_every: Duration::from_millis(50),
        flush_every: Duration::from_millis(50),
        audit_cron: "* * * * * *".to_owned(),
        last_flush_limit: Duration::from_millis(1),
        webhook: None,
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let worker = tally.worker();
    let running =
        tokio::spawn(async move { tally::sync::run(worker, &schedule, async { drop(stopped.await) }).await });
    // The worker's first epoch drops the live count.
    until_above_0(&["tally_rebuilt_counts_total", "tally_audit_seconds_count"]).await;
    let hangs = ["flush", "scan", "roll_up", "audit"]
        .map(|job| format!("tally_job_running_seconds{{job_name=\"{job}\"}}"));
    tally
        .stores
        .postgres
        .signal_all(nix::sys::signal::Signal::SIGSTOP)
        .expect("it runs");
    for hang in &hangs {
        eventually(&format!("{hang} is above 1"), async || {
            (metric(hang) > 1.0).then_some(())
        })
        .await;
    }
    eventually(
        "what the pass has not read may be as old as the pass",
        async || (metric("tally_oldest_unsaved_seconds") > 3.0).then_some(()),
    )
    .await;
    tally
        .stores
        .postgres
        .signal_all(nix::sys::signal::Signal::SIGCONT)
        .expect("it runs");
    for hang in &hangs {
        eventually(&format!("{hang} is below 1"), async || {
            (metric(hang) < 1.0).then_some(())
        })
        .await;
    }
    // Postgres is unavailable.
    tally.stores.postgres.crash().await;
    until_above_0(&[
        "tally_job_failures_total{job_name=\"flush\"}",
        "tally_job_failures_total{job_name=\"roll_up\"}",
        "tally_job_failures_total{job_name=\"audit\"}",
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
    if passes_alone("telemetry::worker::the_watermarks_lag_grows_while_a_batch_writer_stands_still").await {
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

#[tokio::test(flavor = "multi_thread")]
async fn the_watermarks_lag_is_shown_also_while_votes_cannot_be_rolled_up() {
    if passes_alone("telemetry::worker::the_watermarks_lag_is_shown_also_while_votes_cannot_be_rolled_up")
        .await
    {
        return;
    }
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let locked = blocker(&tally.pool, "select from watermark for update").await;
    let schedule = Schedule {
        address_retention: Duration::from_secs(86_400),
        scan_every: Duration::from_secs(1),
        flush_every: Duration::from_millis(50),
        audit_cron: "0 0 0 1 1 *".to_owned(),
        last_flush_limit: Duration::from_secs(1),
        webhook: None,
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let worker = tally.worker();
    let running =
        tokio::spawn(async move { tally::sync::run(worker, &schedule, async { drop(stopped.await) }).await });
    for voted in 1..=2 {
        tally.add(item, 1).await;
        eventually("the lag grows", async || {
            (metric("tally_watermark_lag_votes") == f64::from(voted)).then_some(())
        })
        .await;
    }
    until_above_0(&["tally_job_failures_total{job_name=\"roll_up\"}"]).await;
    locked.rollback().await.expect("a rollback");
    eventually("the votes are rolled up", async || {
        (metric("tally_watermark_lag_votes") == 0.0).then_some(())
    })
    .await;
    drop(stop);
    running.await.expect("no panic").expect("it ends well");
}

#[tokio::test(flavor = "multi_thread")]
async fn flushes_get_rarer_after_one_that_wrote_many_counts_and_lose_none() {
    if passes_alone("telemetry::worker::flushes_get_rarer_after_one_that_wrote_many_counts_and_lose_none")
        .await
    {
        return;
    }
    const ITEMS: i64 = 900;
    let tally = Tally::start().await;
    let made = format!("insert into item (name) select 'item ' || n from generate_series(1, {ITEMS}) as n");
    tally.pool.execute(made.as_str()).await.expect("items");
    let schedule = Schedule {
        address_retention: Duration::from_secs(86_400),
        scan_every: Duration::from_secs(1),
        flush_every: Duration::from_millis(50),
        audit_cron: "0 0 0 1 1 *".to_owned(),
        last_flush_limit: Duration::from_secs(1),
        webhook: None,
    };
    let interval = || metric("tally_flush_interval_seconds");
    let (stop, stopped) = oneshot::channel::<()>();
    let worker = tally.worker();
    let running =
        tokio::spawn(async move { tally::sync::run(worker, &schedule, async { drop(stopped.await) }).await });
    // Before, the worker drops the counts of the epoch before its own.
    eventually("it flushes", async || (interval() > 0.0).then_some(())).await;
    assert!(interval() < 0.06, "{}", interval());
    // So no flush saves a part of them.
    let locked = blocker(&tally.pool, "select from item for update").await;
    let votes: Vec<_> = (1..=ITEMS).map(|item| json!({ "item_id": item })).collect();
    let (status, answers) = tally.post("/v1/votes", &json!({ "votes": votes })).await;
    assert_eq!(status, StatusCode::OK, "{answers}");
    eventually("the next flush is far off", async || {
        (interval() > 0.25).then_some(())
    })
    .await;
    locked.rollback().await.expect("an end");
    eventually("all counts are saved", async || {
        let saved: i64 = sqlx::query_scalar("select sum(vote_count)::bigint from item")
            .fetch_one(&tally.pool)
            .await
            .expect("a sum");
        (saved == ITEMS).then_some(())
    })
    .await;
    eventually("flushes that write nothing are as often as before", async || {
        (interval() < 0.06).then_some(())
    })
    .await;
    drop(stop);
    running.await.expect("no panic").expect("it ends well");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_count_that_its_item_refuses_is_seen() {
    if passes_alone("telemetry::worker::a_count_that_its_item_refuses_is_seen").await {
        return;
    }
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    // As if a clock had been ahead.
    tally
        .pool
        .execute("update item set counted_at = now() + interval '1 hour'")
        .await
        .expect("a statement");
    tally.worker().flush().await.expect("a flush");
    assert_values(&[("tally_live_invalidations_total{why=\"refused\"}", 1.0)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_audit_shows_items_with_votes_in_flight_and_items_that_are_being_rebuilt() {
    if passes_alone(
        "telemetry::worker::an_audit_shows_items_with_votes_in_flight_and_items_that_are_being_rebuilt",
    )
    .await
    {
        return;
    }
    let tally = Tally::start().await;
    let (in_flight, rebuilding) = (tally.item("a").await, tally.item("b").await);
    for item in [in_flight, rebuilding] {
        tally.add(item, 1).await;
    }
    let worker = tally.worker();
    worker.flush().await.expect("a flush");
    let options: PgConnectOptions = tally.stores.database_url.parse().expect("a URL");
    let _writer = PgConnection::connect_with(&options.application_name("a writer with a vote in hand"))
        .await
        .expect("a connection");
    sqlx::raw_sql(&format!(
        "insert into writer_connection (name, counted_vote_id)
         select 'a writer with a vote in hand', last_value from vote_id_seq;
         insert into vote (item_id) values ({in_flight})"
    ))
    .execute(&tally.pool)
    .await
    .expect("a vote that is stored and not counted yet");
    tally
        .counters
        .invalidate(&[rebuilding])
        .await
        .expect("Redis answers");
    worker.audit(Repair::No).await.expect("an audit");
    assert_values(&[
        ("tally_audit_items{verdict=\"in_flight\"}", 1.0),
        ("tally_audit_items{verdict=\"rebuilding\"}", 1.0),
        ("tally_audit_items{verdict=\"right\"}", 0.0),
        ("tally_audit_items{verdict=\"wrong\"}", 0.0),
    ]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_spacing_of_saves_grows_while_someone_holds_a_transaction_open() {
    if passes_alone("telemetry::worker::the_spacing_of_saves_grows_while_someone_holds_a_transaction_open")
        .await
    {
        return;
    }
    let tally = Tally::start().await;
    let worker = tally.worker();
    let report = blocker(&tally.pool, "select from item").await;
    eventually("the saves are spaced", async || {
        worker.flush_shared().await.expect("a flush");
        (metric("tally_save_spacing_seconds") > 0.01).then_some(())
    })
    .await;
    report.rollback().await.expect("an end");
    eventually("they are not any more", async || {
        worker.flush_shared().await.expect("a flush");
        (metric("tally_save_spacing_seconds") < 0.001).then_some(())
    })
    .await;
}
