//! Every reply of every Lua script, and what each leaves in Redis. `hash.rs` goes through all
//! kinds of states, and fails for a reply that no call there has.

use std::collections::BTreeMap;

use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, FromRedisValue, Value};
use tally::domain::{ItemId, Revision, Snapshot, TransactionId};
use tally::live::{CALL_LIMIT_KEYS, Marked};

use crate::helpers::stores::Stores;
use crate::helpers::tally::counters;

macro_rules! script {
    ($name:literal) => {
        include_str!(concat!("../../../lua/", $name, ".lua"))
    };
}

mod hash;

const KEY: &str = "tally:{1}";
const INDEX: &str = "tally:unsaved";
const LEASE_LIMIT_MS: &str = "10000";

/// The scripts on one key of one Redis.
struct Scripts {
    connection: MultiplexedConnection,
    stores: Stores,
}

#[derive(Debug, PartialEq)]
enum Counted {
    Count(i64),
    Miss(String),
}

fn counted(reply: Value) -> Counted {
    if let Value::Int(count) = reply {
        return Counted::Count(count);
    }
    let (word, lease): (String, String) = redis::from_redis_value(reply).expect("a miss");
    assert_eq!(word, "MISS");
    Counted::Miss(lease)
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

    /// A script's reply for [`KEY`], a word.
    async fn word(&mut self, code: &str, arguments: &[&str]) -> String {
        let [word]: [String; 1] = self.run(code, &[INDEX, KEY], arguments).await;
        word
    }

    async fn count(&mut self, delta: i64, xid: i64) -> Counted {
        let arguments = [&xid.to_string(), "nonce", LEASE_LIMIT_MS, &delta.to_string()];
        let [reply]: [Value; 1] = self.run(script!("count"), &[INDEX, KEY], &arguments).await;
        counted(reply)
    }

    async fn lease(&mut self) -> String {
        match self.count(1, 100).await {
            Counted::Miss(lease) => lease,
            Counted::Count(count) => panic!("there is a count: {count}"),
        }
    }

    async fn seed(&mut self, count: i64, snapshot: &str, lease: &str, counted_at: i64) -> String {
        let arguments = [&count.to_string(), snapshot, lease, &counted_at.to_string()];
        self.word(script!("seed"), &arguments).await
    }

    /// A fresh live count of 5, under the snapshot 100:110:105. Returns its revision.
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

    async fn field<Field: FromRedisValue>(&mut self, name: &str) -> Option<Field> {
        self.connection.hget(KEY, name).await.expect("a field")
    }

    async fn revision(&mut self) -> i64 {
        self.field("rev").await.expect("a revision")
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

    /// Invalidates a count only if it has this revision.
    async fn invalidate_revision(&mut self, token: &str, revision: &str) -> String {
        self.word(script!("invalidate"), &[token, revision]).await
    }

    /// The claimed revision, or the word of a refusal.
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

    async fn set(&mut self, field: &str, value: i64) {
        let () = self.connection.hset(KEY, field, value).await.expect("a hash");
    }

    async fn clear_rebuild(&mut self, token: &str) -> String {
        self.word(script!("clear_rebuild"), &[LEASE_LIMIT_MS, token])
            .await
    }

    async fn fields(&mut self) -> BTreeMap<String, String> {
        self.connection.hgetall(KEY).await.expect("a hash")
    }

    async fn names(&mut self) -> Vec<String> {
        self.fields().await.into_keys().collect()
    }

    /// ms until Redis removes the key; -1: never; -2: there is no key.
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
    assert!(ttl > 0 && ttl <= 10_000, "an unused lease goes away: {ttl}");
}

#[tokio::test]
async fn count_replaces_a_lease_that_is_too_old_also_beside_a_rebuild_request() {
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
        "a rebuild request never goes away by itself"
    );
}

#[tokio::test]
async fn count_adds_a_batch_that_the_snapshot_has_not_seen_and_skips_one_that_it_has() {
    let mut scripts = Scripts::start().await;
    let revision = scripts.seeded().await;
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
    assert_eq!(
        scripts.revision().await,
        revision,
        "what is skipped changes nothing"
    );
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
    assert!(scripts.revision().await > revision);
}

#[tokio::test]
async fn count_and_the_domain_agree_on_what_a_snapshot_has_seen() {
    let mut scripts = Scripts::start().await;
    let text = "100:110:101,105,1050";
    let lease = scripts.lease().await;
    scripts.seed(0, text, &lease, 0).await;
    let snapshot = Snapshot::parse(text).expect("a snapshot");
    let mut count = 0;
    for xid in 95..115 {
        count += i64::from(!snapshot.sees(TransactionId(xid)));
        assert_eq!(scripts.count(1, xid).await, Counted::Count(count), "xid {xid}");
    }
}

#[tokio::test]
async fn a_delta_of_0_reads_the_count_and_does_not_change_its_revision() {
    let mut scripts = Scripts::start().await;
    let revision = scripts.seeded().await;
    assert_eq!(scripts.count(0, 200).await, Counted::Count(5));
    assert_eq!(scripts.revision().await, revision);
}

#[tokio::test]
async fn count_makes_the_revision_grow_when_the_clock_does_not() {
    let mut scripts = Scripts::start().await;
    scripts.seeded().await;
    let ahead = scripts.now().await + 3_600_000_000;
    let () = scripts.connection.hset(KEY, "rev", ahead).await.expect("a hash");
    scripts.count(1, 200).await;
    assert_eq!(scripts.revision().await, ahead + 1);
}

#[tokio::test]
async fn seed_makes_an_unsaved_count_without_a_time_to_live() {
    let mut scripts = Scripts::start().await;
    scripts.seeded().await;
    assert_eq!(scripts.names().await, ["count", "rev", "seeded", "snap"]);
    assert_eq!(scripts.time_to_live_ms().await, -1);
}

#[tokio::test]
async fn seed_replies_retry_when_there_is_a_count_or_another_lease() {
    let mut scripts = Scripts::start().await;
    let lease = scripts.lease().await;
    assert_eq!(scripts.seed(9, "1:1:", "another", 0).await, "RETRY");
    assert_eq!(scripts.seed(5, "1:1:", &lease, 0).await, "SEEDED");
    assert_eq!(scripts.seed(9, "1:1:", &lease, 0).await, "RETRY");
    assert_eq!(scripts.field::<i64>("count").await, Some(5));
}

#[tokio::test]
async fn seed_makes_a_revision_above_the_items_counted_at() {
    let mut scripts = Scripts::start().await;
    let lease = scripts.lease().await;
    let ahead = scripts.now().await + 3_600_000_000;
    scripts.seed(5, "1:1:", &lease, ahead).await;
    assert_eq!(scripts.revision().await, ahead + 1);
}

#[tokio::test]
async fn mark_saved_marks_only_the_revision_that_was_read() {
    let mut scripts = Scripts::start().await;
    let revision = scripts.seeded().await;
    scripts.count(1, 200).await;
    assert_eq!(scripts.mark_saved(revision).await, "CHANGED");
    assert_eq!(scripts.field::<i64>("saved").await, None);
    let revision = scripts.revision().await;
    assert_eq!(scripts.mark_saved(revision).await, "SAVED");
    scripts.invalidate("token").await;
    assert_eq!(
        scripts.mark_saved(revision).await,
        "CHANGED",
        "the revision of a count that was dropped"
    );
    assert_eq!(
        scripts.names().await,
        ["rebuild", "rev"],
        "marking makes no count"
    );
}

#[tokio::test]
async fn mark_saved_clears_a_rebuild_request_that_its_count_was_seeded_after() {
    let mut scripts = Scripts::start().await;
    scripts.invalidate("token").await;
    let revision = scripts.seeded().await;
    assert_eq!(scripts.mark_saved(revision - 1).await, "CHANGED");
    assert_eq!(scripts.field::<String>("rebuild").await.as_deref(), Some("token"));
    assert_eq!(scripts.mark_saved(revision).await, "SAVED");
    assert_eq!(scripts.field::<String>("rebuild").await, None);
}

#[tokio::test]
async fn expire_drops_only_a_count_that_is_saved_unchanged_and_idle() {
    let mut scripts = Scripts::start().await;
    let revision = scripts.seeded().await;
    assert_eq!(scripts.expire(revision, 0).await, "KEPT", "not saved");
    scripts.mark_saved(revision).await;
    assert_eq!(
        scripts.expire(revision, 3_600_000_000).await,
        "KEPT",
        "not idle for long enough"
    );
    assert_eq!(
        scripts.expire(revision - 1, 0).await,
        "KEPT",
        "another revision was read"
    );
    scripts.count(1, 200).await;
    assert_eq!(
        scripts.expire(revision, 0).await,
        "KEPT",
        "changed since it was saved"
    );
    let revision = scripts.revision().await;
    scripts.mark_saved(revision).await;
    assert_eq!(scripts.expire(revision, 0).await, "EXPIRED");
    assert_eq!(scripts.time_to_live_ms().await, -2, "nothing is left");
}

#[tokio::test]
async fn expire_leaves_a_rebuild_request() {
    let mut scripts = Scripts::start().await;
    let revision = scripts.seeded().await;
    scripts.mark_saved(revision).await;
    // No script leaves a request beside a saved count. A script that did must not lose it.
    let () = scripts
        .connection
        .hset(KEY, "rebuild", "token")
        .await
        .expect("a hash");
    assert_eq!(scripts.expire(revision, 0).await, "EXPIRED");
    assert_eq!(scripts.names().await, ["rebuild"]);
}

#[tokio::test]
async fn invalidate_drops_count_and_lease_and_sets_a_rebuild_request_without_a_time_to_live() {
    let mut scripts = Scripts::start().await;
    let revision = scripts.seeded().await;
    scripts.mark_saved(revision).await;
    assert_eq!(scripts.invalidate("first").await, "INVALIDATED");
    assert_eq!(scripts.names().await, ["rebuild", "rev"]);
    assert_eq!(scripts.revision().await, revision);
    let lease = scripts.lease().await;
    assert_eq!(scripts.invalidate("second").await, "INVALIDATED");
    assert_eq!(
        scripts.field::<String>("rebuild").await.as_deref(),
        Some("second")
    );
    assert_eq!(
        scripts.seed(9, "1:1:", &lease, 0).await,
        "RETRY",
        "the lease is from before the invalidation"
    );
    assert_eq!(scripts.time_to_live_ms().await, -1);
    assert_eq!(
        scripts.revision().await,
        revision,
        "the second invalidation finds the floor of the first"
    );
}

#[tokio::test]
async fn invalidate_with_a_revision_leaves_another_count_alone() {
    let mut scripts = Scripts::start().await;
    let revision = scripts.seeded().await;
    let read = revision.to_string();
    scripts.count(1, 200).await;
    let before = scripts.fields().await;
    assert_eq!(
        scripts.invalidate_revision("token", &read).await,
        "CHANGED",
        "the count has changed"
    );
    assert_eq!(scripts.fields().await, before);
    let read = scripts.revision().await.to_string();
    assert_eq!(scripts.invalidate_revision("token", &read).await, "INVALIDATED");
    assert_eq!(
        scripts.invalidate_revision("another", &read).await,
        "CHANGED",
        "only the floor has this revision"
    );
    assert_eq!(scripts.field::<String>("rebuild").await.as_deref(), Some("token"));
}

#[tokio::test]
async fn seed_and_claim_rebuild_stay_above_the_floor_when_the_clock_is_behind() {
    let mut scripts = Scripts::start().await;
    scripts.seeded().await;
    let ahead = scripts.now().await + 3_600_000_000;
    scripts.set("rev", ahead).await;
    scripts.invalidate("token").await;
    assert_eq!(scripts.claim_rebuild("token", 0).await, Ok(ahead + 1));
    assert_eq!(
        scripts.claim_rebuild("token", 0).await,
        Ok(ahead + 2),
        "a claimed revision is not claimed again"
    );
    assert_eq!(
        scripts.claim_rebuild("token", ahead + 10).await,
        Ok(ahead + 11),
        "above counted_at too"
    );
    assert_eq!(scripts.seeded().await, ahead + 12);
}

#[tokio::test]
async fn claim_rebuild_claims_only_for_the_request_that_was_read_and_without_a_live_count() {
    let mut scripts = Scripts::start().await;
    let changed = Err("CHANGED".to_owned());
    assert_eq!(scripts.claim_rebuild("first", 0).await, changed);
    assert_eq!(scripts.time_to_live_ms().await, -2, "a refusal makes no key");
    scripts.invalidate("first").await;
    scripts.invalidate("second").await;
    assert_eq!(scripts.claim_rebuild("first", 0).await, changed);
    assert!(scripts.claim_rebuild("second", 0).await.is_ok());
    let revision = scripts.seeded().await;
    assert_eq!(scripts.claim_rebuild("second", 0).await, Err("LIVE".to_owned()));
    assert_eq!(
        scripts.revision().await,
        revision,
        "a refusal leaves the live count's revision"
    );
    assert_eq!(
        scripts.field::<String>("rebuild").await.as_deref(),
        Some("second"),
        "the live count is not saved yet"
    );
    scripts.set("saved", revision).await;
    assert_eq!(scripts.claim_rebuild("second", 0).await, Err("LIVE".to_owned()));
    assert_eq!(scripts.field::<String>("rebuild").await, None);
}

/// The exact count that the lease's holder has read may be from before the rebuild's write:
/// its `counted_at` may be below the revisions of counts that workers still have in hand.
#[tokio::test]
async fn clear_rebuild_keeps_the_floor_beside_a_lease() {
    let mut scripts = Scripts::start().await;
    scripts.seeded().await;
    let ahead = scripts.now().await + 3_600_000_000;
    scripts.set("rev", ahead).await;
    scripts.invalidate("token").await;
    let lease = scripts.lease().await;
    assert_eq!(scripts.claim_rebuild("token", 0).await, Ok(ahead + 1));
    assert_eq!(scripts.clear_rebuild("token").await, "CLEARED");
    assert!(
        scripts.time_to_live_ms().await > 0,
        "the floor goes away with the lease"
    );
    assert_eq!(scripts.seed(5, "1:1:", &lease, 0).await, "SEEDED");
    assert_eq!(scripts.revision().await, ahead + 2);
}

#[tokio::test]
async fn clear_rebuild_removes_a_floor_that_nobody_needs() {
    let mut scripts = Scripts::start().await;
    scripts.seeded().await;
    scripts.invalidate("token").await;
    assert_eq!(scripts.clear_rebuild("token").await, "CLEARED");
    assert_eq!(scripts.time_to_live_ms().await, -2, "nothing is left");
    // A live count keeps its revision.
    scripts.invalidate("token").await;
    let revision = scripts.seeded().await;
    assert_eq!(scripts.clear_rebuild("token").await, "CLEARED");
    assert_eq!(scripts.revision().await, revision);
}

#[tokio::test]
async fn clear_rebuild_clears_only_the_request_that_was_read() {
    let mut scripts = Scripts::start().await;
    scripts.invalidate("first").await;
    scripts.invalidate("second").await;
    assert_eq!(scripts.clear_rebuild("first").await, "CHANGED");
    assert_eq!(scripts.clear_rebuild("second").await, "CLEARED");
    assert_eq!(scripts.clear_rebuild("second").await, "CHANGED");
    assert_eq!(scripts.time_to_live_ms().await, -2);
}

#[tokio::test]
async fn clear_rebuild_gives_a_lease_beside_the_request_a_time_to_live_again() {
    let mut scripts = Scripts::start().await;
    scripts.invalidate("token").await;
    scripts.lease().await;
    assert_eq!(scripts.time_to_live_ms().await, -1);
    scripts.clear_rebuild("token").await;
    assert!(scripts.time_to_live_ms().await > 0);
}

#[tokio::test]
async fn advance_gives_each_page_to_one_worker() {
    let mut scripts = Scripts::start().await;
    for (from, to, word) in [
        ("0", "17", "CLAIMED"),
        ("0", "17", "TAKEN"),
        ("17", "0", "CLAIMED"),
        ("0", "17", "CLAIMED"),
    ] {
        let reply: String = scripts.run(script!("advance"), &[KEY], &[from, to]).await;
        assert_eq!(reply, word, "from {from} to {to}");
    }
}

#[tokio::test]
async fn count_and_the_domain_agree_on_a_snapshot_under_which_nothing_was_running() {
    let mut scripts = Scripts::start().await;
    let snapshot = Snapshot::parse("100:100:").expect("a snapshot");
    assert_eq!(snapshot.compact(), "100");
    let lease = scripts.lease().await;
    scripts.seed(0, snapshot.compact(), &lease, 0).await;
    let mut count = 0;
    for xid in 97..103 {
        count += i64::from(!snapshot.sees(TransactionId(xid)));
        assert_eq!(scripts.count(1, xid).await, Counted::Count(count), "xid {xid}");
    }
}

/// Each script replies for each key in order, whatever the states of the keys.
#[tokio::test]
async fn a_call_for_several_keys_treats_each_as_a_call_of_its_own() {
    const SEEDED: &str = "tally:{1}";
    const ABSENT: &str = "tally:{2}";
    const SUSPECT: &str = "tally:{3}";
    let keys = [INDEX, SEEDED, ABSENT, SUSPECT];
    let mut scripts = Scripts::start().await;
    scripts.seeded().await;
    let words: Vec<String> = scripts
        .run(
            script!("invalidate"),
            &[INDEX, ABSENT, SUSPECT],
            &["token 2", "", "token 3", ""],
        )
        .await;
    assert_eq!(words, ["INVALIDATED", "INVALIDATED"]);
    let tokens: Vec<String> = scripts
        .run(
            script!("clear_rebuild"),
            &[INDEX, ABSENT, SUSPECT],
            &[LEASE_LIMIT_MS, "token 2", "another"],
        )
        .await;
    assert_eq!(tokens, ["CLEARED", "CHANGED"]);

    let replies: Vec<Value> = scripts
        .run(
            script!("count"),
            &keys,
            &["200", "nonce", LEASE_LIMIT_MS, "1", "10", "100"],
        )
        .await;
    let replies: Vec<Counted> = replies.into_iter().map(counted).collect();
    let [Counted::Count(6), Counted::Miss(lease_2), Counted::Miss(lease_3)] = &replies[..] else {
        panic!("{replies:?}");
    };

    #[rustfmt::skip]
    let seeds = [
        "9", "1", lease_2, "0",
        "20", "1", lease_2, "0",
        "30", "1:2:1", lease_3, "0",
    ];
    let words: Vec<String> = scripts.run(script!("seed"), &keys, &seeds).await;
    assert_eq!(words, ["RETRY", "SEEDED", "SEEDED"]);
    let mut counts = Vec::new();
    let mut revisions: Vec<String> = Vec::new();
    for key in &keys[1..] {
        let (count, revision): (i64, String) = scripts
            .connection
            .hmget(key, &["count", "rev"])
            .await
            .expect("a count");
        counts.push(count);
        revisions.push(revision);
    }
    assert_eq!(counts, [6, 20, 30]);

    let marks = [revisions[0].as_str(), "1", revisions[2].as_str()];
    let words: Vec<String> = scripts.run(script!("mark_saved"), &keys, &marks).await;
    assert_eq!(words, ["SAVED", "CHANGED", "SAVED"]);
    let words: Vec<String> = scripts
        .run(
            script!("expire"),
            &keys,
            &["0", &revisions[0], &revisions[1], &revisions[2]],
        )
        .await;
    assert_eq!(words, ["EXPIRED", "KEPT", "EXPIRED"]);
}

/// `Counters`, with more items than one call takes, on a Redis that has lost every script.
#[tokio::test]
async fn many_items_get_their_replies_in_order_also_from_a_redis_that_lost_the_scripts() {
    let stores = Stores::start().await;
    let mut connection = stores.redis_connection().await;
    let counters = counters(&stores.redis_url());
    let items: Vec<ItemId> = (1..=i64::try_from(2 * CALL_LIMIT_KEYS + 1).expect("a number"))
        .map(|id| ItemId::new(id).expect("positive"))
        .collect();
    let mut fill = redis::pipe();
    for item in &items {
        fill.hset_multiple(
            format!("tally:{{{item}}}"),
            &[("count", item.get() * 10), ("rev", item.get())],
        );
    }
    let () = fill.query_async(&mut connection).await.expect("Redis answers");
    let () = redis::cmd("SCRIPT")
        .arg("FLUSH")
        .query_async(&mut connection)
        .await
        .expect("Redis answers");

    let is_even = |item: &ItemId| item.get() % 2 == 0;
    let marks: Vec<(ItemId, Revision)> = items
        .iter()
        .map(|item| {
            (
                *item,
                Revision::from_micros(if is_even(item) { item.get() } else { 0 }),
            )
        })
        .collect();
    let marked = counters.mark_saved(&marks).await.expect("Redis answers");
    assert_eq!(marked.len(), items.len());
    for (item, marked) in items.iter().zip(marked) {
        assert_eq!(marked == Marked::Saved, is_even(item), "item {item}");
    }
    for (item, counter) in items
        .iter()
        .zip(counters.read(&items).await.expect("Redis answers"))
    {
        let revision = Revision::from_micros(item.get());
        assert_eq!(
            (counter.item_id, counter.count),
            (*item, Some((item.get() * 10, revision)))
        );
        assert_eq!(counter.saved, is_even(item).then_some(revision));
    }
}

#[tokio::test]
async fn a_read_returns_every_field_and_changes_nothing() {
    let mut scripts = Scripts::start().await;
    let counters = counters(&scripts.stores.redis_url());
    let item = ItemId::new(1).expect("positive");
    let [nothing] = &counters.read(&[item]).await.expect("Redis answers")[..] else {
        panic!("one item, one answer");
    };
    assert_eq!(
        (
            nothing.count,
            nothing.saved,
            nothing.seeded,
            nothing.rebuild.as_ref()
        ),
        (None, None, None, None)
    );
    assert_eq!(scripts.time_to_live_ms().await, -2, "reading makes no key");
    scripts.invalidate("token").await;
    let revision = scripts.seeded().await;
    scripts.set("saved", revision).await;
    let before = scripts.fields().await;
    let [all] = &counters.read(&[item]).await.expect("Redis answers")[..] else {
        panic!("one item, one answer");
    };
    let revision = Revision::from_micros(revision);
    assert_eq!(
        (all.count, all.saved, all.rebuild.as_deref()),
        (Some((5, revision)), Some(revision), Some("token"))
    );
    assert!(all.seeded.is_some_and(|seeded| seeded <= all.now));
    assert!(revision <= all.now.as_revision());
    assert_eq!(scripts.fields().await, before);
}
