//! Connections of batch writers and readers: as long as nothing fails, each has one.

use std::time::Duration;

use sqlx::PgPool;
use tally::domain::{ItemId, VoidingId, VoteRequest};
use tally::ledger::{LedgerError, Role};
use tokio::time::Instant;

use super::{item, vote};
use crate::helpers::eventually;
use crate::helpers::stores::Stores;
use crate::helpers::tally::server_ledger;

/// The processes of Postgres that serve connections with names like this.
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
    writer.insert(&[vote(x, None)]).await.expect("an insert");
    let first = processes(&pool, "tally writer %").await;
    assert_eq!(first.len(), 1);
    let soon = || Instant::now() + Duration::from_secs(60);
    for _ in 0..2 {
        writer.void(VoidingId(1)).await.expect("a chunk");
        writer.insert(&[vote(x, Some("ada"))]).await.expect("an insert");
        assert_eq!(processes(&pool, "tally writer %").await, first, "chunks, inserts");
        let request = VoteRequest::Cast(vote(limited, Some("bob")));
        writer.decide(&[request]).await.expect("a decision");
        assert_eq!(processes(&pool, "tally writer %").await, first, "decisions");
        writer.exact_counts(&[x], soon()).await.expect("counts");
        assert_eq!(processes(&pool, "tally writer %").await, first, "exact counts");
        assert_eq!(writer.holders_if_full(limited).await.expect("holders"), None);
        assert_eq!(processes(&pool, "tally writer %").await, first, "holders");
    }
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

/// Only a read that was cancelled leaves a connection that can be used.
#[tokio::test]
async fn a_read_that_ends_otherwise_when_it_is_cancelled_is_a_failure_and_its_connection_is_given_up() {
    let stores = Stores::start().await;
    let pool = stores.pool();
    let x = item(&server_ledger(&stores.database_url)).await;
    let server = server_ledger(&stores.login_url(Role::Server));
    let mut writer = server.writer();
    writer.insert(&[vote(x, None)]).await.expect("an insert");
    let first = processes(&pool, "tally writer %").await;
    let statements = "create function stumble() returns boolean language plpgsql as $$
         begin
             perform pg_sleep(600);
             return true;
         exception when query_canceled then
             raise exception 'x';
         end $$;
         create policy stumble on watermark using (stumble());
         alter table watermark enable row level security";
    sqlx::raw_sql(statements)
        .execute(&pool)
        .await
        .expect("the owner may");
    let deadline = Instant::now() + Duration::from_millis(100);
    let failed = writer.exact_counts(&[x], deadline).await;
    assert!(matches!(failed, Err(LedgerError::Postgres(_))), "{failed:?}");
    let statement = "alter table watermark disable row level security";
    sqlx::raw_sql(statement)
        .execute(&pool)
        .await
        .expect("the owner may");
    writer.insert(&[vote(x, None)]).await.expect("an insert");
    // The other one takes a moment to end.
    eventually("the batch is stored over another connection", async || {
        let now = processes(&pool, "tally writer %").await;
        (now.len() == 1 && now != first).then_some(())
    })
    .await;
}
