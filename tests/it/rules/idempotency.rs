//! The header Idempotency-Key.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tally::domain::Moment;
use tally::ledger::Job;
use tokio::task::JoinSet;

use super::assert_rules_hold;
use crate::helpers::tally::Tally;
use crate::web::access::Credential;
use crate::web::access::credentials::{cookie, knows_voters};

async fn post(tally: &Tally, base: &str, path: &str, key: &str, body: &Value) -> (StatusCode, Value) {
    let response = tally
        .http
        .post(format!("{base}{path}"))
        .header("Idempotency-Key", key)
        .json(body)
        .send()
        .await
        .expect("an answer");
    (response.status(), response.json().await.expect("JSON"))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_key_and_body_get_the_same_answer_and_another_body_is_refused() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let numbered = tally.item_with(json!({ "numbered": true })).await;
    for item in [item, numbered] {
        let path = format!("/v1/items/{item}/votes");
        let (status, first) = post(&tally, &tally.base, &path, "k-1", &json!({ "value": -1 })).await;
        assert_eq!(status, StatusCode::CREATED, "{first}");
        // The draft's quotation marks are not part of the key.
        let (status, again) = post(&tally, &tally.base, &path, "\"k-1\"", &json!({ "value": -1 })).await;
        assert_eq!((status, &again["repeated"]), (StatusCode::CREATED, &json!(true)));
        for same in ["vote_id", "item_id", "value", "number", "vote_count"] {
            assert_eq!(first.get(same), again.get(same), "{same}");
        }
        for other in [json!({}), json!({ "value": -1, "voter_id": "ada" })] {
            let (status, problem) = post(&tally, &tally.base, &path, "k-1", &other).await;
            assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
            assert_eq!(problem["field"], "Idempotency-Key");
        }
        assert_eq!(tally.ledger_sum(item).await, -1);
        tally.assert_exact_when_quiescent(item).await;
    }
    assert_rules_hold(&tally.pool).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_keeps_its_vote_when_the_voter_has_taken_it_back_and_a_refusal_keeps_none() {
    let tally = Tally::start().await;
    let item = tally.item_with(json!({ "max_votes": 1 })).await;
    let path = format!("/v1/items/{item}/votes");
    let ada = json!({ "voter_id": "ada" });
    let (_, first) = post(&tally, &tally.base, &path, "ada", &ada).await;
    let (status, _) = post(&tally, &tally.base, &path, "bob", &json!({ "voter_id": "bob" })).await;
    assert_eq!(status, StatusCode::CONFLICT);
    tally
        .send(reqwest::Method::DELETE, &format!("{path}/ada"), None)
        .await;
    // The key was for the first request. Ada has changed her mind since.
    let (status, again) = post(&tally, &tally.base, &path, "ada", &ada).await;
    assert_eq!(
        (status, &again["vote_id"]),
        (StatusCode::CREATED, &first["vote_id"])
    );
    assert_eq!(tally.ledger_sum(item).await, 0);
    let (status, _) = post(&tally, &tally.base, &path, "bob", &json!({ "voter_id": "bob" })).await;
    assert_eq!(status, StatusCode::CREATED, "there is a place now");
    let keys: i64 = sqlx::query_scalar("select count(*) from idempotency_key")
        .fetch_one(&tally.pool)
        .await
        .expect("Postgres answers");
    assert_eq!(keys, 2);
    assert_rules_hold(&tally.pool).await;
    tally.assert_exact_when_quiescent(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_key_from_many_clients_of_two_servers_stores_one_vote() {
    let tally = Tally::start().await;
    let other = tally.another_server().await;
    let item = tally.item("x").await;
    let mut sending = JoinSet::new();
    for at in 0..40 {
        let http = tally.http.clone();
        let url = format!("{}/v1/items/{item}/votes", [&tally.base, &other][at % 2]);
        sending.spawn(async move {
            let mut votes = Vec::new();
            for key in 0..10 {
                let sent = http
                    .post(&url)
                    .header("Idempotency-Key", format!("key-{key}"))
                    .json(&json!({}))
                    .send()
                    .await
                    .expect("an answer");
                assert_eq!(sent.status(), StatusCode::CREATED);
                let answer: Value = sent.json().await.expect("JSON");
                votes.push(answer["vote_id"].as_i64().expect("an id"));
            }
            votes
        });
    }
    let mut votes = sending.join_all().await;
    votes.dedup();
    assert_eq!(votes.len(), 1, "all got the same votes");
    assert_eq!(tally.ledger_sum(item).await, 10);
    tally.assert_exact_when_quiescent(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_with_a_key_may_be_sent_again_whole_and_stores_each_vote_once() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let limited = tally.item_with(json!({ "max_votes": 2, "numbered": true })).await;
    let votes = json!({ "votes": [
        { "item_id": item }, { "item_id": item }, { "item_id": limited },
        { "item_id": item, "voter_id": "ada" }, { "item_id": 999 }, { "item_id": limited },
        { "item_id": limited },
    ]});
    let statuses = |answer: &Value| -> Vec<u64> {
        let results = answer["results"].as_array().expect("results").iter();
        results.filter_map(|one| one["status"].as_u64()).collect()
    };
    let (status, first) = post(&tally, &tally.base, "/v1/votes", "b", &votes).await;
    assert_eq!(status, StatusCode::OK, "{first}");
    assert_eq!(statuses(&first), [201, 201, 201, 201, 404, 201, 409]);
    let (_, again) = post(&tally, &tally.base, "/v1/votes", "b", &votes).await;
    assert_eq!(statuses(&again), statuses(&first));
    for at in [0, 1, 2, 3, 5] {
        assert_eq!(first["results"][at]["vote_id"], again["results"][at]["vote_id"]);
        assert_eq!(again["results"][at]["repeated"], true);
    }
    // The same batch, with its body written differently.
    let mut same = votes.clone();
    same["votes"][0] = json!({ "value": 1, "item_id": item, "voter_id": null });
    let (_, again) = post(&tally, &tally.base, "/v1/votes", "b", &same).await;
    assert_eq!(first["results"][0]["vote_id"], again["results"][0]["vote_id"]);
    let other = json!({ "votes": [{ "item_id": item }, { "item_id": item, "value": -1 }] });
    let (status, problem) = post(&tally, &tally.base, "/v1/votes", "b", &other).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
    // A batch and a single vote do not share keys.
    let path = format!("/v1/items/{item}/votes");
    let (status, _) = post(&tally, &tally.base, &path, "b", &json!({})).await;
    assert_eq!(status, StatusCode::CREATED);
    assert_eq!(tally.ledger_sum(item).await, 4);
    assert_eq!(tally.ledger_sum(limited).await, 2);
    assert_rules_hold(&tally.pool).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_names_the_same_item_by_its_id_or_its_own_key_is_the_same() {
    let tally = Tally::start_creating_items().await;
    let plain = tally.item("x").await;
    let batch = |of: &Value| json!({ "votes": [{ "item_id": of, "value": -1 }, { "item_id": plain }] });
    // In the second round, the first try makes the item.
    for (round, is_made) in [(0, true), (1, false)] {
        let key = format!("post/{round}");
        if is_made {
            let new = json!({ "name": "y", "key": key });
            assert_eq!(tally.post("/v1/items", &new).await.0, StatusCode::CREATED);
        }
        let by_key = json!(format!("key:{key}"));
        let (status, first) = post(&tally, &tally.base, "/v1/votes", &key, &batch(&by_key)).await;
        assert_eq!(status, StatusCode::OK, "{first}");
        let id = first["results"][0]["item_id"].clone();
        for same in [&id, &json!(id.to_string()), &by_key] {
            let (status, again) = post(&tally, &tally.base, "/v1/votes", &key, &batch(same)).await;
            assert_eq!(status, StatusCode::OK, "{same}: {again}");
            for at in [0, 1] {
                let vote_id = |answer: &Value| answer["results"][at]["vote_id"].clone();
                assert_eq!(vote_id(&first), vote_id(&again), "{same}: {again}");
                assert_eq!(again["results"][at]["repeated"], true);
            }
        }
        let (status, _) = post(&tally, &tally.base, "/v1/votes", &key, &batch(&json!(plain))).await;
        assert_eq!(
            status,
            StatusCode::UNPROCESSABLE_ENTITY,
            "another item is another batch"
        );
        // A single vote, the same way.
        let single = async |of: &str| {
            let path = format!("/v1/items/{of}/votes");
            post(&tally, &tally.base, &path, &key, &json!({})).await.1
        };
        let first = single(&format!("key:post%2F{round}")).await;
        let again = single(&id.to_string()).await;
        assert_eq!(first["vote_id"], again["vote_id"], "{again}");
        assert_eq!(again["repeated"], true);
    }
    assert_rules_hold(&tally.pool).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_names_the_voter_of_its_cookie_is_the_same_as_one_that_does_not() {
    let tally = Tally::start_with(knows_voters).await;
    let item = tally.item("x").await;
    let Credential::Cookie(cookie) = cookie("ada") else {
        panic!("no cookie");
    };
    let send = async |vote: Value| {
        let request = tally.http.post(format!("{}/v1/votes", tally.base));
        let request = request.header("cookie", &cookie).header("Idempotency-Key", "k");
        let sent = request.json(&json!({ "votes": [vote] })).send().await;
        sent.expect("an answer").json::<Value>().await.expect("JSON")
    };
    let first = send(json!({ "item_id": item })).await;
    let again = send(json!({ "item_id": item, "voter_id": "ada" })).await;
    assert_eq!(first["results"][0]["status"], 201, "{first}");
    assert_eq!(
        first["results"][0]["vote_id"], again["results"][0]["vote_id"],
        "{again}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_whose_key_cannot_be_looked_up_says_that_no_vote_is_stored() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let keyed = json!({ "name": "y", "key": "post" });
    tally.post("/v1/items", &keyed).await;
    sqlx::raw_sql(
        "revoke select on item, rule from tally_server; revoke insert, select on idempotency_key from tally_server",
    )
    .execute(&tally.pool)
    .await
    .expect("Postgres answers");
    let batch = json!({ "votes": [{ "item_id": item }] });
    let answers = [
        post(&tally, &tally.base, "/v1/votes", "b", &batch).await,
        tally.post("/v1/items/key:post/votes", &json!({})).await,
        tally
            .post("/v1/votes", &json!({ "votes": [{ "item_id": "key:post" }] }))
            .await,
        tally
            .send(
                Method::PUT,
                "/v1/items/key:post/votes/ada",
                Some(&json!({ "value": 1 })),
            )
            .await,
        tally
            .send(Method::DELETE, "/v1/items/key:post/votes/ada", None)
            .await,
        tally
            .send(Method::DELETE, "/v1/polls/key:post/votes/ada", None)
            .await,
    ];
    for (status, problem) in answers {
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{problem}");
        let said = (&problem["type"], &problem["stored"]);
        assert_eq!(
            said,
            (&json!("/problems/vote-not-stored"), &json!("no")),
            "{problem}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_idempotency_key_is_refused_and_old_keys_are_deleted() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let path = format!("/v1/items/{item}/votes");
    for key in ["", "\"\"", "a b", &"k".repeat(256)] {
        let (status, problem) = post(&tally, &tally.base, &path, key, &json!({})).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{key:?}");
        assert_eq!(problem["field"], "Idempotency-Key");
    }
    assert_eq!(tally.ledger_sum(item).await, 0);
    for key in ["old", "fresh"] {
        post(&tally, &tally.base, &path, key, &json!({})).await;
    }
    sqlx::query(
        "update idempotency_key set created_at = now() - interval '24 hours 1 second'
         where vote_id = (select min(id) from vote)",
    )
    .execute(&tally.pool)
    .await
    .expect("Postgres answers");
    let taken = tally
        .ledger
        .take_job(Job::DeleteKeys)
        .await
        .expect("Postgres answers");
    let lease = taken.lease.expect("nobody deletes keys");
    // Postgres' clock alone was set a day ahead: the keys are older by it than by the worker's.
    let yesterday = Moment::from_micros(Moment::now().micros() - 86_400_000_000);
    let deleted = tally.ledger.delete_old_keys(yesterday, &lease).await;
    assert_eq!(deleted.expect("Postgres answers"), (0, false));
    // The worker's clock alone.
    let tomorrow = Moment::from_micros(Moment::now().micros() + 86_400_000_000);
    let deleted = tally.ledger.delete_old_keys(tomorrow, &lease).await;
    assert_eq!(deleted.expect("Postgres answers"), (1, false));
    let (_, fresh) = post(&tally, &tally.base, &path, "fresh", &json!({})).await;
    assert_eq!(fresh["repeated"], true);
    post(&tally, &tally.base, &path, "old", &json!({})).await;
    assert_eq!(tally.ledger_sum(item).await, 3, "it is no repeat after a day");
}
