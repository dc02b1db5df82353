//! Scans: a flush reads the index, or slowly all counters, page by page.

use std::time::Duration;

use tally::app::{self, StoreUrls};
use tally::domain::ItemId;
use tally::ledger::Role;
use tally::live::{Bucket, KeyPrefix, Scan, ScanPage};
use tally::sync::{Repair, Schedule, SyncOptions, Worker};
use testkit::proxy::Proxy;
use tokio::sync::oneshot;

use super::command;
use crate::helpers::eventually;
use crate::helpers::stores::Stores;
use crate::helpers::tally::{Tally, counters, options};

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
async fn a_full_redis_is_flushed_and_its_idle_counts_leave_it() {
    let tally = Tally::start().await;
    let items = [tally.item("x").await, tally.item("y").await];
    for item in items {
        tally.add(item, 1).await;
    }
    tally
        .counters
        .invalidate(&items[..1])
        .await
        .expect("Redis answers");
    command(&tally, &["CONFIG", "SET", "maxmemory", "1"]).await;
    let worker = tally.worker_with(SyncOptions {
        retention: Some(Duration::ZERO),
        ..options()
    });
    let flushed = worker.flush_shared().await.expect("a flush");
    assert_eq!((flushed.flushed, flushed.rebuilt), (1, 1));
    for item in items {
        assert_eq!(tally.saved_count(item).await, 1);
    }
    worker.scan_page().await.expect("a page");
    assert_eq!(tally.live_count(items[1]).await, None, "dropped");
    command(&tally, &["CONFIG", "SET", "maxmemory", "0"]).await;
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
async fn the_time_between_two_pages_makes_the_slow_scan_as_long_as_it_should_be() {
    let tally = Tally::start().await;
    let fill = "for n = 1, 950 do redis.call('SET', 'other:' .. n, '') end";
    command(&tally, &["EVAL", fill, "0"]).await;
    // 950 counters and a few other keys of Tally: ten pages of 100.
    let pause = tally
        .worker()
        .scan_pause(Duration::from_secs(60))
        .await
        .expect("a number");
    assert_eq!(pause, Duration::from_secs(6));
}

/// More than one page of unsaved counters.
/// Redis keeps a set of up to 512 numbers in a form without pages.
const SEVERAL_PAGES: i64 = 600;

#[tokio::test]
async fn a_page_of_a_scan_is_about_as_large_as_it_should_be_and_in_order() {
    let stores = Stores::start().await;
    let counters = counters(&stores.redis_login_url(Role::Worker));
    let items: Vec<ItemId> = (1..=SEVERAL_PAGES).filter_map(ItemId::new).collect();
    counters.add_unsaved(&items).await.expect("Redis answers");
    let page = async |size| {
        counters
            .scan(Scan::Unsaved, Bucket::FIRST, 0, size)
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
    // More than fit into the form of a set that is one page.
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

/// So many items are several pages of a scan, whatever a page should have: Redis 7.2 and Valkey keep up to 128 members of a
/// set in one piece.
const SEVERAL_SCANNED: i64 = 150;

/// A worker whose pages are one counter, with a proxy before its Redis.
async fn behind_a_proxy(tally: &Tally) -> (Proxy, Worker) {
    let port = tally.stores.redis.port();
    let proxy = Proxy::start(port).await.expect("a proxy");
    let redis_url = tally.stores.redis_login_url(Role::Worker);
    let urls = StoreUrls {
        database_url: tally.stores.login_url(Role::Worker).into(),
        redis_url: redis_url
            .replace(&format!(":{port}"), &format!(":{}", proxy.port()))
            .into(),
        key_prefix: KeyPrefix::default(),
    };
    let small = SyncOptions {
        flush_page: 1,
        ..options()
    };
    let worker = app::worker(&urls, small, "test worker").expect("URLs");
    (proxy, worker)
}

/// A scan may return an item twice, with votes in between.
/// Both readings are then written at once.
#[tokio::test(flavor = "multi_thread")]
async fn an_item_that_a_scan_meets_twice_is_saved_as_it_was_read_last() {
    let tally = Tally::start().await;
    let mut items = Vec::new();
    for _ in 0..SEVERAL_SCANNED {
        items.push(tally.item("x").await);
    }
    let add_to_each =
        async || futures_util::future::join_all(items.iter().map(|item| tally.add(*item, 1))).await;
    let (proxy, worker) = behind_a_proxy(&tally).await;
    // Loads the scripts first: their texts contain this command, too.
    worker.flush_shared().await.expect("a flush");
    eventually("a scan meets items twice", async || {
        add_to_each().await;
        // After the first page is read, the scan begins again.
        let begin_anew = async {
            proxy.trap("\r\nMGET\r\n", true).await;
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
    for _ in 0..SEVERAL_SCANNED {
        items.push(tally.item("x").await);
    }
    let (proxy, worker) = behind_a_proxy(&tally).await;
    worker.enter_epoch().await.expect("an epoch");
    worker.flush_shared().await.expect("a flush");
    futures_util::future::join_all(items.iter().map(|item| tally.add(*item, 1))).await;
    // A roll-up locks the rows of these items, and a save leaves locked rows to the next flush.
    tally.worker().roll_up().await.expect("a roll-up");
    let schedule = Schedule {
        address_retention: Duration::from_secs(86_400),
        scan_every: Duration::from_secs(86_400),
        flush_every: Duration::from_secs(3600),
        audit_cron: "0 0 0 1 1 *".to_owned(),
        // Only its first scan, which begins at once, can save anything.
        last_flush_limit: Duration::ZERO,
        webhook: None,
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let (sees, seen) = oneshot::channel::<()>();
    let stopped = async {
        drop(stopped.await);
        drop(sees);
    };
    let stop_in_the_scan = async {
        proxy.trap("\r\nMGET\r\n", false).await;
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
    assert!((1..SEVERAL_SCANNED).contains(&saved), "{saved}");
    for item in items {
        tally.assert_exact_when_quiescent(item).await;
    }
}
