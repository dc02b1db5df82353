//! The scan: it writes counts, marks them saved, expires, evicts by age and rebuilds them,
//! one by one and in races.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tally::app::{self, StoreUrls};
use tally::domain::ItemId;
use tally::ledger::Role;
use tally::live::{KeyPrefix, Scan, ScanPage};
use tally::sync::{Repair, Schedule, SyncOptions, Worker};
use testkit::proxy::Proxy;
use tokio::sync::oneshot;

use super::{command, epoch, unsaved};
use crate::helpers::eventually;
use crate::helpers::stores::{Stores, blocker};
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
    // It is never marked saved. One vote later, another worker flushes it.
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
    // No step of Tally leads here: the item has a later revision than the live count.
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
    // The counts are 1, then 2, then 1 again: comparing values would not tell them apart.
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
        // One round in ten waits until something has expired, so that votes meet missing
        // counters however slow a store is.
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
    // An error that nothing else would find while the item is busy.
    command(&tally, &["HINCRBY", &format!("tally:{{{item}}}"), "count", "5"]).await;
    let worker = tally.worker_with(SyncOptions {
        max_age: Some(Duration::ZERO),
        ..options()
    });
    assert_eq!(worker.flush().await.expect("a flush").evicted, 1);
    tally.assert_exact_when_quiescent(item).await;
    assert_eq!(tally.add(item, 1).await, Some(2));
    // Whoever flushes until nothing is left does both.
    command(&tally, &["HINCRBY", &format!("tally:{{{item}}}"), "count", "5"]).await;
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
async fn a_flush_looks_at_what_has_changed_and_the_slow_scan_at_everything() {
    let tally = Tally::start().await;
    let items = [tally.item("x").await, tally.item("y").await];
    for item in items {
        tally.add(item, 1).await;
    }
    let worker = tally.worker_with(SyncOptions {
        retention: Some(Duration::ZERO),
        ..options()
    });
    let flush = async || worker.flush_unsaved().await.expect("a flush");
    let first = flush().await;
    assert_eq!((first.counters, first.flushed), (2, 2));
    tally.add(items[1], 1).await;
    let second = flush().await;
    assert_eq!((second.counters, second.flushed), (1, 1));
    assert_eq!(flush().await.counters, 0);
    assert_eq!(tally.live_count(items[0]).await, Some(1), "idle, and still there");
    worker.scan_page().await.expect("a page");
    assert_eq!(tally.live_count(items[0]).await, None, "dropped");
    assert_eq!(tally.live_count(items[1]).await, None, "dropped");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_counter_that_the_index_has_lost_is_saved_by_the_slow_scan() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    command(&tally, &["DEL", "tally:unsaved"]).await;
    let worker = tally.worker();
    assert_eq!(worker.flush_unsaved().await.expect("a flush").flushed, 0);
    worker.scan_page().await.expect("a page");
    assert_eq!(tally.saved_count(item).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_audit_puts_back_what_the_index_has_lost() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    command(&tally, &["DEL", "tally:unsaved"]).await;
    let worker = tally.worker();
    worker.audit(Repair::Yes).await.expect("an audit");
    assert_eq!(worker.flush_unsaved().await.expect("a flush").flushed, 1);
    assert_eq!(tally.saved_count(item).await, 1);
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
    // The next flush begins with a look at the locks.
    for item in &items {
        tally.add(*item, 1).await;
    }
    worker.flush().await.expect("a flush");
    assert_eq!(saved().await, [(1, 1), (0, 0), (3, 1), (4, 1)]);
    locked.rollback().await.expect("an end");
    tally.worker().flush_until_quiescent().await.expect("a flush");
    assert_eq!(saved().await, [(1, 1), (2, 1), (3, 1), (4, 1)]);
    // The first worker meets no unsaved count, and sees that another has saved what it left.
    let report = worker.flush_unsaved().await.expect("a flush");
    assert_eq!((report.flushed, report.oldest_unsaved), (0, Duration::ZERO));
    for item in items {
        tally.assert_exact_when_quiescent(item).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_between_two_pages_makes_the_slow_scan_as_long_as_it_should_be() {
    let tally = Tally::start().await;
    let fill = "for n = 1, 950 do redis.call('SET', 'other:' .. n, '') end";
    command(&tally, &["EVAL", fill, "0"]).await;
    // 950 keys and a few of Tally's: ten pages of 100.
    let pause = tally
        .worker()
        .scan_pause(Duration::from_secs(60))
        .await
        .expect("a number");
    assert_eq!(pause, Duration::from_secs(6));
}

/// Unsaved counters that are more than one page: Redis keeps up to 512 in a way that has no
/// pages.
const SEVERAL_PAGES: i64 = 600;

#[tokio::test]
async fn a_page_of_a_scan_is_about_as_large_as_it_should_be_and_in_order() {
    let stores = Stores::start().await;
    let counters = counters(&stores.redis_login_url(Role::Worker));
    let items: Vec<ItemId> = (1..=SEVERAL_PAGES).filter_map(ItemId::new).collect();
    counters.add_unsaved(&items).await.expect("Redis answers");
    let page = async |size| {
        counters
            .scan(Scan::Unsaved, 0, size)
            .await
            .expect("Redis answers")
    };
    assert_eq!(page(10 * items.len()).await, ScanPage { items, next: 0 });
    let small = page(10).await;
    assert!(
        small.next != 0 && (1..100).contains(&small.items.len()),
        "{small:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn two_workers_share_one_scan_without_missing_a_counter() {
    let tally = Tally::start().await;
    let mut items = Vec::new();
    // More than fit into a small set of Redis, which is one page.
    for number in 0..SEVERAL_PAGES {
        items.push(tally.item(&format!("item {number}")).await);
    }
    let small = SyncOptions {
        flush_page: 10,
        ..options()
    };
    let (one, other) = (tally.worker_with(small.clone()), tally.worker_with(small));
    let mut votes = 0;
    // One worker may take every page of one scan, but not of every scan.
    eventually("both workers take part in a scan", async || {
        futures_util::future::join_all(items.iter().map(|item| tally.add(*item, 1))).await;
        votes += SEVERAL_PAGES;
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

/// A worker whose pages are one counter, with a proxy before its Redis.
async fn behind_a_proxy(tally: &Tally) -> (Proxy, Worker) {
    let port = tally.stores.redis.port();
    let proxy = Proxy::start(port).await.expect("a proxy");
    let redis_url = tally.stores.redis_login_url(Role::Worker);
    let urls = StoreUrls {
        database_url: tally.stores.login_url(Role::Worker),
        redis_url: redis_url.replace(&format!(":{port}"), &format!(":{}", proxy.port())),
        key_prefix: KeyPrefix::default(),
    };
    let small = SyncOptions {
        flush_page: 1,
        ..options()
    };
    let worker = app::worker(&urls, small, "test worker").expect("URLs");
    (proxy, worker)
}

/// A scan may name an item twice, and votes come in between. Both readings are then written at once.
#[tokio::test(flavor = "multi_thread")]
async fn an_item_that_a_scan_meets_twice_is_saved_as_it_was_read_last() {
    let tally = Tally::start().await;
    let mut items = Vec::new();
    for _ in 0..20 {
        items.push(tally.item("x").await);
    }
    let add_to_each =
        async || futures_util::future::join_all(items.iter().map(|item| tally.add(*item, 1))).await;
    let (proxy, worker) = behind_a_proxy(&tally).await;
    // Redis knows the scripts, whose texts also read counters.
    worker.flush_shared().await.expect("a flush");
    eventually("a scan meets items twice", async || {
        add_to_each().await;
        // After the first page is read, the scan begins anew.
        let begin_anew = async {
            proxy.trap("HMGET", true).await;
            proxy.stall();
            proxy.release();
            add_to_each().await;
            command(&tally, &["DEL", "tally:unsaved_scan"]).await;
            proxy.open();
        };
        // The trap is set first.
        let ((), report) = tokio::join!(begin_anew, worker.flush_shared());
        let report = report.expect("a flush");
        tally.worker().flush_unsaved().await.expect("a flush");
        for item in &items {
            assert_eq!(
                Some(tally.saved_count(*item).await),
                tally.live_count(*item).await,
                "{report:?}"
            );
        }
        (report.counters > items.len()).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_asked_to_stop_ends_its_scan_with_the_pages_that_it_has() {
    let tally = Tally::start().await;
    let mut items = Vec::new();
    for _ in 0..50 {
        items.push(tally.item("x").await);
    }
    let (proxy, worker) = behind_a_proxy(&tally).await;
    worker.enter_epoch().await.expect("an epoch");
    worker.flush_shared().await.expect("a flush");
    futures_util::future::join_all(items.iter().map(|item| tally.add(*item, 1))).await;
    let schedule = Schedule {
        address_retention: Duration::from_secs(86_400),
        scan_every: Duration::from_secs(86_400),
        flush_every: Duration::from_secs(3600),
        audit_cron: "0 0 0 1 1 *".to_owned(),
        // Only its first scan, which begins at once, can save anything.
        last_flush_limit: Duration::ZERO,
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let (sees, seen) = oneshot::channel::<()>();
    let stopped = async {
        drop(stopped.await);
        drop(sees);
    };
    let stop_in_the_scan = async {
        proxy.trap("HMGET", false).await;
        drop(stop);
        drop(seen.await);
        proxy.release();
    };
    // The trap is set first.
    let ((), ended) = tokio::join!(stop_in_the_scan, tally::sync::run(worker, &schedule, stopped));
    ended.expect("it ends well");
    let saved: i64 = sqlx::query_scalar("select sum(vote_count)::bigint from item")
        .fetch_one(&tally.pool)
        .await
        .expect("Postgres answers");
    assert!((1..50).contains(&saved), "{saved}");
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
    // Two workers as in two processes: they share only the stores.
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
