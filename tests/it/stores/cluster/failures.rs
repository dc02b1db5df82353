//! Nodes fail, and slots move: counts stay exact.

use std::sync::atomic::{AtomicBool, Ordering};

use tally::dev::{PrivateCluster, PrivateRedis};
use tally::domain::ItemId;
use tally::ledger::Role;
use testkit::proxy::Proxy;
use testkit::stores::redis_connection;

use super::{Clustered, ITEMS, SLOT, is_of_slot};
use crate::helpers::eventually;
use crate::helpers::programs::{SYNC_WORKER, TALLY};
use crate::helpers::stores::{Stores, worker_is_alive};
use crate::stores::starts::assert_refuses;

#[tokio::test(flavor = "multi_thread")]
async fn votes_are_counted_by_all_nodes_of_a_redis_cluster_and_saved() {
    let mut clustered = Clustered::start().await;
    clustered.enter_epoch().await;
    for _ in 0..2 {
        assert_eq!(clustered.add_to_all().await, 0);
    }
    clustered.assert_exact().await;
    clustered.assert_exact().await;
    for node in &clustered.cluster.nodes[..PrivateCluster::PRIMARIES] {
        let mut connection = redis_connection(&node.url()).await.expect("it answers");
        let keys: i64 = redis::cmd("DBSIZE")
            .query_async(&mut connection)
            .await
            .expect("a number");
        assert!(keys > 0, "each node has some of the counters");
    }
    let audit = clustered
        .tally
        .worker()
        .audit(tally::sync::Repair::No)
        .await
        .expect("an audit");
    assert_eq!((audit.wrong_items, audit.items), (0, ITEMS));
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_node_fails_over_the_others_count_and_no_vote_is_refused_or_counts_twice() {
    let mut clustered = Clustered::start().await;
    clustered.enter_epoch().await;
    clustered.add_to_all().await;
    let owner = clustered.owner(SLOT, 0).await.expect("an owner");
    clustered.node(owner.port).crash().await;
    let uncounted = clustered.add_to_all().await;
    assert!(
        uncounted > 0 && uncounted < ITEMS / 2,
        "{uncounted} of {ITEMS} votes have no count"
    );
    // Nobody waits for the one that is gone: the others' counts are saved.
    let worker = clustered.tally.worker();
    worker.enter_epoch().await.expect_err("a node is gone");
    worker.flush_shared().await.ok();
    let mut saved = 0;
    for item in clustered.items.clone() {
        saved += usize::from(clustered.tally.saved_count(item).await == 2);
    }
    assert!(saved >= ITEMS / 2, "{saved} counts are saved");
    clustered.until_counted().await;
    clustered.assert_exact().await;
    clustered.node(owner.port).start().await.expect("it starts");
    clustered.assert_exact().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_moves_under_votes_and_its_counts_stay_exact() {
    let mut clustered = Clustered::start().await;
    clustered.enter_epoch().await;
    clustered.add_to_all().await;
    let (from, to) = clustered.begin_move(SLOT).await;
    clustered.add_to_all().await;
    while clustered.move_keys(SLOT, (&from, &to), 1).await > 0 {
        clustered.add_to_all().await;
        clustered
            .tally
            .worker()
            .enter_epoch()
            .await
            .expect("the stores answer");
    }
    clustered.end_move(SLOT, &to).await;
    clustered.until_counted().await;
    clustered.assert_exact().await;
}

/// A batch is one call to each node, which may have handed over a bucket.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_over_all_buckets_counts_all_others_while_a_slot_is_moving_and_after_it_has_moved() {
    let mut clustered = Clustered::start().await;
    clustered.enter_epoch().await;
    clustered.until_counted().await;
    assert_eq!(clustered.add_batch().await, [], "nothing moves");
    let (from, to) = clustered.begin_move(SLOT).await;
    let is_moving = |item: &ItemId| is_of_slot(*item);
    let mut uncounted = clustered.add_batch().await;
    clustered.move_keys(SLOT, (&from, &to), 3).await;
    for _ in 0..3 {
        uncounted.extend(clustered.add_batch().await);
    }
    assert!(!uncounted.is_empty(), "keys are on both sides");
    assert!(uncounted.iter().all(is_moving), "{uncounted:?}");
    while clustered.move_keys(SLOT, (&from, &to), 100).await > 0 {}
    clustered.end_move(SLOT, &to).await;
    let uncounted = clustered.add_batch().await;
    assert!(uncounted.iter().all(is_moving), "{uncounted:?}");
    clustered.enter_epoch().await;
    clustered.until_counted().await;
    assert_eq!(clustered.add_batch().await, [], "it has moved");
    clustered.assert_exact().await;
}

/// The node that has the slot counted a vote, and its answer is lost. To a second call it would answer that the slot is
/// elsewhere, as if the first one had not run.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_without_an_answer_is_not_sent_to_where_its_slot_has_moved_since() {
    let mut clustered = Clustered::start().await;
    clustered.enter_epoch().await;
    clustered.add_to_all().await;
    let owner = clustered.owner(SLOT, 0).await.expect("an owner");
    let proxy = Proxy::start(owner.port).await.expect("a proxy");
    let announce = |port| format!("CONFIG SET cluster-announce-port {port}");
    let announced = clustered.send(owner.port, &announce(proxy.port())).await;
    announced.expect("it tells others this port");
    let item = clustered.items[0];
    let has_moved = AtomicBool::new(false);
    let voting = async {
        let (mut votes, mut uncounted) = (0, 0);
        while !has_moved.load(Ordering::Acquire) {
            uncounted += i64::from(clustered.tally.add(item, 1).await.is_none());
            votes += 1;
        }
        (votes, uncounted)
    };
    let moving = async {
        // The key of the item's counter.
        proxy.lose_answer("{7X}1\r\n").await;
        let (from, to) = clustered.begin_move(SLOT).await;
        clustered.move_keys(SLOT, (&from, &to), 100).await;
        for port in [to.port, from.port] {
            let end = format!("CLUSTER SETSLOT {SLOT} NODE {}", to.id);
            clustered.send(port, &end).await.expect("the slot has moved");
        }
        proxy.release();
        has_moved.store(true, Ordering::Release);
    };
    let ((votes, uncounted), ()) = tokio::join!(voting, moving);
    assert!(uncounted > 0, "nobody can say whether the call has run");
    *clustered.votes.entry(item).or_default() += votes;
    let announced = clustered.send(owner.port, &announce(0)).await;
    announced.expect("it tells others its own port");
    clustered.until_counted().await;
    clustered.assert_exact().await;
}

/// The successor of the node that hands a slot over knows of no move, and the other one keeps copies. Once the move is
/// ended, old counts are back, and no node has another identity.
#[tokio::test(flavor = "multi_thread")]
async fn a_slot_whose_node_fails_over_in_mid_move_gives_back_no_old_counts() {
    let mut clustered = Clustered::start().await;
    clustered.enter_epoch().await;
    clustered.add_to_all().await;
    let (from, to) = clustered.begin_move(SLOT).await;
    clustered.move_keys(SLOT, (&from, &to), 2).await;
    clustered.fail_over(SLOT).await;
    if clustered.knows_of_move(SLOT).await {
        let successor = clustered.owner(SLOT, from.port).await.expect("an owner");
        while clustered.move_keys(SLOT, (&successor, &to), 100).await > 0 {}
    } else {
        clustered.until_counted().await;
        clustered.enter_epoch().await;
        clustered.add_to_all().await;
    }
    clustered.end_move(SLOT, &to).await;
    clustered.until_counted().await;
    clustered.assert_exact().await;
}

/// As after a move that broke off before the epoch's key had gone, and `redis-cli --cluster fix` with
/// `--cluster-replace`: the old counters come back under an epoch that never left.
#[tokio::test(flavor = "multi_thread")]
async fn counters_that_come_back_to_their_node_without_their_epoch_are_rebuilt() {
    let mut clustered = Clustered::start().await;
    clustered.enter_epoch().await;
    clustered.add_to_all().await;
    let (from, to) = clustered.begin_move(SLOT).await;
    let is_counter = |key: &str| key.ends_with(|one: char| one.is_ascii_digit());
    let moved = clustered.move_those(SLOT, (&from, &to), 100, is_counter).await;
    assert!(moved > 0, "some counters have moved");
    clustered.fail_over(SLOT).await;
    let successor = clustered.owner(SLOT, from.port).await.expect("an owner");
    let close = async |clustered: &Clustered, port: u16| {
        let stable = format!("CLUSTER SETSLOT {SLOT} STABLE");
        let closed = clustered.send(port, &stable).await;
        closed.expect("the slot is closed");
    };
    if clustered.knows_of_move(SLOT).await {
        // Until then it takes no key back.
        close(&clustered, successor.port).await;
    }
    clustered.until_counted().await;
    clustered.enter_epoch().await;
    clustered.add_to_all().await;
    clustered.move_keys(SLOT, (&to, &successor), 100).await;
    close(&clustered, to.port).await;
    // Servers show the old counts until a worker has seen that the slot is closed.
    clustered.enter_epoch().await;
    clustered.assert_exact().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_loses_all_data_has_its_counts_rebuilt() {
    let mut clustered = Clustered::start().await;
    clustered.enter_epoch().await;
    clustered.add_to_all().await;
    let owner = clustered.owner(SLOT, 0).await.expect("an owner");
    clustered.send(owner.port, "FLUSHALL").await.expect("it forgets");
    clustered.add_to_all().await;
    clustered.assert_exact().await;
    for node in clustered
        .cluster
        .nodes
        .iter()
        .map(PrivateRedis::port)
        .collect::<Vec<_>>()
    {
        clustered
            .send(node, "SCRIPT FLUSH")
            .await
            .expect("it forgets scripts");
    }
    clustered.assert_exact().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_is_no_cluster_and_a_login_that_may_not_ask_its_nodes_are_refused_at_the_start() {
    let stores = Stores::start().await;
    let as_cluster = |url: String| url.replace("redis://", "redis+cluster://");
    for (program, arguments, role) in [
        (TALLY, &["serve"][..], Role::Server),
        (SYNC_WORKER, &[], Role::Worker),
    ] {
        for (redis_url, words) in [
            (stores.redis_url(), "is no node of a Redis Cluster"),
            (
                stores.redis_login_url(role),
                "REDIS_CLUSTER=1 scripts/redis-users",
            ),
        ] {
            let (url, redis_url) = (stores.login_url(role), as_cluster(redis_url));
            assert_refuses(program, arguments, &url, &redis_url, &[words]).await;
        }
    }
}

/// A full node reads and does not write, so none of its epochs can be entered.
#[tokio::test(flavor = "multi_thread")]
async fn while_a_node_is_full_the_epochs_of_the_others_are_entered_and_their_counts_are_saved() {
    let mut clustered = Clustered::start().await;
    clustered.enter_epoch().await;
    clustered.add_to_all().await;
    let owner = clustered.owner(SLOT, 0).await.expect("an owner").port;
    let limit = "CONFIG SET maxmemory 1";
    clustered.send(owner, limit).await.expect("it is full");
    // As after a crash of Postgres: all epochs are over.
    sqlx::query("delete from incarnation")
        .execute(&clustered.tally.pool)
        .await
        .expect("the owner may");
    let worker = clustered.tally.worker();
    for _ in 0..3 {
        worker.enter_epoch().await.expect_err("a node is full");
    }
    let uncounted = clustered.add_to_all().await;
    assert!(
        uncounted > 0 && uncounted < ITEMS / 2,
        "{uncounted} of {ITEMS} votes have no count"
    );
    eventually("the others' counts are saved", async || {
        worker.flush().await.ok();
        let mut saved = 0;
        for item in clustered.items.clone() {
            saved += usize::from(clustered.tally.saved_count(item).await == 2);
        }
        (saved >= ITEMS / 2).then_some(())
    })
    .await;
    // No mark is left behind.
    for node in &clustered.cluster.nodes {
        let mut connection = redis_connection(&node.url()).await.expect("it answers");
        let marks = redis::cmd("KEYS")
            .arg("*entering*")
            .query_async(&mut connection)
            .await;
        let marks: Vec<String> = marks.expect("keys");
        assert_eq!(marks, Vec::<String>::new());
    }
    let limit = "CONFIG SET maxmemory 0";
    clustered.send(owner, limit).await.expect("it takes writes");
    clustered.until_counted().await;
    clustered.assert_exact().await;
}

/// One of its buckets is on a node that was replaced, and the server has not heard of it.
#[tokio::test(flavor = "multi_thread")]
async fn votes_of_a_server_that_counts_in_a_replaced_node_are_left_to_recovery_and_the_node_s_counts_are_not_shown()
 {
    let mut clustered = Clustered::start().await;
    clustered.enter_epoch().await;
    clustered.until_counted().await;
    let pool = clustered.tally.pool.clone();
    worker_is_alive(&pool).await;
    let entry: String = sqlx::query_scalar("select entry from epoch_entry where bucket = 7")
        .fetch_one(&pool)
        .await
        .expect("the worker has entered it");
    sqlx::query("update epoch_entry set entry = 'x:5:another' where bucket = 7")
        .execute(&pool)
        .await
        .expect("the owner may");
    let given_up = async || -> Option<i64> {
        sqlx::query_scalar(
            "select count(*) from writer_connection
             where name not in (select application_name from pg_stat_activity)",
        )
        .fetch_one(&pool)
        .await
        .ok()
    };
    for _ in 0..3 {
        let before = given_up().await.expect("Postgres answers");
        eventually("its connections are given up", async || {
            clustered.add_to_all().await;
            (given_up().await? > before).then_some(())
        })
        .await;
    }
    let uncounted = clustered.add_to_all().await;
    assert!((1..ITEMS).contains(&uncounted), "{uncounted} of {ITEMS}");
    sqlx::query("update epoch_entry set entry = $1 where bucket = 7")
        .bind(entry)
        .execute(&pool)
        .await
        .expect("the owner may");
    eventually("all counts are shown again", async || {
        (clustered.add_to_all().await == 0).then_some(())
    })
    .await;
}
