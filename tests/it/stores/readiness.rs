//! Readiness: what `/health/ready` says of stores that answer and take no writes.
//! Also connections that Postgres closes while they are idle.

use std::time::Instant;

use futures_util::future::join_all;
use nix::sys::signal::Signal;
use reqwest::StatusCode;
use serde_json::{Value, json};
use sqlx::Executor;
use tally::domain::ItemId;
use tally::votes::BATCH_WRITERS_PER_THREAD;
use tally::web::threads;

use crate::helpers::eventually;
use crate::helpers::metrics::metric;
use crate::helpers::tally::Tally;
use crate::telemetry::passes_alone;

async fn execute(tally: &Tally, statement: &str) {
    tally.pool.execute(statement).await.expect("a statement");
}

/// Waits until readiness fails with this state of Postgres.
async fn until_postgres_is(tally: &Tally, state: &str) {
    eventually(&format!("ready says that Postgres is {state}"), async || {
        let (status, answer) = tally.get("/health/ready").await;
        (status == StatusCode::SERVICE_UNAVAILABLE && answer["postgres"] == state).then_some(answer)
    })
    .await;
}

/// Votes until a vote is stored again.
async fn votes_are_back(tally: &Tally, item: ItemId) {
    eventually("votes are stored again", async || {
        tally.vote(item, "bob").await.0.is_success().then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ready_is_refused_while_postgres_is_read_only() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    execute(&tally, "alter system set default_transaction_read_only = on").await;
    execute(&tally, "select pg_reload_conf()").await;
    until_postgres_is(&tally, "read-only").await;
    let (status, problem) = tally.vote(item, "ada").await;
    assert_eq!(
        (status, &problem["stored"]),
        (StatusCode::SERVICE_UNAVAILABLE, &json!("no"))
    );
    execute(&tally, "alter system reset default_transaction_read_only").await;
    execute(&tally, "select pg_reload_conf()").await;
    tally.wait_until_ready("ready").await;
    votes_are_back(&tally, item).await;
}

/// A session keeps the setting with which it began.
#[tokio::test(flavor = "multi_thread")]
async fn sessions_that_began_read_only_are_replaced_once_the_database_takes_writes() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    execute(&tally, "alter role tally set default_transaction_read_only = off").await;
    execute(
        &tally,
        "alter database tally set default_transaction_read_only = on",
    )
    .await;
    let end = "select pg_terminate_backend(pid) from pg_stat_activity where usename <> 'tally'";
    execute(&tally, end).await;
    until_postgres_is(&tally, "read-only").await;
    // So many at once use every connection of a pool.
    let make = async || {
        let made = (0..40).map(async |_| {
            let url = format!("{}/v1/items", tally.base);
            let answer = tally.http.post(url).json(&json!({ "name": "y" })).send().await;
            answer.expect("an answer").status()
        });
        join_all(made).await
    };
    eventually("each session is read-only", async || {
        let all = make().await;
        all.iter()
            .all(|status| *status == StatusCode::SERVICE_UNAVAILABLE)
            .then_some(())
    })
    .await;
    execute(&tally, "alter database tally reset default_transaction_read_only").await;
    eventually("no session is", async || {
        let all = make().await;
        all.iter()
            .all(|status| *status == StatusCode::CREATED)
            .then_some(())
    })
    .await;
    tally.wait_until_ready("ready").await;
    votes_are_back(&tally, item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ready_is_refused_while_postgres_is_a_standby() {
    let mut tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    tally.stores.postgres.stop().await;
    let signal = tally.stores.folder().join("postgres/data/standby.signal");
    std::fs::write(signal, "").expect("a file");
    tally.stores.postgres.start().await.expect("Postgres starts");
    until_postgres_is(&tally, "standby").await;
    assert_eq!(tally.vote(item, "ada").await.0, StatusCode::SERVICE_UNAVAILABLE);
    execute(&tally, "select pg_promote()").await;
    tally.wait_until_ready("ready").await;
    votes_are_back(&tally, item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_without_memory_is_not_tried_again_with_each_vote() {
    if passes_alone("stores::readiness::a_redis_without_memory_is_not_tried_again_with_each_vote").await {
        return;
    }
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    assert_eq!(tally.add(item, 1).await, Some(1));
    let mut redis = tally.stores.redis_connection().await;
    let mut set_limit = async |bytes: u64| {
        redis::cmd("CONFIG")
            .arg("SET")
            .arg("maxmemory")
            .arg(bytes)
            .exec_async(&mut redis)
            .await
            .expect("Redis answers");
    };
    // The server notices without a failed vote.
    set_limit(1).await;
    tally.wait_until_ready("degraded").await;
    for _ in 0..10 {
        assert_eq!(tally.add(item, 1).await, None, "stored, and not counted");
    }
    // The live count may be wrong, and others could read it.
    eventually("the suspect is invalidated", async || {
        (tally.live_count(item).await.is_none() && metric("tally_redis_available") == 0.0).then_some(())
    })
    .await;
    for _ in 0..10 {
        assert_eq!(tally.add(item, 1).await, None, "stored, and not counted");
    }
    assert_eq!(tally.get("/health/ready").await.1["redis"], "unavailable");
    assert_eq!(metric("tally_redis_failures_total"), 1.0);
    set_limit(0).await;
    tally.wait_until_ready("ready").await;
    eventually("live counts are back", async || tally.add(item, 1).await).await;
    tally.assert_exact_when_quiescent(item).await;
}

/// Votes at once over separate connections, so that each thread gets some.
/// The batch writers of a thread take turns.
async fn vote_on_all_threads(tally: &Tally, item: ItemId) -> Vec<(StatusCode, Value)> {
    let votes = (0..16 * threads()).map(async |_| {
        let client = reqwest::Client::builder().no_proxy().build().expect("a client");
        let path = format!("{}/v1/items/{item}/votes", tally.base);
        let response = client.post(path).send().await.expect("an answer");
        (response.status(), response.json().await.expect("JSON"))
    });
    join_all(votes).await
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_of_an_idle_postgres_no_vote_meets_a_closed_connection() {
    let mut tally = Tally::start().await;
    let item = tally.item("x").await;
    eventually("each batch writer has a connection", async || {
        vote_on_all_threads(&tally, item).await;
        let writers: i64 = sqlx::query_scalar(
            "select count(*) from pg_stat_activity where application_name like 'tally writer %'",
        )
        .fetch_one(&tally.pool)
        .await
        .ok()?;
        let all = threads() * BATCH_WRITERS_PER_THREAD;
        (usize::try_from(writers) == Ok(all)).then_some(())
    })
    .await;
    for _ in 0..3 {
        tally.stores.postgres.stop().await;
        tally.stores.postgres.start().await.expect("Postgres starts");
        for (status, answer) in vote_on_all_threads(&tally, item).await {
            // On a busy machine, a new connection may take longer than its limit.
            assert!(
                status == StatusCode::CREATED || answer["stored"] == "no",
                "{status} {answer}"
            );
        }
        // The reads' connections and the pool.
        let (status, answer) = tally.get(&format!("/v1/items/{item}")).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        assert_eq!(tally.get("/v1/items").await.0, StatusCode::OK);
    }
    tally.assert_exact_when_quiescent(item).await;
}

/// For so long an answer waits for a look, in seconds: its description says so.
const WAITS_SECONDS: f64 = 0.1;

#[tokio::test(flavor = "multi_thread")]
async fn while_a_store_hangs_ready_answers_from_what_is_known_and_says_how_old_that_is() {
    let name = "while_a_store_hangs_ready_answers_from_what_is_known_and_says_how_old_that_is";
    if passes_alone(&format!("stores::readiness::{name}")).await {
        return;
    }
    let tally = Tally::start().await;
    let age = |answer: &Value| answer["age_seconds"].as_f64().expect("an age");
    eventually("an answer waits for looks", async || {
        let asked = Instant::now();
        let (status, answer) = tally.get("/health/ready").await;
        let took = asked.elapsed().as_secs_f64();
        assert_eq!(status, StatusCode::OK, "{answer}");
        // One that took so long may have given up on a look.
        if took >= WAITS_SECONDS {
            return None;
        }
        assert!(age(&answer) <= took, "it looked: {answer}");
        Some(())
    })
    .await;
    // A look that was under way as its store was paused may have had its answers before.
    let past_a_look = async || {
        let first = tally.get("/health/ready").await;
        if age(&first.1) >= WAITS_SECONDS {
            first
        } else {
            tally.get("/health/ready").await
        }
    };
    tally.stores.redis.pause().expect("it runs");
    let (status, answer) = past_a_look().await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    assert!(age(&answer) >= WAITS_SECONDS, "it waits for no look: {answer}");
    tally.wait_until_ready("degraded").await;
    tally.stores.redis.resume().expect("it runs");
    tally.wait_until_ready("ready").await;
    tally
        .stores
        .postgres
        .signal_all(Signal::SIGSTOP)
        .expect("it runs");
    let (_, answer) = past_a_look().await;
    assert!(age(&answer) >= WAITS_SECONDS, "{answer}");
    until_postgres_is(&tally, "unavailable").await;
    eventually("the metrics say so", async || {
        (metric("tally_postgres_available") == 0.0 && metric("tally_ready") == 0.0).then_some(())
    })
    .await;
    tally
        .stores
        .postgres
        .signal_all(Signal::SIGCONT)
        .expect("it runs");
    tally.wait_until_ready("ready").await;
}
