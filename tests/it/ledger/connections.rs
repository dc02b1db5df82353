//! Connections of batch writers and readers: one each, as long as nothing fails.

use std::time::Duration;

use sqlx::PgPool;
use tally::domain::{ItemId, VoidingId, VoteRequest};
use tally::ledger::{Fullness, LedgerError, POOL_LIMIT_CONNECTIONS, Pacing, Role, WorkerLedger};
use testkit::proxy::Proxy;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{item, vote};
use crate::helpers::eventually;
use crate::helpers::stores::{Stores, read_plainly, read_under};
use crate::helpers::tally::{roll_up_lease, server_ledger};

/// A ledger whose statements may take this long, with a proxy before its Postgres.
/// A trap in the proxy acts like a machine that fails silently, for one connection.
pub(super) async fn behind_a_proxy(stores: &Stores, limit: Duration) -> (Proxy, WorkerLedger) {
    let port = stores.postgres.port();
    let proxy = Proxy::start(port).await.expect("a proxy");
    let url = stores
        .database_url
        .replace(&format!(":{port}"), &format!(":{}", proxy.port()));
    let ledger = WorkerLedger::with_statement_limit(&url, "behind a proxy", limit).expect("a ledger");
    (proxy, ledger)
}

/// Only in the statement of `vote_total`.
const VOTE_TOTAL: &str = "select vote_total";

#[tokio::test(flavor = "multi_thread")]
async fn statements_without_an_answer_end_and_others_run_over_new_connections() {
    let stores = Stores::start().await;
    let (proxy, ledger) = behind_a_proxy(&stores, Duration::from_millis(200)).await;
    let mut calls = JoinSet::new();
    let calling = async {
        for _ in 0..POOL_LIMIT_CONNECTIONS {
            let ledger = ledger.clone();
            calls.spawn(async move { ledger.vote_total().await });
        }
    };
    // The trap is set first.
    tokio::join!(proxy.trap(VOTE_TOTAL, false), calling);
    while let Some(call) = calls.join_next().await {
        let error = call.expect("no panic").expect_err("no answer");
        assert!(error.to_string().contains("no answer within"), "{error}");
    }
    // The lost connections are still lost.
    eventually("a new connection", async || ledger.safe_vote_id().await.ok()).await;
    proxy.release();
    assert_eq!(ledger.vote_total().await.expect("an answer"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_gives_up_a_statement_without_an_answer_does_not_keep_its_connection_for_long() {
    let stores = Stores::start().await;
    let (proxy, ledger) = behind_a_proxy(&stores, Duration::from_millis(200)).await;
    for _ in 0..POOL_LIMIT_CONNECTIONS {
        tokio::select! {
            // The trap is set first.
            biased;
            () = proxy.trap(VOTE_TOTAL, false) => {}
            ended = ledger.vote_total() => panic!("{ended:?}"),
        }
    }
    eventually("a new connection", async || ledger.safe_vote_id().await.ok()).await;
    proxy.release();
    assert_eq!(ledger.vote_total().await.expect("an answer"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_without_an_answer_ends_and_undoes_what_it_did() {
    let stores = Stores::start().await;
    let (proxy, ledger) = behind_a_proxy(&stores, Duration::from_millis(200)).await;
    let server = server_ledger(&stores.database_url);
    let x = item(&server).await;
    server
        .writer()
        .insert(&[vote(x, None)], &[])
        .await
        .expect("a vote");
    let lease = roll_up_lease(&ledger).await;
    let safe = ledger.safe_vote_id().await.expect("a safe id");
    let roll_up = async || ledger.roll_up_votes(&lease, &safe, 100, Pacing::Spread).await;
    let (lost, ()) = tokio::join!(roll_up(), proxy.trap("-- Adds sums of votes", false));
    let error = lost.expect_err("no answer");
    assert!(error.to_string().contains("no answer within"), "{error}");
    // The lost connection had locked the watermark until now.
    proxy.cut();
    proxy.release();
    let rolled_up = eventually("the watermark is free", async || roll_up().await.ok()).await;
    assert_eq!(rolled_up.expect("votes").votes, 1);
    assert_eq!(
        ledger.exact_counts(&[x]).await.expect("counts")[0].count,
        1.into()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_whose_caller_goes_away_is_undone_and_its_connection_is_kept() {
    let stores = Stores::start().await;
    let pool = stores.pool();
    let (proxy, ledger) = behind_a_proxy(&stores, Duration::from_secs(60)).await;
    let server = server_ledger(&stores.database_url);
    let x = item(&server).await;
    server
        .writer()
        .insert(&[vote(x, None)], &[])
        .await
        .expect("a vote");
    let lease = roll_up_lease(&ledger).await;
    let safe = ledger.safe_vote_id().await.expect("a safe id");
    let roll_up = async || ledger.roll_up_votes(&lease, &safe, 100, Pacing::Spread).await;
    tokio::select! {
        // The trap is set first.
        biased;
        () = proxy.trap("-- Adds sums of votes", false) => {}
        ended = roll_up() => panic!("{ended:?}"),
    }
    let in_transaction = "select pid from pg_stat_activity
        where application_name like 'behind a proxy%' and state = 'idle in transaction'";
    let process: i32 = sqlx::query_scalar(in_transaction)
        .fetch_one(&pool)
        .await
        .expect("the transaction");
    proxy.release();
    let undone = "select from pg_stat_activity where pid = $1 and state = 'idle' and query = 'rollback'";
    eventually("the same connection is idle", async || {
        let found = sqlx::query(undone).bind(process).fetch_optional(&pool).await;
        found.expect("Postgres answers")
    })
    .await;
    assert_eq!(roll_up().await.expect("an answer").expect("votes").votes, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_that_cannot_be_undone_in_time_do_not_keep_their_connections_for_long() {
    let stores = Stores::start().await;
    let (proxy, ledger) = behind_a_proxy(&stores, Duration::from_millis(200)).await;
    let server = server_ledger(&stores.database_url);
    let x = item(&server).await;
    server
        .writer()
        .insert(&[vote(x, None)], &[])
        .await
        .expect("a vote");
    let lease = roll_up_lease(&ledger).await;
    let safe = ledger.safe_vote_id().await.expect("a safe id");
    let roll_up = async || ledger.roll_up_votes(&lease, &safe, 100, Pacing::Spread).await;
    for _ in 0..POOL_LIMIT_CONNECTIONS {
        tokio::select! {
            // The trap is set first.
            biased;
            // After its limit, Postgres would end the idle transaction and its connection.
            () = proxy.trap("begin", false) => {}
            ended = roll_up() => panic!("{ended:?}"),
        }
    }
    eventually("a new connection", async || ledger.safe_vote_id().await.ok()).await;
    proxy.release();
    assert_eq!(roll_up().await.expect("an answer").expect("votes").votes, 1);
}

#[test]
fn a_statement_that_is_dropped_outside_of_the_runtime_closes_its_connection() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (stores, pool, lock, waiting) = runtime.block_on(async {
        let stores = Stores::start().await;
        let pool = stores.pool();
        let mut lock = pool.begin().await.expect("a transaction");
        sqlx::raw_sql("lock table watermark in access exclusive mode")
            .execute(&mut *lock)
            .await
            .expect("a lock");
        let ledger = WorkerLedger::new(&stores.database_url, "dropped").expect("a ledger");
        let mut waiting = Box::pin(async move { ledger.vote_total().await });
        let is_waiting = "select from pg_stat_activity
            where application_name like 'dropped%' and wait_event_type = 'Lock'";
        let seen = eventually("it waits for the lock", async || {
            let found = sqlx::query(is_waiting).fetch_optional(&pool).await;
            found.expect("Postgres answers")
        });
        tokio::select! {
            ended = &mut waiting => panic!("{ended:?}"),
            _ = seen => {}
        }
        (stores, pool, lock, waiting)
    });
    drop(waiting);
    runtime.block_on(async {
        lock.rollback().await.expect("Postgres answers");
        eventually("its connection is closed", async || {
            processes(&pool, "dropped%").await.is_empty().then_some(())
        })
        .await;
        drop(stores);
    });
}

/// The Postgres processes that serve connections with names like this.
async fn processes(pool: &PgPool, name: &str) -> Vec<i32> {
    sqlx::query_scalar("select pid from pg_stat_activity where application_name like $1 order by 1")
        .bind(name)
        .fetch_all(pool)
        .await
        .expect("Postgres answers")
}

#[tokio::test]
async fn a_batch_writer_stores_decides_and_reads_over_one_connection() {
    let stores = Stores::start().await;
    let pool = stores.pool();
    let server = server_ledger(&stores.database_url);
    let x = item(&server).await;
    sqlx::raw_sql(
        "insert into rule (opens_at) values (null);
         insert into item (name, rule_id) values ('y', 1);
         insert into place (item_id, max_votes) select id, 9 from item where rule_id is not null;
         insert into voiding (item_id, reason, until_vote_id) select min(id), 'x', 1000 from item",
    )
    .execute(&pool)
    .await
    .expect("an item");
    let limited = ItemId::new(x.get() + 1).expect("positive");
    let mut writer = server.writer();
    writer.insert(&[vote(x, None)], &[]).await.expect("an insert");
    let first = processes(&pool, "tally writer %").await;
    assert_eq!(first.len(), 1);
    for _ in 0..2 {
        writer.void(VoidingId(1), None).await.expect("a chunk");
        writer
            .insert(&[vote(x, Some("ada"))], &[])
            .await
            .expect("an insert");
        assert_eq!(processes(&pool, "tally writer %").await, first, "chunks, inserts");
        let request = VoteRequest::Cast(vote(limited, Some("bob")));
        writer.decide(&[request], &[]).await.expect("a decision");
        assert_eq!(processes(&pool, "tally writer %").await, first, "decisions");
        let fullness = writer.fullness(&[&vote(limited, Some("cy"))]).await;
        assert_eq!(fullness.expect("an answer"), Some(vec![Fullness::Undecided]));
        assert_eq!(processes(&pool, "tally writer %").await, first, "fullness");
    }
}

#[tokio::test]
async fn a_read_that_postgres_refuses_costs_no_connection_and_one_over_a_closed_connection_costs_that() {
    let stores = Stores::start().await;
    let pool = stores.pool();
    let server = server_ledger(&stores.database_url);
    let one = vote(item(&server).await, Some("ada"));
    let mut writer = server.writer();
    writer
        .insert(std::slice::from_ref(&one), &[])
        .await
        .expect("an insert");
    let first = processes(&pool, "tally writer %").await;
    let execute = async |statement: &str| {
        sqlx::raw_sql(statement).execute(&pool).await.expect("an answer");
    };
    execute("alter table place rename to elsewhere").await;
    writer.fullness(&[&one]).await.expect_err("there is no place");
    execute("alter table elsewhere rename to place").await;
    let fullness = writer.fullness(&[&one]).await.expect("an answer");
    assert_eq!(fullness, Some(vec![Fullness::Undecided]));
    assert_eq!(processes(&pool, "tally writer %").await, first);

    execute("select pg_terminate_backend(pid, 10000) from pg_stat_activity where application_name like 'tally writer %'").await;
    writer.fullness(&[&one]).await.expect_err("it is closed");
    assert_eq!(writer.fullness(&[&one]).await.expect("no error"), None);
    writer.insert(&[one], &[]).await.expect("another connection");
    assert_ne!(processes(&pool, "tally writer %").await, first);
}

#[tokio::test]
async fn a_reader_of_items_reads_over_one_connection() {
    let stores = Stores::start().await;
    let pool = stores.pool();
    let server = server_ledger(&stores.database_url);
    let x = item(&server).await;
    let mut reader = server.item_reader();
    let mut seen = Vec::new();
    for _ in 0..3 {
        reader.read(&[x]).await.expect("an item");
        let of_reader: Vec<i32> = sqlx::query_scalar(
            "select pid from pg_stat_activity
             where datname = current_database() and starts_with(query, 'select array_agg(id) as ids')",
        )
        .fetch_all(&pool)
        .await
        .expect("Postgres answers");
        seen.push(of_reader);
    }
    assert_eq!(seen[0].len(), 1);
    assert!(seen.iter().all(|of_reader| *of_reader == seen[0]), "{seen:?}");
}

#[tokio::test]
async fn exact_counts_are_read_over_one_connection_also_after_a_read_that_failed() {
    let stores = Stores::start().await;
    let pool = stores.pool();
    let x = item(&server_ledger(&stores.database_url)).await;
    let server = server_ledger(&stores.login_url(Role::Server));
    let mut writer = server.writer();
    writer.insert(&[vote(x, None)], &[]).await.expect("an insert");
    let soon = || Instant::now() + Duration::from_secs(60);
    let readers = async || -> Vec<i32> {
        sqlx::query_scalar(
            "select pid from pg_stat_activity
             where datname = current_database() and starts_with(query, '-- What exact counts are made of')",
        )
        .fetch_all(&pool)
        .await
        .expect("Postgres answers")
    };
    writer.exact_counts(&[x], &[], soon()).await.expect("counts");
    let first = readers().await;
    assert_eq!(first.len(), 1);
    writer.exact_counts(&[x], &[], soon()).await.expect("counts");
    assert_eq!(readers().await, first, "it reads over one connection");
    let statements = "create function stumble() returns boolean language plpgsql as $$
         begin
             perform pg_sleep(600);
             return true;
         exception when query_canceled then
             raise exception 'x';
         end $$";
    sqlx::raw_sql(statements)
        .execute(&pool)
        .await
        .expect("the owner may");
    read_under(&pool, "watermark", "stumble()").await;
    let deadline = Instant::now() + Duration::from_millis(100);
    let failed = writer.exact_counts(&[x], &[], deadline).await;
    assert!(matches!(failed, Err(LedgerError::Postgres(_))), "{failed:?}");
    read_plainly(&pool, "watermark").await;
    writer.exact_counts(&[x], &[], soon()).await.expect("counts");
    assert_eq!(readers().await, first, "Postgres has said how the read ended");
}
