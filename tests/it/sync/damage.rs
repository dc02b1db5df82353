//! Keys of counters that others have damaged, and keys that belong to others.

use super::command;
use crate::helpers::eventually;
use crate::helpers::tally::Tally;

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_someone_has_damaged_stop_no_other_item() {
    let tally = Tally::start().await;
    let (damaged, other) = (tally.item("x").await, tally.item("y").await);
    let key = format!("tally:{{{damaged}}}");
    tally.worker().enter_epoch().await.expect("an epoch");
    for damage in [
        ["SET", &key, "theirs, and longer than the numbers of a counter"].as_slice(),
        &["APPEND", &key, "theirs"],
        &["SETRANGE", &key, "16", "theirs"],
        &["SET", &key, "theirs"],
        &["HSET", &key, "count", "5"],
        &["SET", "tally:unsaved_scan", "theirs"],
        &["SET", "tally:scan", "theirs"],
        &["RPUSH", "tally:unsaved_scan", "theirs"],
        &["RPUSH", "tally:epoch", "theirs"],
    ] {
        for item in [damaged, other] {
            tally.add(item, 1).await;
        }
        if !["APPEND", "SETRANGE"].contains(&damage[0]) {
            command(&tally, &["DEL", damage[1]]).await;
        }
        command(&tally, damage).await;
        command(&tally, &["SADD", "tally:unsaved", &key]).await;
        // A read of the damaged counter leaves the other its live count.
        for item in [damaged, other] {
            tally.get(&format!("/v1/items/{item}")).await;
        }
        assert!(tally.add(other, 1).await.is_some(), "{damage:?}");
        let worker = tally.worker();
        worker.enter_epoch().await.expect("an epoch");
        worker.flush_shared().await.expect("a flush");
        worker.scan_page().await.expect("a page");
        worker.flush_until_quiescent().await.expect("a flush");
        let (_, exact) = tally.get(&format!("/v1/items/{other}")).await;
        assert_eq!(exact["saved"]["vote_count"], exact["vote_count"], "{damage:?}");
        command(&tally, &["DEL", &key]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_counter_that_a_read_finds_damaged_is_rebuilt() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    tally.worker().flush().await.expect("a flush");
    command(&tally, &["SETRANGE", &format!("tally:{{{item}}}"), "0", "theirs"]).await;
    tally.get(&format!("/v1/items/{item}")).await;
    eventually("the read had it invalidated", async || {
        let fields = tally.counters.read(&[item]).await.ok()?;
        fields.first()?.rebuild.clone()
    })
    .await;
    tally.assert_exact_when_quiescent(item).await;
}

/// The refused read says nothing about the counter.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_that_redis_refuses_makes_no_count_suspect() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    command(&tally, &["ACL", "SETUSER", "server", "-mget"]).await;
    let (_, answer) = tally.get(&format!("/v1/items/{item}")).await;
    assert_eq!(answer["current"], false, "{answer}");
    command(&tally, &["ACL", "SETUSER", "server", "+mget"]).await;
    assert_eq!(tally.live_count(item).await, Some(1), "it was not invalidated");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_index_forgets_a_counter_that_someone_has_deleted_or_replaced() {
    let tally = Tally::start().await;
    let (gone, replaced) = (tally.item("x").await, tally.item("y").await);
    for item in [gone, replaced] {
        tally.add(item, 1).await;
    }
    command(&tally, &["DEL", &format!("tally:{{{gone}}}")]).await;
    command(&tally, &["SET", &format!("tally:{{{replaced}}}"), "theirs"]).await;
    assert_eq!(tally.worker().flush_unsaved().await.expect("a flush").counters, 2);
    assert_eq!(tally.worker().flush_unsaved().await.expect("a flush").counters, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_others_are_left_alone() {
    let tally = Tally::start().await;
    command(&tally, &["SET", "tally:{x}", "theirs"]).await;
    command(&tally, &["SET", "session:1", "theirs"]).await;
    assert_eq!(tally.worker().flush().await.expect("a flush").counters, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_of_others_in_a_counters_place_is_replaced_with_the_next_vote() {
    let tally = Tally::start().await;
    let (item, other) = (tally.item("x").await, tally.item("y").await);
    command(&tally, &["SET", &format!("tally:{{{item}}}"), "theirs"]).await;
    assert_eq!(tally.add(item, 1).await, Some(1));
    command(&tally, &["DEL", &format!("tally:{{{item}}}")]).await;
    command(&tally, &["RPUSH", &format!("tally:{{{item}}}"), "theirs"]).await;
    assert_eq!(tally.add(item, 1).await, Some(2));
    assert_eq!(tally.add(other, 1).await, Some(1));
    tally.assert_exact_when_quiescent(item).await;
    tally.assert_exact_when_quiescent(other).await;
}
