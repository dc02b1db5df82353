//! Many votes in one request.

use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::helpers::tally::Tally;

#[tokio::test(flavor = "multi_thread")]
async fn each_vote_of_a_batch_is_answered_by_itself_in_order_and_a_wrong_one_harms_no_other() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let limited = tally.item_with(json!({ "max_votes": 1, "numbered": true })).await;
    let votes = json!([
        { "item_id": item, "voter_id": "ada" },
        { "item_id": 999 },
        { "item_id": item, "voter_id": "ada", "value": -1 },
        { "item_id": item, "value": -1 },
        { "item_id": item, "value": 2 },
        { "item_id": item, "value": "up" },
        { "voter_id": "bob" },
        [1],
        { "item_id": 0 },
        { "item_id": item, "colour": "red" },
        { "item_id": limited },
    ]);
    let (status, answer) = tally.post("/v1/votes", &json!({ "votes": votes })).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let results = answer["results"].as_array().expect("results");
    let statuses: Vec<u64> = results.iter().filter_map(|one| one["status"].as_u64()).collect();
    assert_eq!(
        statuses,
        [201, 404, 200, 201, 422, 400, 400, 400, 422, 400, 201],
        "{answer}"
    );
    assert_eq!(
        (&results[0]["voter_id"], &results[0]["value"]),
        (&json!("ada"), &json!(1))
    );
    assert_eq!(
        (&results[2]["repeated"], &results[2]["vote_id"]),
        (&json!(true), &results[0]["vote_id"])
    );
    let fields: Vec<&Value> = [4, 5, 6, 8, 9].iter().map(|at| &results[*at]["field"]).collect();
    assert_eq!(fields, ["value", "value", "item_id", "item_id", "colour"]);
    assert_eq!(results[10]["number"], 1);
    let (_, again) = tally
        .post("/v1/votes", &json!({ "votes": [{ "item_id": limited }] }))
        .await;
    assert_eq!(again["results"][0]["type"], "/problems/full");
    tally.assert_exact_when_quiescent(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_voters_votes_in_a_batch_take_effect_in_their_order() {
    let tally = Tally::start().await;
    let body = json!({ "title": "x", "choices": ["a", "b"] });
    let (_, poll) = tally.post("/v1/polls", &body).await;
    let [a, b] = [0, 1].map(|at| poll["choices"][at]["item_id"].clone());
    let plain = tally.item("x").await;
    let vote = |item: &Value, value: i64| json!({ "item_id": item, "voter_id": "ada", "value": value });
    let plain = json!(plain);
    let votes = [
        vote(&a, 1),
        vote(&a, 1),
        vote(&b, 1),
        vote(&a, 1),
        vote(&plain, -1),
        vote(&plain, 1),
    ];
    let (_, answer) = tally.post("/v1/votes", &json!({ "votes": votes })).await;
    let results = answer["results"].as_array().expect("results");
    let statuses: Vec<u64> = results.iter().filter_map(|one| one["status"].as_u64()).collect();
    assert_eq!(statuses, [201, 200, 201, 201, 201, 200], "{answer}");
    assert_eq!(results[5]["value"], -1, "the first one is held");
    let held = tally.get(&format!("/v1/polls/{}/votes/ada", poll["id"])).await;
    assert_eq!(held.1["items"], json!([a]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_takes_1_to_1000_votes() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let votes = |number: usize| json!({ "votes": vec![json!({ "item_id": item }); number] });
    let (status, answer) = tally.post("/v1/votes", &votes(1000)).await;
    assert_eq!(status, StatusCode::OK);
    let results = answer["results"].as_array().expect("results");
    assert!(results.iter().all(|one| one["status"] == 201), "{answer}");
    for (body, status) in [
        (votes(0), 422),
        (votes(1001), 413),
        (json!({}), 400),
        (json!({ "votes": 1 }), 400),
        (
            json!({ "votes": [{ "item_id": item, "voter_id": "x".repeat(128 * 1024) }] }),
            413,
        ),
    ] {
        assert_eq!(tally.post("/v1/votes", &body).await.0.as_u16(), status);
    }
    assert_eq!(tally.ledger_sum(item).await, 1000);
    tally.assert_exact_when_quiescent(item).await;
}
