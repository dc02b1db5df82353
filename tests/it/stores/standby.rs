//! A synchronous standby that is gone: commits wait for it, and someone may cancel the wait.

use std::pin::pin;

use futures_util::future::join_all;
use reqwest::{Method, StatusCode};
use serde_json::json;
use sqlx::{Executor, PgPool};
use tally::domain::ItemId;

use crate::helpers::eventually;
use crate::helpers::stores::{LOCK_VOTES, blocker, refuse, refuse_no_more};
use crate::helpers::tally::Tally;

async fn execute(pool: &PgPool, statement: &str) {
    pool.execute(statement).await.expect("a statement");
}

/// From now on, commits wait for a standby that does not exist.
pub(super) async fn lose_standby(pool: &PgPool) {
    execute(pool, "alter system set synchronous_standby_names = 'gone'").await;
    execute(pool, "select pg_reload_conf()").await;
    eventually("the setting is in force", async || {
        let names: String = sqlx::query_scalar("show synchronous_standby_names")
            .fetch_one(pool)
            .await
            .ok()?;
        (names == "gone").then_some(())
    })
    .await;
    // Commits go by what the checkpointer knows, and it may read the setting later than this session.
    eventually("commits wait", async || {
        let mut commit = pin!(execute(pool, "select pg_logical_emit_message(true, 'test', '')"));
        tokio::select! {
            () = &mut commit => None,
            () = cancel_waits(pool) => {
                commit.await;
                Some(())
            }
        }
    })
    .await;
}

/// Postgres goes on without the standby.
pub(super) async fn give_up_standby(pool: &PgPool) {
    execute(pool, "alter system reset synchronous_standby_names").await;
    execute(pool, "select pg_reload_conf()").await;
}

/// Cancels each wait for the standby, once at least.
pub(super) async fn cancel_waits(pool: &PgPool) {
    eventually("a commit waits", async || {
        let cancelled: Vec<bool> = sqlx::query_scalar(
            "select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'",
        )
        .fetch_all(pool)
        .await
        .ok()?;
        (!cancelled.is_empty()).then_some(())
    })
    .await;
}

/// What a vote is answered while someone cancels its first wait.
async fn vote_with_a_cancelled_wait(tally: &Tally, item: ItemId) -> (StatusCode, serde_json::Value) {
    let (answer, ()) = tokio::join!(tally.vote(item, "ada"), cancel_waits(&tally.pool));
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vote_whose_wait_for_the_standby_was_cancelled_is_not_acknowledged_and_neither_is_its_repeat() {
    let tally = Tally::start().await;
    let items = [
        tally.item("x").await,
        tally.item_with(json!({ "max_votes": 5 })).await,
    ];
    for item in items {
        tally.vote(item, "bob").await;
        lose_standby(&tally.pool).await;
        let (status, answer) = vote_with_a_cancelled_wait(&tally, item).await;
        assert_eq!(
            (status, &answer["stored"]),
            (StatusCode::SERVICE_UNAVAILABLE, &json!("unknown"))
        );
        assert_eq!(tally.ledger_sum(item).await, 2, "it is stored all the same");
        let (status, answer) = tally.vote(item, "ada").await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "a repeat: {answer}");
        give_up_standby(&tally.pool).await;
        let repeated = eventually("the repeat is answered", async || {
            let (status, answer) = tally.vote(item, "ada").await;
            (status == StatusCode::OK).then_some(answer)
        })
        .await;
        assert_eq!(repeated["repeated"], true);
        tally.assert_exact_when_quiescent(item).await;
        assert_eq!(tally.ledger_sum(item).await, 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vote_whose_wait_was_cancelled_is_acknowledged_once_the_standby_has_it() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.vote(item, "bob").await;
    lose_standby(&tally.pool).await;
    let cancelled = async {
        cancel_waits(&tally.pool).await;
        give_up_standby(&tally.pool).await;
    };
    let ((status, answer), ()) = tokio::join!(tally.vote(item, "ada"), cancelled);
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    tally.assert_exact_when_quiescent(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_whose_wait_for_the_standby_was_cancelled_is_not_said_to_be_made() {
    let tally = Tally::start().await;
    lose_standby(&tally.pool).await;
    let new = json!({ "name": "y", "key": "new" });
    let ((status, answer), ()) = tokio::join!(tally.post("/v1/items", &new), cancel_waits(&tally.pool));
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{answer}");
    let (status, answer) = tally.post("/v1/items", &new).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "asked again: {answer}");
    give_up_standby(&tally.pool).await;
    let (status, answer) = tally.post("/v1/items", &new).await;
    assert_eq!(status, StatusCode::OK, "an equal item is there: {answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_was_done_before_is_said_to_be_done_until_the_standby_has_it() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let (status, key) = tally
        .post("/v1/api-keys", &json!({ "name": "web", "scopes": ["admin"] }))
        .await;
    assert_eq!(status, StatusCode::CREATED, "{key}");
    let key = format!("/v1/api-keys/{}", key["id"]);
    let void = json!({ "voter_id": "ada", "reason": "x", "dry_run": false });
    let (status, voiding) = tally.post("/v1/voidings", &void).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{voiding}");
    let voiding = format!("/v1/voidings/{}", voiding["id"]);
    eventually("the voiding is done", async || {
        (tally.get(&voiding).await.1["state"] == "voided").then_some(())
    })
    .await;
    let poll = json!({ "title": "y", "choices": ["a", "b"], "key": "new" });
    let access = json!({ "open": ["voters"] });
    let requests = [
        (Method::POST, "/v1/polls".to_owned(), Some(&poll)),
        (Method::PUT, format!("/v1/items/{item}/access"), Some(&access)),
        (Method::DELETE, key, None),
        (Method::POST, "/v1/audits".to_owned(), None),
        (Method::POST, format!("{voiding}/resume"), None),
    ];
    let ask = || {
        join_all(requests.iter().map(async |(method, path, body)| {
            let mut request = tally
                .http
                .request(method.clone(), format!("{}{path}", tally.base));
            if let Some(body) = body {
                request = request.json(body);
            }
            request.send().await.expect("an answer").status()
        }))
    };
    assert!(ask().await.iter().all(StatusCode::is_success));
    lose_standby(&tally.pool).await;
    let all_wait = eventually("all wait for the standby", async || {
        let waiting: i64 =
            sqlx::query_scalar("select count(*) from pg_stat_activity where wait_event = 'SyncRep'")
                .fetch_one(&tally.pool)
                .await
                .ok()?;
        (usize::try_from(waiting).ok()? >= requests.len()).then_some(())
    });
    let (asked, ()) = tokio::join!(ask(), all_wait);
    assert_eq!(asked, [StatusCode::SERVICE_UNAVAILABLE; 5]);
    give_up_standby(&tally.pool).await;
    eventually("they are answered as before", async || {
        ask().await.iter().all(StatusCode::is_success).then_some(())
    })
    .await;
}

/// Waits until ready says that Postgres stores no vote.
async fn until_not_storing(tally: &Tally) {
    eventually("ready says that no vote is stored", async || {
        let (status, answer) = tally.get("/health/ready").await;
        (status == StatusCode::SERVICE_UNAVAILABLE && answer["postgres"] == "not-storing").then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ready_is_refused_while_commits_wait_for_a_standby_though_nobody_votes() {
    let tally = Tally::start().await;
    lose_standby(&tally.pool).await;
    until_not_storing(&tally).await;
    give_up_standby(&tally.pool).await;
    tally.wait_until_ready("ready").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ready_is_refused_while_the_ledger_is_locked() {
    let tally = Tally::start().await;
    let blocker = blocker(&tally.pool, LOCK_VOTES).await;
    until_not_storing(&tally).await;
    blocker.rollback().await.expect("Postgres answers");
    tally.wait_until_ready("ready").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ready_is_refused_after_votes_that_were_not_stored_until_one_is() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    refuse(&tally.pool, "insert on vote").await;
    assert_eq!(tally.vote(item, "ada").await.0, StatusCode::SERVICE_UNAVAILABLE);
    until_not_storing(&tally).await;
    refuse_no_more(&tally.pool).await;
    assert_eq!(tally.vote(item, "ada").await.0, StatusCode::CREATED);
    let (status, answer) = tally.get("/health/ready").await;
    assert_eq!(status, StatusCode::OK, "{answer}");
}
