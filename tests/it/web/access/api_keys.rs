//! API keys: made, used, rotated, revoked, expired.

use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tally::domain::{ApiKey, Moment, NewApiKey, Scope};
use tally::ledger::Role;
use tally::web::access::{ApiKeys, CreateItems, Open};
use tally::web::limits::UNCREDENTIALED_LIMIT_BALLOTS;

use super::{api_key, operator, send};
use crate::helpers::eventually;
use crate::helpers::programs::{TALLY, command, run, text};
use crate::helpers::tally::Tally;

async fn closed() -> Tally {
    Tally::start_with(|options| options.access.open = Open::default()).await
}

/// Runs `tally key` with these arguments.
/// Returns whether it succeeded, and its output.
async fn tally_key(tally: &Tally, arguments: &[&str]) -> (bool, String) {
    let mut command = command(TALLY, None);
    command.arg("key").args(arguments);
    command.env("DATABASE_URL", tally.stores.login_url(Role::Operator));
    let output = run(command).await;
    (
        output.status.success(),
        format!("{}{}", text(&output.stdout), text(&output.stderr)),
    )
}

async fn made_by(tally: &Tally, arguments: &[&str]) -> (i64, String) {
    let (done, said) = tally_key(tally, &[arguments, &["--json"]].concat()).await;
    assert!(done, "{said}");
    let made: Value = serde_json::from_str(said.trim()).expect("a line of JSON");
    let key = made["key"].as_str().expect("a key").to_owned();
    (made["id"].as_i64().expect("an id"), key)
}

/// Tries to make an item with this key.
async fn make(tally: &Tally, base: &str, key: &str) -> StatusCode {
    let authorization = format!("bEaReR  {key} ");
    let body = json!({ "name": "x" });
    let request = (Method::POST, "/v1/items");
    send(tally, base, request, Some(&authorization), Some(&body))
        .await
        .0
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_works_from_its_making_until_it_is_revoked_and_the_list_shows_its_use_and_not_the_key() {
    let tally = closed().await;
    let (id, key) = made_by(&tally, &["create", "the web frontend", "--scope", "vote,admin"]).await;
    assert_eq!(make(&tally, &tally.base, &key).await, StatusCode::CREATED);
    let (done, listed) = tally_key(&tally, &["list"]).await;
    assert!(
        done && listed.contains("the web frontend") && listed.contains("vote,admin"),
        "{listed}"
    );
    assert!(
        listed.contains("last_used_at") && !listed.contains(&key[6..20]),
        "{listed}"
    );
    let authorization = format!("Bearer {key}");
    let revoke = format!("/v1/api-keys/{id}");
    let (status, _) = send(
        &tally,
        &tally.base,
        (Method::DELETE, &revoke),
        Some(&authorization),
        None,
    )
    .await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    // The server that revoked the key refuses it at once.
    assert_eq!(make(&tally, &tally.base, &key).await, StatusCode::UNAUTHORIZED);
    let (_, listed) = tally_key(&tally, &["list"]).await;
    assert!(listed.contains("revoked_at"), "{listed}");
    let past = [
        "create",
        "expired",
        "--scope",
        "vote",
        "--expires-at",
        "2001-01-01T00:00:00Z",
    ];
    made_by(&tally, &past).await;
    let future = [
        "create",
        "valid",
        "--scope",
        "admin",
        "--expires-at",
        "2101-01-01T00:00:00Z",
    ];
    let (_, admin) = made_by(&tally, &future).await;
    let keys = tally
        .http
        .get(format!("{}/v1/api-keys", tally.base))
        .bearer_auth(admin);
    let keys: Value = keys.send().await.expect("an answer").json().await.expect("JSON");
    let of_key = |one: &Value| (one["name"].clone(), one["valid"].clone());
    let valid: Vec<(Value, Value)> = keys["api_keys"]
        .as_array()
        .expect("keys")
        .iter()
        .map(of_key)
        .collect();
    let expected = [("valid", true), ("expired", false), ("the web frontend", false)];
    assert_eq!(valid, expected.map(|(name, valid)| (json!(name), json!(valid))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_could_read_metrics_still_can_while_postgres_is_down() {
    let mut tally = closed().await;
    let (_, report) = api_key(&tally, &[Scope::Report]).await;
    let (_, vote) = api_key(&tally, &[Scope::Vote]).await;
    let (revoked_id, revoked) = api_key(&tally, &[Scope::Report]).await;
    // It remembers no key long enough for a second look.
    let keys = ApiKeys::with_limit(tally.server_ledger.clone(), Duration::ZERO);
    for (key, may) in [(&report, Some(true)), (&vote, None), (&revoked, Some(true))] {
        assert_eq!(keys.still_reports(&key.hash()).await, None);
        keys.find(&key.hash()).await.expect("Postgres answers");
        assert_eq!(keys.still_reports(&key.hash()).await, may);
    }
    let (done, said) = tally_key(&tally, &["revoke", &revoked_id.0.to_string()]).await;
    assert!(done, "{said}");
    assert_eq!(keys.still_reports(&revoked.hash()).await, Some(false));
    tally.stores.postgres.stop().await;
    assert_eq!(keys.still_reports(&report.hash()).await, Some(true));
    for key in [&vote, &revoked] {
        assert_eq!(keys.still_reports(&key.hash()).await, None);
    }
    assert!(keys.find(&report.hash()).await.is_err(), "of nothing else");
    keys.forget();
    assert_eq!(keys.still_reports(&report.hash()).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_revoked_elsewhere_is_refused_when_what_is_remembered_ends() {
    let tally = closed().await;
    let (id, key) = api_key(&tally, &[Scope::Vote]).await;
    let limit = Duration::from_millis(200);
    let keys = ApiKeys::with_limit(tally.server_ledger.clone(), limit);
    let hash = key.hash();
    let known = keys.find(&hash).await.expect("Postgres answers");
    assert!(known.expect("a key").scopes.has(Scope::Vote));
    let said = id.0.to_string();
    let (done, said) = tally_key(&tally, &["revoke", &said]).await;
    assert!(done, "{said}");
    eventually("the key is refused, though it is used all the time", async || {
        keys.find(&hash)
            .await
            .expect("Postgres answers")
            .is_none()
            .then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_remembered_serves_while_postgres_is_unavailable_and_no_longer() {
    let tally = closed().await;
    let (_, key) = api_key(&tally, &[Scope::Vote]).await;
    let (hash, other) = (key.hash(), ApiKey::fresh().hash());
    let limit = Duration::from_secs(3600);
    let keys = ApiKeys::with_limit(tally.server_ledger.clone(), limit);
    assert!(keys.find(&hash).await.expect("Postgres answers").is_some());
    assert!(keys.find(&other).await.expect("Postgres answers").is_none());
    tally.server_ledger.close().await;
    assert!(keys.find(&hash).await.expect("it is remembered").is_some());
    assert!(keys.find(&other).await.expect("it is remembered").is_none());
    assert!(keys.find(&ApiKey::fresh().hash()).await.is_err());
    keys.forget();
    assert!(keys.find(&hash).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_key_is_refused_and_so_is_one_that_expires_while_it_is_remembered() {
    let tally = closed().await;
    let (_, expired) = made_by(
        &tally,
        &[
            "create",
            "x",
            "--scope",
            "admin",
            "--expires-at",
            "2001-01-01T00:00:00Z",
        ],
    )
    .await;
    assert_eq!(
        make(&tally, &tally.base, &expired).await,
        StatusCode::UNAUTHORIZED
    );
    let soon: i64 =
        sqlx::query_scalar("select (extract(epoch from now() + interval '1 second') * 1000000)::bigint")
            .fetch_one(&tally.pool)
            .await
            .expect("Postgres answers");
    let key = ApiKey::fresh();
    let new = NewApiKey {
        name: "x".to_owned(),
        scopes: [Scope::Admin].into_iter().collect(),
        expires_at: Some(Moment::from_micros(soon)),
    };
    operator(&tally)
        .create_api_key(&key.hash(), &new)
        .await
        .expect("Postgres answers");
    let base = &tally.base;
    // The key expires long before the server would look up a remembered key again.
    eventually("it has expired", async || {
        (make(&tally, base, key.as_str()).await == StatusCode::UNAUTHORIZED).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotated_key_works_for_its_grace_and_its_successor_for_good() {
    let tally = closed().await;
    let (id, old) = made_by(&tally, &["create", "x", "--scope", "admin"]).await;
    let (next_id, next) = made_by(&tally, &["rotate", &id.to_string()]).await;
    assert_ne!(id, next_id);
    for key in [&old, &next] {
        assert_eq!(make(&tally, &tally.base, key).await, StatusCode::CREATED);
    }
    let (_, last) = made_by(&tally, &["rotate", &next_id.to_string(), "--grace", "1ms"]).await;
    assert_eq!(make(&tally, &tally.base, &last).await, StatusCode::CREATED);
    let elsewhere = tally
        .another_server_with(|options| options.access.open = Open::default())
        .await;
    eventually("its grace is over", async || {
        (make(&tally, &elsewhere, &next).await == StatusCode::UNAUTHORIZED).then_some(())
    })
    .await;
    let (done, said) = tally_key(&tally, &["rotate", &next_id.to_string()]).await;
    assert!(!done && said.contains("no valid key"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_command_about_keys_is_one_line_and_makes_none() {
    let tally = closed().await;
    let long = "x".repeat(101);
    for (arguments, part) in [
        (vec!["create", "x"], "--scope"),
        (vec!["create", "x", "--scope", "root"], "vote, admin or report"),
        (vec!["create", "x", "--scope", ""], "vote, admin or report"),
        (vec!["create", "", "--scope", "vote"], "1 to 100"),
        (vec!["create", &long, "--scope", "vote"], "1 to 100"),
        (vec!["create", "a\nb", "--scope", "vote"], "control character"),
        (
            vec!["create", "x", "--scope", "vote", "--expires-at", "soon"],
            "RFC 3339",
        ),
        (vec!["revoke", "7"], "no key 7"),
        (vec!["rotate", "7"], "no valid key 7"),
        (vec!["rotate", "7", "--grace", "x"], "--grace"),
    ] {
        let (done, said) = tally_key(&tally, &arguments).await;
        assert!(!done, "{arguments:?}: {said}");
        assert!(
            said.contains(part) && said.trim().lines().count() == 1,
            "{arguments:?}: {said}"
        );
    }
    let made: i64 = sqlx::query_scalar("select count(*) from api_key")
        .fetch_one(&tally.pool)
        .await
        .expect("Postgres answers");
    assert_eq!(made, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_request_stores_nothing_and_makes_no_item() {
    let tally = Tally::start_with(|options| {
        options.access.open = Open::default();
        options.voting.creates = CreateItems::Any;
    })
    .await;
    let item = tally.item("x").await;
    let (_, report) = api_key(&tally, &[Scope::Report]).await;
    let report = format!("Bearer {}", report.as_str());
    let votes = format!("/v1/items/{item}/votes");
    let voter = format!("{votes}/ada");
    let batch = json!({ "votes": [{ "item_id": item }, { "item_id": "key:new", "voter_id": "ada" }] });
    let value = json!({ "value": 1 });
    for authorization in [
        None,
        Some(report.as_str()),
        Some("Basic YTpi"),
        Some("Bearer "),
        Some(""),
    ] {
        for (request, body) in [
            ((Method::POST, votes.as_str()), Some(&json!({}))),
            ((Method::POST, votes.as_str()), None),
            (
                (Method::POST, "/v1/items/key:new/votes"),
                Some(&json!({ "voter_id": "ada" })),
            ),
            ((Method::PUT, voter.as_str()), Some(&value)),
            ((Method::PUT, "/v1/items/key:new/votes/ada"), Some(&value)),
            ((Method::DELETE, voter.as_str()), None),
            ((Method::POST, "/v1/items"), Some(&json!({ "name": "y" }))),
        ] {
            let (status, problem) = send(&tally, &tally.base, request.clone(), authorization, body).await;
            let refused = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&status);
            assert!(refused, "{request:?} {authorization:?}: {status} {problem}");
        }
        let mut request = tally.http.post(format!("{}/v1/votes", tally.base)).json(&batch);
        request = request.header("idempotency-key", "k");
        if let Some(value) = authorization {
            request = request.header("authorization", value);
        }
        let answer = request.send().await.expect("an answer");
        let status = answer.status();
        let answer: Value = answer.json().await.expect("JSON");
        if status == StatusCode::OK {
            for result in answer["results"].as_array().expect("results") {
                assert!(
                    [401, 403].contains(&result["status"].as_u64().unwrap_or_default()),
                    "{answer}"
                );
            }
        } else {
            assert_eq!(status, StatusCode::UNAUTHORIZED, "{answer}");
        }
    }
    let rows: (i64, i64, i64) = sqlx::query_as(
        "select (select count(*) from vote), (select count(*) from item), (select count(*) from idempotency_key)",
    )
    .fetch_one(&tally.pool)
    .await
    .expect("Postgres answers");
    assert_eq!(rows, (0, 1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_with_both_scopes_makes_the_item_of_an_unknown_key_with_its_first_vote() {
    let tally = closed().await;
    let (_, vote) = api_key(&tally, &[Scope::Vote]).await;
    let (_, both) = api_key(&tally, &[Scope::Vote, Scope::Admin]).await;
    let body = json!({ "voter_id": "ada" });
    for (key, expected) in [(&vote, 404), (&both, 201), (&vote, 200)] {
        let authorization = format!("Bearer {}", key.as_str());
        let request = (Method::POST, "/v1/items/key:post/votes");
        let (status, _) = send(&tally, &tally.base, request, Some(&authorization), Some(&body)).await;
        assert_eq!(status.as_u16(), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_credentials_in_one_request_are_refused() {
    let tally = closed().await;
    let (_, key) = api_key(&tally, &[Scope::Admin]).await;
    let answer = tally
        .http
        .post(format!("{}/v1/items", tally.base))
        .bearer_auth(key.as_str())
        .header("authorization", format!("Bearer {}", ApiKey::fresh().as_str()))
        .json(&json!({ "name": "x" }))
        .send()
        .await
        .expect("an answer");
    assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_servers_login_makes_no_key_and_reads_no_hash() {
    let tally = closed().await;
    api_key(&tally, &[Scope::Vote]).await;
    let pool = sqlx::PgPool::connect(&tally.stores.login_url(Role::Server))
        .await
        .expect("a login");
    for statement in [
        "select key_hash from api_key",
        "insert into api_key (key_hash, name, scopes) values (sha256('x'), 'x', array['admin'])",
        "update api_key set scopes = array['admin']",
        "delete from api_key",
    ] {
        let refused = sqlx::query(statement).execute(&pool).await;
        assert!(refused.is_err(), "{statement}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_key_a_batch_takes_few_ballots_so_that_it_cannot_fill_the_queue() {
    let tally = closed().await;
    let (_, admin) = api_key(&tally, &[Scope::Admin]).await;
    let (_, vote) = api_key(&tally, &[Scope::Vote]).await;
    let new = json!({ "name": "x", "by_ballot": true });
    let authorization = format!("Bearer {}", admin.as_str());
    let (status, _) = send(
        &tally,
        &tally.base,
        (Method::POST, "/v1/items"),
        Some(&authorization),
        Some(&new),
    )
    .await;
    assert_eq!(status, StatusCode::CREATED);
    let votes: Vec<Value> = (0..UNCREDENTIALED_LIMIT_BALLOTS + 5)
        .map(|at| json!({ "item_id": 1, "ballot": at.to_string() }))
        .collect();
    let statuses = async |key: Option<&ApiKey>| -> Vec<u64> {
        let mut request = tally.http.post(format!("{}/v1/votes", tally.base));
        if let Some(key) = key {
            request = request.bearer_auth(key.as_str());
        }
        let answer = request
            .json(&json!({ "votes": votes }))
            .send()
            .await
            .expect("an answer");
        let answer: Value = answer.json().await.expect("JSON");
        let results = answer["results"].as_array().expect("results").iter();
        results.filter_map(|one| one["status"].as_u64()).collect()
    };
    let got = statuses(None).await;
    let (looked_at, refused) = got.split_at(UNCREDENTIALED_LIMIT_BALLOTS);
    assert!(looked_at.iter().all(|status| *status == 409), "{got:?}");
    assert!(refused.iter().all(|status| *status == 401), "{got:?}");
    let got = statuses(Some(&vote)).await;
    assert!(got.iter().all(|status| *status == 409), "{got:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_cannot_be_looked_up_gets_503_and_a_vote_is_said_not_to_be_stored() {
    let tally = closed().await;
    let item = tally.item("x").await;
    let (_, key) = api_key(&tally, &Scope::ALL).await;
    sqlx::query("revoke execute on function use_api_key from tally_server")
        .execute(&tally.pool)
        .await
        .expect("Postgres answers");
    let votes = format!("/v1/items/{item}/votes");
    let voter = format!("{votes}/ada");
    let batch = json!({ "votes": [{ "item_id": item }] });
    for (method, path, body, kind) in [
        (Method::GET, "/metrics", None, "unavailable"),
        (
            Method::POST,
            "/v1/items",
            Some(&json!({ "name": "y" })),
            "unavailable",
        ),
        (Method::GET, &voter, None, "unavailable"),
        (Method::POST, &votes, Some(&json!({})), "vote-not-stored"),
        (Method::POST, "/v1/votes", Some(&batch), "vote-not-stored"),
        (Method::DELETE, &voter, None, "vote-not-stored"),
    ] {
        let authorization = format!("Bearer {}", key.as_str());
        let request = (method.clone(), path);
        let got = send(&tally, &tally.base, request, Some(&authorization), body).await;
        assert_eq!(
            got,
            (StatusCode::SERVICE_UNAVAILABLE, kind.to_owned()),
            "{method} {path}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_that_ask_a_server_send_their_key() {
    let tally = closed().await;
    let (_, admin) = api_key(&tally, &[Scope::Admin]).await;
    let (_, all) = api_key(&tally, &Scope::ALL).await;
    let file = tally.stores.folder().join("votes");
    std::fs::write(&file, "ada tea\nbob tea\n").expect("a file");
    let file = file.to_str().expect("a path");
    let out = tally.stores.folder().join("ballots");
    let out = out.to_str().expect("a path");
    let metrics = format!("{}/metrics", tally.base);
    let make_by_ballot = ["item", "make", "x", "--key", "board", "--by-ballot"];
    for (key, arguments) in [
        (&admin, &make_by_ballot[..]),
        (&admin, &["item", "edit", "key:board", "--name", "y"]),
        (&admin, &["poll", "make", "x", "--choice", "a"]),
        (
            &admin,
            &["ballots", "--item", "key:board", "--count", "2", "--out", out],
        ),
        (&all, &["replay", file]),
        (&all, &["health", "--url", &metrics]),
    ] {
        for (key, works) in [(None, false), (Some(key), true)] {
            let mut command = command(TALLY, None);
            command.args(arguments).env("TALLY_URL", &tally.base);
            if let Some(key) = key {
                command.env("TALLY_API_KEY", key.as_str());
            }
            let output = run(command).await;
            let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
            assert_eq!(output.status.success(), works, "{arguments:?}: {said}");
        }
    }
    let votes: i64 = sqlx::query_scalar("select count(*) from vote")
        .fetch_one(&tally.pool)
        .await
        .expect("Postgres answers");
    assert_eq!(votes, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_would_do_more_than_its_maker_is_refused_and_the_refusal_says_what_is_missing() {
    let tally = Tally::start_with(|options| options.access.open = "admin".parse().expect("names")).await;
    for (scopes, missing) in [
        (json!(["vote"]), "voters"),
        (json!(["admin", "report"]), "report"),
    ] {
        let body = json!({ "name": "x", "scopes": scopes });
        let (status, problem) = tally.post("/v1/api-keys", &body).await;
        assert_eq!(
            (status, &problem["field"]),
            (StatusCode::UNAUTHORIZED, &json!("scopes")),
            "{problem}"
        );
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert!(
            detail.contains(&format!("{missing} is missing in this server's TALLY_OPEN")),
            "{detail}"
        );
    }
}
