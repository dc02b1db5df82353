//! Several hosts in `DATABASE_URL`: which of them is the primary, and what follows when that changes.

use nix::sys::signal::Signal;
use reqwest::{Method, StatusCode};
use serde_json::json;
use sqlx::PgPool;
use tally::app::{self, StoreUrls};
use tally::dev::{Durability, PrivatePostgres};
use tally::domain::ItemId;
use tally::ledger::Role;
use testkit::stores::{DATABASE, SECRET, owner_pool};

use crate::helpers::eventually;
use crate::helpers::programs::{start_worker, stop};
use crate::helpers::stores::Stores;
use crate::helpers::tally::{Tally, logins};

/// A standby of this Postgres, which follows it.
async fn standby(stores: &Stores) -> PrivatePostgres {
    let folder = stores.folder().join("standby");
    let mut standby = PrivatePostgres::new(&folder, SECRET, Durability::ProcessOnly).expect("a port");
    standby.follow(&stores.postgres).await.expect("a base backup");
    standby.start().await.expect("the standby starts");
    standby
}

/// URLs with both hosts, in this order of their ports.
fn with_hosts(ports: [u16; 2]) -> impl Fn(Role, StoreUrls) -> StoreUrls {
    move |_, urls| {
        let (login, rest) = urls.database_url.as_str().rsplit_once('@').expect("a login");
        let (_, database) = rest.split_once('/').expect("a database");
        let [first, second] = ports;
        StoreUrls {
            database_url: format!("{login}@127.0.0.1:{first},127.0.0.1:{second}/{database}").into(),
            ..urls
        }
    }
}

async fn promote(pool: &PgPool) {
    eventually("the standby is promoted", async || {
        let promoted: bool = sqlx::query_scalar("select pg_promote()")
            .fetch_one(pool)
            .await
            .ok()?;
        promoted.then_some(())
    })
    .await;
}

async fn votes_in(pool: &PgPool, item: ItemId) -> i64 {
    sqlx::query_scalar("select count(*) from vote where item_id = $1")
        .bind(item.get())
        .fetch_one(pool)
        .await
        .expect("Postgres answers")
}

/// Votes until one is stored.
async fn stored(tally: &Tally, item: ItemId) {
    eventually("a vote is stored", async || {
        let path = format!("/v1/items/{item}/votes");
        let (status, _) = tally.post(&path, &json!({ "value": 1 })).await;
        (status == StatusCode::CREATED).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_promoted_standby_is_found_by_programs_that_run() {
    let stores = Stores::start().await;
    let standby = standby(&stores).await;
    let leads = with_hosts([stores.postgres.port(), standby.port()]);
    let mut tally = Tally::start_at(stores, leads, |_| {}).await;
    let item = tally.item("x").await;
    let worker = tally.worker();
    tally.add(item, 1).await;
    worker.enter_epoch().await.expect("the stores answer");
    worker.flush().await.expect("a flush");
    let new = owner_pool(&standby.url(DATABASE)).expect("a URL");
    eventually("the standby has the vote", async || {
        (votes_in(&new, item).await == 1).then_some(())
    })
    .await;

    tally.stores.postgres.crash().await;
    let (status, refused) = tally.vote(item, "ada").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{refused}");
    promote(&new).await;
    stored(&tally, item).await;
    tally.wait_until_ready("ready").await;
    assert_eq!(tally.vote(item, "ada").await.0, StatusCode::CREATED);
    let votes = votes_in(&new, item).await;
    eventually("a new epoch begins", async || {
        worker.enter_epoch().await.ok().flatten()
    })
    .await;
    worker.flush_until_quiescent().await.expect("a flush");
    let (status, shown) = tally.get(&format!("/v1/items/{item}")).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(shown["vote_count"], votes, "{shown}");
    assert_eq!(shown["saved"]["vote_count"], votes, "{shown}");
}

/// What is stored in a primary that was replaced is lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_primary_is_not_used_while_the_new_one_does_not_answer() {
    let stores = Stores::start().await;
    let mut standby = standby(&stores).await;
    let leads = with_hosts([stores.postgres.port(), standby.port()]);
    let mut tally = Tally::start_at(stores, leads, |_| {}).await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    let new = owner_pool(&standby.url(DATABASE)).expect("a URL");
    eventually("the standby has the vote", async || {
        (votes_in(&new, item).await == 1).then_some(())
    })
    .await;
    tally.stores.postgres.crash().await;
    promote(&new).await;
    stored(&tally, item).await;
    tally
        .stores
        .postgres
        .start()
        .await
        .expect("the old primary starts");
    standby.stop().await;
    for voter in 0..20 {
        let (status, answer) = tally.vote(item, &format!("voter {voter}")).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{answer}");
    }
    assert_eq!(
        votes_in(&tally.pool, item).await,
        1,
        "nothing is stored in the old one"
    );
    standby.start().await.expect("the new primary starts");
    stored(&tally, item).await;
    assert_eq!(
        votes_in(&tally.pool, item).await,
        1,
        "nothing is stored in the old one"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_that_is_named_first_is_passed_over() {
    let stores = Stores::start().await;
    let standby = standby(&stores).await;
    let leads = with_hosts([standby.port(), stores.postgres.port()]);
    let tally = Tally::start_at(stores, &leads, |_| {}).await;
    let item = tally.item("x").await;
    assert_eq!(tally.add(item, 1).await, Some(1));
    tally.assert_exact_when_quiescent(item).await;
    let urls = StoreUrls {
        database_url: (&tally.stores.database_url).into(),
        ..logins(&tally.stores, Role::Server)
    };
    let owner = leads(Role::Server, urls).database_url;
    app::migrate(&owner, "test").await.expect("a migration");
}

/// Both say that they are the primary. Votes in the one that was replaced would be lost.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_primaries_the_one_that_was_promoted_last_is_used() {
    let stores = Stores::start().await;
    let standby = standby(&stores).await;
    let leads = with_hosts([stores.postgres.port(), standby.port()]);
    let tally = Tally::start_at(stores, &leads, |_| {}).await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    let new = owner_pool(&standby.url(DATABASE)).expect("a URL");
    promote(&new).await;
    let before = [votes_in(&tally.pool, item).await, votes_in(&new, item).await];
    // It has never been led to another host: it asks at its start.
    let base = tally
        .another_server_at(|role| leads(role, logins(&tally.stores, role)))
        .await;
    for _ in 0..3 {
        let path = format!("/v1/items/{item}/votes");
        let vote = json!({ "value": 1 });
        let (status, answer) = tally.send_to(&base, Method::POST, &path, Some(&vote)).await;
        assert_eq!(status, StatusCode::CREATED, "{answer}");
    }
    let after = [votes_in(&tally.pool, item).await, votes_in(&new, item).await];
    assert_eq!(after, [before[0], before[1] + 3]);
}

/// Nothing tells the programs: the old primary goes on, as one that is cut off from the others or was frozen.
#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_primary_that_still_answers_is_left_and_what_it_took_is_said_to_be_lost() {
    let stores = Stores::start().await;
    let standby = standby(&stores).await;
    let leads = with_hosts([stores.postgres.port(), standby.port()]);
    let tally = Tally::start_at(stores, &leads, |_| {}).await;
    let item = tally.item("x").await;
    let worker_url = leads(Role::Worker, logins(&tally.stores, Role::Worker)).database_url;
    let settings = [
        ("DATABASE_URL", worker_url.as_str()),
        ("TALLY_FLUSH_EVERY", "50ms"),
    ];
    let worker = start_worker(&tally.stores, "worker", &settings);
    let new = owner_pool(&standby.url(DATABASE)).expect("a URL");
    stored(&tally, item).await;
    eventually("the standby has the vote", async || {
        (votes_in(&new, item).await == 1).then_some(())
    })
    .await;
    promote(&new).await;
    let mut acknowledged = 1;
    eventually("votes are stored in the new primary", async || {
        let (status, _) = tally
            .post(&format!("/v1/items/{item}/votes"), &json!({ "value": 1 }))
            .await;
        acknowledged += i64::from(status == StatusCode::CREATED);
        (votes_in(&new, item).await > 1).then_some(())
    })
    .await;
    let old = votes_in(&tally.pool, item).await;
    for _ in 0..20 {
        stored(&tally, item).await;
    }
    acknowledged += 20;
    assert_eq!(votes_in(&tally.pool, item).await, old, "it is not used any more");
    let votes = votes_in(&new, item).await;
    assert_eq!(votes + old - 1, acknowledged, "each is in one of them");
    eventually("the worker saves the count in the new primary", async || {
        let saved: i64 = sqlx::query_scalar("select vote_count from item where id = $1")
            .bind(item.get())
            .fetch_one(&new)
            .await
            .ok()?;
        (saved == votes).then_some(())
    })
    .await;
    eventually("what only the old one has is said to be lost", async || {
        let lost: i64 = sqlx::query_scalar("select coalesce(sum(vote_total), 0)::bigint from loss")
            .fetch_one(&new)
            .await
            .ok()?;
        (lost == old - 1).then_some(())
    })
    .await;
    stop(worker, Signal::SIGTERM).await;
}
