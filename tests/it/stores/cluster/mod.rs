//! A Redis Cluster: votes are counted by all of its nodes, and stay exact when nodes fail and slots move.

mod failures;
mod growth;
mod open_slots;
mod tls;

use std::collections::HashMap;

use redis::Value;
use reqwest::StatusCode;
use serde_json::json;
use tally::app::StoreUrls;
use tally::dev::{PrivateCluster, PrivateRedis};
use tally::domain::ItemId;
use tally::ledger::Role;
use tally::live::BUCKETS;
use testkit::stores::redis_connection;

use crate::helpers::eventually;
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
        let by_address = |cluster: &PrivateCluster, role| cluster.login_url(role);
        Self::start_at(stores, cluster, by_address).await
    }

    /// The same with these stores. Programs find the Cluster by this URL of their role.
    async fn start_at(
        stores: Stores,
        cluster: PrivateCluster,
        url: impl Fn(&PrivateCluster, Role) -> String,
    ) -> Self {
        let leads = |role, urls: StoreUrls| StoreUrls {
            redis_url: url(&cluster, role).into(),
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
        self.add_to_each().await.len()
    }

    /// The same. Returns those that were not counted at once.
    async fn add_to_each(&mut self) -> Vec<ItemId> {
        let mut uncounted = Vec::new();
        for item in self.items.clone() {
            match self.add(item).await {
                Some(count) => assert_eq!(count, self.votes[&item], "{item}"),
                None => uncounted.push(item),
            }
        }
        uncounted
    }

    /// Casts a vote on each item in one batch. Returns the items that were not counted at once.
    async fn add_batch(&mut self) -> Vec<ItemId> {
        let votes: Vec<_> = self.items.iter().map(|item| json!({ "item_id": item })).collect();
        let (status, answer) = self.tally.post("/v1/votes", &json!({ "votes": votes })).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        let mut uncounted = Vec::new();
        for (item, result) in self
            .items
            .iter()
            .zip(answer["results"].as_array().expect("results"))
        {
            assert_eq!(result["status"], 201, "{result}");
            let votes = self.votes.entry(*item).or_default();
            *votes += 1;
            match result["vote_count"].as_i64() {
                Some(count) => assert_eq!(count, *votes, "{item}"),
                None => uncounted.push(*item),
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
        // What was suspect loses its counter once more.
        eventually("nothing is suspect", async || {
            let (_, status) = self.tally.get("/v1/status").await;
            (status["suspect_items"] == 0).then_some(())
        })
        .await;
        // On a busy machine, items whose counters are gone are cold by now: their first vote is not counted at once.
        self.until_counted().await;
        let uncounted = self.add_to_each().await;
        let (_, status) = self.tally.get("/v1/status").await;
        assert_eq!(uncounted, [], "each vote is counted at once: {status}");
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

    /// Whether the primary of this slot knows that it is moving: Valkey tells replicas of a move, and Redis does not.
    async fn knows_of_move(&self, slot: u16) -> bool {
        let owner = self.owner(slot, 0).await.expect("an owner");
        let nodes = self.send(owner.port, "CLUSTER NODES").await;
        let nodes: String = redis::from_redis_value(nodes.expect("it answers")).expect("a text");
        nodes.contains(&format!("[{slot}->-"))
    }

    /// Waits until no node misses another: then no replica is about to be promoted.
    async fn until_none_is_missed(&self) {
        eventually("no node misses another", async || {
            for node in &self.cluster.nodes {
                let nodes = self.send(node.port(), "CLUSTER NODES").await.ok()?;
                let nodes: String = redis::from_redis_value(nodes).ok()?;
                if nodes.contains("fail") {
                    return None;
                }
            }
            Some(())
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
        let secret = self.cluster.secret();
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

/// The slot of the bucket of items 1, 13, …, whose tag is 7X.
const SLOT: u16 = 2047;

/// Whether the item's bucket has that slot.
fn is_of_slot(item: ItemId) -> bool {
    item.get() % i64::from(BUCKETS) == 1
}
