//! Which API key cast a vote is kept: administrators see it, and operators void by it.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tally::domain::{ApiKey, ApiKeyId, ItemId, Scope};
use tally::ledger::Role;

use super::{api_key, operator};
use crate::helpers::eventually;
use crate::helpers::programs::{TALLY, command_as, run, text};
use crate::helpers::tally::Tally;
use crate::rules::assert_rules_hold;
use crate::rules::voiding::void;

/// Sends a request, perhaps with an API key. Returns the answer.
async fn send(
    tally: &Tally,
    key: Option<&ApiKey>,
    request: (Method, &str),
    body: &Value,
) -> (StatusCode, Value) {
    let (method, path) = request;
    let mut request = tally
        .http
        .request(method, format!("{}{path}", tally.base))
        .json(body);
    if let Some(key) = key {
        request = request.bearer_auth(key.as_str());
    }
    let answer = request.send().await.expect("an answer");
    (answer.status(), answer.json().await.unwrap_or_default())
}

/// Casts a vote in each way that there is, with a voter of this name where it takes one.
async fn cast_in_each_way(
    tally: &Tally,
    key: Option<&ApiKey>,
    voter: &str,
    (plain, limited): (ItemId, ItemId),
    poll: &Value,
) {
    let of_plain = format!("/v1/items/{plain}/votes");
    let choice = &poll["choices"][0]["item_id"];
    let batch = json!({ "votes": [
        { "item_id": plain, "value": -1 },
        { "item_id": plain, "value": 7 },
        { "item_id": limited, "voter_id": format!("{voter} 2") },
    ] });
    for (method, path, body) in [
        (Method::POST, of_plain.clone(), json!({})),
        (Method::POST, of_plain.clone(), json!({ "voter_id": voter })),
        (
            Method::POST,
            format!("/v1/items/{limited}/votes"),
            json!({ "voter_id": voter }),
        ),
        (Method::POST, "/v1/votes".to_owned(), batch),
        (Method::PUT, format!("{of_plain}/{voter}"), json!({ "value": -1 })),
        (
            Method::PUT,
            format!("/v1/polls/{}/votes/{voter}", poll["id"]),
            json!({ "items": [choice] }),
        ),
    ] {
        let (status, answer) = send(tally, key, (method, &path), &body).await;
        assert!(status.is_success(), "{path}: {answer}");
    }
}

/// Which votes are noted as this key's.
async fn votes_of(tally: &Tally, key: ApiKeyId) -> Vec<i64> {
    sqlx::query_scalar(
        "select generate_series(lower(part), upper(part) - 1) as id
         from vote_api_key, unnest(vote_ids) as part where api_key_id = $1 order by id",
    )
    .bind(key.0)
    .fetch_all(&tally.pool)
    .await
    .expect("Postgres answers")
}

#[tokio::test(flavor = "multi_thread")]
async fn votes_of_a_leaked_key_are_voided_by_it_however_they_were_cast_and_those_of_others_stay() {
    let tally = Tally::start().await;
    // The votes' ids go over the end of a block.
    sqlx::query("select setval('vote_id_seq', 4083)")
        .execute(&tally.pool)
        .await
        .expect("the owner may");
    let (leaked, key) = api_key(&tally, &[Scope::Vote]).await;
    let (_, other) = api_key(&tally, &[Scope::Vote]).await;
    let plain = tally.item("x").await;
    let limited = tally
        .item_with(json!({ "max_votes": 20, "numbered": true }))
        .await;
    let (_, poll) = tally
        .post("/v1/polls", &json!({ "title": "x", "choices": ["a", "b"] }))
        .await;
    for (voter, key) in [("ada", Some(&other)), ("bot", Some(&key)), ("bob", None)] {
        cast_in_each_way(&tally, key, voter, (plain, limited), &poll).await;
    }
    let first = votes_of(&tally, leaked).await;
    assert!(
        first.first() < Some(&4096) && first.last() > Some(&4096),
        "{first:?}"
    );
    assert_eq!(
        first.len(),
        7,
        "a vote that was replaced is noted too, and no retraction"
    );
    operator(&tally)
        .revoke_api_key(leaked)
        .await
        .expect("Postgres answers");

    let by_key = ["--api-key", &leaked.0.to_string(), "--reason", "it leaked"];
    let (_, dry) = void(&tally, &by_key).await;
    // Held: two without a voter, one changed, two by a rule, one choice.
    assert_eq!((&dry["votes"], &dry["sum"]), (&json!(6), &json!(2)), "{dry}");
    let (done, voided) = void(&tally, &[&by_key[..], &["--apply"]].concat()).await;
    assert!(done && voided["voided_votes"] == 6, "{voided}");
    let choice = poll["choices"][0]["item_id"]
        .as_i64()
        .and_then(ItemId::new)
        .expect("an id");
    for (item, count) in [(plain, -2), (limited, 4), (choice, 2)] {
        let item = tally.get(&format!("/v1/items/{item}")).await.1;
        assert_eq!(item["vote_count"], count, "{item}");
    }
    assert_rules_hold(&tally.pool).await;
    let keys = testkit::rules::broken_keys(&tally.pool)
        .await
        .expect("Postgres answers");
    assert_eq!(keys, [""; 0]);
    let (_, again) = void(&tally, &by_key).await;
    assert_eq!(again["votes"], 0, "nothing is voided twice");

    // What is cast again is still that key's.
    let (done, undone) = void(&tally, &["--undo", &voided["voiding"].to_string()]).await;
    assert!(done && undone["restored_votes"] == 6, "{undone}");
    let (_, dry) = void(&tally, &by_key).await;
    assert_eq!((&dry["votes"], &dry["sum"]), (&json!(6), &json!(2)), "{dry}");
    let (_, dry) = void(&tally, &[&by_key[..], &["--item", &plain.to_string()]].concat()).await;
    assert_eq!(dry["votes"], 3, "{dry}");
    for item in [plain, limited, choice] {
        tally.assert_exact_when_quiescent(item).await;
    }
    let acts: Vec<Value> = sqlx::query_scalar("select details from act where what = 'voiding.create'")
        .fetch_all(&tally.pool)
        .await
        .expect("Postgres answers");
    assert!(acts.iter().any(|one| one["api_key_id"] == leaked.0), "{acts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn votes_are_voided_by_their_key_over_http_and_an_unknown_key_is_named() {
    let tally = Tally::start().await;
    let (leaked, key) = api_key(&tally, &[Scope::Vote]).await;
    let item = tally.item("x").await;
    let votes = format!("/v1/items/{item}/votes");
    for one in [Some(&key), None, Some(&key)] {
        let (status, _) = send(&tally, one, (Method::POST, &votes), &json!({})).await;
        assert_eq!(status, StatusCode::CREATED);
    }
    let wanted =
        |id: i64, dry_run: bool| json!({ "api_key_id": id, "reason": "it leaked", "dry_run": dry_run });
    let (status, answer) = tally.post("/v1/voidings", &wanted(leaked.0, true)).await;
    assert_eq!(
        (status, &answer["votes"]),
        (StatusCode::OK, &json!(2)),
        "{answer}"
    );
    let (status, answer) = tally.post("/v1/voidings", &wanted(leaked.0 + 1, true)).await;
    assert_eq!(status, StatusCode::NOT_FOUND, "{answer}");
    assert!(
        answer["type"]
            .as_str()
            .is_some_and(|kind| kind.ends_with("unknown-api-key")),
        "{answer}"
    );
    let (status, answer) = tally.post("/v1/voidings", &wanted(leaked.0, false)).await;
    assert_eq!(
        (status, &answer["api_key_id"]),
        (StatusCode::ACCEPTED, &json!(leaked.0)),
        "{answer}"
    );
    eventually("its votes are voided", async || {
        let (_, shown) = tally.get(&format!("/v1/items/{item}")).await;
        (shown["vote_count"] == 1).then_some(())
    })
    .await;

    for (argument, said) in [
        ("99", "--api-key: there is no API key 99"),
        ("x", "an API key's id"),
    ] {
        let mut command = command_as(TALLY, Some((&tally.stores, Role::Operator)));
        command.args(["void", "--api-key", argument, "--reason", "x"]);
        let output = run(command).await;
        assert!(!output.status.success());
        let error = text(&output.stderr);
        assert!(
            error.contains(said) && error.trim().lines().count() <= 3,
            "{error}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_shows_the_api_key_to_administrators_alone() {
    let tally = Tally::start().await;
    let closed = tally
        .another_server_with(|options| options.access.open = tally::web::access::Open::default())
        .await;
    let (id, voting) = api_key(&tally, &[Scope::Vote]).await;
    let (_, admin) = api_key(&tally, &[Scope::Admin]).await;
    let item = tally.item("x").await;
    let path = format!("/v1/items/{item}/votes");
    let (_, by_key) = send(
        &tally,
        Some(&voting),
        (Method::POST, &path),
        &json!({ "voter_id": "ada" }),
    )
    .await;
    let (_, by_nobody) = send(&tally, None, (Method::POST, &path), &json!({})).await;
    let receipt = async |vote: &Value, key: Option<&ApiKey>| {
        let mut request = tally.http.get(format!("{closed}/v1/votes/{}", vote["vote_id"]));
        if let Some(key) = key {
            request = request.bearer_auth(key.as_str());
        }
        let answer = request.send().await.expect("an answer");
        assert_eq!(answer.status(), StatusCode::OK);
        answer.json::<Value>().await.expect("JSON")
    };
    assert_eq!(receipt(&by_key, Some(&admin)).await["api_key_id"], id.0);
    let none = receipt(&by_nobody, Some(&admin)).await;
    assert_eq!(none.get("api_key_id"), Some(&Value::Null), "{none}");
    for key in [None, Some(&voting), Some(&ApiKey::fresh())] {
        let answer = receipt(&by_key, key).await;
        assert_eq!(answer.get("api_key_id"), None, "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_says_with_which_key_a_secret_vote_was_cast() {
    let tally = Tally::start().await;
    let (id, key) = api_key(&tally, &[Scope::Vote]).await;
    let secret = json!({ "title": "x", "choices": ["a", "b"], "by_ballot": true, "secret": true });
    let (_, poll) = tally.post("/v1/polls", &secret).await;
    let ballots = format!("/v1/polls/{}/ballots", poll["id"]);
    let (_, made) = tally.post(&ballots, &json!({ "count": 1 })).await;
    let path = format!("/v1/items/{}/votes", poll["choices"][0]["item_id"]);
    let (status, answer) = send(
        &tally,
        Some(&key),
        (Method::POST, &path),
        &json!({ "ballot": made["ballots"][0] }),
    )
    .await;
    assert!(status.is_success(), "{answer}");
    assert_eq!(votes_of(&tally, id).await, [0_i64; 0]);
}
