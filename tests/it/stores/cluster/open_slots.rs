//! Slots that are between two nodes, and stay so: what is of other buckets waits for none of it.

use tally::dev::PrivateCluster;
use tally::live::BUCKETS;
use tally::sync::{SyncOptions, Worker};

use super::{Clustered, ITEMS, SLOT, is_of_slot};
use crate::helpers::eventually;
use crate::helpers::tally::options;

/// A vote on each item, of a server that died before it counted them.
async fn leave_votes_uncounted(clustered: &mut Clustered) {
    // A writer without a session.
    sqlx::raw_sql(
        "insert into writer_connection (name, counted_vote_id)
         select 'tally writer of the dead', last_value from vote_id_seq;
         insert into vote (item_id) select id from item",
    )
    .execute(&clustered.tally.pool)
    .await
    .expect("votes that nobody counts");
    for item in clustered.items.clone() {
        *clustered.votes.entry(item).or_default() += 1;
    }
}

/// Waits until a worker has forgotten the server that died.
async fn until_recovered(clustered: &Clustered, worker: &Worker) {
    eventually("the dead writer is recovered", async || {
        worker.recover_crashed_writers().await.ok()?;
        let names: i64 = sqlx::query_scalar(
            "select count(*) from writer_connection where name = 'tally writer of the dead'",
        )
        .fetch_one(&clustered.tally.pool)
        .await
        .ok()?;
        (names == 0).then_some(())
    })
    .await;
}

/// Some of the slot's keys are on either side, so that a call for all of them is refused.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_dead_server_left_uncounted_in_an_open_slot_is_counted_however_the_slot_is_closed() {
    for is_moved in [true, false] {
        let mut clustered = Clustered::start().await;
        clustered.enter_epoch().await;
        clustered.add_to_all().await;
        let (from, to) = clustered.begin_move(SLOT).await;
        clustered.move_keys(SLOT, (&from, &to), 3).await;
        leave_votes_uncounted(&mut clustered).await;
        let worker = clustered.tally.worker();
        // It may have to wait for the slot, and may not forget the dead writer.
        let recovered = worker.recover_crashed_writers().await;
        assert!(recovered.is_err() || recovered.is_ok_and(|items| items == Some(ITEMS)));
        if is_moved {
            while clustered.move_keys(SLOT, (&from, &to), 100).await > 0 {}
            clustered.end_move(SLOT, &to).await;
        } else {
            let stable = format!("CLUSTER SETSLOT {SLOT} STABLE");
            clustered
                .send(from.port, &stable)
                .await
                .expect("it keeps the slot");
            while clustered.move_keys(SLOT, (&to, &from), 100).await > 0 {}
            clustered
                .send(to.port, &stable)
                .await
                .expect("the slot is closed");
        }
        until_recovered(&clustered, &worker).await;
        clustered.assert_exact().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_dead_server_left_uncounted_in_other_buckets_is_counted_while_a_slot_stays_open() {
    let mut clustered = Clustered::start().await;
    clustered.enter_epoch().await;
    clustered.until_counted().await;
    let (from, to) = clustered.begin_move(SLOT).await;
    clustered
        .move_those(SLOT, (&from, &to), 100, |key| key.ends_with("{7X}1"))
        .await;
    leave_votes_uncounted(&mut clustered).await;
    let worker = clustered.tally.worker_with(SyncOptions {
        // Each item is a page of its own, and that of the moved counter fails.
        flush_page: 1,
        ..options()
    });
    // It may say that one of the slots is open.
    worker.enter_epoch().await.ok();
    for _ in 0..2 {
        let recovered = worker.recover_crashed_writers().await;
        assert!(recovered.is_err(), "it is not forgotten: {recovered:?}");
    }
    for item in clustered.items.iter().copied().filter(|item| !is_of_slot(*item)) {
        let votes = clustered.votes[&item];
        eventually(&format!("{item} is saved with {votes} votes"), async || {
            worker.flush_shared().await.ok();
            (clustered.tally.saved_count(item).await == votes).then_some(())
        })
        .await;
    }
    while clustered.move_keys(SLOT, (&from, &to), 100).await > 0 {}
    clustered.end_move(SLOT, &to).await;
    until_recovered(&clustered, &worker).await;
    clustered.assert_exact().await;
}

/// It writes what is not in the index, so a fault from outside takes an item out of there.
#[tokio::test(flavor = "multi_thread")]
async fn the_slow_scan_goes_over_the_other_buckets_of_a_node_while_a_slot_stays_open() {
    let mut clustered = Clustered::start().await;
    clustered.enter_epoch().await;
    clustered.until_counted().await;
    let worker = clustered.tally.worker();
    let (from, to) = clustered.begin_move(SLOT).await;
    // It is unsaved, and its index is at the other node: it cannot be marked.
    let moved = clustered.move_those(SLOT, (&from, &to), 100, |key| key.ends_with("{7X}1"));
    assert_eq!(moved.await, 1);
    // It may say that one of the slots is open.
    worker.enter_epoch().await.ok();
    let same_node = clustered
        .items
        .iter()
        .find(|item| item.get() % i64::from(BUCKETS) == 2);
    let item = *same_node.expect("an item of the next bucket");
    clustered.add(item).await.expect("it is counted");
    let forget = format!("SREM tally:{{Zd}}unsaved tally:{{Zd}}{item}");
    let forgotten = clustered
        .send(from.port, &forget)
        .await
        .expect("it is out of the index");
    assert_eq!(forgotten, redis::Value::Int(1));
    eventually("the scan saves it", async || {
        worker.scan_page().await.expect("a page");
        (clustered.tally.saved_count(item).await == clustered.votes[&item]).then_some(())
    })
    .await;
    for _ in 0..2 * PrivateCluster::PRIMARIES {
        worker.scan_page().await.expect("a page of each node");
    }
    while clustered.move_keys(SLOT, (&from, &to), 100).await > 0 {}
    clustered.end_move(SLOT, &to).await;
    clustered.assert_exact().await;
}

/// The call is sent there by the node that has handed all keys over, but not yet the slot.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_takes_a_slot_over_is_given_the_scripts_that_it_lacks() {
    let mut clustered = Clustered::start().await;
    clustered.enter_epoch().await;
    clustered.until_counted().await;
    let of_slot = clustered.items.iter().find(|item| is_of_slot(**item));
    let item = *of_slot.expect("an item of the slot");
    // A call whose keys are not all there is refused in an open slot.
    let owner = clustered.owner(SLOT, 0).await.expect("an owner").port;
    let token = "SET tally:{7X}cold x";
    clustered.send(owner, token).await.expect("it is set");
    clustered.add(item).await.expect("it is in the index");
    let (from, to) = clustered.begin_move(SLOT).await;
    while clustered.move_keys(SLOT, (&from, &to), 100).await > 0 {}
    clustered.send(to.port, "SCRIPT FLUSH").await.expect("it forgets");
    let mut votes = 0;
    eventually("the vote is counted", async || {
        votes += 1;
        clustered.tally.add(item, 1).await
    })
    .await;
    *clustered.votes.entry(item).or_default() += votes;
    clustered.end_move(SLOT, &to).await;
    clustered.assert_exact().await;
}
