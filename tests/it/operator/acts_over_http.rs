//! An operator's acts over HTTP: voidings, keys, the trail.

use nix::sys::signal::Signal;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tally::domain::Scope;
use tally::ledger::Role;
use tally::web::access::Open;

use crate::helpers::eventually;
use crate::helpers::programs::{start_server_with, start_worker, stop};
use crate::helpers::stores::Stores;
use crate::helpers::tally::Tally;
use crate::web::access::api_key;

/// Waits until nobody works on this voiding any more. Returns it.
async fn ended(tally: &Tally, id: &Value) -> Value {
    let path = format!("/v1/voidings/{id}");
    eventually("the voiding has ended", async || {
        let (_, voiding) = tally.get(&path).await;
        (voiding["under_way"] == false).then_some(voiding)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn votes_are_voided_as_the_dry_run_said_noted_as_the_keys_act_and_cast_again() {
    let tally = Tally::start().await;
    let (key_id, key) = api_key(&tally, &[Scope::Admin]).await;
    let item = tally.item("x").await;
    for voter in ["ada", "bot-7"] {
        tally.vote(item, voter).await;
    }
    let send = async |path: &str, body: Value| {
        let request = tally.http.post(format!("{}{path}", tally.base));
        let request = request.bearer_auth(key.as_str()).json(&body);
        let answer = request.send().await.expect("an answer");
        (answer.status(), answer.json::<Value>().await.expect("JSON"))
    };
    let body =
        |dry_run: bool| json!({ "voter_id": "bot-7", "item": item, "reason": "a bot", "dry_run": dry_run });
    let (status, dry) = send("/v1/voidings", body(true)).await;
    assert_eq!(
        (status, dry),
        (
            StatusCode::OK,
            json!({ "votes": 1, "sum": 1, "complete": true, "next_after": null })
        )
    );
    assert_eq!(tally.live_count(item).await, Some(2), "nothing is voided yet");
    let (status, made) = send("/v1/voidings", body(false)).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{made}");
    let voided = ended(&tally, &made["id"]).await;
    assert_eq!(
        (&voided["state"], &voided["voided_votes"], &voided["voter_id"]),
        (&json!("voided"), &json!(1), &json!("bot-7"))
    );
    assert_eq!(tally.live_count(item).await, Some(1));
    let (status, _) = send(&format!("/v1/voidings/{}/undo", made["id"]), json!({})).await;
    assert_eq!(status, StatusCode::ACCEPTED);
    let undone = ended(&tally, &made["id"]).await;
    assert_eq!(
        (&undone["state"], &undone["restored_votes"]),
        (&json!("undone"), &json!(1))
    );
    tally.assert_exact_when_quiescent(item).await;
    assert_eq!(tally.ledger_sum(item).await, 2);

    let rows: Vec<(String, String, String)> = sqlx::query_as(
        "select who, login, what || ' ' || outcome from act where what like 'voiding.%' order by id",
    )
    .fetch_all(&tally.pool)
    .await
    .expect("Postgres answers");
    let who = format!("api_key:{}", key_id.0);
    let expected = [
        "voiding.create done",
        "voiding.run begun",
        "voiding.run done",
        "voiding.undo begun",
        "voiding.undo done",
    ];
    let expected = expected.map(|what| (who.clone(), "operator".to_owned(), what.to_owned()));
    assert_eq!(rows, expected);
    // A second undo has nothing to do.
    let (status, _) = send(&format!("/v1/voidings/{}/undo", made["id"]), json!({})).await;
    assert_eq!(status, StatusCode::OK);
    for (wrong, status) in [
        (json!({ "reason": "x", "dry_run": true }), 422),
        (json!({ "voter_id": "x", "reason": "", "dry_run": true }), 422),
        (json!({ "voter_id": "x", "reason": "x" }), 400),
        (
            json!({ "voter_id": "x", "reason": "x", "dry_run": false, "after": 1 }),
            422,
        ),
        (json!({ "item": 999, "reason": "x", "dry_run": true }), 404),
    ] {
        let (got, problem) = send("/v1/voidings", wrong.clone()).await;
        assert_eq!(got.as_u16(), status, "{wrong}: {problem}");
    }
}

/// Stores this many votes without a voter on item 1, past Tally.
async fn many_votes(stores: &Stores, votes: i32) {
    let statement = "insert into vote (item_id, value) select 1, 1 from generate_series(1, $1)";
    let inserted = sqlx::query(statement).bind(votes).execute(&stores.pool()).await;
    inserted.expect("Postgres answers");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_voiding_goes_on_without_its_client_stops_with_its_server_and_is_resumed_after_a_kill() {
    let stores = Stores::start().await;
    let operator = stores.login_url(Role::Operator);
    let settings = [
        ("TALLY_OPERATOR_DATABASE_URL", operator.as_str()),
        ("TALLY_OPEN", "admin,anonymous"),
    ];
    let (mut server, base) = start_server_with(&stores, "server", &settings).await;
    let http = reqwest::Client::new();
    let post = async |url: String, body: Value| {
        let answer = http.post(url).json(&body).send().await.expect("an answer");
        (answer.status(), answer.json::<Value>().await.expect("JSON"))
    };
    assert_eq!(
        post(format!("{base}/v1/items"), json!({ "name": "x" })).await.1["id"],
        1
    );
    many_votes(&stores, 60_000).await;
    let body = json!({ "item": 1, "reason": "a script", "dry_run": false });
    let (status, made) = post(format!("{base}/v1/voidings"), body).await;
    assert_eq!((status, &made["id"]), (StatusCode::ACCEPTED, &json!(1)), "{made}");
    let pool = stores.pool();
    let voided = async || -> i64 {
        let total = sqlx::query_scalar("select count(*) from voided")
            .fetch_one(&pool)
            .await;
        total.expect("Postgres answers")
    };
    eventually("some chunks are voided, and nobody asks", async || {
        (voided().await > 2000).then_some(())
    })
    .await;
    server.kill().await.expect("it runs");
    let before = voided().await;
    assert!(before < 60_000, "it was killed in the middle");

    let (server, base) = start_server_with(&stores, "server-2", &settings).await;
    let get = async |path: &str| -> Value {
        let answer = http.get(format!("{base}{path}")).send().await.expect("an answer");
        answer.json().await.expect("JSON")
    };
    let shown = get("/v1/voidings/1").await;
    assert_eq!(
        (&shown["state"], &shown["under_way"]),
        (&json!("voiding"), &json!(false))
    );
    let (status, _) = post(format!("{base}/v1/voidings/1/resume"), json!({})).await;
    assert_eq!(status, StatusCode::ACCEPTED);
    // When the server is asked to stop, it finishes the chunk under way and stops.
    eventually("it goes on", async || (voided().await > before).then_some(())).await;
    stop(server, Signal::SIGTERM).await;

    let (server, base) = start_server_with(&stores, "server-3", &settings).await;
    let worker = start_worker(&stores, "worker", &[("TALLY_FLUSH_EVERY", "50ms")]);
    post(format!("{base}/v1/voidings/1/resume"), json!({})).await;
    eventually("all is voided", async || {
        let answer = http.get(format!("{base}/v1/voidings/1")).send().await.ok()?;
        let shown: Value = answer.json().await.ok()?;
        (shown["state"] == "voided" && shown["voided_votes"] == 60_000).then_some(())
    })
    .await;
    eventually("the count is right", async || {
        let item: Value = http
            .get(format!("{base}/v1/items/1"))
            .send()
            .await
            .ok()?
            .json()
            .await
            .ok()?;
        (item["vote_count"] == 0 && item["saved"]["vote_count"] == 0).then_some(())
    })
    .await;
    let twice: i64 = sqlx::query_scalar("select sum(value)::bigint from vote where item_id = 1")
        .fetch_one(&pool)
        .await
        .expect("Postgres answers");
    assert_eq!(twice, 0, "each vote was taken back once");
    stop(server, Signal::SIGTERM).await;
    stop(worker, Signal::SIGTERM).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_operators_login_is_refused_starts_is_ready_takes_votes_and_says_so() {
    let stores = Stores::start().await;
    let operator = stores.login_url(Role::Operator);
    let (user, rest) = operator.rsplit_once('@').expect("a URL");
    let (scheme, _) = user.rsplit_once(':').expect("a password");
    for (url, said) in [
        // A wrong password, and a login of another role.
        (format!("{scheme}:wrong-5ecret@{rest}"), "operator-login"),
        (stores.login_url(Role::Report), "operator-login"),
        (
            "postgres://nobody:wrong-5ecret@127.0.0.1:1/none".to_owned(),
            "unavailable",
        ),
    ] {
        let settings = [
            ("TALLY_OPERATOR_DATABASE_URL", url.as_str()),
            ("TALLY_OPEN", "admin,anonymous"),
        ];
        let (server, base) = start_server_with(&stores, &format!("server-{}", url.len()), &settings).await;
        let http = reqwest::Client::new();
        let made = http
            .post(format!("{base}/v1/items"))
            .json(&json!({ "name": "x" }));
        let made: Value = made.send().await.expect("an answer").json().await.expect("JSON");
        let vote = http
            .post(format!("{base}/v1/items/{}/votes", made["id"]))
            .send()
            .await;
        assert_eq!(vote.expect("an answer").status(), StatusCode::CREATED);
        let answer = http
            .get(format!("{base}/v1/trail"))
            .send()
            .await
            .expect("an answer");
        let problem: Value = answer.json().await.expect("JSON");
        assert_eq!(problem["type"], format!("/problems/{said}"), "{problem}");
        assert!(!problem.to_string().contains("5ecret"), "{problem}");
        let vote = http
            .post(format!("{base}/v1/items/{}/votes", made["id"]))
            .send()
            .await;
        assert_eq!(vote.expect("an answer").status(), StatusCode::CREATED);
        assert!(!server.output().contains("5ecret"), "{}", server.output());
        stop(server, Signal::SIGTERM).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_makes_and_rotates_keys_with_its_own_scopes_only_and_the_trail_shows_that_in_pages() {
    let tally = Tally::start_with(|options| options.access.open = Open::default()).await;
    let (_, admin) = api_key(&tally, &[Scope::Admin]).await;
    let (vote_id, _) = api_key(&tally, &[Scope::Vote]).await;
    let ask = async |method: Method, path: &str, key: &str, body: Option<Value>| {
        let mut request = tally
            .http
            .request(method, format!("{}{path}", tally.base))
            .bearer_auth(key);
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer = request.send().await.expect("an answer");
        (
            answer.status().as_u16(),
            answer.json::<Value>().await.expect("JSON"),
        )
    };
    let new = |scopes: Value| Some(json!({ "name": "another", "scopes": scopes }));
    let post = async |path: &str, body: Option<Value>| ask(Method::POST, path, admin.as_str(), body).await;
    let (status, made) = post("/v1/api-keys", new(json!(["admin"]))).await;
    assert_eq!(status, 201, "{made}");
    let made_key = made["key"].as_str().expect("a key").to_owned();
    assert_eq!(
        ask(Method::GET, "/v1/api-keys", &made_key, None).await.0,
        200,
        "it works"
    );
    // A key cannot create a key with more scopes than its own.
    for (path, body) in [
        ("/v1/api-keys".to_owned(), new(json!(["admin", "vote"]))),
        ("/v1/api-keys".to_owned(), new(json!(["report"]))),
        (format!("/v1/api-keys/{}/rotate", vote_id.0), Some(json!({}))),
    ] {
        let (status, problem) = post(&path, body).await;
        assert_eq!(
            (status, &problem["type"]),
            (403, &json!("/problems/not-allowed")),
            "{path}"
        );
    }
    for wrong in [
        new(json!([])),
        new(json!(["all"])),
        Some(json!({ "name": "", "scopes": ["admin"] })),
    ] {
        assert_eq!(post("/v1/api-keys", wrong).await.0, 422);
    }
    let rotate = format!("/v1/api-keys/{}/rotate", made["id"]);
    assert_eq!(post(&rotate, Some(json!({ "grace_seconds": -1 }))).await.0, 422);
    let (status, rotated) = post(&rotate, Some(json!({ "grace_seconds": 0 }))).await;
    assert_eq!(status, 201, "{rotated}");
    assert_eq!(
        ask(Method::GET, "/v1/api-keys", &made_key, None).await.0,
        401,
        "the old one has ended"
    );
    let new_key = rotated["key"].as_str().expect("a key").to_owned();
    let trail = async |query: &str| ask(Method::GET, &format!("/v1/trail{query}"), &new_key, None).await;
    let (status, all) = trail("").await;
    assert_eq!(
        (status, &all["acts"][0]["what"]),
        (200, &json!("api_key.rotate")),
        "{all}"
    );
    let (mut paged, mut query) = (Vec::new(), "?limit=2".to_owned());
    loop {
        let (_, page) = trail(&query).await;
        paged.extend(page["acts"].as_array().expect("acts").clone());
        match page["next_before"].as_i64() {
            Some(before) => query = format!("?limit=2&before={before}"),
            None => break,
        }
    }
    assert_eq!(json!(paged), all["acts"], "the pages are the whole");
    // From one time, and until before another.
    let time = paged[2]["acted_at"].as_str().expect("a time").to_owned();
    assert_eq!(
        trail(&format!("?since={time}")).await.1["acts"],
        json!(paged[..3])
    );
    assert_eq!(
        trail(&format!("?until={time}")).await.1["acts"],
        json!(paged[3..])
    );
    let (_, refused) = trail("?what=api_key.create&who=api_key:1").await;
    let outcomes: Vec<&Value> = refused["acts"]
        .as_array()
        .expect("acts")
        .iter()
        .map(|act| &act["outcome"])
        .collect();
    assert_eq!(
        outcomes.iter().filter(|one| **one == "done").count(),
        1,
        "{refused}"
    );
    for wrong in ["?what=item.delete", "?limit=0", "?since=yesterday", "?who="] {
        assert_eq!(trail(wrong).await.0, 422, "{wrong}");
    }
    let text = all.to_string();
    assert!(!text.contains("tally_"), "no key stands in the trail: {text}");
}
