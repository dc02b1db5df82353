//! Every reply of every Lua script, and what each leaves behind.

use std::collections::BTreeMap;

use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, Value};
use tally::domain::{Snapshot, TransactionId};

use crate::helpers::stores::Stores;

macro_rules! script {
    ($name:literal) => {
        include_str!(concat!("../../lua/", $name, ".lua"))
    };
}

const KEY: &str = "item:{1}";
const LEASE_LIMIT_MS: &str = "10000";

/// The scripts on one key of one Redis.
struct Scripts {
    connection: MultiplexedConnection,
    _stores: Stores,
}

#[derive(Debug, PartialEq)]
enum Counted {
    Count(i64),
    Miss(String),
}

#[derive(Debug, PartialEq)]
struct Peeked {
    now: i64,
    count: Option<i64>,
    rev: Option<i64>,
    saved: Option<i64>,
    seeded: Option<i64>,
    recount: Option<String>,
}

impl Scripts {
    async fn start() -> Self {
        let stores = Stores::start().await;
        Self {
            connection: stores.redis_connection().await,
            _stores: stores,
        }
    }

    async fn run(&mut self, code: &str, arguments: &[&str]) -> Value {
        let script = redis::Script::new(code);
        let mut call = script.key(KEY);
        for argument in arguments {
            call.arg(*argument);
        }
        call.invoke_async(&mut self.connection)
            .await
            .expect("the script runs")
    }

    async fn word(&mut self, code: &str, arguments: &[&str]) -> String {
        redis::from_redis_value(self.run(code, arguments).await).expect("a word")
    }

    async fn count(&mut self, delta: i64, xid: i64) -> Counted {
        let arguments = [&delta.to_string(), &xid.to_string(), "nonce", LEASE_LIMIT_MS];
        match self.run(script!("count"), &arguments).await {
            Value::Int(count) => Counted::Count(count),
            other => {
                let (word, lease): (String, String) = redis::from_redis_value(other).expect("a miss");
                assert_eq!(word, "MISS");
                Counted::Miss(lease)
            }
        }
    }

    async fn lease(&mut self) -> String {
        match self.count(1, 100).await {
            Counted::Miss(lease) => lease,
            Counted::Count(count) => panic!("there is a count: {count}"),
        }
    }

    async fn seed(&mut self, count: i64, fence: &str, lease: &str, counted_at: i64) -> String {
        let arguments = [&count.to_string(), fence, lease, &counted_at.to_string()];
        self.word(script!("seed"), &arguments).await
    }

    /// A fresh count of 5 under the fence 100:110:105.
    async fn seeded(&mut self) -> i64 {
        let lease = self.lease().await;
        assert_eq!(self.seed(5, "100:110:105", &lease, 0).await, "SEEDED");
        self.rev().await
    }

    async fn peek(&mut self) -> Peeked {
        let (now, count, rev, saved, seeded, recount) =
            redis::from_redis_value(self.run(script!("peek"), &[]).await).expect("six parts");
        Peeked {
            now,
            count,
            rev,
            saved,
            seeded,
            recount,
        }
    }

    async fn rev(&mut self) -> i64 {
        self.peek().await.rev.expect("a rev")
    }

    async fn mark_saved(&mut self, rev: i64) -> String {
        self.word(script!("mark_saved"), &[&rev.to_string()]).await
    }

    async fn expire(&mut self, rev: i64, retention_us: i64) -> String {
        self.word(script!("expire"), &[&rev.to_string(), &retention_us.to_string()])
            .await
    }

    async fn invalidate(&mut self, token: &str) -> String {
        self.word(script!("invalidate"), &[token]).await
    }

    async fn recounted(&mut self, token: &str) -> String {
        self.word(script!("recounted"), &[token, LEASE_LIMIT_MS]).await
    }

    async fn fields(&mut self) -> BTreeMap<String, String> {
        self.connection.hgetall(KEY).await.expect("a hash")
    }

    async fn names(&mut self) -> Vec<String> {
        self.fields().await.into_keys().collect()
    }

    /// ms until the key goes away by itself; -1: never; -2: there is no key.
    async fn time_to_live_ms(&mut self) -> i64 {
        self.connection.pttl(KEY).await.expect("a time to live")
    }
}

#[tokio::test]
async fn count_leases_a_missing_count_and_gives_the_same_lease_to_all() {
    let mut scripts = Scripts::start().await;
    let first = scripts.count(1, 100).await;
    assert!(
        matches!(&first, Counted::Miss(lease) if lease.ends_with(":nonce")),
        "{first:?}"
    );
    assert_eq!(scripts.count(1, 101).await, first);
    assert_eq!(scripts.names().await, ["lease"]);
    let ttl = scripts.time_to_live_ms().await;
    assert!(ttl > 0 && ttl <= 10_000, "an unredeemed lease goes away: {ttl}");
}

#[tokio::test]
async fn count_replaces_a_lease_that_is_older_than_its_limit_even_beside_a_recount_token() {
    let mut scripts = Scripts::start().await;
    scripts.invalidate("token").await;
    let () = scripts
        .connection
        .hset(KEY, "lease", "1000000:old")
        .await
        .expect("a hash");
    let fresh = scripts.lease().await;
    assert!(fresh.ends_with(":nonce"), "{fresh}");
    assert_eq!(
        scripts.time_to_live_ms().await,
        -1,
        "a recount token never goes away by itself"
    );
}

#[tokio::test]
async fn count_adds_a_batch_the_fence_has_not_seen_and_skips_one_it_has() {
    let mut scripts = Scripts::start().await;
    let rev = scripts.seeded().await;
    assert_eq!(
        scripts.count(1, 99).await,
        Counted::Count(5),
        "below xmin: in the seed already"
    );
    assert_eq!(
        scripts.count(1, 104).await,
        Counted::Count(5),
        "below xmax, not running: in the seed"
    );
    assert_eq!(scripts.rev().await, rev, "what is skipped changes nothing");
    assert_eq!(
        scripts.count(2, 105).await,
        Counted::Count(7),
        "was running: not in the seed"
    );
    assert_eq!(
        scripts.count(-3, 110).await,
        Counted::Count(4),
        "xmax: not in the seed"
    );
    assert!(scripts.rev().await > rev);
}

#[tokio::test]
async fn count_and_the_ledgers_types_agree_on_what_a_fence_has_seen() {
    let mut scripts = Scripts::start().await;
    let fence = "100:110:101,105,1050";
    let lease = scripts.lease().await;
    scripts.seed(0, fence, &lease, 0).await;
    let snapshot = Snapshot::parse(fence).expect("a snapshot");
    let mut count = 0;
    for xid in 95..115 {
        count += i64::from(!snapshot.sees(TransactionId(xid)));
        assert_eq!(scripts.count(1, xid).await, Counted::Count(count), "xid {xid}");
    }
}

#[tokio::test]
async fn count_of_nothing_reads_and_does_not_keep_the_count_alive() {
    let mut scripts = Scripts::start().await;
    let rev = scripts.seeded().await;
    assert_eq!(scripts.count(0, 200).await, Counted::Count(5));
    assert_eq!(scripts.rev().await, rev);
}

#[tokio::test]
async fn count_forces_the_rev_to_grow_when_the_clock_does_not() {
    let mut scripts = Scripts::start().await;
    scripts.seeded().await;
    let ahead = scripts.peek().await.now + 3_600_000_000;
    let () = scripts.connection.hset(KEY, "rev", ahead).await.expect("a hash");
    scripts.count(1, 200).await;
    assert_eq!(scripts.rev().await, ahead + 1);
}

#[tokio::test]
async fn seed_makes_an_unsaved_count_that_stays() {
    let mut scripts = Scripts::start().await;
    scripts.seeded().await;
    assert_eq!(scripts.names().await, ["count", "fence", "rev", "seeded"]);
    assert_eq!(scripts.time_to_live_ms().await, -1);
}

#[tokio::test]
async fn seed_says_retry_when_there_is_a_count_or_the_lease_is_another() {
    let mut scripts = Scripts::start().await;
    let lease = scripts.lease().await;
    assert_eq!(scripts.seed(9, "1:1:", "another", 0).await, "RETRY");
    assert_eq!(scripts.seed(5, "1:1:", &lease, 0).await, "SEEDED");
    assert_eq!(scripts.seed(9, "1:1:", &lease, 0).await, "RETRY");
    assert_eq!(scripts.peek().await.count, Some(5));
}

#[tokio::test]
async fn seed_puts_the_rev_above_the_items_counted_at() {
    let mut scripts = Scripts::start().await;
    let lease = scripts.lease().await;
    let ahead = scripts.peek().await.now + 3_600_000_000;
    scripts.seed(5, "1:1:", &lease, ahead).await;
    assert_eq!(scripts.rev().await, ahead + 1);
}

#[tokio::test]
async fn peek_tells_all_and_changes_nothing() {
    let mut scripts = Scripts::start().await;
    let nothing = scripts.peek().await;
    assert_eq!(
        (
            nothing.count,
            nothing.rev,
            nothing.saved,
            nothing.seeded,
            nothing.recount
        ),
        (None, None, None, None, None)
    );
    assert_eq!(scripts.time_to_live_ms().await, -2, "peeking makes no key");
    scripts.invalidate("token").await;
    let rev = scripts.seeded().await;
    scripts.mark_saved(rev).await;
    let before = scripts.fields().await;
    let all = scripts.peek().await;
    assert_eq!(
        (all.count, all.rev, all.saved, all.recount.as_deref()),
        (Some(5), Some(rev), Some(rev), Some("token"))
    );
    assert!(all.seeded.is_some_and(|seeded| seeded <= all.now));
    assert_eq!(scripts.fields().await, before);
}

#[tokio::test]
async fn mark_saved_marks_only_the_rev_that_was_peeked() {
    let mut scripts = Scripts::start().await;
    let rev = scripts.seeded().await;
    scripts.count(1, 200).await;
    assert_eq!(scripts.mark_saved(rev).await, "CHANGED");
    assert_eq!(scripts.peek().await.saved, None);
    let rev = scripts.rev().await;
    assert_eq!(scripts.mark_saved(rev).await, "SAVED");
    scripts.invalidate("token").await;
    assert_eq!(scripts.mark_saved(rev).await, "CHANGED");
    assert_eq!(scripts.names().await, ["recount"], "marking makes no count");
}

#[tokio::test]
async fn expire_drops_only_what_is_saved_unchanged_and_idle() {
    let mut scripts = Scripts::start().await;
    let rev = scripts.seeded().await;
    assert_eq!(scripts.expire(rev, 0).await, "KEPT", "not saved");
    scripts.mark_saved(rev).await;
    assert_eq!(
        scripts.expire(rev, 3_600_000_000).await,
        "KEPT",
        "not idle for long enough"
    );
    assert_eq!(scripts.expire(rev - 1, 0).await, "KEPT", "another rev was peeked");
    scripts.count(1, 200).await;
    assert_eq!(scripts.expire(rev, 0).await, "KEPT", "changed since it was saved");
    let rev = scripts.rev().await;
    scripts.mark_saved(rev).await;
    assert_eq!(scripts.expire(rev, 0).await, "EXPIRED");
    assert_eq!(scripts.time_to_live_ms().await, -2, "nothing is left");
}

#[tokio::test]
async fn expire_leaves_a_recount_token() {
    let mut scripts = Scripts::start().await;
    scripts.invalidate("token").await;
    let rev = scripts.seeded().await;
    scripts.mark_saved(rev).await;
    assert_eq!(scripts.expire(rev, 0).await, "EXPIRED");
    assert_eq!(scripts.names().await, ["recount"]);
}

#[tokio::test]
async fn invalidate_drops_count_and_lease_and_asks_for_a_recount_that_stays() {
    let mut scripts = Scripts::start().await;
    let rev = scripts.seeded().await;
    scripts.mark_saved(rev).await;
    assert_eq!(scripts.invalidate("first").await, "INVALIDATED");
    assert_eq!(scripts.names().await, ["recount"]);
    let lease = scripts.lease().await;
    assert_eq!(scripts.invalidate("second").await, "INVALIDATED");
    assert_eq!(scripts.peek().await.recount.as_deref(), Some("second"));
    assert_eq!(
        scripts.seed(9, "1:1:", &lease, 0).await,
        "RETRY",
        "the lease was from before the doubt"
    );
    assert_eq!(scripts.time_to_live_ms().await, -1);
}

#[tokio::test]
async fn recounted_clears_only_the_token_that_was_peeked() {
    let mut scripts = Scripts::start().await;
    scripts.invalidate("first").await;
    scripts.invalidate("second").await;
    assert_eq!(scripts.recounted("first").await, "CHANGED");
    assert_eq!(scripts.recounted("second").await, "RECOUNTED");
    assert_eq!(scripts.recounted("second").await, "CHANGED");
    assert_eq!(scripts.time_to_live_ms().await, -2);
}

#[tokio::test]
async fn recounted_lets_a_lease_beside_the_token_go_away_again() {
    let mut scripts = Scripts::start().await;
    scripts.invalidate("token").await;
    scripts.lease().await;
    assert_eq!(scripts.time_to_live_ms().await, -1);
    scripts.recounted("token").await;
    assert!(scripts.time_to_live_ms().await > 0);
}

#[tokio::test]
async fn advance_gives_each_page_to_one_worker() {
    let mut scripts = Scripts::start().await;
    let code = script!("advance");
    assert_eq!(scripts.word(code, &["0", "17"]).await, "CLAIMED");
    assert_eq!(scripts.word(code, &["0", "17"]).await, "TAKEN");
    assert_eq!(scripts.word(code, &["17", "0"]).await, "CLAIMED");
    assert_eq!(scripts.word(code, &["0", "17"]).await, "CLAIMED");
}
