//! Many clients on two servers.

use std::collections::BTreeSet;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tally::domain::ItemId;

use super::assert_rules_hold;
use crate::helpers::tally::Tally;

const CLIENTS: usize = 100;

/// Sends requests from many clients at once, the even ones to the first server.
async fn at_once(
    tally: &Tally,
    other: &str,
    requests: impl Iterator<Item = (Method, String, Option<Value>)>,
) -> Vec<(StatusCode, Value)> {
    let answers = requests.enumerate().map(|(at, (method, path, body))| async move {
        let base = if at % 2 == 0 { &tally.base } else { other };
        tally.send_to(base, method, &path, body.as_ref()).await
    });
    futures_util::future::join_all(answers).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_holds_whatever_the_number_of_servers_and_each_number_is_given_once() {
    let tally = Tally::start().await;
    let other = tally.another_server().await;
    for round in 0..5 {
        let item = tally
            .item_with(json!({ "max_votes": 40, "numbered": true }))
            .await;
        // Every third one is anonymous; others share a voter by twos.
        let body = |at: usize| match at % 3 {
            0 => json!({}),
            _ => json!({ "voter_id": format!("voter {}", at / 2) }),
        };
        let requests =
            (0..CLIENTS).map(|at| (Method::POST, format!("/v1/items/{item}/votes"), Some(body(at))));
        let answers = at_once(&tally, &other, requests).await;
        let granted = answers
            .iter()
            .filter(|(status, _)| *status == StatusCode::CREATED);
        let numbers: Vec<i64> = granted
            .filter_map(|(_, answer)| answer["number"].as_i64())
            .collect();
        assert_eq!(numbers.len(), 40, "round {round}");
        let distinct: BTreeSet<i64> = numbers.into_iter().collect();
        assert_eq!(distinct, (1..=40).collect());
        for (status, answer) in &answers {
            assert!([200, 201, 409].contains(&status.as_u16()), "{answer}");
        }
        tally.assert_exact_when_quiescent(item).await;
    }
    assert_rules_hold(&tally.pool).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_holds_while_redis_is_gone() {
    let tally = Tally::start().await;
    let item = tally.item_with(json!({ "max_votes": 7 })).await;
    let mut redis = tally.stores.redis_connection().await;
    let () = redis::cmd("CONFIG")
        .arg(&["SET", "maxmemory", "1"])
        .query_async(&mut redis)
        .await
        .expect("Redis answers");
    let requests = (0..CLIENTS).map(|_| (Method::POST, format!("/v1/items/{item}/votes"), Some(json!({}))));
    let answers = at_once(&tally, &tally.base, requests).await;
    let granted = answers
        .iter()
        .filter(|(status, _)| *status == StatusCode::CREATED);
    assert_eq!(granted.count(), 7);
    let () = redis::cmd("CONFIG")
        .arg(&["SET", "maxmemory", "0"])
        .query_async(&mut redis)
        .await
        .expect("Redis answers");
    tally.wait_until_ready("ready").await;
    assert_rules_hold(&tally.pool).await;
    tally.assert_exact_when_quiescent(item).await;
}

/// Puts, deletes and posts of few voters, on an item without a rule and on one with a rule.
#[tokio::test(flavor = "multi_thread")]
async fn one_voters_requests_from_all_clients_end_in_one_of_the_values_sent() {
    let tally = Tally::start().await;
    let other = tally.another_server().await;
    let plain = tally.item("x").await;
    let ruled = tally.item_with(json!({ "max_votes": 2 })).await;
    for item in [plain, ruled] {
        let request = |at: usize| {
            let votes = format!("/v1/items/{item}/votes");
            let voter = ["ada", "bob"][at / 2 % 2];
            let value = if at.is_multiple_of(3) { -1 } else { 1 };
            match at % 5 {
                0 | 1 => (
                    Method::PUT,
                    format!("{votes}/{voter}"),
                    Some(json!({ "value": value })),
                ),
                2 => (Method::DELETE, format!("{votes}/{voter}"), None),
                _ => (
                    Method::POST,
                    votes,
                    Some(json!({ "voter_id": voter, "value": value })),
                ),
            }
        };
        for (status, answer) in at_once(&tally, &other, (0..CLIENTS).map(request)).await {
            assert!([200, 201].contains(&status.as_u16()), "{answer}");
        }
        for voter in ["ada", "bob"] {
            let held = held(&tally, item, voter).await;
            let shown = tally.get(&format!("/v1/items/{item}/votes/{voter}")).await;
            match held {
                0 => assert_eq!(shown.0, StatusCode::NOT_FOUND),
                held => assert_eq!(shown.1["value"], held),
            }
        }
        tally.assert_exact_when_quiescent(item).await;
    }
    assert_rules_hold(&tally.pool).await;
}

/// The sum of a voter's rows on an item.
async fn held(tally: &Tally, item: ItemId, voter: &str) -> i64 {
    sqlx::query_scalar(
        "select coalesce(sum(value), 0)::bigint from vote where item_id = $1 and voter_id = $2",
    )
    .bind(item.get())
    .bind(voter)
    .fetch_one(&tally.pool)
    .await
    .expect("Postgres answers")
}
