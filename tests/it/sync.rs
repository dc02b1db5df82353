//! The sync worker's steps, one by one and in races.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tally::domain::{CountToSave, ItemId, Rev};
use tally::sync::{Limits, Repair};

use crate::helpers::eventually;
use crate::helpers::tally::{Tally, counters, ledger, limits};

async fn command(tally: &Tally, words: &[&str]) {
    let mut redis = tally.stores.redis_connection().await;
    let mut command = redis::cmd(words[0]);
    for word in &words[1..] {
        command.arg(*word);
    }
    let _: redis::Value = command.query_async(&mut redis).await.expect("Redis answers");
}

async fn unsaved(tally: &Tally, item: ItemId) -> CountToSave {
    let counter = tally
        .counters
        .peek(&[item])
        .await
        .expect("Redis answers")
        .remove(0);
    let (count, rev) = counter.unsaved().expect("an unsaved count");
    CountToSave {
        item_id: item,
        count,
        rev,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flush_writes_what_changed_and_marks_it() {
    let tally = Tally::start().await;
    let (x, y) = (tally.item("x").await, tally.item("y").await);
    tally.add(x, 1).await;
    tally.add(x, 1).await;
    tally.add(y, -1).await;
    let report = tally.worker().flush().await.expect("a flush");
    assert_eq!((report.counters, report.flushed, report.unsaved), (2, 2, 0));
    assert_eq!((tally.saved_count(x).await, tally.saved_count(y).await), (2, -1));
    assert!(tally.worker().flush().await.expect("a flush").is_at_rest());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_stopped_between_write_and_mark_leaves_a_count_that_is_saved_again() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    let count = unsaved(&tally, item).await;
    tally.worker().write(&[count]).await.expect("a write");
    // The mark never comes. A vote later, another worker finds all as it should be.
    tally.add(item, 1).await;
    let report = tally.worker().flush().await.expect("a flush");
    assert_eq!(report.flushed, 1);
    assert_eq!(tally.saved_count(item).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mark_that_comes_late_does_not_mark_what_came_since() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    let count = unsaved(&tally, item).await;
    let worker = tally.worker();
    let written = worker.write(&[count]).await.expect("a write");
    tally.add(item, 1).await;
    assert_eq!(worker.mark(&[count], &written).await.expect("a mark"), 0);
    tally.assert_exact_at_rest(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_workers_flushing_one_counter_out_of_order_keep_the_newer_count() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    // The trace against the guard: worker 1 peeks 2; −1; worker 2 peeks 1 and
    // writes it; worker 1 writes 2; worker 2 marks.
    tally.add(item, 1).await;
    tally.add(item, 1).await;
    let (one, other) = (tally.worker(), tally.worker());
    let older = unsaved(&tally, item).await;
    tally.add(item, -1).await;
    let newer = unsaved(&tally, item).await;
    let written = other.write(&[newer]).await.expect("a write");
    let turned_away = !one.write(&[older]).await.expect("a write").contains(item);
    assert!(turned_away);
    assert_eq!(other.mark(&[newer], &written).await.expect("a mark"), 1);
    assert_eq!(tally.saved_count(item).await, 1);
    tally.assert_exact_at_rest(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_counts_of_different_revs_are_not_mistaken_for_each_other() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    // The trace against comparing values: 1, then 2, then 1 again.
    tally.add(item, 1).await;
    let (one, other) = (tally.worker(), tally.worker());
    let first = unsaved(&tally, item).await;
    tally.add(item, 1).await;
    let written = one.write(&[first]).await.expect("a write");
    let second = unsaved(&tally, item).await;
    tally.add(item, -1).await;
    assert_eq!(
        one.mark(&[first], &written).await.expect("a mark"),
        0,
        "1 again, but another 1"
    );
    other.write(&[second]).await.expect("a write");
    tally.assert_exact_at_rest(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_saved_and_idle_count_expires_and_comes_back_with_the_next_vote() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    let worker = tally.worker_with(Limits {
        retention: Duration::ZERO,
        ..limits()
    });
    assert_eq!(worker.flush().await.expect("a flush").expired, 0, "flushed first");
    assert_eq!(worker.flush().await.expect("a flush").expired, 1);
    assert_eq!(tally.live_count(item).await, None);
    assert_eq!(tally.add(item, 1).await, Some(2));
    tally.assert_exact_at_rest(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn votes_that_race_with_expiry_are_all_counted_once() {
    let tally = Tally::start().await;
    let items = [
        tally.item("x").await,
        tally.item("y").await,
        tally.item("z").await,
    ];
    // Two workers that expire whatever they have flushed, as fast as they can.
    let stop = Arc::new(AtomicBool::new(false));
    let expired = Arc::new(AtomicUsize::new(0));
    let workers: Vec<_> = (0..2)
        .map(|_| {
            let worker = tally.worker_with(Limits {
                retention: Duration::ZERO,
                ..limits()
            });
            let (stop, expired) = (Arc::clone(&stop), Arc::clone(&expired));
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let report = worker.flush_shared().await.expect("a flush");
                    expired.fetch_add(report.expired, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for round in 0..100 {
        let before = expired.load(Ordering::Relaxed);
        let votes = items.iter().flat_map(|item| {
            [
                tally.add(*item, 1),
                tally.add(*item, if round % 3 == 0 { -1 } else { 1 }),
            ]
        });
        for count in futures_util::future::join_all(votes).await {
            assert!(count.is_some());
        }
        // A round in ten rests until something has expired, so that votes meet missing
        // counters however slow a store is.
        if round % 10 == 0 {
            eventually("a resting counter expires", async || {
                (expired.load(Ordering::Relaxed) > before).then_some(())
            })
            .await;
        }
    }
    stop.store(true, Ordering::Relaxed);
    for worker in workers {
        worker.await.expect("no panic");
    }
    for item in items {
        tally.assert_exact_at_rest(item).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_count_beyond_its_maximum_age_is_thrown_away_and_counted_afresh() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    // An error that nothing else would find while the item is busy.
    command(&tally, &["HINCRBY", &format!("item:{{{item}}}"), "count", "5"]).await;
    let worker = tally.worker_with(Limits {
        max_age: Duration::ZERO,
        ..limits()
    });
    assert_eq!(worker.flush().await.expect("a flush").aged, 1);
    tally.assert_exact_at_rest(item).await;
    assert_eq!(tally.add(item, 1).await, Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalidated_count_is_recounted_from_the_ledger() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    tally.counters.invalidate(&[item]).await.expect("Redis answers");
    let report = tally.worker().flush().await.expect("a flush");
    assert_eq!((report.recounted, report.uncounted), (1, 0));
    assert_eq!(
        (tally.saved_count(item).await, tally.live_count(item).await),
        (1, None)
    );
    assert!(tally.worker().flush().await.expect("a flush").is_at_rest());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recount_token_of_an_unknown_item_is_cleared() {
    let tally = Tally::start().await;
    let nowhere = ItemId::new(12345).expect("positive");
    tally
        .counters
        .invalidate(&[nowhere])
        .await
        .expect("Redis answers");
    assert_eq!(tally.worker().flush().await.expect("a flush").recounted, 1);
    assert!(tally.worker().flush().await.expect("a flush").is_at_rest());
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_others_are_left_alone() {
    let tally = Tally::start().await;
    command(&tally, &["SET", "item:{x}", "theirs"]).await;
    command(&tally, &["SET", "session:1", "theirs"]).await;
    assert_eq!(tally.worker().flush().await.expect("a flush").counters, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_workers_share_one_walk_without_missing_a_counter() {
    let tally = Tally::start().await;
    let mut items = Vec::new();
    for number in 0..300 {
        items.push(tally.item(&format!("item {number}")).await);
    }
    let small = Limits {
        flush_page: 10,
        ..limits()
    };
    let (one, other) = (tally.worker_with(small.clone()), tally.worker_with(small));
    let mut votes = 0;
    // One worker may take every page of a walk; not of every walk.
    eventually("both workers take part in a walk", async || {
        futures_util::future::join_all(items.iter().map(|item| tally.add(*item, 1))).await;
        votes += 300;
        let (one, other) = tokio::join!(one.flush_shared(), other.flush_shared());
        let (one, other) = (one.expect("a flush"), other.expect("a flush"));
        let saved: i64 = sqlx::query_scalar("select sum(vote_count)::bigint from item")
            .fetch_one(&tally.pool)
            .await
            .expect("Postgres answers");
        assert_eq!(saved, votes, "{one:?} {other:?}");
        (one.flushed > 0 && other.flushed > 0).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_finds_nothing_wrong_when_nothing_failed_and_moves_the_watermark() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    for _ in 0..10 {
        tally.add(item, 1).await;
    }
    tally.worker().flush().await.expect("a flush");
    let report = tally.worker().audit(Repair::Yes).await.expect("an audit");
    assert_eq!(
        (report.items, report.votes, report.right_items, report.wrong_items),
        (1, 10, 1, 0)
    );
    let again = tally.worker().audit(Repair::Yes).await.expect("an audit");
    assert_eq!((again.votes, again.wrong_items), (10, 0));
    let (watermark, votes): (i64, i64) = sqlx::query_as("select vote_id, votes from watermark")
        .fetch_one(&tally.pool)
        .await
        .expect("the watermark");
    assert!(watermark > 0 && votes > 0 && votes <= 10, "{watermark} {votes}");
    tally.add(item, 1).await;
    tally.assert_exact_at_rest(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_finds_and_repairs_a_live_count_that_is_wrong_either_way() {
    let tally = Tally::start().await;
    for wrong in ["3", "-2"] {
        let item = tally.item(wrong).await;
        tally.add(item, 1).await;
        tally.worker().flush().await.expect("a flush");
        command(&tally, &["HINCRBY", &format!("item:{{{item}}}"), "count", wrong]).await;
        // Votes are in flight for 1 ms here, so this one is no excuse for long.
        tokio::time::sleep(limits().in_flight_limit).await;
        let found = tally.worker().audit(Repair::No).await.expect("an audit");
        assert_eq!(
            (found.wrong_items, found.wrong_votes),
            (1, wrong.parse::<i64>().expect("a number").unsigned_abs())
        );
        let repaired = tally.worker().audit(Repair::Yes).await.expect("an audit");
        assert_eq!(repaired.repaired_items, 1);
        tally.assert_exact_at_rest(item).await;
        assert_eq!(
            tally
                .worker()
                .audit(Repair::No)
                .await
                .expect("an audit")
                .wrong_items,
            0
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_finds_a_saved_count_that_someone_changed() {
    let tally = Tally::start().await;
    let (with_live, without) = (tally.item("x").await, tally.item("y").await);
    tally.add(with_live, 1).await;
    tally.worker().flush().await.expect("a flush");
    sqlx::query("update item set vote_count = 42")
        .execute(&tally.pool)
        .await
        .expect("an update");
    tokio::time::sleep(limits().in_flight_limit).await;
    let found = tally.worker().audit(Repair::Yes).await.expect("an audit");
    assert_eq!(
        (found.wrong_items, found.wrong_votes, found.repaired_items),
        (2, 41 + 42, 2)
    );
    tally.worker().flush_to_rest().await.expect("a flush");
    assert_eq!(
        (
            tally.saved_count(with_live).await,
            tally.saved_count(without).await
        ),
        (1, 0)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_takes_votes_in_flight_for_what_they_are() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    // A vote that is stored and will never be counted, as after a kill -9 between
    // the two. While it is young it may still be on its way.
    sqlx::query("insert into vote (item_id) values ($1)")
        .bind(item.get())
        .execute(&tally.pool)
        .await
        .expect("a row");
    let patient = tally.worker_with(Limits {
        in_flight_limit: Duration::from_secs(3600),
        ..limits()
    });
    let report = patient.audit(Repair::Yes).await.expect("an audit");
    assert_eq!((report.in_flight_items, report.wrong_items), (1, 0));
    tokio::time::sleep(limits().in_flight_limit).await;
    let report = tally.worker().audit(Repair::Yes).await.expect("an audit");
    assert_eq!(
        (report.in_flight_items, report.wrong_items, report.wrong_votes),
        (0, 1, 1)
    );
    tally.assert_exact_at_rest(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn audits_under_voting_find_nothing_wrong() {
    let tally = Tally::start().await;
    let items = [tally.item("x").await, tally.item("y").await];
    let patient = || {
        tally.worker_with(Limits {
            in_flight_limit: Duration::from_secs(60),
            ..limits()
        })
    };
    let (auditing, flushing) = (patient(), patient());
    let audits = tokio::spawn(async move {
        for _ in 0..3 {
            let report = auditing.audit(Repair::Yes).await.expect("an audit");
            assert_eq!(report.wrong_items, 0, "{report:?}");
            flushing.flush_shared().await.expect("a flush");
        }
    });
    let mut value = 1;
    while !audits.is_finished() {
        futures_util::future::join_all(items.iter().map(|item| tally.add(*item, value))).await;
        value = -value;
    }
    audits.await.expect("nothing wrong");
    for item in items {
        tally.assert_exact_at_rest(item).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_redis_lost_its_data_unsaved_counts_are_written_from_the_ledger() {
    let tally = Tally::start().await;
    let (x, y) = (tally.item("x").await, tally.item("y").await);
    let worker = tally.worker();
    worker.enter_epoch().await.expect("an epoch");
    assert_eq!(
        worker.enter_epoch().await.expect("an epoch"),
        None,
        "the same epoch"
    );
    tally.add(x, 1).await;
    tally.add(y, 1).await;
    command(&tally, &["FLUSHALL"]).await;
    // y gets a new live count, x has none.
    tally.add(y, 1).await;
    assert_eq!(worker.enter_epoch().await.expect("an epoch"), Some(2));
    worker.flush_to_rest().await.expect("a flush");
    assert_eq!((tally.saved_count(x).await, tally.saved_count(y).await), (1, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_of_redis_every_count_is_counted_afresh() {
    let mut tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.worker().enter_epoch().await.expect("an epoch");
    tally.add(item, 1).await;
    tally.stores.redis.stop().await;
    tally.stores.redis.start().await.expect("Redis starts");
    assert_eq!(
        tally.live_count(item).await,
        Some(1),
        "its append-only file brought it back"
    );
    assert!(tally.worker().enter_epoch().await.expect("an epoch").is_some());
    assert_eq!(tally.live_count(item).await, None);
    tally.assert_exact_at_rest(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_crash_of_postgres_every_count_is_counted_afresh_and_not_after_a_clean_restart() {
    let mut tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.worker().enter_epoch().await.expect("an epoch");
    tally.add(item, 1).await;
    tally.stores.postgres.stop().await;
    tally.stores.postgres.start().await.expect("Postgres starts");
    let epoch = async |tally: &Tally| {
        eventually("Postgres answers the worker", async || {
            tally.worker().enter_epoch().await.ok()
        })
        .await
    };
    assert_eq!(epoch(&tally).await, None);
    // Transaction ids that were not on disk are drawn again: the fence cannot be trusted.
    tally.stores.postgres.crash().await;
    tally.stores.postgres.start().await.expect("Postgres starts");
    assert!(epoch(&tally).await.is_some());
    assert_eq!(tally.live_count(item).await, None);
    eventually("voting goes on", async || {
        (tally.vote(item, "ada").await.0.is_success()).then_some(())
    })
    .await;
    tally.assert_exact_at_rest(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recount_is_written_even_when_the_clock_of_redis_is_behind() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    tally.worker().flush().await.expect("a flush");
    // As after a failover to a Redis whose clock is an hour behind.
    sqlx::query("update item set counted_at = counted_at + interval '1 hour', vote_count = 9")
        .execute(&tally.pool)
        .await
        .expect("an update");
    tally.counters.invalidate(&[item]).await.expect("Redis answers");
    assert_eq!(tally.worker().flush().await.expect("a flush").recounted, 1);
    assert_eq!(tally.saved_count(item).await, 1);
    assert_eq!(tally.add(item, 1).await, Some(2));
    tally.assert_exact_at_rest(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_another_type_in_a_counters_place_is_thrown_away_with_the_next_vote() {
    let tally = Tally::start().await;
    let (item, other) = (tally.item("x").await, tally.item("y").await);
    command(&tally, &["SET", &format!("item:{{{item}}}"), "theirs"]).await;
    assert_eq!(tally.add(item, 1).await, None);
    eventually("live counts are back, for all", async || {
        tally.add(item, 1).await?;
        tally.add(other, 1).await
    })
    .await;
    tally.assert_exact_at_rest(item).await;
    tally.assert_exact_at_rest(other).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn counters_and_ledger_of_another_worker_are_the_same() {
    // Two workers as two processes would be: nothing shared but the stores.
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let other = tally::sync::Worker::new(
        ledger(&tally.stores.database_url),
        counters(&tally.stores.redis_url()),
        limits(),
    );
    tally.add(item, 1).await;
    let (one, other) = (tally.worker(), other);
    let (one, other) = tokio::join!(one.flush(), other.flush());
    assert!(one.expect("a flush").flushed + other.expect("a flush").flushed >= 1);
    tally.assert_exact_at_rest(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_servers_connections_that_are_gone_have_its_newest_votes_counted_afresh_and_live_ones_do_not() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    let worker = tally.worker_with(Limits {
        in_flight_limit: Duration::from_secs(60),
        ..limits()
    });
    let settled = worker.settle_departures().await.expect("the stores answer");
    assert_eq!(settled, None, "the server lives");
    assert_eq!(tally.live_count(item).await, Some(1));
    // As after the end of the server's machine, but for the server itself.
    sqlx::query(
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'tally lane %'",
    )
    .execute(&tally.pool)
    .await
    .expect("Postgres answers");
    let settled = eventually("the end is seen", async || {
        worker.settle_departures().await.expect("the stores answer")
    })
    .await;
    assert_eq!(settled, 1, "the item with a vote in flight");
    assert_eq!(tally.live_count(item).await, None);
    worker.flush_to_rest().await.expect("a flush");
    assert_eq!(tally.saved_count(item).await, 1);
    let settled = worker.settle_departures().await.expect("the stores answer");
    assert_eq!(settled, None, "a lane departs once");
}

/// Redis was away, say, or no worker ran, for longer than a vote may be in flight.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_dead_server_left_uncounted_is_found_however_late_anyone_looks() {
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
         insert into lane (name, idle_at) values ('tally lane of the dead', now() - interval '7 minutes');
         update vote set created_at = now() - interval '9 minutes' where created_at > now() - interval '1 minute'",
    )
    .execute(&mut tally.stores.pool().acquire().await.expect("a connection").detach())
    .await
    .expect("a lane that is gone");
    let worker = tally.worker_with(Limits {
        in_flight_limit: Duration::from_secs(60),
        ..limits()
    });
    let settled = worker.settle_departures().await.expect("the stores answer");
    assert_eq!(settled, Some(1), "not the one from long before the lane was idle");
    assert_eq!(tally.live_count(left).await, None);
    assert_eq!(tally.live_count(old).await, Some(1));
}

/// The minute's audit comes while Redis is away: what it sums no departure looks at.
#[tokio::test(flavor = "multi_thread")]
async fn an_audit_sums_nothing_while_there_is_no_redis_to_compare_with() {
    let mut tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    let watermark = async || -> i64 {
        sqlx::query_scalar("select vote_id from watermark")
            .fetch_one(&tally.pool)
            .await
            .expect("Postgres answers")
    };
    tokio::time::sleep(limits().in_flight_limit).await;
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

/// A commit can hang for longer than any statement may take, and come through.
#[tokio::test(flavor = "multi_thread")]
async fn a_lane_is_not_taken_for_idle_while_a_vote_of_its_is_under_way() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let pool = tally.stores.pool();
    let mut lane = pool.acquire().await.expect("a connection").detach();
    sqlx::raw_sql(
        "set application_name = 'tally lane that hangs';
         insert into lane (name, noted_at) values ('tally lane that hangs', now() - interval '7 minutes')",
    )
    .execute(&mut lane)
    .await
    .expect("a lane");
    let worker = tally.worker();
    let noted_before_minutes = async || -> f64 {
        worker.settle_departures().await.expect("the stores answer");
        sqlx::query_scalar(
            "select extract(epoch from now() - noted_at)::float8 / 60 from lane where name = 'tally lane that hangs'",
        )
        .fetch_one(&tally.pool)
        .await
        .expect("Postgres answers")
    };
    let vote = format!("begin; insert into vote (item_id) values ({item})");
    sqlx::raw_sql(&vote).execute(&mut lane).await.expect("a vote");
    assert!(noted_before_minutes().await >= 7.0);
    sqlx::raw_sql("commit")
        .execute(&mut lane)
        .await
        .expect("a commit");
    assert!(noted_before_minutes().await < 7.0);
}

/// Such a dump takes the token along, and neither snapshots nor fences from before it.
#[tokio::test(flavor = "multi_thread")]
async fn a_postgres_restored_from_a_dump_is_another_epoch() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    let worker = tally.worker();
    worker.enter_epoch().await.expect("the stores answer");
    assert_eq!(worker.enter_epoch().await.expect("the stores answer"), None);
    let token = tally.ledger.recovery_token().await.expect("Postgres answers");
    // As a restore does: another transaction writes the same row.
    sqlx::query("update recovery set token = token")
        .execute(&tally.pool)
        .await
        .expect("Postgres answers");
    assert_eq!(worker.enter_epoch().await.expect("the stores answer"), Some(1));
    assert_eq!(tally.live_count(item).await, None, "counted afresh");
    let redrawn = tally.ledger.recovery_token().await.expect("Postgres answers");
    assert_ne!(redrawn, token);
    assert_eq!(worker.enter_epoch().await.expect("the stores answer"), None);
}

/// A worker stalls with a count in its hands, Redis fails over to one whose clock is
/// behind, and the count is written when all is over.
#[tokio::test(flavor = "multi_thread")]
async fn the_audit_finds_a_late_write_that_is_ahead_of_a_slower_clock() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    let worker = tally.worker();
    let rev = unsaved(&tally, item).await.rev;
    worker.flush_to_rest().await.expect("a flush");
    tokio::time::sleep(limits().in_flight_limit).await;
    let late = CountToSave {
        item_id: item,
        count: 5,
        rev: Rev::from_micros(rev.micros() + 1_000_000),
    };
    worker.write(&[late]).await.expect("Postgres answers");
    let report = worker.audit(Repair::Yes).await.expect("an audit");
    assert_eq!((report.wrong_items, report.wrong_votes), (1, 4));
    worker.flush_to_rest().await.expect("a flush");
    assert_eq!(tally.saved_count(item).await, 1);
    let report = worker.audit(Repair::No).await.expect("an audit");
    assert_eq!(report.right_items, 1);
}

/// A wipe changes neither Redis' run nor its replication. One that comes while a worker
/// makes sure of every counter must not be taken for done by it.
#[tokio::test(flavor = "multi_thread")]
async fn redis_wiped_while_an_epoch_is_entered_is_entered_anew() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    let epoch = tally.counters.current_epoch().await.expect("Redis answers");
    let entering = tally.counters.begin_epoch().await.expect("Redis answers");
    // The worker has seen a live count here, which the walk would save; then it is gone.
    command(&tally, &["FLUSHALL"]).await;
    let entered = tally.counters.enter_epoch(&epoch, entering).await;
    assert!(!entered.expect("Redis answers"));
    assert_eq!(tally.counters.known_epoch().await.expect("Redis answers"), None);

    let worker = tally.worker();
    assert_eq!(worker.enter_epoch().await.expect("the stores answer"), Some(1));
    worker.flush().await.expect("a flush");
    assert_eq!(tally.saved_count(item).await, 1);
    let mut redis = tally.stores.redis_connection().await;
    let marks: Vec<String> = redis::cmd("KEYS")
        .arg("tally:entering:*")
        .query_async(&mut redis)
        .await
        .expect("Redis answers");
    assert!(marks.is_empty(), "{marks:?}");
}
