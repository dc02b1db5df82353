//! Key prefixes: two Tallys and a stranger share one Redis, be it alone, watched by Sentinels, or a Cluster.
//! Nothing that one Tally does changes a key of another owner.

use std::collections::BTreeMap;
use std::time::Duration;

use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use serde_json::{Value, json};
use tally::app::{self, StoreUrls};
use tally::dev::PrivateRedis;
use tally::domain::ItemId;
use tally::sync::{Repair, SyncOptions, Worker};
use tally::web::access::{AccessOptions, Open, VotingOptions};
use tally::web::{ClientLimits, ServerOptions};
use testkit::stores::redis_connection;

use crate::helpers::eventually;
use crate::helpers::metrics::metrics;
use crate::helpers::stores::Stores;
use crate::helpers::tally::{made_item, options, server_ledger};

/// A server and a worker with a prefix and a database of their own.
struct OneTally {
    prefix: &'static str,
    base: String,
    worker: Worker,
    items: Vec<ItemId>,
}

impl OneTally {
    async fn start(redis_url: &str, database_url: &str, prefix: &'static str) -> Self {
        let urls = StoreUrls {
            database_url: database_url.into(),
            redis_url: redis_url.into(),
            key_prefix: prefix.parse().expect("a prefix"),
        };
        let server_options = ServerOptions {
            listen: "127.0.0.1:0".parse().expect("an address"),
            shutdown_limit: Duration::from_secs(10),
            drain_for: None,
            clients: ClientLimits::with_connections(16),
            access: AccessOptions {
                open: Open::ALL,
                ..AccessOptions::default()
            },
            voting: VotingOptions::default(),
            seeding: tally::live::Seeding::Warm,
            operator: None,
            cells: tally::domain::Cells::ONE,
        };
        let server = app::server(&urls, server_options, "test server", metrics()).expect("a free port");
        let base = format!("http://{}", server.address().expect("an address"));
        tokio::spawn(server.run(std::future::pending()));
        let worker_options = SyncOptions {
            retention: Some(Duration::ZERO),
            ..options()
        };
        let worker = app::worker(&urls, worker_options, "test worker").expect("URLs");
        let ledger = server_ledger(database_url);
        let mut items = Vec::new();
        // Item ids begin at 1 in each database. So both Tallys have the same ids.
        for _ in 0..6 {
            items.push(made_item(&ledger, "x").await);
        }
        let tally = Self {
            prefix,
            base,
            worker,
            items,
        };
        eventually("the server is ready", async || {
            (tally.get("/health/ready").await["status"] == "ready").then_some(())
        })
        .await;
        tally
    }

    async fn get(&self, path: &str) -> Value {
        let answer = reqwest::get(format!("{}{path}", self.base))
            .await
            .expect("an answer");
        answer.json().await.expect("JSON")
    }

    /// Votes on each item. Retries a vote that was refused as not stored.
    /// On a busy machine, a batch writer's first connection may take longer than its limit.
    async fn vote(&self) {
        let client = reqwest::Client::builder().no_proxy().build().expect("a client");
        for item in &self.items {
            eventually("the vote is stored", async || {
                // Who was read just now gets a live count, however busy the machine is.
                self.get(&format!("/v1/items/{item}")).await;
                let answer = client
                    .post(format!("{}/v1/items/{item}/votes", self.base))
                    .json(&json!({}))
                    .send()
                    .await
                    .expect("an answer");
                let is_stored = answer.status().is_success();
                let body: Value = answer.json().await.expect("JSON");
                assert!(is_stored || body["stored"] == "no", "{body}");
                is_stored.then_some(())
            })
            .await;
        }
    }

    /// Whether the table of keys gives this key to this Tally.
    fn owns(&self, key: &str) -> bool {
        let Some(rest) = key.strip_prefix(self.prefix) else {
            return false;
        };
        let is_nonce = |nonce: &str| nonce.bytes().all(|byte| byte.is_ascii_hexdigit());
        [
            "cold",
            "epoch",
            "moved",
            "owner",
            "scan",
            "unsaved",
            "unsaved_scan",
        ]
        .contains(&rest)
            || rest.strip_prefix("entering:").is_some_and(is_nonce)
            || rest.starts_with('{')
    }
}

/// The Redis that they share: its primaries.
struct Shared {
    nodes: Vec<MultiplexedConnection>,
    /// How programs find them.
    url: String,
}

impl Shared {
    async fn at(addresses: &[String], url: String) -> Self {
        let mut nodes = Vec::new();
        for address in addresses {
            let mut node = redis_connection(address).await.expect("Redis answers");
            let role: Vec<redis::Value> = redis::cmd("ROLE").query_async(&mut node).await.expect("a role");
            let role: String = redis::from_redis_value(role[0].clone()).expect("a word");
            if role == "master" {
                nodes.push(node);
            }
        }
        Self { nodes, url }
    }

    /// Each key with its value, its type, and whether it expires.
    async fn keys(&mut self) -> BTreeMap<String, (Vec<u8>, bool)> {
        let mut all = BTreeMap::new();
        for node in &mut self.nodes {
            let names: Vec<String> = node.keys("*").await.expect("keys");
            for name in names {
                let dump: Vec<u8> = redis::cmd("DUMP")
                    .arg(&name)
                    .query_async(node)
                    .await
                    .expect("a value");
                let time_to_live: i64 = node.pttl(&name).await.expect("a time to live");
                all.insert(name, (dump, time_to_live > 0));
            }
        }
        all
    }

    /// Gives a Tally another epoch, or none.
    async fn change_epochs(&mut self, tally: &OneTally, to: Option<&str>) {
        let mut changed = 0;
        for node in &mut self.nodes {
            let names: Vec<String> = node.keys("*epoch").await.expect("keys");
            for name in names.into_iter().filter(|name| tally.owns(name)) {
                let () = match to {
                    Some(epoch) => node.set(name, epoch).await,
                    None => node.del(name).await,
                }
                .expect("Redis answers");
                changed += 1;
            }
        }
        assert!(changed > 0, "{} has an epoch", tally.prefix);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_tallys_and_a_stranger_share_one_redis_without_harm() {
    let stores = Stores::start().await;
    let url = stores.redis_url();
    share_without_harm(&stores, Shared::at(std::slice::from_ref(&url), url.clone()).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_tallys_and_a_stranger_share_a_redis_that_sentinels_watch_without_harm() {
    let (stores, watched) = Stores::start().await.watched().await;
    let address = stores.redis_url();
    let url = watched.sentinels.url(&address);
    share_without_harm(&stores, Shared::at(&[address], url).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_tallys_and_a_stranger_share_a_redis_cluster_without_harm() {
    let (stores, cluster) = Stores::start().await.clustered().await;
    let addresses: Vec<String> = cluster.nodes.iter().map(PrivateRedis::url).collect();
    share_without_harm(&stores, Shared::at(&addresses, cluster.url()).await).await;
}

/// The second prefix begins with the first one, and looks like a key of it.
async fn share_without_harm(stores: &Stores, mut shared: Shared) {
    let mut strangers = 0;
    for node in &mut shared.nodes {
        // A node of a Cluster takes keys of its own slots alone.
        for key in ["item:{5}", "{5}", "tally:x", "tally:5", "tall:{5}"] {
            let set: redis::RedisResult<()> = node.hset(key, "count", "1").await;
            strangers += usize::from(set.is_ok());
        }
        for key in ["tally:scanned", "epoch", "scan"] {
            let set: redis::RedisResult<()> = node.set(key, "a stranger's").await;
            strangers += usize::from(set.is_ok());
        }
    }
    assert_eq!(strangers, 8);
    let other = stores
        .postgres
        .create_database("other")
        .await
        .expect("a database");
    app::migrate(&other, "test").await.expect("the migrations run");
    let tallys = [
        OneTally::start(&shared.url, &stores.database_url, "tally:").await,
        OneTally::start(&shared.url, &other, "tally:entering:").await,
    ];
    // Both have every kind of key, and live counts.
    for tally in &tallys {
        tally.worker.enter_epoch().await.expect("an epoch");
        tally.vote().await;
        tally.worker.flush_shared().await.expect("a flush");
    }
    for tally in &tallys {
        for what in [
            "vote",
            "flush",
            "expire",
            "vote",
            "epoch",
            "flush",
            "vote",
            "audit",
            "share",
            "wiped epoch",
        ] {
            let before = shared.keys().await;
            match what {
                "vote" => tally.vote().await,
                "flush" | "expire" => {
                    tally.worker.flush().await.expect("a flush");
                }
                "share" => {
                    tally.worker.flush_shared().await.expect("a flush");
                }
                "audit" => {
                    tally.worker.audit(Repair::Yes).await.expect("an audit");
                }
                _ => {
                    let epoch = (what == "epoch").then_some("another");
                    shared.change_epochs(tally, epoch).await;
                    assert!(tally.worker.enter_epoch().await.expect("an epoch").is_some());
                }
            }
            let after = shared.keys().await;
            let of_others = |keys: &BTreeMap<String, (Vec<u8>, bool)>| {
                let mut keys = keys.clone();
                keys.retain(|key, _| !tally.owns(key));
                keys
            };
            assert_eq!(
                of_others(&before),
                of_others(&after),
                "{what} of {}",
                tally.prefix
            );
            if !["audit", "share"].contains(&what) {
                assert_ne!(before, after, "{what} of {} changes its own keys", tally.prefix);
            }
        }
    }
    for tally in &tallys {
        tally.worker.flush_until_quiescent().await.expect("a flush");
        for item in &tally.items {
            let answer = tally.get(&format!("/v1/items/{item}")).await;
            assert_eq!(
                (&answer["vote_count"], &answer["saved"]["vote_count"]),
                (&json!(4), &json!(4)),
                "{answer}"
            );
        }
    }
}
