//! A ledger in ranges: votes in several of them, the next range, and one that is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use reqwest::{Method, StatusCode};
use serde_json::json;
use tally::domain::ItemId;
use tally::ledger::RANGE_LEAST_IDS;

use super::{differences, draw, end_of, number, split, tables, vote_at_random};
use crate::helpers::programs::{operator, start_worker};
use crate::helpers::stores::blocker;
use crate::helpers::tally::Tally;
use crate::rules::assert_rules_hold;
use crate::rules::voiding::void;

#[tokio::test(flavor = "multi_thread")]
async fn a_voters_vote_is_one_over_all_ranges_and_changes_of_it_may_lie_in_others() {
    let tally = Tally::start().await;
    let plain = tally.item("x").await;
    let limited = tally.item_with(json!({ "max_votes": 3, "numbered": true })).await;
    let (_, poll) = tally
        .post("/v1/polls", &json!({ "title": "x", "choices": ["a", "b"] }))
        .await;
    let choices: Vec<ItemId> = (0..2)
        .filter_map(|at| poll["choices"][at]["item_id"].as_i64().and_then(ItemId::new))
        .collect();
    let all = [plain, limited, choices[0]];
    for item in all {
        for voter in ["ada", "bob"] {
            assert_eq!(tally.vote(item, voter).await.0, StatusCode::CREATED);
        }
    }
    split(&tally).await;
    draw(&tally.pool, end_of(&tally.pool, 1).await - 1).await;
    assert_eq!(tally.ledger.add_ranges().await.expect("ranges"), 2);

    // In the second range.
    for item in all {
        let (status, said) = tally.vote(item, "ada").await;
        assert_eq!(status, StatusCode::OK, "ada has voted: {said}");
        assert_eq!(tally.vote(item, "cleo").await.0, StatusCode::CREATED);
    }
    let path = |item: ItemId, voter: &str| format!("/v1/items/{item}/votes/{voter}");
    let (status, _) = tally.send(Method::DELETE, &path(plain, "bob"), None).await;
    assert_eq!(status, StatusCode::OK);
    let change = json!({ "value": -1 });
    let (status, _) = tally.send(Method::PUT, &path(plain, "cleo"), Some(&change)).await;
    assert!(status.is_success());
    // A move takes back a choice of the first range.
    let selection = format!("/v1/polls/{}/votes/bob", poll["id"]);
    let (status, _) = tally
        .send(Method::PUT, &selection, Some(&json!({ "items": [choices[1]] })))
        .await;
    assert_eq!(status, StatusCode::OK);

    // In the third.
    draw(&tally.pool, end_of(&tally.pool, 2).await - 1).await;
    assert_eq!(tally.ledger.add_ranges().await.expect("a range"), 1);
    let (done, said) = void(&tally, &["--voter", "ada", "--reason", "a bot", "--apply"]).await;
    assert!(done && said["voided_votes"] == 3, "{said}");
    let voiding = said["voiding"].to_string();
    let (done, said) = void(&tally, &["--undo", &voiding]).await;
    assert!(done, "{said}");
    let (done, said, errors) = operator(&tally.stores, &["voter", "merge", "ada", "cleo", "--apply"]).await;
    assert!(done, "{said:?} {errors}");
    let (done, said, errors) = operator(&tally.stores, &["voter", "erase", "bob", "--apply"]).await;
    assert!(done, "{said:?} {errors}");
    for table in ["vote", "vote_of_voter"] {
        let left = format!("select count(*) from {table} where voter_id in ('ada', 'bob')");
        assert_eq!(number(&tally.pool, &left).await, 0, "{table}");
    }
    assert_eq!(
        tables(&tally.pool).await,
        ["vote_range_1", "vote_range_2", "vote_range_3"]
    );
    assert_eq!(differences(&tally.pool).await, 0);
    assert_rules_hold(&tally.pool).await;
    for item in all.into_iter().chain([choices[1]]) {
        tally.assert_exact_when_quiescent(item).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_range_is_made_in_time_and_without_it_votes_are_refused_and_not_lost() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    split(&tally).await;
    let last = end_of(&tally.pool, 1).await;
    draw(&tally.pool, last - 2 * RANGE_LEAST_IDS - 10).await;
    assert_eq!(
        tally.ledger.add_ranges().await.expect("an answer"),
        0,
        "it is not time"
    );
    draw(&tally.pool, last - 2).await;
    assert_eq!(tally.vote(item, "ada").await.0, StatusCode::CREATED);
    let (status, said) = tally.vote(item, "bob").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{said}");
    assert!(tally.ledger.add_ranges().await.expect("ranges") >= 2);
    assert_eq!(tally.ledger.add_ranges().await.expect("an answer"), 0);
    assert_eq!(end_of(&tally.pool, 2).await, last + RANGE_LEAST_IDS);
    crate::helpers::eventually("votes are stored again", async || {
        (tally.vote(item, "bob").await.0 == StatusCode::CREATED).then_some(())
    })
    .await;
    tally.assert_exact_when_quiescent(item).await;
    assert_eq!(tally.ledger_sum(item).await, 2);
    assert_eq!(tables(&tally.pool).await, ["vote_range_1", "vote_range_2"]);
    // Ids that nobody drew take no tables.
    draw(&tally.pool, 1_000_000_000).await;
    let made = tally.ledger.add_ranges().await.expect("ranges");
    assert!((1..=3).contains(&made), "{made} ranges");
    crate::helpers::eventually("votes are stored again", async || {
        (tally.vote(item, "cleo").await.0 == StatusCode::CREATED).then_some(())
    })
    .await;
    tally.assert_exact_when_quiescent(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_of_a_voter_gets_into_a_ledger_in_ranges_in_one_way_alone() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    split(&tally).await;
    tally.vote(item, "ada").await;
    for (statement, words) in [
        (
            "insert into vote (item_id, voter_id) values (1, 'bob')",
            "inserted into vote_of_voter",
        ),
        (
            "insert into vote_range_1 (item_id, voter_id) values (1, 'bob')",
            "inserted into vote_of_voter",
        ),
        ("delete from vote_of_voter", "append-only"),
        ("truncate vote_of_voter", "append-only"),
        ("update vote_of_voter set voter_id = 'bob'", "append-only"),
        ("update vote set voter_id = 'bob'", "append-only"),
        ("delete from vote", "append-only"),
        ("truncate vote", "append-only"),
        ("truncate vote_range_1", "append-only"),
        ("delete from vote_range_1", "append-only"),
    ] {
        let refused = sqlx::raw_sql(statement).execute(&tally.pool).await;
        let why = refused.expect_err(statement).to_string();
        assert!(why.contains(words), "{statement}: {why}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_range_of_which_all_votes_are_archived_is_dropped_under_votes_and_counts_stay() {
    let tally = Arc::new(Tally::start().await);
    let closing = tally.item_with(json!({ "numbered": true })).await;
    let open = tally.item("x").await;
    for voter in ["ada", "bob"] {
        assert_eq!(tally.vote(closing, voter).await.0, StatusCode::CREATED);
    }
    split(&tally).await;
    for range in [1, 2] {
        draw(&tally.pool, end_of(&tally.pool, range).await - 1).await;
        assert!(tally.ledger.add_ranges().await.expect("ranges") >= 1);
        for item in [closing, open] {
            let status = tally.vote(item, &format!("cleo{range}")).await.0;
            assert_eq!(status, StatusCode::CREATED);
        }
    }
    let ends = Arc::new(AtomicBool::new(false));
    let voting = tokio::spawn(vote_at_random(
        Arc::clone(&tally),
        vec![open],
        7,
        Arc::clone(&ends),
    ));
    sqlx::raw_sql("update rule set opens_at = null, closes_at = now() - interval '2 days'")
        .execute(&tally.pool)
        .await
        .expect("the owner may");
    let _worker = start_worker(&tally.stores, "worker", &[]);
    let folder = tally.stores.folder().join("archives");
    std::fs::create_dir(&folder).expect("a folder");

    // As autovacuum does, or an index that is made, in a range that is not dropped.
    let elsewhere = "lock table vote_range_3 in share update exclusive mode";
    let aside = tally.stores.pool();
    let elsewhere = blocker(&aside, elsewhere).await;
    // A report holds the range's lock; the archive waits for it, and votes wait for neither.
    let report = blocker(&tally.pool, "select count(*) from vote").await;
    let item = closing.to_string();
    let out = folder.to_str().expect("a plain path").to_owned();
    let stores = Arc::clone(&tally);
    let archiving = tokio::spawn(async move {
        let run = ["archive", "run", "--item", &item, "--out", &out, "--apply"];
        operator(&stores.stores, &run).await
    });
    crate::helpers::eventually("the votes are archived", async || {
        let ended = "select count(*) from archive where ended_at is not null";
        (number(&tally.pool, ended).await == 1).then_some(())
    })
    .await;
    let first = "select count(*) from vote_range where number = 1";
    assert_eq!(number(&tally.pool, first).await, 1);
    report.rollback().await.expect("an end");
    let (done, said, errors) = archiving.await.expect("it ends");
    assert!(done, "{said:?} {errors}");
    assert_eq!(
        (&said[0]["dropped_votes"], &said[0]["dropped_ranges"]),
        (&json!(4), &json!([1])),
        "{said:?} {errors}"
    );
    elsewhere.rollback().await.expect("an end");
    ends.store(true, Ordering::Relaxed);
    voting.await.expect("votes are taken");

    assert_eq!(number(&tally.pool, first).await, 0);
    assert_eq!(tables(&tally.pool).await, ["vote_range_2", "vote_range_3"]);
    let noted = "select count(*) from act where what = 'archive.drop' and outcome = 'done' and target = 'vote_range:1'";
    assert_eq!(number(&tally.pool, noted).await, 1);
    // Whoever voted has voted, whichever range it was in.
    assert_eq!(tally.vote(open, "cleo1").await.0, StatusCode::OK);
    assert_eq!(tally.vote(closing, "ada").await.0, StatusCode::CONFLICT);
    for audit in ["broken_rules", "broken_changes"] {
        let faults = format!("select cardinality(faults)::bigint from {audit}(0, 1000000)");
        assert_eq!(number(&tally.pool, &faults).await, 0, "{audit}");
    }
    assert_eq!(differences(&tally.pool).await, 0);
    crate::helpers::eventually("the saved count", async || {
        (tally.saved_count(closing).await == 4).then_some(())
    })
    .await;
    tally.assert_exact_when_quiescent(open).await;
}
