//! Calls for several keys, the worker's handle of their replies, and `advance`.

use redis::Value;
use tally::domain::{ItemId, Revision};
use tally::ledger::Role;
use tally::live::{CALL_LIMIT_KEYS, CounterParts, MarkReply};

use super::{COLD, Counted, INDEX, KEY, LEASE_LIMIT_MS, Scripts, counted};
use crate::helpers::stores::Stores;
use crate::helpers::tally::counters;

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

/// Each script replies for each key in order, whatever the keys' states.
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
            &[INDEX, SEEDED, ABSENT, SUSPECT, COLD],
            &["200", "nonce", LEASE_LIMIT_MS, "1", "10,0!", "100"],
        )
        .await;
    let replies: Vec<Counted> = replies.into_iter().map(counted).collect();
    let [Counted::Count(6), Counted::Miss(lease_2), Counted::Miss(lease_3)] = &replies[..] else {
        panic!("{replies:?}");
    };

    #[rustfmt::skip]
    let seeds = [
        "9", "0", "1", lease_2, "0",
        "20", "0", "1", lease_2, "0",
        "30", "0", "1:2:1", lease_3, "0",
    ];
    let words: Vec<String> = scripts.run(script!("seed"), &keys, &seeds).await;
    assert_eq!(words, ["RETRY", "SEEDED", "SEEDED"]);
    let mut counts = Vec::new();
    let mut revisions: Vec<String> = Vec::new();
    for key in &keys[1..] {
        let parts = testkit::counters::parts(&mut scripts.connection, key)
            .await
            .expect("Redis answers");
        counts.push(parts.count);
        revisions.push(parts.revision.to_string());
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

// Keys of another bucket.
const COUNTED: &str = "tally:{b}17";
const ABSENT: &str = "tally:{b}18";
const OTHER_INDEX: &str = "tally:{b}unsaved";
const OTHER_COLD: &str = "tally:{b}cold";

/// A saved count in each of two buckets. Also returns what the other bucket's counter holds.
async fn with_two_buckets() -> (Scripts, Vec<u8>) {
    let mut scripts = Scripts::start().await;
    let revision = scripts.seeded().await;
    assert_eq!(scripts.mark_saved(revision).await, "SAVED");
    let (held,) = redis::pipe()
        .cmd("COPY")
        .arg(&[KEY, COUNTED])
        .ignore()
        .get(COUNTED)
        .query_async(&mut scripts.connection)
        .await
        .expect("Redis answers");
    (scripts, held)
}

#[tokio::test]
async fn count_takes_several_buckets_each_with_its_own_index_and_token() {
    let (mut scripts, _) = with_two_buckets().await;
    #[rustfmt::skip]
    let arguments = [
        "200", "nonce", LEASE_LIMIT_MS,
        "1", KEY, INDEX, COLD, "2,1",
        "2", COUNTED, ABSENT, OTHER_INDEX, OTHER_COLD, "-3,3", "10",
    ];
    let replies: Vec<Vec<Value>> = scripts.run(script!("count"), &[], &arguments).await;
    let with_downs = |net, downs| Value::Array(vec![Value::Int(net), Value::Int(downs)]);
    let cold = Value::BulkString(b"COLD".to_vec());
    assert_eq!(
        replies,
        [vec![with_downs(7, 1)], vec![with_downs(2, 3), cold]],
        "each of its own bucket"
    );
    let held: (Vec<String>, Vec<String>, Option<String>, String) = redis::pipe()
        .smembers(INDEX)
        .smembers(OTHER_INDEX)
        .get(COLD)
        .get(OTHER_COLD)
        .query_async(&mut scripts.connection)
        .await
        .expect("Redis answers");
    let of = |key: &str| vec![key.to_owned()];
    assert_eq!(held, (of(KEY), of(COUNTED), None, "nonce".to_owned()));
}

/// While a bucket's slot moves, its index may be at the other node already. Here the index has another type: that too
/// fails when an item is to be added to it.
#[tokio::test]
async fn count_leaves_a_bucket_without_its_index_untouched_and_counts_the_others() {
    let (mut scripts, before) = with_two_buckets().await;
    let () = redis::cmd("SET")
        .arg(&[OTHER_INDEX, "no set"])
        .query_async(&mut scripts.connection)
        .await
        .expect("Redis answers");
    #[rustfmt::skip]
    let arguments = [
        "200", "nonce", LEASE_LIMIT_MS,
        "2", COUNTED, ABSENT, OTHER_INDEX, OTHER_COLD, "3", "1",
        "1", KEY, INDEX, COLD, "2",
    ];
    let replies: Vec<Value> = scripts.run(script!("count"), &[], &arguments).await;
    let error = match &replies[0] {
        Value::BulkString(error) => String::from_utf8_lossy(error).into_owned(),
        other => format!("{other:?}"),
    };
    assert!(error.contains("WRONGTYPE"), "{error}");
    assert_eq!(replies[1], Value::Array(vec![Value::Int(7)]));
    let held: (Vec<u8>, Option<String>, Option<String>, Vec<String>) = redis::pipe()
        .get(COUNTED)
        .get(ABSENT)
        .get(OTHER_COLD)
        .smembers(INDEX)
        .query_async(&mut scripts.connection)
        .await
        .expect("Redis answers");
    assert_eq!(held, (before, None, None, vec![KEY.to_owned()]));
}

/// Gives `Counters` more items than a call takes, and a Redis without scripts.
#[tokio::test]
async fn many_items_get_their_replies_in_order_also_from_a_redis_that_lost_the_scripts() {
    let stores = Stores::start().await;
    let mut connection = stores.redis_connection().await;
    let counters = counters(&stores.redis_login_url(Role::Worker));
    let items: Vec<ItemId> = (1..=i64::try_from(2 * CALL_LIMIT_KEYS + 1).expect("a number"))
        .map(|id| ItemId::new(id).expect("positive"))
        .collect();
    let mut fill = redis::pipe();
    for item in &items {
        let counter = CounterParts {
            count: item.get() * 10,
            revision: item.get(),
            xmax: 1,
            seeded: 1,
            ..CounterParts::default()
        };
        fill.set(format!("tally:{{{item}}}"), testkit::counters::value(&counter));
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
        assert_eq!(marked == MarkReply::Saved, is_even(item), "item {item}");
    }
    for (item, counter) in items
        .iter()
        .zip(counters.read(&items).await.expect("Redis answers"))
    {
        let revision = Revision::from_micros(item.get());
        assert_eq!(
            (counter.item_id, counter.count),
            (*item, Some(((item.get() * 10).into(), revision)))
        );
        assert_eq!(counter.saved, is_even(item).then_some(revision));
    }
}

#[tokio::test]
async fn a_read_returns_every_field_and_changes_nothing() {
    let mut scripts = Scripts::start().await;
    let counters = counters(&scripts.stores.redis_login_url(Role::Worker));
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
    scripts.change(|parts| parts.saved = revision).await;
    let before = scripts.named().await;
    let [all] = &counters.read(&[item]).await.expect("Redis answers")[..] else {
        panic!("one item, one answer");
    };
    let revision = Revision::from_micros(revision);
    assert_eq!(
        (all.count, all.saved, all.rebuild.as_deref()),
        (Some((5.into(), revision)), Some(revision), Some("token"))
    );
    assert!(all.seeded.is_some_and(|seeded| seeded <= all.now));
    assert!(revision <= all.now.as_revision());
    assert_eq!(scripts.named().await, before);
}
