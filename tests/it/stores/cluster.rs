//! A Redis Cluster: votes are counted by all of its nodes, and stay exact when nodes fail and slots move.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::Value;
use tally::app::StoreUrls;
use tally::dev::{PrivateCluster, PrivateRedis};
use tally::domain::ItemId;
use tally::ledger::Role;
use testkit::proxy::Proxy;
use testkit::stores::redis_connection;

use super::starts::assert_refuses;
use crate::helpers::eventually;
use crate::helpers::programs::{SYNC_WORKER, TALLY};
use crate::helpers::stores::Stores;
use crate::helpers::tally::Tally;

/// Items of all buckets, several of some.
const ITEMS: usize = 150;

struct Clustered {
    tally: Tally,
    cluster: PrivateCluster,
    items: Vec<ItemId>,
    /// How many votes each item has.
    votes: HashMap<ItemId, i64>,
}

/// What a node says of the nodes.
#[derive(Debug)]
struct Line {
    id: String,
    port: u16,
    /// Whether it is the one that was asked.
    is_own: bool,
    is_primary: bool,
    slots: Vec<(u16, u16)>,
}

impl Clustered {
    async fn start() -> Self {
        let (stores, cluster) = Stores::start().await.clustered().await;
        let leads = |role, urls: StoreUrls| StoreUrls {
            redis_url: cluster.login_url(role),
            ..urls
        };
        let tally = Tally::start_at(stores, leads, |_| {}).await;
        let mut items = Vec::new();
        for _ in 0..ITEMS {
            items.push(tally.item("x").await);
        }
        let votes = HashMap::new();
        Self {
            tally,
            cluster,
            items,
            votes,
        }
    }

    /// Casts a vote. Returns the live count.
    async fn add(&mut self, item: ItemId) -> Option<i64> {
        *self.votes.entry(item).or_default() += 1;
        self.tally.add(item, 1).await
    }

    /// Casts a vote on each item. Returns how many were not counted at once.
    async fn add_to_all(&mut self) -> usize {
        let mut uncounted = 0;
        for item in self.items.clone() {
            match self.add(item).await {
                Some(count) => assert_eq!(count, self.votes[&item], "{item}"),
                None => uncounted += 1,
            }
        }
        uncounted
    }

    /// Waits until each vote is counted at once.
    async fn until_counted(&mut self) {
        for item in self.items.clone() {
            let mut votes = 0;
            eventually("the vote is counted", async || {
                votes += 1;
                self.tally.add(item, 1).await
            })
            .await;
            *self.votes.entry(item).or_default() += votes;
        }
    }

    async fn enter_epoch(&self) {
        let worker = self.tally.worker();
        eventually("all epochs are entered", async || {
            matches!(worker.enter_epoch().await, Ok(None)).then_some(())
        })
        .await;
    }

    /// Whether all counts are exact once all is quiescent, without an audit.
    async fn assert_exact(&mut self) {
        self.enter_epoch().await;
        let worker = self.tally.worker();
        for item in self.items.clone() {
            let votes = self.votes.get(&item).copied().unwrap_or_default();
            eventually(&format!("{item} is saved with {votes} votes"), async || {
                worker.flush().await.ok()?;
                worker.roll_up().await.ok()?;
                (self.tally.saved_count(item).await == votes).then_some(())
            })
            .await;
        }
        assert_eq!(self.add_to_all().await, 0, "each vote is counted at once");
    }

    fn node(&mut self, port: u16) -> &mut PrivateRedis {
        let mut nodes = self.cluster.nodes.iter_mut();
        nodes.find(|node| node.port() == port).expect("a node")
    }

    async fn send(&self, port: u16, line: &str) -> redis::RedisResult<Value> {
        let node = self
            .cluster
            .nodes
            .iter()
            .find(|node| node.port() == port)
            .expect("a node");
        let mut connection = redis_connection(&node.url()).await.expect("it answers");
        let mut words = line.split(' ');
        let mut command = redis::cmd(words.next().expect("a word"));
        for word in words {
            command.arg(word);
        }
        command.query_async(&mut connection).await
    }

    /// What this node says of all.
    async fn nodes(&self, asked: u16) -> Vec<Line> {
        let reply = self.send(asked, "CLUSTER NODES").await.expect("it answers");
        let text: String = redis::from_redis_value(reply).expect("a text");
        let line = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            let port = words[1].split_once('@')?.0.rsplit_once(':')?.1.parse().ok()?;
            let range = |word: &&str| {
                let (from, to) = word.split_once('-').unwrap_or((word, word));
                Some((from.parse().ok()?, to.parse().ok()?))
            };
            Some(Line {
                id: words[0].to_owned(),
                port,
                is_own: words[2].contains("myself"),
                is_primary: words[2].contains("master"),
                slots: words[8..].iter().filter_map(range).collect(),
            })
        };
        text.lines().filter_map(line).collect()
    }

    /// The primary that has this slot, as it says itself, and is not this one.
    async fn owner(&self, slot: u16, not: u16) -> Option<Line> {
        let running = self
            .cluster
            .nodes
            .iter()
            .filter(|node| node.process_id().is_some());
        for port in running.map(PrivateRedis::port).filter(|port| *port != not) {
            let nodes = self.nodes(port).await;
            let own = nodes.into_iter().find(|node| node.is_own)?;
            // It may tell others the port of a proxy.
            let own = Line { port, ..own };
            let has = own.slots.iter().any(|(from, to)| (*from..=*to).contains(&slot));
            if has && own.is_primary {
                return Some(own);
            }
        }
        None
    }

    /// Kills the primary of this slot, and waits for another one.
    async fn fail_over(&mut self, slot: u16) {
        let before = self.owner(slot, 0).await.expect("an owner").port;
        self.node(before).crash().await;
        eventually("a replica is promoted", async || {
            self.owner(slot, before)
                .await
                .filter(|owner| owner.port != before)
        })
        .await;
    }

    /// Begins to move a slot to another primary. Returns both.
    async fn begin_move(&self, slot: u16) -> (Line, Line) {
        let from = self.owner(slot, 0).await.expect("an owner");
        let others = self.nodes(from.port).await;
        let to = others
            .into_iter()
            .find(|node| node.is_primary && node.id != from.id);
        let to = to.expect("another primary");
        let importing = format!("CLUSTER SETSLOT {slot} IMPORTING {}", from.id);
        self.send(to.port, &importing).await.expect("it takes the slot");
        let migrating = format!("CLUSTER SETSLOT {slot} MIGRATING {}", to.id);
        self.send(from.port, &migrating).await.expect("it gives the slot");
        (from, to)
    }

    /// Moves up to so many keys.
    async fn move_keys(&self, slot: u16, (from, to): (&Line, &Line), number: usize) -> usize {
        self.move_those(slot, (from, to), number, |_| true).await
    }

    /// The same of those keys that are `wanted`.
    async fn move_those(
        &self,
        slot: u16,
        (from, to): (&Line, &Line),
        number: usize,
        wanted: impl Fn(&str) -> bool,
    ) -> usize {
        let reply = self
            .send(from.port, &format!("CLUSTER GETKEYSINSLOT {slot} {number}"))
            .await;
        let keys: Vec<String> = redis::from_redis_value(reply.expect("it answers")).expect("keys");
        let keys: Vec<String> = keys.into_iter().filter(|key| wanted(key)).collect();
        let secret = self.cluster.nodes[0].url();
        let (_, rest) = secret.split_once("://:").expect("a password");
        let (secret, _) = rest.split_once('@').expect("a host");
        for key in &keys {
            let migrate = format!("MIGRATE 127.0.0.1 {} {key} 0 5000 REPLACE AUTH {secret}", to.port);
            self.send(from.port, &migrate).await.expect("the key moves");
        }
        keys.len()
    }

    async fn end_move(&self, slot: u16, to: &Line) {
        let node = format!("CLUSTER SETSLOT {slot} NODE {}", to.id);
        self.send(to.port, &node).await.expect("the slot has moved");
        // The others hear of it from this one. One that still has keys refuses to hear it from a command.
        eventually("the slot has moved", async || {
            self.owner(slot, 0).await.filter(|owner| owner.id == to.id)
        })
        .await;
    }
}

/// The slot of the bucket of items 1, 17, …, whose tag is Bh.
const SLOT: u16 = 1536;

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
        proxy.lose_answer("{Bh}1\r\n").await;
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
    clustered.until_counted().await;
    clustered.enter_epoch().await;
    clustered.add_to_all().await;
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
    clustered.until_counted().await;
    clustered.enter_epoch().await;
    clustered.add_to_all().await;
    let successor = clustered.owner(SLOT, from.port).await.expect("an owner");
    clustered.move_keys(SLOT, (&to, &successor), 100).await;
    let stable = format!("CLUSTER SETSLOT {SLOT} STABLE");
    clustered
        .send(to.port, &stable)
        .await
        .expect("the slot is closed");
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
