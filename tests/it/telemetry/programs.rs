//! What the programs' own metrics show of what voters, clients and operators meet.

use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use tally::ledger::Role;
use testkit::receiver::{Answer, Receiver};

use crate::helpers::eventually;
use crate::helpers::metrics::samples;
use crate::helpers::programs::{TALLY, command_as, operator, run, start_server_with, start_worker, text};
use crate::helpers::stores::{Stores, blocker};

/// Waits until this sample is at least so much.
async fn until(base: &str, sample: &str, least: f64) {
    eventually(&format!("{sample} is {least} or more"), async || {
        let value = samples(base).await?.get(sample).copied()?;
        (value >= least).then_some(())
    })
    .await;
}

/// The commit that `--version` shows.
async fn commit(stores: &Stores) -> String {
    let mut version = command_as(TALLY, Some((stores, Role::Server)));
    version.arg("--version");
    let said = run(version).await;
    let said = text(&said.stdout);
    let begin = format!("tally {} (commit ", env!("CARGO_PKG_VERSION"));
    let commit = said.trim().strip_prefix(&begin);
    let commit = commit.and_then(|commit| commit.strip_suffix(')'));
    commit.unwrap_or_else(|| panic!("{said}")).to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_shows_why_votes_fail_which_key_asks_what_is_refused_and_which_build_it_is() {
    let stores = Stores::start().await;
    // Metrics are for everyone, and all else needs a key.
    let (_server, base) = start_server_with(
        &stores,
        "server",
        &[("TALLY_OPEN", "report"), ("TALLY_SEED", "warm")],
    )
    .await;
    let key_of = async |scope: &str| {
        let (done, made, said) = operator(&stores, &["key", "create", scope, "--scope", scope]).await;
        assert!(done, "{said}");
        made[0].clone()
    };
    let (admin, voting) = (key_of("admin").await, key_of("vote").await);
    let http = Client::builder().no_proxy().build().expect("a client");
    let post = async |path: &str, key: Option<&Value>, body: Value| {
        let mut request = http.post(format!("{base}{path}")).json(&body);
        if let Some(key) = key {
            request = request.bearer_auth(key["key"].as_str().expect("a key"));
        }
        let answer = request.send().await.expect("an answer");
        (answer.status(), answer.json::<Value>().await.expect("JSON"))
    };
    let (status, item) = post("/v1/items", Some(&admin), json!({ "name": "x" })).await;
    assert_eq!(status, StatusCode::CREATED, "{item}");
    let votes = format!("/v1/items/{}/votes", item["id"]);
    let vote = async |voter: &str| post(&votes, Some(&voting), json!({ "voter_id": voter })).await.0;
    assert_eq!(vote("ada").await, StatusCode::CREATED);
    until(&base, "tally_cold_counts_total", 1.0).await;
    for (key, least) in [(&admin, 1.0), (&voting, 1.0)] {
        let id = key["id"].as_i64().expect("an id");
        until(
            &base,
            &format!("tally_api_key_requests_total{{key=\"{id}\"}}"),
            least,
        )
        .await;
    }

    let (status, _) = post("/v1/items", None, json!({ "name": "y" })).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    until(&base, "tally_refused_acts_total{noted=\"no\"}", 1.0).await;
    let (status, _) = post("/v1/items", Some(&voting), json!({ "name": "y" })).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    until(&base, "tally_refused_acts_total{noted=\"yes\"}", 1.0).await;

    let lock = blocker(&stores.pool(), "lock table vote in access exclusive mode").await;
    assert_eq!(vote("bob").await, StatusCode::SERVICE_UNAVAILABLE);
    lock.rollback().await.expect("a rollback");
    until(&base, "tally_vote_failures_total{why=\"no_answer\"}", 1.0).await;
    until(&base, "tally_votes_total{outcome=\"failed\"}", 1.0).await;

    let mut redis = stores.redis_connection().await;
    let memory = async |redis: &mut _, limit: &str| {
        let mut set = redis::cmd("CONFIG");
        let () = set
            .arg(&["SET", "maxmemory", limit])
            .query_async(redis)
            .await
            .expect("Redis answers");
    };
    memory(&mut redis, "1").await;
    assert_eq!(vote("cy").await, StatusCode::CREATED);
    until(&base, "tally_redis_out_of_memory", 1.0).await;
    memory(&mut redis, "0").await;
    eventually("Redis takes counts again", async || {
        let shown = samples(&base).await?;
        (shown["tally_redis_out_of_memory"] == 0.0 && shown["tally_redis_available"] == 1.0).then_some(())
    })
    .await;

    let shown = samples(&base).await.expect("an answer");
    let version = env!("CARGO_PKG_VERSION");
    let commit = commit(&stores).await;
    let is_build = |name: &&String| {
        name.starts_with("tally_build_info{")
            && name.contains(&format!("version=\"{version}\""))
            && name.contains(&format!("commit=\"{commit}\""))
    };
    assert!(shown.keys().any(|name| is_build(&name)), "{commit}: {shown:?}");
    for (sample, least) in [
        (
            "tally_postgres_pool_connections{pool=\"keys\",state=\"idle\"}",
            1.0,
        ),
        ("tally_postgres_available", 1.0),
        ("tally_ready", 1.0),
        ("process_open_fds", 1.0),
        ("process_resident_memory_bytes", 1e6),
        ("process_cpu_seconds_total", 0.0),
    ] {
        assert!(
            shown.get(sample).is_some_and(|value| *value >= least),
            "{sample}: {shown:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_shows_what_becomes_of_events_and_the_counts_of_cold_items_that_it_saves() {
    let stores = Stores::start().await;
    let (_server, server) = start_server_with(&stores, "server", &[("TALLY_SEED", "warm")]).await;
    let receiver = Receiver::answering(|delivery, _| match delivery.json()["data"]["number"].as_i64() {
        Some(1) => Answer::ok(),
        Some(2) => Answer::Status(410, String::new()),
        _ => Answer::Status(500, String::new()),
    })
    .await;
    let port = tally::dev::free_port().expect("a port");
    let address = format!("127.0.0.1:{port}");
    let _worker = start_worker(
        &stores,
        "worker",
        &[
            ("TALLY_WORKER_LISTEN", &address),
            ("TALLY_WEBHOOK_URL", &receiver.url),
            (
                "TALLY_WEBHOOK_KEYS",
                "1f1e1d1c1b1a191817161514131211100f0e0d0c0b0a09080706050403020100",
            ),
        ],
    );
    let worker = format!("http://{address}");
    let pool = stores.pool();
    // As the worker does when it has started.
    sqlx::query("select want_events('{}')")
        .execute(&pool)
        .await
        .expect("Postgres answers");
    // One that is delivered, one that is refused, and one that fails.
    for number in 1..=3 {
        sqlx::query("select note_event('x', 'item:' || $1, null, jsonb_build_object('number', $1))")
            .bind(number)
            .execute(&pool)
            .await
            .expect("an event");
    }
    for (sample, least) in [
        ("tally_event_deliveries_total{outcome=\"delivered\"}", 1.0),
        ("tally_event_deliveries_total{outcome=\"refused\"}", 1.0),
        ("tally_event_deliveries_total{outcome=\"failed\"}", 1.0),
        ("tally_events_waiting", 2.0),
        ("tally_events_oldest_waiting_seconds", 0.001),
    ] {
        until(&worker, sample, least).await;
    }
    sqlx::query("update event set dead_at = clock_timestamp() where delivered_at is null")
        .execute(&pool)
        .await
        .expect("Postgres answers");
    until(&worker, "tally_events_dead", 2.0).await;

    let (done, made, said) = operator(&stores, &["key", "create", "all", "--scope", "admin,vote"]).await;
    assert!(done, "{said}");
    let http = Client::builder().no_proxy().build().expect("a client");
    let post = async |path: String, body: Value| {
        let key = made[0]["key"].as_str().expect("a key");
        let request = http.post(format!("{server}{path}")).bearer_auth(key).json(&body);
        let answer = request.send().await.expect("an answer");
        assert!(answer.status().is_success());
        answer.json::<Value>().await.expect("JSON")
    };
    let item = post("/v1/items".to_owned(), json!({ "name": "x" })).await;
    post(
        format!("/v1/items/{}/votes", item["id"]),
        json!({ "voter_id": "ada" }),
    )
    .await;
    until(&worker, "tally_cold_saves_total", 1.0).await;
}
