//! Crashed-writer recovery: what a dead server had stored and not counted is found.

use std::time::Duration;

use tally::domain::ItemId;
use tally::sync::{Repair, SyncOptions};

use crate::helpers::eventually;
use crate::helpers::tally::{Tally, options};

#[tokio::test(flavor = "multi_thread")]
async fn the_newest_votes_are_rebuilt_once_their_writers_connection_is_gone_and_not_before() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    let worker = tally.worker_with(SyncOptions {
        in_flight_limit: Duration::from_secs(60),
        ..options()
    });
    let finalized = worker.recover_crashed_writers().await.expect("the stores answer");
    assert_eq!(finalized, None, "the server lives");
    assert_eq!(tally.live_count(item).await, Some(1));
    // As when the server's machine ends, but the server goes on.
    sqlx::query(
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'tally writer %'",
    )
    .execute(&tally.pool)
    .await
    .expect("Postgres answers");
    let finalized = eventually("the lost connections are seen", async || {
        worker.recover_crashed_writers().await.expect("the stores answer")
    })
    .await;
    assert_eq!(finalized, 1, "the item with a vote in flight");
    assert_eq!(tally.live_count(item).await, None);
    worker.flush_until_quiescent().await.expect("a flush");
    assert_eq!(tally.saved_count(item).await, 1);
    let finalized = worker.recover_crashed_writers().await.expect("the stores answer");
    assert_eq!(finalized, None, "a batch writer is recovered once");
}

/// For example because Redis was unavailable, or no worker ran, for longer than a vote may be
/// in flight.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_dead_server_left_uncounted_is_found_however_late_the_recovery_runs() {
    let tally = Tally::start().await;
    let (old, left) = (tally.item("old").await, tally.item("left").await);
    for item in [old, left] {
        tally.add(item, 1).await;
    }
    let minutes_ago = async |item: ItemId, minutes: i32| {
        sqlx::query("insert into vote (item_id, created_at) values ($1, now() - make_interval(mins => $2))")
            .bind(item.get())
            .bind(minutes)
            .execute(&tally.pool)
            .await
            .expect("a vote that nobody counts");
    };
    minutes_ago(old, 9).await;
    minutes_ago(left, 5).await;
    sqlx::raw_sql(
        "set session_replication_role = replica;
         insert into writer_connection (name, idle_at) values ('tally writer of the dead', now() - interval '7 minutes');
         update vote set created_at = now() - interval '9 minutes' where created_at > now() - interval '1 minute'",
    )
    .execute(&mut tally.stores.pool().acquire().await.expect("a connection").detach())
    .await
    .expect("a batch writer that is gone");
    let worker = tally.worker_with(SyncOptions {
        in_flight_limit: Duration::from_secs(60),
        ..options()
    });
    let finalized = worker.recover_crashed_writers().await.expect("the stores answer");
    assert_eq!(
        finalized,
        Some(1),
        "not the vote from long before the batch writer was idle"
    );
    assert_eq!(tally.live_count(left).await, None);
    assert_eq!(tally.live_count(old).await, Some(1));
}

/// Crashed-writer recovery does not look at votes that an audit has rolled up. So an audit
/// that begins while Redis is unavailable must roll up nothing.
#[tokio::test(flavor = "multi_thread")]
async fn an_audit_rolls_up_nothing_while_redis_is_unavailable() {
    let mut tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    let watermark = async || -> i64 {
        sqlx::query_scalar("select vote_id from watermark")
            .fetch_one(&tally.pool)
            .await
            .expect("Postgres answers")
    };
    tokio::time::sleep(options().in_flight_limit).await;
    let worker = tally.worker();
    tally.stores.redis.crash().await;
    assert!(worker.audit(Repair::Yes).await.is_err());
    assert_eq!(watermark().await, 0);
    tally.stores.redis.start().await.expect("Redis starts");
    eventually("the worker reaches Redis again", async || {
        worker.audit(Repair::Yes).await.ok()
    })
    .await;
    assert_eq!(watermark().await, 1);
}

/// A commit can hang for longer than any statement may take, and still succeed.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_writer_is_not_taken_for_idle_while_a_vote_of_it_is_under_way() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let pool = tally.stores.pool();
    let mut writer = pool.acquire().await.expect("a connection").detach();
    sqlx::raw_sql(
        "set application_name = 'tally writer that hangs';
         insert into writer_connection (name, noted_at) values ('tally writer that hangs', now() - interval '7 minutes')",
    )
    .execute(&mut writer)
    .await
    .expect("a batch writer");
    let worker = tally.worker();
    let noted_before_minutes = async || -> f64 {
        worker.recover_crashed_writers().await.expect("the stores answer");
        sqlx::query_scalar(
            "select extract(epoch from now() - noted_at)::float8 / 60 from writer_connection where name = 'tally writer that hangs'",
        )
        .fetch_one(&tally.pool)
        .await
        .expect("Postgres answers")
    };
    let vote = format!("begin; insert into vote (item_id) values ({item})");
    sqlx::raw_sql(&vote).execute(&mut writer).await.expect("a vote");
    assert!(noted_before_minutes().await >= 7.0);
    sqlx::raw_sql("commit")
        .execute(&mut writer)
        .await
        .expect("a commit");
    assert!(noted_before_minutes().await < 7.0);
}
