//! Lua scripts: every reply of each, and what it leaves in Redis.
//! `states.rs` goes through all kinds of states, and fails for a reply that none of its calls has.

use std::collections::BTreeMap;

use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, FromRedisValue, Value};
use tally::live::CounterParts;
use testkit::counters;

use crate::helpers::stores::Stores;

/// A script, behind what reads and writes counters.
macro_rules! script {
    ($name:literal) => {
        concat!(
            include_str!("../../../../lua/counter.lua"),
            include_str!(concat!("../../../../lua/", $name, ".lua"))
        )
    };
}

mod counting;
mod documented;
mod rebuilding;
mod saving;
mod several;
mod states;
mod throttle;

const KEY: &str = "tally:{1}";
const INDEX: &str = "tally:unsaved";
const COLD: &str = "tally:cold";
const LEASE_LIMIT_MS: &str = "10000";

/// The scripts on one key of a Redis.
struct Scripts {
    connection: MultiplexedConnection,
    stores: Stores,
}

#[derive(Debug, PartialEq)]
enum Counted {
    Count(i64),
    Miss(String),
    Cold,
}

fn counted(reply: Value) -> Counted {
    if let Value::Int(count) = reply {
        return Counted::Count(count);
    }
    if reply == Value::BulkString(b"COLD".to_vec()) {
        return Counted::Cold;
    }
    let (word, lease): (String, String) = redis::from_redis_value(reply).expect("a miss");
    assert_eq!(word, "MISS");
    Counted::Miss(lease)
}

/// The parts of a counter that are not absent, by name.
fn named(parts: &CounterParts) -> BTreeMap<String, String> {
    let number = |number: i64| (number != 0).then(|| number.to_string());
    let text = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let all = [
        ("count", parts.live().map(|count| count.net.to_string())),
        ("downs", number(parts.downs)),
        ("revision", number(parts.revision)),
        ("saved", number(parts.saved)),
        ("xmax", number(parts.xmax)),
        ("seeded", number(parts.seeded.into())),
        ("lease", text(&parts.lease)),
        ("request", text(&parts.request)),
        ("snapshot", text(&parts.snapshot)),
    ];
    let present = all
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)));
    present.collect()
}

impl Scripts {
    async fn start() -> Self {
        let stores = Stores::start().await;
        Self {
            connection: stores.redis_connection().await,
            stores,
        }
    }

    /// A script's whole reply for these keys.
    async fn run<Reply: FromRedisValue>(&mut self, code: &str, keys: &[&str], arguments: &[&str]) -> Reply {
        let script = redis::Script::new(code);
        let mut call = script.prepare_invoke();
        for key in keys {
            call.key(*key);
        }
        for argument in arguments {
            call.arg(*argument);
        }
        call.invoke_async(&mut self.connection)
            .await
            .expect("the script runs")
    }

    /// A script's reply for [`KEY`], as a word.
    async fn word(&mut self, code: &str, arguments: &[&str]) -> String {
        let [word]: [String; 1] = self.run(code, &[INDEX, KEY], arguments).await;
        word
    }

    /// Counts a vote on a warm item.
    async fn count(&mut self, delta: i64, xid: i64) -> Counted {
        self.count_as(&format!("{delta},0!"), xid).await
    }

    /// Counts this delta, in the form of the script's header.
    async fn count_as(&mut self, delta: &str, xid: i64) -> Counted {
        let arguments = [&xid.to_string(), "nonce", LEASE_LIMIT_MS, delta];
        let [reply]: [Value; 1] = self.run(script!("count"), &[INDEX, KEY, COLD], &arguments).await;
        counted(reply)
    }

    async fn lease(&mut self) -> String {
        match self.count(1, 100).await {
            Counted::Miss(lease) => lease,
            other => panic!("it is not leased: {other:?}"),
        }
    }

    async fn seed(&mut self, count: i64, snapshot: &str, lease: &str, counted_at: i64) -> String {
        let arguments = [&count.to_string(), "0", snapshot, lease, &counted_at.to_string()];
        self.word(script!("seed"), &arguments).await
    }

    /// Seeds a live count of 5, under the snapshot 100:110:105. Returns its revision.
    async fn seeded(&mut self) -> i64 {
        let lease = self.lease().await;
        assert_eq!(self.seed(5, "100:110:105", &lease, 0).await, "SEEDED");
        self.revision().await
    }

    async fn now(&mut self) -> i64 {
        let (seconds, micros): (i64, i64) = redis::cmd("TIME")
            .query_async(&mut self.connection)
            .await
            .expect("the time");
        seconds * 1_000_000 + micros
    }

    /// The counter's parts, and all absent if there is none.
    async fn parts(&mut self) -> CounterParts {
        counters::parts(&mut self.connection, KEY)
            .await
            .expect("Redis answers")
    }

    async fn change(&mut self, change: impl FnOnce(&mut CounterParts)) {
        counters::change(&mut self.connection, KEY, change)
            .await
            .expect("Redis answers");
    }

    async fn revision(&mut self) -> i64 {
        self.parts().await.revision
    }

    async fn request(&mut self) -> String {
        self.parts().await.request
    }

    async fn mark_saved(&mut self, revision: i64) -> String {
        self.word(script!("mark_saved"), &[&revision.to_string()]).await
    }

    async fn expire(&mut self, revision: i64, retention_us: i64) -> String {
        self.word(
            script!("expire"),
            &[&retention_us.to_string(), &revision.to_string()],
        )
        .await
    }

    async fn invalidate(&mut self, token: &str) -> String {
        self.invalidate_revision(token, "").await
    }

    /// Invalidates a count, if it has this revision.
    async fn invalidate_revision(&mut self, token: &str, revision: &str) -> String {
        self.word(script!("invalidate"), &[token, revision]).await
    }

    /// The claimed revision, or the word that refuses it.
    async fn claim_rebuild(&mut self, token: &str, counted_at: i64) -> Result<i64, String> {
        let arguments = [token, &counted_at.to_string()];
        let [reply]: [Value; 1] = self
            .run(script!("claim_rebuild"), &[INDEX, KEY], &arguments)
            .await;
        if !matches!(reply, Value::Array(_)) {
            return Err(redis::from_redis_value(reply).expect("a word"));
        }
        let (word, revision): (String, i64) = redis::from_redis_value(reply).expect("a claim");
        assert_eq!(word, "CLAIMED");
        Ok(revision)
    }

    async fn clear_rebuild(&mut self, token: &str) -> String {
        self.word(script!("clear_rebuild"), &[LEASE_LIMIT_MS, token])
            .await
    }

    /// The parts that are not absent, by name.
    async fn named(&mut self) -> BTreeMap<String, String> {
        named(&self.parts().await)
    }

    async fn is_in_the_index(&mut self) -> bool {
        self.connection.sismember(INDEX, KEY).await.expect("a set")
    }

    /// Removes everything.
    async fn clear(&mut self) {
        let () = self.connection.del(&[KEY, INDEX]).await.expect("Redis answers");
    }

    async fn names(&mut self) -> Vec<String> {
        self.named().await.into_keys().collect()
    }

    /// The ms until Redis removes the key; -1: never; -2: there is no key.
    async fn time_to_live_ms(&mut self) -> i64 {
        self.connection.pttl(KEY).await.expect("a time to live")
    }
}
