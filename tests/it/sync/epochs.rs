//! Epochs: after Redis or Postgres lost something, a worker rebuilds everything.

use std::time::Duration;

use sqlx::{Postgres, Transaction};
use tally::domain::ItemId;
use tally::ledger::{LedgerError, Overtaken, Pacing, ROLL_UP_LIMIT_IDS};
use tally::live::Bucket;
use tally::sync::{Schedule, SyncError, SyncOptions, Worker};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::{command, epoch, unsaved};
use crate::helpers::eventually;
use crate::helpers::stores::{blocker, read_under, until_blocked};
use crate::helpers::tally::{Tally, options, roll_up_lease};

/// Holds each search for lost counts, until the transaction ends. After `limit` it fails; "0": never.
async fn hold_searches(tally: &Tally, limit: &str) -> Transaction<'static, Postgres> {
    sqlx::raw_sql(&format!(
        "create function is_read() returns boolean language plpgsql set lock_timeout = {limit} as $$ begin
             if current_query() like '-- Of the next%' then
                 perform pg_advisory_xact_lock_shared(1);
             end if;
             return true;
         end $$"
    ))
    .execute(&tally.pool)
    .await
    .expect("a function");
    read_under(&tally.pool, "item", "is_read()").await;
    sqlx::raw_sql("grant update on item to tally_worker")
        .execute(&tally.pool)
        .await
        .expect("the owner may");
    blocker(&tally.pool, "select pg_advisory_xact_lock(1)").await
}

fn schedule() -> Schedule {
    Schedule {
        flush_every: Duration::from_millis(50),
        scan_every: Duration::from_secs(3600),
        audit_cron: "0 0 0 1 1 *".to_owned(),
        address_retention: Duration::from_secs(3600),
        last_flush_limit: Duration::from_secs(10),
        webhook: None,
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
    // A worker reads this and stalls until the next epoch.
    let (old_epoch, read) = (epoch(&tally).await, unsaved(&tally, x).await);
    command(&tally, &["FLUSHALL"]).await;
    // y gets a new live count; x has none.
    tally.add(y, 1).await;
    assert_eq!(worker.enter_epoch().await.expect("an epoch"), Some(2));
    let late = worker.write(&[read], old_epoch).await;
    assert!(
        matches!(
            late,
            Err(SyncError::Ledger(LedgerError::Overtaken(Overtaken::EpochEnded)))
        ),
        "{late:?}"
    );
    assert_eq!(tally.saved_count(x).await, 0);
    worker.flush_until_quiescent().await.expect("a flush");
    assert_eq!((tally.saved_count(x).await, tally.saved_count(y).await), (1, 2));
}

/// The worker that enters the epoch compares saved counts with the audited ones, which do not have the vote yet, and
/// then looks at the votes that were not rolled up.
#[tokio::test(flavor = "multi_thread")]
async fn a_vote_that_is_rolled_up_while_an_epoch_is_entered_is_not_missed() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let worker = tally.worker();
    worker.enter_epoch().await.expect("an epoch");
    tally.add(item, 1).await;
    command(&tally, &["FLUSHALL"]).await;
    let lease = roll_up_lease(&tally.ledger).await;
    let safe = tally.ledger.safe_vote_id().await.expect("a safe id");
    let comparing = hold_searches(&tally, "0").await;
    let entering = tokio::spawn(async move { worker.enter_epoch().await });
    until_blocked(&tally.pool, "-- Of the next").await;
    let rolled_up = tally
        .ledger
        .roll_up_votes(&lease, &safe, ROLL_UP_LIMIT_IDS, Pacing::Spread)
        .await
        .expect("a roll-up");
    assert!(rolled_up.is_some(), "the vote is in the audited count");
    comparing.rollback().await.expect("an end");
    let entered = entering.await.expect("no panic").expect("an epoch");
    assert_eq!(entered, Some(1));
}

/// A worker under way, until [`Running::stop`].
struct Running {
    stop: oneshot::Sender<()>,
    ended: JoinHandle<anyhow::Result<()>>,
}

impl Running {
    fn start(worker: Worker) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let run = async move { tally::sync::run(worker, &schedule(), async { drop(stopped.await) }).await };
        Self {
            stop,
            ended: tokio::spawn(run),
        }
    }

    async fn stop(self) {
        self.stop.send(()).expect("the worker runs");
        self.ended.await.expect("no panic").expect("an end");
    }
}

/// Votes until the item has a counter, and waits until a flush has saved it: the first votes on an item have none. Returns
/// all of its votes.
async fn vote_until_saved_by_a_flush(tally: &Tally, item: ItemId, mut votes: i64) -> i64 {
    while tally.live_count(item).await.is_none() {
        tally.add(item, 1).await;
        votes += 1;
    }
    eventually("the count is saved", async || {
        (tally.saved_count(item).await == votes).then_some(())
    })
    .await;
    votes
}

async fn entry_marks(tally: &Tally) -> Vec<String> {
    let mut redis = tally.stores.redis_connection().await;
    let mut keys = redis::cmd("KEYS");
    keys.arg("tally:entering:*");
    keys.query_async(&mut redis).await.expect("Redis answers")
}

/// Redis has lost the vote of the first item. The second one has none.
async fn after_a_loss() -> (Tally, ItemId, ItemId) {
    let tally = Tally::start().await;
    let (lost, voted) = (tally.item("x").await, tally.item("y").await);
    tally.worker().enter_epoch().await.expect("an epoch");
    tally.add(lost, 1).await;
    // Before that, a server that finds Redis empty leaves the vote to crashed-writer recovery, which has it rebuilt.
    eventually("the vote is noted as counted", async || {
        let noted = "select coalesce(bool_and(counted_vote_id = last_value), false) from writer_connection, vote_id_seq";
        let is_noted: bool = sqlx::query_scalar(noted)
            .fetch_one(&tally.pool)
            .await
            .expect("an answer");
        is_noted.then_some(())
    })
    .await;
    command(&tally, &["FLUSHALL"]).await;
    (tally, lost, voted)
}

/// Waits until the lost vote is saved, and stops the worker, which leaves no mark.
async fn until_saved_again(tally: &Tally, lost: ItemId, running: Running) {
    eventually("the lost count is saved", async || {
        (tally.saved_count(lost).await == 1).then_some(())
    })
    .await;
    running.stop().await;
    assert_eq!(entry_marks(tally).await, [""; 0]);
}

/// The search stands still before its first item, and Redis is wiped once more meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn counts_are_saved_while_a_worker_searches_for_lost_ones() {
    let (tally, lost, voted) = after_a_loss().await;
    let searching = hold_searches(&tally, "0").await;
    // No roll-up saves the lost vote as that of a cold item.
    roll_up_lease(&tally.ledger).await;
    let running = Running::start(tally.worker());
    until_blocked(&tally.pool, "-- Of the next").await;
    let votes = vote_until_saved_by_a_flush(&tally, voted, 0).await;
    assert_eq!(tally.epoch().await.known, None, "the search goes on");
    command(&tally, &["FLUSHALL"]).await;
    vote_until_saved_by_a_flush(&tally, voted, votes).await;
    assert_eq!(tally.epoch().await.known, None, "another search goes on");
    assert_eq!(tally.saved_count(lost).await, 0);
    searching.rollback().await.expect("an end");
    eventually("the epoch is entered", async || tally.epoch().await.known).await;
    until_saved_again(&tally, lost, running).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_are_saved_while_the_search_for_lost_ones_fails() {
    let (tally, lost, voted) = after_a_loss().await;
    let failing = hold_searches(&tally, "'1ms'").await;
    let running = Running::start(tally.worker());
    eventually("an entry has begun", async || {
        (!entry_marks(&tally).await.is_empty()).then_some(())
    })
    .await;
    vote_until_saved_by_a_flush(&tally, voted, 0).await;
    assert_eq!(tally.epoch().await.known, None, "each search fails");
    failing.rollback().await.expect("an end");
    until_saved_again(&tally, lost, running).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_stops_while_it_searches_leaves_no_mark() {
    let tally = Tally::start().await;
    tally.item("x").await;
    let searching = hold_searches(&tally, "0").await;
    let running = Running::start(tally.worker());
    until_blocked(&tally.pool, "-- Of the next").await;
    assert_ne!(entry_marks(&tally).await, [""; 0]);
    running.stop().await;
    assert_eq!(entry_marks(&tally).await, [""; 0]);
    searching.rollback().await.expect("an end");
}

/// As after a restore, or a long time without workers.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_count_is_found_too_when_a_great_many_votes_are_not_rolled_up() {
    let tally = Tally::start().await;
    let items = [tally.item("x").await, tally.item("y").await];
    let worker = tally.worker();
    worker.enter_epoch().await.expect("an epoch");
    for item in items {
        tally.add(item, 1).await;
    }
    command(&tally, &["FLUSHALL"]).await;
    sqlx::raw_sql("select setval('vote_id_seq', 5000000)")
        .execute(&tally.pool)
        .await
        .expect("the owner may");
    assert_eq!(worker.enter_epoch().await.expect("an epoch"), Some(2));
    worker.flush_until_quiescent().await.expect("a flush");
    for item in items {
        assert_eq!(tally.saved_count(item).await, 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_of_redis_every_count_is_rebuilt() {
    let mut tally = Tally::start().await;
    let mut items = Vec::new();
    for _ in 0..20 {
        items.push(tally.item("x").await);
    }
    // The counters are several pages.
    let worker = tally.worker_with(SyncOptions {
        flush_page: 1,
        ..options()
    });
    worker.enter_epoch().await.expect("an epoch");
    for item in &items {
        tally.add(*item, 1).await;
    }
    tally.stores.redis.stop().await;
    tally.stores.redis.start().await.expect("Redis starts");
    for item in &items {
        let brought_back = tally.live_count(*item).await;
        assert_eq!(brought_back, Some(1), "by its append-only file");
    }
    let suspect = worker.enter_epoch().await.expect("an epoch");
    assert!(
        suspect.is_some_and(|suspect| suspect >= items.len()),
        "{suspect:?}"
    );
    for item in items {
        assert_eq!(tally.live_count(item).await, None);
        tally.assert_exact_when_quiescent(item).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_count_is_rebuilt_after_a_crash_of_postgres_and_not_after_a_clean_restart() {
    let mut tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.worker().enter_epoch().await.expect("an epoch");
    tally.add(item, 1).await;
    tally.stores.postgres.stop().await;
    tally.stores.postgres.start().await.expect("Postgres starts");
    let enter = async |tally: &Tally| {
        eventually("Postgres answers the worker", async || {
            tally.worker().enter_epoch().await.ok()
        })
        .await
    };
    assert_eq!(enter(&tally).await, None);
    // Transaction ids that were not on disk are drawn again: a visibility snapshot from
    // before the crash may be wrong.
    tally.stores.postgres.crash().await;
    tally.stores.postgres.start().await.expect("Postgres starts");
    assert!(enter(&tally).await.is_some());
    assert_eq!(tally.live_count(item).await, None);
    eventually("voting goes on", async || {
        (tally.vote(item, "ada").await.0.is_success()).then_some(())
    })
    .await;
    tally.assert_exact_when_quiescent(item).await;
}

/// A dump contains the incarnation's token.
/// But visibility snapshots from before the dump mean nothing in the restored database.
#[tokio::test(flavor = "multi_thread")]
async fn a_postgres_restored_from_a_dump_is_another_epoch() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    let worker = tally.worker();
    worker.enter_epoch().await.expect("the stores answer");
    assert_eq!(worker.enter_epoch().await.expect("the stores answer"), None);
    let token = tally.ledger.incarnation().await.expect("Postgres answers");
    // A restore does this: another transaction writes the same row.
    sqlx::query("update incarnation set token = token")
        .execute(&tally.pool)
        .await
        .expect("Postgres answers");
    assert_eq!(worker.enter_epoch().await.expect("the stores answer"), Some(1));
    assert_eq!(tally.live_count(item).await, None, "rebuilt");
    let redrawn = tally.ledger.incarnation().await.expect("Postgres answers");
    assert_ne!(redrawn, token);
    assert_eq!(worker.enter_epoch().await.expect("the stores answer"), None);
}

/// A wipe changes neither Redis' run id nor its replication id.
/// A worker must see a wipe that happens while it enters an epoch.
#[tokio::test(flavor = "multi_thread")]
async fn an_epoch_is_entered_again_if_redis_is_wiped_meanwhile() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    let epoch = tally.epoch().await.current;
    let entering = tally
        .counters
        .begin_epoch(Bucket::FIRST)
        .await
        .expect("Redis answers");
    // The worker has seen a live count here, which the scan would save. Now the count is lost.
    command(&tally, &["FLUSHALL"]).await;
    let entered = tally.counters.enter_epoch(&epoch, entering).await;
    assert!(!entered.expect("Redis answers"));
    assert_eq!(tally.epoch().await.known, None);

    let worker = tally.worker();
    assert_eq!(worker.enter_epoch().await.expect("the stores answer"), Some(1));
    worker.flush().await.expect("a flush");
    assert_eq!(tally.saved_count(item).await, 1);
    let mut redis = tally.stores.redis_connection().await;
    let keys: Vec<String> = redis::cmd("KEYS")
        .arg("tally:entering:*")
        .query_async(&mut redis)
        .await
        .expect("Redis answers");
    assert!(keys.is_empty(), "{keys:?}");
}
