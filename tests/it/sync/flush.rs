//! Flushes write counts, mark them saved, expire, evict by age and rebuild them.
//! Each step is tested by itself and in races.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tally::domain::ItemId;
use tally::ledger::Role;
use tally::sync::SyncOptions;

use super::{epoch, unsaved};
use crate::helpers::eventually;
use crate::helpers::stores::blocker;
use crate::helpers::tally::{Tally, counters, ledger, options};

#[tokio::test(flavor = "multi_thread")]
async fn a_flush_writes_what_changed_and_marks_it_saved() {
    let tally = Tally::start().await;
    let (x, y) = (tally.item("x").await, tally.item("y").await);
    tally.add(x, 1).await;
    tally.add(x, 1).await;
    tally.add(y, -1).await;
    let report = tally.worker().flush().await.expect("a flush");
    assert_eq!((report.counters, report.flushed, report.unsaved), (2, 2, 0));
    assert_eq!((tally.saved_count(x).await, tally.saved_count(y).await), (2, -1));
    assert!(tally.worker().flush().await.expect("a flush").is_quiescent());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_count_whose_worker_stops_between_write_and_mark_saved_is_saved_again() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    let count = unsaved(&tally, item).await;
    tally
        .worker()
        .write(&[count], epoch(&tally).await)
        .await
        .expect("a write");
    // The worker never marks the count saved. One vote later, another worker flushes it.
    tally.add(item, 1).await;
    let report = tally.worker().flush().await.expect("a flush");
    assert_eq!(report.flushed, 1);
    assert_eq!(tally.saved_count(item).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn marking_a_count_saved_late_leaves_a_newer_count_unsaved() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    let count = unsaved(&tally, item).await;
    let worker = tally.worker();
    let written = worker
        .write(&[count], epoch(&tally).await)
        .await
        .expect("a write");
    tally.add(item, 1).await;
    assert_eq!(worker.mark(&[count], &written).await.expect("Redis answers"), 0);
    tally.assert_exact_when_quiescent(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_workers_flushing_one_counter_out_of_order_keep_the_newer_count() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    // Worker 1 reads 2; a vote of −1; worker 2 reads 1 and writes it; worker 1 writes 2;
    // worker 2 marks its count saved.
    tally.add(item, 1).await;
    tally.add(item, 1).await;
    let (one, other) = (tally.worker(), tally.worker());
    let older = unsaved(&tally, item).await;
    tally.add(item, -1).await;
    let newer = unsaved(&tally, item).await;
    let written = other.write(&[newer], epoch(&tally).await).await.expect("a write");
    let saved = one
        .write(&[older], epoch(&tally).await)
        .await
        .expect("a write")
        .contains(item);
    assert!(!saved, "the older count is refused");
    assert_eq!(other.mark(&[newer], &written).await.expect("Redis answers"), 1);
    assert_eq!(tally.saved_count(item).await, 1);
    tally.assert_exact_when_quiescent(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_count_that_its_item_refuses_for_good_is_rebuilt() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    // No step of Tally leads here: the item's revision is later than the live count's.
    sqlx::query("update item set vote_count = 7, counted_at = now() + interval '1 hour' where id = $1")
        .bind(item.get())
        .execute(&tally.pool)
        .await
        .expect("an update");
    let worker = tally.worker();
    let report = worker.flush().await.expect("a flush");
    assert_eq!((report.flushed, report.unsaved), (0, 1));
    assert_eq!(tally.live_count(item).await, None);
    tally.assert_exact_when_quiescent(item).await;
    assert_eq!(tally.add(item, 1).await, Some(2));
    tally.assert_exact_when_quiescent(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_counts_of_different_revisions_are_not_mistaken_for_each_other() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    // The counts are 1, then 2, then 1 again: to compare values would not be enough.
    tally.add(item, 1).await;
    let (one, other) = (tally.worker(), tally.worker());
    let first = unsaved(&tally, item).await;
    tally.add(item, 1).await;
    let written = one.write(&[first], epoch(&tally).await).await.expect("a write");
    let second = unsaved(&tally, item).await;
    tally.add(item, -1).await;
    assert_eq!(
        one.mark(&[first], &written).await.expect("Redis answers"),
        0,
        "1 again, but another 1"
    );
    other
        .write(&[second], epoch(&tally).await)
        .await
        .expect("a write");
    tally.assert_exact_when_quiescent(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_saved_and_idle_count_expires_and_comes_back_with_the_next_vote() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    let worker = tally.worker_with(SyncOptions {
        retention: Some(Duration::ZERO),
        ..options()
    });
    assert_eq!(worker.flush().await.expect("a flush").expired, 0, "flushed first");
    assert_eq!(worker.flush().await.expect("a flush").expired, 1);
    assert_eq!(tally.live_count(item).await, None);
    assert_eq!(tally.add(item, 1).await, Some(2));
    tally.assert_exact_when_quiescent(item).await;
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
            let worker = tally.worker_with(SyncOptions {
                retention: Some(Duration::ZERO),
                ..options()
            });
            let (stop, expired) = (Arc::clone(&stop), Arc::clone(&expired));
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let report = worker.flush().await.expect("a flush");
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
        // One round in ten waits for an expiry. So votes meet missing counters, however slow a
        // store is.
        if round % 10 == 0 {
            eventually("an idle counter expires", async || {
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
        tally.assert_exact_when_quiescent(item).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_count_beyond_its_maximum_age_is_evicted_and_rebuilt() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    // A wrong count that nothing else would find while the item is busy.
    tally.change_counter(item, |parts| parts.count += 5).await;
    let worker = tally.worker_with(SyncOptions {
        max_age: Some(Duration::ZERO),
        ..options()
    });
    assert_eq!(worker.flush().await.expect("a flush").evicted, 1);
    tally.assert_exact_when_quiescent(item).await;
    assert_eq!(tally.add(item, 1).await, Some(2));
    // A flush until nothing is left does both.
    tally.change_counter(item, |parts| parts.count += 5).await;
    let report = worker.flush_until_quiescent().await.expect("a flush");
    assert_eq!((report.evicted, report.rebuilt), (1, 1));
    assert_eq!(tally.saved_count(item).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalidated_count_is_rebuilt_from_the_ledger() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    tally.counters.invalidate(&[item]).await.expect("Redis answers");
    let report = tally.worker().flush().await.expect("a flush");
    assert_eq!((report.rebuilt, report.rebuilds_left), (1, 0));
    assert_eq!(
        (tally.saved_count(item).await, tally.live_count(item).await),
        (1, None)
    );
    assert!(tally.worker().flush().await.expect("a flush").is_quiescent());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_whose_row_someone_has_locked_is_rebuilt_afterwards_and_stops_no_other() {
    let tally = Tally::start().await;
    let (locked, other) = (tally.item("x").await, tally.item("y").await);
    for item in [locked, other] {
        tally.add(item, 1).await;
    }
    tally
        .counters
        .invalidate(&[locked, other])
        .await
        .expect("Redis answers");
    let lock = blocker(
        &tally.pool,
        &format!("select from item where id = {locked} for update"),
    )
    .await;
    let report = tally.worker().flush().await.expect("a flush");
    assert_eq!((report.rebuilt, report.rebuilds_left), (1, 1));
    assert_eq!(
        (tally.saved_count(locked).await, tally.saved_count(other).await),
        (0, 1)
    );
    lock.rollback().await.expect("an end");
    let report = tally.worker().flush().await.expect("a flush");
    assert_eq!((report.rebuilt, report.rebuilds_left), (1, 0));
    assert_eq!(tally.saved_count(locked).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rebuild_request_of_an_unknown_item_is_cleared() {
    let tally = Tally::start().await;
    let nowhere = ItemId::new(12345).expect("positive");
    tally
        .counters
        .invalidate(&[nowhere])
        .await
        .expect("Redis answers");
    assert_eq!(tally.worker().flush().await.expect("a flush").rebuilt, 1);
    assert!(tally.worker().flush().await.expect("a flush").is_quiescent());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_whose_row_someone_has_locked_stops_no_other_and_is_saved_afterwards() {
    let tally = Tally::start().await;
    let mut items = Vec::new();
    for votes in 1..=4 {
        let item = tally.item("x").await;
        for _ in 0..votes {
            tally.add(item, 1).await;
        }
        tally.add(item, -1).await;
        items.push(item);
    }
    let saved = async || {
        let read: Vec<(i64, i64)> = sqlx::query_as("select vote_count, down_count from item order by id")
            .fetch_all(&tally.pool)
            .await
            .expect("Postgres answers");
        read
    };
    let locked = blocker(
        &tally.pool,
        &format!("select from item where id = {} for update", items[1]),
    )
    .await;
    let worker = tally.worker();
    let report = worker.flush().await.expect("a flush");
    assert_eq!((report.flushed, report.unsaved), (3, 1));
    assert!(report.oldest_unsaved > Duration::ZERO);
    assert_eq!(saved().await, [(0, 1), (0, 0), (2, 1), (3, 1)]);
    // The next flush looks at the locks first.
    for item in &items {
        tally.add(*item, 1).await;
    }
    worker.flush().await.expect("a flush");
    assert_eq!(saved().await, [(1, 1), (0, 0), (3, 1), (4, 1)]);
    locked.rollback().await.expect("an end");
    tally.worker().flush_until_quiescent().await.expect("a flush");
    assert_eq!(saved().await, [(1, 1), (2, 1), (3, 1), (4, 1)]);
    // The first worker meets no unsaved count, and sees that another worker saved what it had left.
    let report = worker.flush_unsaved().await.expect("a flush");
    assert_eq!((report.flushed, report.oldest_unsaved), (0, Duration::ZERO));
    for item in items {
        tally.assert_exact_when_quiescent(item).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_saves_of_an_item_are_apart_while_someone_holds_a_transaction_open() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let worker = tally.worker();
    let flushed = async || worker.flush_shared().await.expect("a flush").flushed;
    let report = blocker(&tally.pool, "select from item").await;
    eventually("a count that was just saved waits", async || {
        tally.add(item, 1).await;
        flushed().await;
        tally.add(item, 1).await;
        (flushed().await == 0).then_some(())
    })
    .await;
    let counter = tally
        .counters
        .read(&[item])
        .await
        .expect("Redis answers")
        .remove(0);
    assert!(counter.unsaved().is_some());
    report.rollback().await.expect("an end");
    eventually("it is saved", async || (flushed().await == 1).then_some(())).await;
    tally.assert_exact_when_quiescent(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rebuilt_count_is_written_even_when_the_clock_of_redis_is_behind() {
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
    assert_eq!(tally.worker().flush().await.expect("a flush").rebuilt, 1);
    assert_eq!(tally.saved_count(item).await, 1);
    assert_eq!(tally.add(item, 1).await, Some(2));
    tally.assert_exact_when_quiescent(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn counters_and_ledger_of_another_worker_are_the_same() {
    // Two workers, as in two processes: they share only the stores.
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let other = tally::sync::Worker::new(
        ledger(&tally.stores.database_url),
        counters(&tally.stores.redis_login_url(Role::Worker)),
        options(),
    );
    tally.add(item, 1).await;
    let (one, other) = (tally.worker(), other);
    let (one, other) = tokio::join!(one.flush(), other.flush());
    assert!(one.expect("a flush").flushed + other.expect("a flush").flushed >= 1);
    tally.assert_exact_when_quiescent(item).await;
}
