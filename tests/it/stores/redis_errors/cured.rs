//! Faults of Redis that Tally ends by itself.

use super::takes;
use tally::domain::{ItemId, VoteSource};
use tally::sync::Worker;
use tally::votes::ProgressNotes;

use crate::helpers::eventually;
use crate::helpers::tally::{Tally, connected, live_counts, vote, vote_queue};

#[tokio::test(flavor = "multi_thread")]
async fn a_script_that_redis_forgot_is_loaded_again_and_its_vote_is_counted_once() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let mut owner = tally.stores.redis_connection().await;
    for count in 1..=5 {
        takes(&mut owner, "SCRIPT FLUSH").await;
        assert_eq!(tally.add(item, 1).await, Some(count));
    }
    takes(&mut owner, "SCRIPT FLUSH").await;
    tally.assert_exact_when_quiescent(item).await;
}

/// Someone else writes to Tally's keys.
#[tokio::test(flavor = "multi_thread")]
async fn a_value_of_another_type_in_the_place_of_a_counter_or_of_the_index_is_replaced() {
    let tally = Tally::start().await;
    let items = [tally.item("x").await, tally.item("y").await];
    let [item, other] = items;
    let worker = tally.worker();
    worker.enter_epoch().await.expect("an epoch");
    for item in items {
        tally.add(item, 1).await;
    }
    let mut owner = tally.stores.redis_connection().await;
    let mut votes = 1;
    for key in [format!("tally:{{{item}}}"), "tally:unsaved".to_owned()] {
        // So that the next vote puts the item into the index again.
        worker.flush_until_quiescent().await.expect("a flush");
        takes(&mut owner, &format!("SET {key} x")).await;
        let counted = eventually("votes are counted again", async || {
            votes += 1;
            tally.add(item, 1).await
        })
        .await;
        assert_eq!(counted, votes, "{key}");
        tally.wait_until_ready("ready").await;
        for item in items {
            tally.assert_exact_when_quiescent(item).await;
        }
    }
    // A worker meets it first, and the index had an unsaved count.
    votes += 1;
    assert_eq!(tally.add(item, 1).await, Some(votes));
    tally.add(other, 1).await;
    takes(&mut owner, "SET tally:unsaved x").await;
    eventually("a pass is well again", async || worker.flush().await.ok()).await;
    worker.once().await.expect("an audit");
    votes += 1;
    assert_eq!(tally.add(item, 1).await, Some(votes));
    tally.assert_exact_when_quiescent(item).await;
}

/// Neither the run of Redis nor its replication changes with SWAPDB.
#[tokio::test(flavor = "multi_thread")]
async fn counts_that_vanish_with_swapdb_and_come_back_old_are_rebuilt() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let worker = tally.worker();
    worker.enter_epoch().await.expect("an epoch");
    tally.add(item, 1).await;
    tally.add(item, 1).await;
    let mut owner = tally.stores.redis_connection().await;
    takes(&mut owner, "SWAPDB 0 1").await;
    assert_eq!(tally.add(item, 1).await, Some(3), "seeded from the ledger");
    assert!(worker.enter_epoch().await.expect("an epoch").is_some());
    assert_eq!(tally.add(item, 1).await, Some(4));
    tally.assert_exact_when_quiescent(item).await;
    // The data from before the swap, with their epoch.
    takes(&mut owner, "SWAPDB 0 1").await;
    assert_eq!(tally.live_count(item).await, Some(2), "it is old");
    assert!(worker.enter_epoch().await.expect("an epoch").is_some());
    assert_eq!(tally.add(item, 1).await, Some(5));
    tally.assert_exact_when_quiescent(item).await;
    assert_eq!(worker.enter_epoch().await.expect("an epoch"), None);
}

/// A Tally whose counts vanish and come back old while a vote is cast, which no worker has seen.
struct CameBackOld {
    tally: Tally,
    item: ItemId,
    worker: Worker,
    progress: ProgressNotes,
}

/// `looks`: how often the server has looked meanwhile where the counts are.
async fn came_back_old(looks: usize) -> CameBackOld {
    let mut tally = Tally::start().await;
    let item = tally.item("x").await;
    let worker = tally.worker();
    worker.enter_epoch().await.expect("an epoch");
    // Its looks come by themselves.
    tally.stop().await;
    let live_counts = connected(live_counts(&tally)).await;
    let queue = vote_queue(&tally, &live_counts);
    let mut progress = ProgressNotes::new(tally.server_ledger.clone(), live_counts);
    let cast = async || {
        let cast = queue.cast(vote(item, None), VoteSource::default()).await;
        cast.expect("a vote");
    };
    cast().await;
    progress.note().await.expect("the stores answer");
    let mut owner = tally.stores.redis_connection().await;
    takes(&mut owner, "SWAPDB 0 1").await;
    cast().await;
    for _ in 0..looks {
        progress.note().await.expect("the stores answer");
    }
    takes(&mut owner, "SWAPDB 0 1").await;
    progress.note().await.expect("the stores answer");
    let noted: i64 = sqlx::query_scalar("select max(counted_vote_id) from writer_connection")
        .fetch_one(&tally.pool)
        .await
        .expect("Postgres answers");
    assert_eq!(noted, if looks == 0 { 2 } else { 1 });
    assert_eq!(worker.enter_epoch().await.expect("an epoch"), None);
    CameBackOld {
        tally,
        item,
        worker,
        progress,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_that_vanish_and_come_back_between_two_looks_are_found_by_the_audit() {
    let CameBackOld {
        tally, item, worker, ..
    } = came_back_old(0).await;
    let (_, audit) = worker.once().await.expect("an audit");
    assert_eq!((audit.wrong_items, audit.repaired_items), (1, 1));
    tally.assert_exact_when_quiescent(item).await;
    assert_eq!(tally.saved_count(item).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_that_vanish_and_come_back_are_found_by_recovery_if_a_server_has_looked_meanwhile() {
    let CameBackOld {
        tally,
        item,
        worker,
        mut progress,
    } = came_back_old(1).await;
    eventually("the votes are left to recovery", async || {
        progress.note().await.ok()?;
        worker.recover_crashed_writers().await.ok()?;
        worker.flush().await.ok()?;
        (tally.saved_count(item).await == 2).then_some(())
    })
    .await;
    let (_, audit) = worker.once().await.expect("an audit");
    assert_eq!((audit.wrong_items, audit.repaired_items), (0, 0));
}
