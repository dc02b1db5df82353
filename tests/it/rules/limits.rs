//! Items that limit or number their votes, or open and close.

use reqwest::{Method, StatusCode};
use serde_json::json;

use super::assert_rules_hold;
use crate::helpers::tally::Tally;

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_is_never_exceeded_and_a_retraction_frees_its_place_at_once() {
    let tally = Tally::start().await;
    let item = tally.item_with(json!({ "max_votes": 3 })).await;
    assert_eq!(tally.get(&format!("/v1/items/{item}")).await.1["max_votes"], 3);
    let votes = format!("/v1/items/{item}/votes");
    for body in [
        json!({}),
        json!({ "voter_id": "ada" }),
        json!({ "voter_id": "bob", "value": -1 }),
    ] {
        assert_eq!(tally.post(&votes, &body).await.0, StatusCode::CREATED);
    }
    for body in [json!({}), json!({ "voter_id": "cy" })] {
        let (status, problem) = tally.post(&votes, &body).await;
        assert_eq!(status, StatusCode::CONFLICT);
        assert_eq!(problem["type"], "/problems/full");
    }
    // A voter with a place keeps it, also with another value.
    assert_eq!(tally.vote(item, "ada").await.0, StatusCode::OK);
    let bob = format!("{votes}/bob");
    let (status, changed) = tally.send(Method::PUT, &bob, Some(&json!({ "value": 1 }))).await;
    assert_eq!((status, &changed["vote_count"]), (StatusCode::OK, &json!(3)));
    assert_eq!(tally.send(Method::DELETE, &bob, None).await.0, StatusCode::OK);
    assert_eq!(tally.vote(item, "cy").await.0, StatusCode::CREATED);
    assert_eq!(tally.vote(item, "bob").await.0, StatusCode::CONFLICT);
    assert_rules_hold(&tally.pool).await;
    tally.assert_exact_when_quiescent(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn votes_are_numbered_without_a_gap_and_the_number_is_in_every_answer() {
    let tally = Tally::start().await;
    let item = tally.item_with(json!({ "numbered": true })).await;
    let votes = format!("/v1/items/{item}/votes");
    let ada = format!("{votes}/ada");
    for (number, voter) in (1..).zip(["ada", "bob"]) {
        assert_eq!(tally.vote(item, voter).await.1["number"], number);
    }
    assert_eq!(tally.vote(item, "ada").await.1["number"], 1, "a repeat");
    assert_eq!(tally.get(&ada).await.1["number"], 1);
    let mut redis = tally.stores.redis_connection().await;
    let () = redis::cmd("FLUSHALL")
        .query_async(&mut redis)
        .await
        .expect("Redis answers");
    assert_eq!(
        tally.post(&votes, &json!({})).await.1["number"],
        3,
        "Redis is empty"
    );
    let (status, back) = tally.send(Method::DELETE, &ada, None).await;
    assert_eq!(status, StatusCode::OK, "{back}");
    assert_eq!(back.get("number"), None);
    // A number is given once: Ada's next vote gets the next number.
    assert_eq!(tally.vote(item, "ada").await.1["number"], 4);
    assert_rules_hold(&tally.pool).await;
    tally.assert_exact_when_quiescent(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vote_before_the_opening_or_after_the_close_is_refused() {
    let tally = Tally::start().await;
    let early = tally
        .item_with(json!({ "opens_at": "2999-01-01T00:00:00Z" }))
        .await;
    let late = tally
        .item_with(json!({ "closes_at": "2000-01-01T00:00:00+01:00" }))
        .await;
    let open = tally
        .item_with(json!({ "opens_at": "2000-01-01T00:00:00Z", "closes_at": "2999-01-01T00:00:00Z" }))
        .await;
    let shown = tally.get(&format!("/v1/items/{late}")).await.1;
    assert_eq!(shown["closes_at"], "1999-12-31T23:00:00Z");
    for (item, kind) in [(early, "not-open-yet"), (late, "closed")] {
        let votes = format!("/v1/items/{item}/votes");
        let put = tally
            .send(Method::PUT, &format!("{votes}/ada"), Some(&json!({ "value": 1 })))
            .await;
        for (status, problem) in [
            tally.post(&votes, &json!({})).await,
            tally.vote(item, "ada").await,
            put,
        ] {
            assert_eq!(status, StatusCode::CONFLICT, "{problem}");
            assert_eq!(problem["type"], format!("/problems/{kind}"));
        }
    }
    assert_eq!(tally.vote(open, "ada").await.0, StatusCode::CREATED);
    sqlx::query("update rule set closes_at = now() where closes_at > now()")
        .execute(&tally.pool)
        .await
        .expect("a close");
    // A voter who lost the answer can repeat the vote. Nothing changes.
    let ada = format!("/v1/items/{open}/votes/ada");
    let put = async |value: i64| {
        tally
            .send(Method::PUT, &ada, Some(&json!({ "value": value })))
            .await
    };
    for (status, repeat) in [tally.vote(open, "ada").await, put(1).await] {
        assert_eq!((status, &repeat["repeated"]), (StatusCode::OK, &json!(true)));
    }
    for (status, _) in [put(-1).await, tally.send(Method::DELETE, &ada, None).await] {
        assert_eq!(status, StatusCode::CONFLICT);
    }
    let stored: i64 = sqlx::query_scalar("select count(*) from vote")
        .fetch_one(&tally.pool)
        .await
        .expect("Postgres answers");
    assert_eq!(stored, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_with_wrong_rules_is_not_made() {
    let tally = Tally::start().await;
    for (fields, status, field) in [
        (json!({ "max_votes": 0 }), 422, "max_votes"),
        (json!({ "max_votes": "3" }), 400, "max_votes"),
        (json!({ "down_votes": 1 }), 400, "down_votes"),
        (json!({ "numbered": "yes" }), 400, "numbered"),
        (json!({ "opens_at": "tomorrow" }), 422, "opens_at"),
        (json!({ "closes_at": 5 }), 400, "closes_at"),
        (
            json!({ "opens_at": "2030-01-01T00:00:00Z", "closes_at": "2030-01-01T00:00:00Z" }),
            422,
            "closes_at",
        ),
    ] {
        let mut body = fields.clone();
        body["name"] = json!("x");
        let (got, problem) = tally.post("/v1/items", &body).await;
        assert_eq!(
            (got.as_u16(), &problem["field"]),
            (status, &json!(field)),
            "{fields}: {problem}"
        );
    }
    assert_eq!(tally.get("/v1/items").await.1["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_rule_is_made_beside_a_server_that_does_not_know_of_rules_and_none_connects_later() {
    let tally = Tally::start().await;
    let connect = "insert into writer_connection (name) values ('tally writer of an older server')";
    sqlx::query(connect)
        .execute(&tally.pool)
        .await
        .expect("no rule yet");
    let fields = json!({ "name": "x", "max_votes": 1 });
    let (status, problem) = tally.post("/v1/items", &fields).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(problem["type"], "/problems/older-servers");
    // Its connection is closed. A worker sees that and forgets the writer.
    tally
        .worker()
        .recover_crashed_writers()
        .await
        .expect("a recovery");
    assert_eq!(tally.post("/v1/items", &fields).await.0, StatusCode::CREATED);
    let refused = sqlx::query(connect).execute(&tally.pool).await;
    assert!(refused.is_err(), "there is a rule");
}
