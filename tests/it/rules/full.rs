//! Votes on full items: a read refuses most of them.

use std::time::Duration;

use futures_util::future::join_all;
use reqwest::{Method, StatusCode};
use serde_json::json;
use sqlx::PgExecutor;
use tally::domain::{ItemId, Refusal, VoteRequest, VoteSource};
use tally::votes::{Cast, CastError, FULL_LIMIT_ITEMS};
use tokio::time::timeout;

use super::assert_rules_hold;
use crate::helpers::eventually;
use crate::helpers::stores::{blocker, until_blocked};
use crate::helpers::tally::{Tally, connected, live_counts, vote, vote_queue};

#[tokio::test(flavor = "multi_thread")]
async fn a_vote_on_a_full_item_is_refused_without_a_lock_and_who_holds_one_is_answered_with_it() {
    let tally = Tally::start().await;
    let item = tally.item_with(json!({ "max_votes": 2 })).await;
    // Eve held a place before. Bob takes his vote back and casts it again.
    for voter in ["eve", "bob"] {
        assert_eq!(tally.vote(item, voter).await.0, StatusCode::CREATED);
        let back = format!("/v1/items/{item}/votes/{voter}");
        assert_eq!(tally.send(Method::DELETE, &back, None).await.0, StatusCode::OK);
    }
    for voter in ["ada", "bob"] {
        assert_eq!(tally.vote(item, voter).await.0, StatusCode::CREATED);
    }
    // Ada's vote on another item says nothing about this one.
    let elsewhere = tally.item("y").await;
    tally.vote(elsewhere, "ada").await;
    let back = format!("/v1/items/{elsewhere}/votes/ada");
    assert_eq!(tally.send(Method::DELETE, &back, None).await.0, StatusCode::OK);
    let path = format!("/v1/items/{item}/votes");
    eventually("votes are refused while the rule is locked", async || {
        // The thread that answers learns that the item is full.
        for _ in 0..4 {
            assert_eq!(tally.vote(item, "cy").await.0, StatusCode::CONFLICT);
        }
        let locked = blocker(&tally.pool, "select from rule for update").await;
        let refused = async {
            let (status, problem) = tally.post(&path, &json!({})).await;
            assert_eq!(
                (status, &problem["title"]),
                (StatusCode::CONFLICT, &json!("Full"))
            );
            for voter in ["dan", "eve"] {
                assert_eq!(tally.vote(item, voter).await.0, StatusCode::CONFLICT);
            }
        };
        let ended = timeout(Duration::from_millis(500), refused).await;
        locked.rollback().await.expect("an end");
        ended.ok()
    })
    .await;
    for voter in ["ada", "bob"] {
        for _ in 0..4 {
            assert_eq!(tally.vote(item, "cy").await.0, StatusCode::CONFLICT);
        }
        assert_eq!(tally.vote(item, voter).await.0, StatusCode::OK);
    }
    tally.assert_exact_when_quiescent(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_item_that_is_closed_is_said_to_be_closed_at_once() {
    let tally = Tally::start().await;
    let item = tally.item_with(json!({ "max_votes": 1 })).await;
    tally.vote(item, "ada").await;
    for _ in 0..20 {
        assert_eq!(tally.vote(item, "cy").await.1["title"], "Full");
    }
    let now = json!({ "closes_at": "2001-01-01T00:00:00Z" });
    let path = format!("/v1/items/{item}");
    assert_eq!(
        tally.send(Method::PATCH, &path, Some(&now)).await.0,
        StatusCode::OK
    );
    for _ in 0..20 {
        assert_eq!(tally.vote(item, "cy").await.1["title"], "Closed");
    }
}

/// As if the server that took the vote back had died before it reached Redis.
#[tokio::test(flavor = "multi_thread")]
async fn a_place_that_redis_does_not_know_of_is_free_at_once() {
    let tally = Tally::start().await;
    let item = tally.item_with(json!({ "max_votes": 1 })).await;
    for turn in 0..20 {
        let holder = format!("holder{turn}");
        assert_eq!(tally.vote(item, &holder).await.0, StatusCode::CREATED);
        for _ in 0..4 {
            // The thread that answers knows that the item is full.
            assert_eq!(tally.vote(item, "other").await.0, StatusCode::CONFLICT);
        }
        take_back(&tally.pool, item, &holder).await;
        let next = format!("next{turn}");
        assert_eq!(tally.vote(item, &next).await.0, StatusCode::CREATED, "{turn}");
        let held = format!("/v1/items/{item}/votes/{next}");
        assert_eq!(tally.send(Method::DELETE, &held, None).await.0, StatusCode::OK);
    }
    assert_rules_hold(&tally.pool).await;
}

/// Takes a vote back in the ledger only.
async fn take_back(ledger: impl PgExecutor<'_>, item: ItemId, holder: &str) {
    let outcomes: Vec<String> = sqlx::query_scalar(
        "select (cast_votes('{1}', '{null}', array[$1], array[$2], '{0}', '{f}', '{f}')).outcomes",
    )
    .bind(item.get())
    .bind(holder)
    .fetch_one(ledger)
    .await
    .expect("a decision");
    assert_eq!(outcomes, ["stored"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_that_is_given_back_on_one_server_is_free_at_once_on_another() {
    let tally = Tally::start().await;
    let bases = [tally.base.clone(), tally.another_server().await];
    let item = tally.item_with(json!({ "max_votes": 1, "numbered": true })).await;
    let path = format!("/v1/items/{item}/votes");
    let cast = async |base: &str, voter: &str| {
        let body = json!({ "voter_id": voter });
        tally.send_to(base, Method::POST, &path, Some(&body)).await.0
    };
    for turn in 0..40 {
        let (here, there) = (&bases[turn % 2], &bases[(turn + 1) % 2]);
        let voter = format!("v{turn}");
        assert_eq!(cast(here, &voter).await, StatusCode::CREATED, "{turn}");
        for base in &bases {
            assert_eq!(cast(base, &voter).await, StatusCode::OK, "{turn}");
            assert_eq!(cast(base, "other").await, StatusCode::CONFLICT, "{turn}");
            assert_eq!(cast(base, &voter).await, StatusCode::OK, "{turn}");
        }
        let held = format!("{path}/{voter}");
        let (status, _) = tally.send_to(there, Method::DELETE, &held, None).await;
        assert_eq!(status, StatusCode::OK);
    }
    assert_rules_hold(&tally.pool).await;
    tally.assert_exact_when_quiescent(item).await;
}

/// The item's count is the same before and after.
#[tokio::test(flavor = "multi_thread")]
async fn a_voter_who_gets_a_place_in_the_batch_that_frees_it_is_a_holder_on_every_thread() {
    let tally = Tally::start().await;
    let item = tally.item_with(json!({ "max_votes": 1 })).await;
    let live = connected(live_counts(&tally)).await;
    let queue = vote_queue(&tally, &live);
    let mut holder = "v0".to_owned();
    assert_eq!(tally.vote(item, &holder).await.0, StatusCode::CREATED);
    let mut at_once = 0;
    for turn in 1..30 {
        for _ in 0..4 {
            assert_eq!(tally.vote(item, "other").await.0, StatusCode::CONFLICT);
        }
        let next = format!("v{turn}");
        let held = vote(item, Some(&holder));
        let back = VoteRequest::Set {
            item_id: item,
            voter_id: held.voter_id.expect("a voter"),
            value: None,
        };
        let (back, cast) = tokio::join!(
            queue.decide(back, VoteSource::default()),
            queue.decide(VoteRequest::Cast(vote(item, Some(&next))), VoteSource::default())
        );
        assert!(matches!(back, Ok(Cast::TakenBack { .. })), "{back:?}");
        if !matches!(cast, Ok(Cast::Accepted { .. })) {
            // They were decided in the other order, or in two batches.
            assert_eq!(tally.vote(item, &next).await.0, StatusCode::CREATED);
        } else {
            at_once += 1;
        }
        for _ in 0..4 {
            assert_eq!(tally.vote(item, &next).await.0, StatusCode::OK, "{turn}");
        }
        holder = next;
    }
    assert!(at_once > 0, "some were one batch");
    assert_rules_hold(&tally.pool).await;
    tally.assert_exact_when_quiescent(item).await;
}

/// A read could refuse the second vote while the first one waits for its decision.
#[tokio::test(flavor = "multi_thread")]
async fn two_votes_of_one_voter_in_a_request_are_answered_in_their_order_when_a_place_becomes_free() {
    let tally = Tally::start().await;
    let item = tally.item_with(json!({ "max_votes": 1 })).await;
    let path = format!("/v1/items/{item}/votes");
    for turn in 0..8 {
        let holder = format!("holder{turn}");
        assert_eq!(tally.vote(item, &holder).await.0, StatusCode::CREATED);
        for _ in 0..4 {
            // The thread that answers learns that the item is full.
            assert_eq!(tally.vote(item, "other").await.0, StatusCode::CONFLICT);
        }
        let mut taking_back = tally.pool.begin().await.expect("a transaction");
        take_back(&mut *taking_back, item, &holder).await;
        let next = format!("next{turn}");
        let votes = [-1, 1].map(|value| json!({ "item_id": item, "voter_id": next, "value": value }));
        let votes = json!({ "votes": votes });
        let commit = async {
            until_blocked(&tally.pool, "-- Stores votes that need a decision").await;
            taking_back.commit().await.expect("an end");
        };
        let ((status, answers), ()) = tokio::join!(tally.post("/v1/votes", &votes), commit);
        assert_eq!(status, StatusCode::OK, "{answers}");
        let results = answers["results"].as_array().expect("results");
        let statuses: Vec<_> = results.iter().map(|one| one["status"].as_i64()).collect();
        assert_eq!(statuses, [Some(201), Some(200)], "{turn}: {answers}");
        assert_eq!(results[1]["repeated"], true, "{answers}");
        let held = format!("{path}/{next}");
        assert_eq!(tally.send(Method::DELETE, &held, None).await.0, StatusCode::OK);
    }
    assert_rules_hold(&tally.pool).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vote_on_a_full_item_is_decided_if_the_read_does_not_come_back() {
    let tally = Tally::start().await;
    let item = tally.item_with(json!({ "max_votes": 1 })).await;
    let live = connected(live_counts(&tally)).await;
    let queue = vote_queue(&tally, &live);
    let cast = |voter: &str| queue.decide(VoteRequest::Cast(vote(item, Some(voter))), VoteSource::default());
    assert!(matches!(cast("ada").await, Ok(Cast::Accepted { .. })));
    assert!(matches!(cast("bob").await, Ok(Cast::Refused(Refusal::Full))));
    let locked = blocker(&tally.pool, "lock table place in access exclusive mode").await;
    let unlock = async {
        until_blocked(&tally.pool, "-- What becomes of votes of value 1").await;
        until_blocked(&tally.pool, "-- Stores votes that need a decision").await;
        locked.rollback().await.expect("an end");
    };
    let (answer, ()) = tokio::join!(cast("cy"), unlock);
    assert!(matches!(answer, Ok(Cast::Refused(Refusal::Full))), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_looks_first_at_the_100_items_that_were_full_last_and_decides_on_the_others() {
    let tally = Tally::start().await;
    let mut items = Vec::new();
    for _ in 0..=FULL_LIMIT_ITEMS {
        items.push(tally.item_with(json!({ "max_votes": 1 })).await);
    }
    let live = connected(live_counts(&tally)).await;
    let queue = vote_queue(&tally, &live);
    // Once one request of a voter is decided, all are. So each item has voters of its own.
    let cast = |item: ItemId, voter: &str| {
        let voter = format!("{voter} of {item}");
        queue.decide(VoteRequest::Cast(vote(item, Some(&voter))), VoteSource::default())
    };
    let all_are_full = |answers: Vec<Result<Cast, CastError>>| {
        for answer in answers {
            assert!(matches!(answer, Ok(Cast::Refused(Refusal::Full))), "{answer:?}");
        }
    };
    let (first, later) = (items[0], &items[1..]);
    for item in &items {
        let answer = cast(*item, "ada").await;
        assert!(matches!(answer, Ok(Cast::Accepted { .. })), "{answer:?}");
    }
    all_are_full(vec![cast(first, "bob").await]);
    all_are_full(join_all(later.iter().map(|item| cast(*item, "bob"))).await);
    let locked = blocker(&tally.pool, "select from rule for update").await;
    let answers = timeout(
        Duration::from_secs(10),
        join_all(later.iter().map(|item| cast(*item, "cy"))),
    );
    all_are_full(answers.await.expect("nobody waits for the lock"));
    let unlock = async {
        until_blocked(&tally.pool, "-- Stores votes that need a decision").await;
        locked.rollback().await.expect("an end");
    };
    let (answer, ()) = tokio::join!(cast(first, "cy"), unlock);
    all_are_full(vec![answer]);
}
