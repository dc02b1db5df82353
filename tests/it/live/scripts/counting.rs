//! `count` and `seed`: how votes get into live counts.

use redis::{AsyncCommands, Value};
use tally::domain::{RUNNING_LIMIT_TRANSACTIONS, Snapshot, TransactionId};

use super::{COLD, Counted, INDEX, KEY, LEASE_LIMIT_MS, Scripts};

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
async fn a_vote_on_an_item_that_is_not_warm_leaves_only_the_token_unless_redis_holds_anything_of_the_item() {
    let mut scripts = Scripts::start().await;
    for delta in ["1", "-1,1", "0,1"] {
        assert_eq!(scripts.count_as(delta, 100).await, Counted::Cold, "{delta}");
        assert!(scripts.names().await.is_empty(), "{delta}");
        let (token, index): (Option<String>, bool) = redis::pipe()
            .get(COLD)
            .exists(INDEX)
            .query_async(&mut scripts.connection)
            .await
            .expect("Redis answers");
        assert_eq!((token.as_deref(), index), (Some("nonce"), false));
        let () = scripts.connection.del(COLD).await.expect("Redis answers");
    }
    // A look at a missing count leases it.
    let Counted::Miss(lease) = scripts.count_as("0", 100).await else {
        panic!("it is leased");
    };
    assert_eq!(scripts.count_as("1", 101).await, Counted::Miss(lease));
    scripts.invalidate("token").await;
    assert!(matches!(scripts.count_as("1", 102).await, Counted::Miss(_)));
    let is_set: bool = scripts.connection.exists(COLD).await.expect("Redis answers");
    assert!(!is_set, "nothing was cold");
}

#[tokio::test]
async fn count_replaces_a_lease_that_is_too_old_also_beside_a_rebuild_request() {
    let mut scripts = Scripts::start().await;
    scripts.invalidate("token").await;
    scripts
        .change(|parts| parts.lease = "1000000:old".to_owned())
        .await;
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

/// Postgres lists the running transactions of all databases.
/// A live count keeps the newest.
#[tokio::test]
async fn count_invalidates_a_count_whose_snapshot_is_too_short_to_tell() {
    let mut scripts = Scripts::start().await;
    // Every second transaction from 1000 on is running.
    let running: Vec<String> = (0..100).map(|one| (1000 + 2 * one).to_string()).collect();
    let text = format!("1000:1300:{}", running.join(","));
    let snapshot = Snapshot::parse(&text).expect("a snapshot");
    let low = 1000 + 2 * (100 - RUNNING_LIMIT_TRANSACTIONS as i64);
    let mut unclear = 0;
    for xid in 998..1303 {
        scripts.clear().await;
        let lease = scripts.lease().await;
        scripts.seed(5, &snapshot.compact(), &lease, 0).await;
        let revision = scripts.revision().await;
        assert_eq!(scripts.count(0, xid).await, Counted::Count(5), "only read");
        match scripts.count(1, xid).await {
            Counted::Count(count) => {
                let is_added = i64::from(!snapshot.sees(TransactionId(xid)));
                assert_eq!(count, 5 + is_added, "xid {xid}");
            }
            Counted::Miss(lease) => {
                assert!((1000..low).contains(&xid), "xid {xid}");
                unclear += 1;
                assert_eq!(scripts.names().await, ["lease", "request", "revision"]);
                assert_eq!(scripts.revision().await, revision, "the next one is above it");
                assert_eq!(scripts.time_to_live_ms().await, -1, "the request stays");
                assert!(scripts.is_in_the_index().await);
                assert_eq!(scripts.seed(6, "1300", &lease, 0).await, "SEEDED");
                assert!(scripts.revision().await > revision);
            }
            Counted::Cold => panic!("there was a count: xid {xid}"),
        }
    }
    assert_eq!(unclear, low - 1000);
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
    scripts.change(|parts| parts.revision = ahead).await;
    scripts.count(1, 200).await;
    assert_eq!(scripts.revision().await, ahead + 1);
}

/// Redis' clock may show the same microsecond twice, and step back.
#[tokio::test]
async fn count_makes_the_revision_grow_within_one_microsecond_too() {
    let mut scripts = Scripts::start().await;
    scripts.seeded().await;
    let standing = script!("count").replace("call('TIME')", "{1790000000, 5}");
    scripts.change(|parts| parts.revision = 1).await;
    for revision in [1_790_000_000_000_005, 1_790_000_000_000_006] {
        let arguments = ["200", "nonce", LEASE_LIMIT_MS, "1"];
        let [reply]: [Value; 1] = scripts.run(&standing, &[INDEX, KEY, COLD], &arguments).await;
        assert!(matches!(reply, Value::Int(6 | 7)), "{reply:?}");
        assert_eq!(scripts.revision().await, revision);
    }
}

/// Someone else's value may hold anything.
#[tokio::test]
async fn count_takes_no_value_of_others_for_a_count_and_requests_a_rebuild() {
    let mut scripts = Scripts::start().await;
    let text = "a text that is longer than a counter, and holds no count at all";
    for value in [&text[..5], &text[..43], &text[..44], text, "", &"\0".repeat(50)] {
        scripts.clear().await;
        let () = scripts.connection.set(KEY, value).await.expect("Redis answers");
        assert!(
            matches!(scripts.count(1, 100).await, Counted::Miss(_)),
            "{value:?}"
        );
        assert_eq!(scripts.names().await, ["lease", "request"], "{value:?}");
        assert!(scripts.is_in_the_index().await);
    }
    scripts.clear().await;
    let () = scripts.connection.hset(KEY, "count", 5).await.expect("a hash");
    let lease = scripts.lease().await;
    assert_eq!(scripts.names().await, ["lease", "request"]);
    assert!(scripts.is_in_the_index().await);
    assert_eq!(scripts.seed(6, "1300", &lease, 0).await, "SEEDED");
}

/// The revision decides about expiry and the age of unsaved counts.
#[tokio::test]
async fn count_takes_redis_time_as_the_revision_when_the_clock_is_ahead_of_it() {
    let mut scripts = Scripts::start().await;
    scripts.seeded().await;
    let now = scripts.now().await;
    scripts.change(|parts| parts.revision = now - 3_600_000_000).await;
    scripts.count(1, 200).await;
    assert!(scripts.revision().await >= now);
}

#[tokio::test]
async fn seed_takes_redis_time_as_the_revision_when_it_is_ahead_of_all_others() {
    let mut scripts = Scripts::start().await;
    let lease = scripts.lease().await;
    let before = scripts.now().await;
    scripts.seed(5, "1:1:", &lease, before - 3_600_000_000).await;
    let now = scripts.now().await;
    assert!((before..=now).contains(&scripts.revision().await));
}

#[tokio::test]
async fn seed_makes_an_unsaved_count_without_a_time_to_live() {
    let mut scripts = Scripts::start().await;
    scripts.seeded().await;
    assert_eq!(scripts.names().await, ["count", "revision", "seeded", "snapshot"]);
    assert_eq!(scripts.time_to_live_ms().await, -1);
}

#[tokio::test]
async fn seed_replies_retry_when_there_is_a_count_or_another_lease() {
    let mut scripts = Scripts::start().await;
    let lease = scripts.lease().await;
    assert_eq!(scripts.seed(9, "1:1:", "another", 0).await, "RETRY");
    assert_eq!(scripts.seed(5, "1:1:", &lease, 0).await, "SEEDED");
    assert_eq!(scripts.seed(9, "1:1:", &lease, 0).await, "RETRY");
    assert_eq!(scripts.parts().await.count, 5);
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
async fn count_and_the_domain_agree_on_a_snapshot_under_which_nothing_was_running() {
    let mut scripts = Scripts::start().await;
    let snapshot = Snapshot::parse("100:100:").expect("a snapshot");
    assert_eq!(snapshot.compact(), "100");
    let lease = scripts.lease().await;
    scripts.seed(0, &snapshot.compact(), &lease, 0).await;
    let mut count = 0;
    for xid in 97..103 {
        count += i64::from(!snapshot.sees(TransactionId(xid)));
        assert_eq!(scripts.count(1, xid).await, Counted::Count(count), "xid {xid}");
    }
}

#[tokio::test]
async fn count_and_seed_carry_down_votes_beside_the_sum_and_store_none_where_there_are_none() {
    let mut scripts = Scripts::start().await;
    scripts.seeded().await;
    let before = scripts.revision().await;
    let count = async |scripts: &mut Scripts, delta: &str, xid: &str| {
        let arguments = [xid, "nonce", LEASE_LIMIT_MS, delta];
        let [reply]: [Value; 1] = scripts
            .run(script!("count"), &[INDEX, KEY, COLD], &arguments)
            .await;
        reply
    };
    let both = |count, downs| Value::Array(vec![Value::Int(count), Value::Int(downs)]);
    assert_eq!(count(&mut scripts, "2", "111").await, Value::Int(7));
    assert_eq!(scripts.parts().await.downs, 0);
    // An up-vote and a down-vote: the sum stays, but the count has changed.
    assert_eq!(count(&mut scripts, "0,1", "112").await, both(7, 1));
    assert!(scripts.revision().await > before + 1);
    assert_eq!(count(&mut scripts, "0,1", "99").await, both(7, 1), "in the seed");
    assert_eq!(count(&mut scripts, "1,-1", "113").await, Value::Int(8));
    scripts.invalidate("token").await;
    let lease = scripts.lease().await;
    let seed = ["7", "4", "100", &lease, "0"];
    assert_eq!(scripts.word(script!("seed"), &seed).await, "SEEDED");
    assert_eq!(count(&mut scripts, "0", "200").await, both(7, 4));
    let revision = scripts.revision().await;
    assert_eq!(scripts.mark_saved(revision).await, "SAVED");
    assert_eq!(scripts.expire(revision, 0).await, "EXPIRED");
    assert_eq!(scripts.names().await, Vec::<String>::new());
}
