//! Whose an idempotency key is, and who may use one up.

use reqwest::StatusCode;
use serde_json::{Value, json};
use tally::domain::Scope;
use tally::web::access::Open;

use super::assert_rules_hold;
use crate::helpers::tally::Tally;
use crate::web::access::credentials::{cookie, knows_voters};
use crate::web::access::{Credential, api_key};

async fn post(
    tally: &Tally,
    path: &str,
    credential: &Credential,
    key: Option<&str>,
    body: &Value,
) -> (StatusCode, Value) {
    let mut request = tally.http.post(format!("{}{path}", tally.base)).json(body);
    request = match credential {
        Credential::None => request,
        Credential::Bearer(token) => request.bearer_auth(token),
        Credential::Cookie(value) => request.header("cookie", value),
    };
    if let Some(key) = key {
        request = request.header("Idempotency-Key", key);
    }
    let answer = request.send().await.expect("an answer");
    (answer.status(), answer.json().await.expect("JSON"))
}

async fn bearer(tally: &Tally, scopes: &[Scope]) -> Credential {
    Credential::Bearer(api_key(tally, scopes).await.1.as_str().to_owned())
}

fn statuses(answer: &Value) -> Vec<u64> {
    let results = answer["results"].as_array().expect("results").iter();
    results.filter_map(|one| one["status"].as_u64()).collect()
}

async fn stored_keys(tally: &Tally) -> i64 {
    sqlx::query_scalar("select count(*) from idempotency_key")
        .fetch_one(&tally.pool)
        .await
        .expect("Postgres answers")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_made_up_ballots_on_a_closed_server_stores_no_key_and_uses_up_nobodys() {
    let tally = Tally::start_with(|options| options.access.open = Open::default()).await;
    let item = tally.item("x").await;
    let backend = bearer(&tally, &[Scope::Vote]).await;
    let made_up =
        json!({ "votes": [{ "item_id": item, "ballot": "none" }, { "item_id": 999, "ballot": "b" }] });
    for key in 0..20 {
        let key = format!("k{key}");
        let (status, answer) = post(&tally, "/v1/votes", &Credential::None, Some(&key), &made_up).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        assert_eq!(statuses(&answer), [422, 404], "{answer}");
    }
    assert_eq!(stored_keys(&tally).await, 0);
    let votes = json!({ "votes": [{ "item_id": item }] });
    let (status, answer) = post(&tally, "/v1/votes", &backend, Some("k0"), &votes).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    assert_eq!(statuses(&answer), [201], "{answer}");
    assert_rules_hold(&tally.pool).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_throttles_refuse_or_that_is_wrong_stores_no_key() {
    let tally = Tally::start_with(|options| {
        options.voting.throttles = "address:1/1h".parse().expect("throttles");
    })
    .await;
    let item = tally.item("x").await;
    let backend = bearer(&tally, &[Scope::Vote]).await;
    let votes = json!({ "votes": [{ "item_id": item }] });
    for (at, expected) in [201, 429, 429, 429].into_iter().enumerate() {
        let key = format!("k{at}");
        let (_, answer) = post(&tally, "/v1/votes", &Credential::None, Some(&key), &votes).await;
        assert_eq!(statuses(&answer), [expected], "{answer}");
    }
    // The key of the first batch, and that of its vote.
    assert_eq!(stored_keys(&tally).await, 2);
    // Nothing was asked yet with the key of a batch in which all votes were wrong.
    let wrong = json!({ "votes": [{ "item_id": item, "value": 7 }] });
    let (_, answer) = post(&tally, "/v1/votes", &backend, Some("w"), &wrong).await;
    assert_eq!(statuses(&answer), [422], "{answer}");
    assert_eq!(stored_keys(&tally).await, 2);
    let (_, answer) = post(&tally, "/v1/votes", &backend, Some("w"), &votes).await;
    assert_eq!(statuses(&answer), [201], "{answer}");
    assert_eq!(tally.ledger_sum(item).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_with_a_used_key_makes_no_item() {
    let tally = Tally::start_creating_items().await;
    let batch = |key: &str| json!({ "votes": [{ "item_id": key }] });
    let (_, answer) = post(
        &tally,
        "/v1/votes",
        &Credential::None,
        Some("k"),
        &batch("key:one"),
    )
    .await;
    assert_eq!(statuses(&answer), [201], "{answer}");
    let (status, _) = post(
        &tally,
        "/v1/votes",
        &Credential::None,
        Some("k"),
        &batch("key:two"),
    )
    .await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    let (status, _) = tally.get("/v1/items/key:two").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn ballots_in_a_batch_with_a_key_buy_one_vote_each_without_a_credential() {
    let tally = Tally::start_with(|options| options.access.open = Open::default()).await;
    let admin = bearer(&tally, &[Scope::Admin]).await;
    let (_, item) = post(
        &tally,
        "/v1/items",
        &admin,
        None,
        &json!({ "name": "x", "by_ballot": true }),
    )
    .await;
    let path = format!("/v1/items/{}/ballots", item["id"]);
    let (_, made) = post(&tally, &path, &admin, None, &json!({ "count": 2 })).await;
    let vote = |at: usize| json!({ "item_id": item["id"], "ballot": made["ballots"][at] });
    let batch = json!({ "votes": [vote(0), vote(1), { "item_id": item["id"], "ballot": "none" }] });
    let (_, first) = post(&tally, "/v1/votes", &Credential::None, Some("k"), &batch).await;
    assert_eq!(statuses(&first), [201, 201, 409], "{first}");
    let (_, again) = post(&tally, "/v1/votes", &Credential::None, Some("k"), &batch).await;
    assert_eq!(statuses(&again), [201, 201, 409], "{again}");
    for at in [0, 1] {
        assert_eq!(first["results"][at]["vote_id"], again["results"][at]["vote_id"]);
        assert_eq!(again["results"][at]["repeated"], true);
    }
    // The keys of the two votes that are stored.
    assert_eq!(stored_keys(&tally).await, 2);
    assert_rules_hold(&tally.pool).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn voters_backends_and_all_others_have_idempotency_keys_of_their_own() {
    let tally = Tally::start_with(knows_voters).await;
    let item = tally.item("x").await;
    let backend = bearer(&tally, &[Scope::Vote]).await;
    let senders = [Credential::None, backend.clone(), cookie("ada"), cookie("bob")];
    let path = format!("/v1/items/{item}/votes");
    let of_batch = |answer: &Value| answer["results"][0]["vote_id"].clone();
    let mut stored = Vec::new();
    for (at, sender) in senders.iter().enumerate() {
        // Each asks for something else with the same key.
        let vote = match sender {
            Credential::Cookie(_) => json!({ "value": 1 }),
            _ => json!({ "voter_id": format!("voter {at}"), "value": 1 }),
        };
        let (status, single) = post(&tally, &path, sender, Some("k"), &vote).await;
        assert_eq!(status, StatusCode::CREATED, "{sender:?}: {single}");
        let other = tally.item("y").await;
        let mut vote = vote;
        vote["item_id"] = json!(other);
        let batch = json!({ "votes": [vote] });
        let (status, answer) = post(&tally, "/v1/votes", sender, Some("k"), &batch).await;
        assert_eq!(status, StatusCode::OK, "{sender:?}: {answer}");
        assert_eq!(statuses(&answer), [201], "{sender:?}: {answer}");
        stored.push((single["vote_id"].clone(), of_batch(&answer), batch));
    }
    // A backend may send its request again with another API key, as after a rotation.
    let rotated = bearer(&tally, &[Scope::Vote]).await;
    let vote = json!({ "voter_id": "voter 1", "value": 1 });
    let (single, of_vote, batch) = &stored[1];
    let (_, again) = post(&tally, &path, &rotated, Some("k"), &vote).await;
    assert_eq!((&again["vote_id"], &again["repeated"]), (single, &json!(true)));
    let (_, again) = post(&tally, "/v1/votes", &rotated, Some("k"), batch).await;
    assert_eq!(&of_batch(&again), of_vote);
    // An API key that may not vote is no backend's.
    let reporter = bearer(&tally, &[Scope::Report]).await;
    let (status, _) = post(&tally, &path, &reporter, Some("k"), &vote).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(tally.ledger_sum(item).await, 4);
}
