//! Connections that wait for a synchronous standby that is gone, and that nobody waits for any more.

use sqlx::PgPool;
use tally::domain::{ItemName, NewItem};
use tally::ledger::{InsertError, Job, Role, WorkerLedger};
use testkit::proxy::Proxy;

use super::standby::{cancel_waits, give_up_standby, lose_standby};
use crate::helpers::eventually;
use crate::helpers::stores::Stores;
use crate::helpers::tally::{Tally, made_item, server_ledger, vote};

/// The Postgres processes that wait for the standby.
async fn waiting(pool: &PgPool) -> Vec<i32> {
    sqlx::query_scalar("select pid from pg_stat_activity where wait_event = 'SyncRep'")
        .fetch_all(pool)
        .await
        .expect("Postgres answers")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_answered_after_a_caller_gave_up_its_wait_for_the_standby_is_stored() {
    let stores = Stores::start().await;
    let pool = stores.pool();
    let port = stores.postgres.port();
    let proxy = Proxy::start(port).await.expect("a proxy");
    let url = stores
        .database_url
        .replace(&format!(":{port}"), &format!(":{}", proxy.port()));
    // It makes one connection, and then uses that one.
    let ledger = server_ledger(&url);
    made_item(&ledger, "first").await;
    lose_standby(&pool).await;
    let new: NewItem = ItemName::parse("x".to_owned()).expect("a name").into();
    tokio::select! {
        // The trap is set first. It lets the beginning of a transaction pass.
        biased;
        _ = async { tokio::join!(proxy.trap("pg_logical_emit_message", true), cancel_waits(&pool)) } => {}
        made = ledger.create_item(&new) => panic!("{made:?}"),
    }
    proxy.release();
    give_up_standby(&pool).await;
    for at in 0..8 {
        let item = made_item(&ledger, &format!("item {at}")).await;
        let found = sqlx::query("select from item where id = $1")
            .bind(item.get())
            .fetch_optional(&pool)
            .await
            .expect("Postgres answers");
        assert!(found.is_some(), "item {at} was said to be made");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_one_trial_of_ready_waits_for_a_standby_that_is_gone() {
    let tally = Tally::start().await;
    lose_standby(&tally.pool).await;
    let ask = async || {
        let ready = tally.get("/health/ready").await;
        (ready, waiting(&tally.pool).await)
    };
    let first = eventually("a trial waits", async || ask().await.1.first().copied()).await;
    eventually("another trial waits, and not the first one", async || {
        let (_, waiting) = ask().await;
        (waiting.len() == 1 && waiting[0] != first).then_some(())
    })
    .await;
    give_up_standby(&tally.pool).await;
    tally.wait_until_ready("ready").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_leaves_at_most_one_connection_behind_that_waits_for_a_standby_that_is_gone() {
    let stores = Stores::start().await;
    let pool = stores.pool();
    let server = server_ledger(&stores.login_url(Role::Server));
    let item = made_item(&server, "x").await;
    lose_standby(&pool).await;
    let mut writer = server.writer();
    for _ in 0..4 {
        let failed = writer.insert(&[vote(item, None)], &[]).await;
        failed.expect_err("the standby is gone");
    }
    let left = waiting(&pool).await;
    assert!(left.len() <= 1, "{left:?}");
    give_up_standby(&pool).await;
    eventually("votes are stored again", async || {
        match writer.insert(&[vote(item, None)], &[]).await {
            Ok(_) => Some(()),
            Err(InsertError::NotStored(_) | InsertError::Unknown(_)) => None,
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_of_a_pool_that_wait_for_a_standby_that_is_gone_end() {
    let stores = Stores::start().await;
    let pool = stores.pool();
    let limit = std::time::Duration::from_millis(200);
    let url = stores.login_url(Role::Worker);
    let ledger = WorkerLedger::with_statement_limit(&url, "waiting", limit).expect("a ledger");
    lose_standby(&pool).await;
    let (one, other) = tokio::join!(ledger.take_job(Job::RollUp), ledger.take_job(Job::Audit));
    one.map(drop).expect_err("the standby is gone");
    other.map(drop).expect_err("the standby is gone");
    assert_eq!(waiting(&pool).await.len(), 2);
    eventually("none waits any more", async || {
        waiting(&pool).await.is_empty().then_some(())
    })
    .await;
}
