//! Receipts: what became of a vote.

use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::helpers::eventually;
use crate::helpers::tally::Tally;

async fn receipt(tally: &Tally, vote: &Value) -> (StatusCode, Value) {
    tally.get(&format!("/v1/votes/{}", vote["vote_id"])).await
}

/// Waits until a vote's receipt has this state.
async fn until(tally: &Tally, vote: &Value, state: &str) {
    eventually(&format!("the vote is {state}"), async || {
        (receipt(tally, vote).await.1["state"] == state).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_says_stored_counted_and_saved_and_never_more_than_is_so() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let (_, vote) = tally.vote(item, "ada").await;
    until(&tally, &vote, "counted").await;
    let (status, shown) = receipt(&tally, &vote).await;
    let expected = json!({ "vote_id": vote["vote_id"], "item_id": item, "value": 1, "state": "counted" });
    assert_eq!((status, shown), (StatusCode::OK, expected));
    tally.worker().flush_until_quiescent().await.expect("a flush");
    assert_eq!(receipt(&tally, &vote).await.1["state"], "saved");
    // The next vote makes the live count unsaved again. So nobody can say whether the first is
    // saved.
    let (_, second) = tally.vote(item, "bob").await;
    until(&tally, &second, "counted").await;
    // An invalidated count says nothing of its votes until it is rebuilt.
    tally.counters.invalidate(&[item]).await.expect("Redis answers");
    assert_eq!(receipt(&tally, &second).await.1["state"], "stored");
    tally.worker().flush_until_quiescent().await.expect("a flush");
    assert_eq!(receipt(&tally, &second).await.1["state"], "saved");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vote_in_flight_is_stored_and_no_more() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    // A batch writer stores a vote and does not go on.
    sqlx::query(
        "insert into writer_connection (name, counted_vote_id, knows_rules)
         select 'tally writer that stalls', last_value - 1, true from vote_id_seq",
    )
    .execute(&tally.pool)
    .await
    .expect("a writer");
    let id: i64 = sqlx::query_scalar("insert into vote (item_id) values ($1) returning id")
        .bind(item.get())
        .fetch_one(&tally.pool)
        .await
        .expect("a vote");
    let vote = json!({ "vote_id": id });
    // Meanwhile, another writer's vote is counted.
    tally.add(item, 1).await;
    assert_eq!(receipt(&tally, &vote).await.1["state"], "stored");
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_no_receipt_of_an_unknown_vote_nor_of_one_in_a_poll_with_hidden_results() {
    let tally = Tally::start().await;
    for (path, status) in [("/v1/votes/999", 404), ("/v1/votes/0", 400), ("/v1/votes/x", 400)] {
        assert_eq!(tally.get(path).await.0.as_u16(), status, "{path}");
    }
    let (_, poll) = tally
        .post(
            "/v1/polls",
            &json!({ "title": "x", "choices": ["a"], "closes_at": "2999-01-01T00:00:00Z",
                     "results_before_close": false }),
        )
        .await;
    let votes = format!("/v1/items/{}/votes", poll["choices"][0]["item_id"]);
    let (status, vote) = tally.post(&votes, &json!({ "voter_id": "ada" })).await;
    assert_eq!(status, StatusCode::CREATED);
    assert_eq!(receipt(&tally, &vote).await.0, StatusCode::NOT_FOUND);
}
