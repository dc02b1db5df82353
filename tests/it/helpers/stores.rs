//! A test's Postgres and Redis, and locks that make others wait.

use sqlx::{PgPool, Postgres, Transaction};

pub use testkit::stores::Stores;

/// For [`blocker`]: keeps everyone else from writing to the ledger.
pub const LOCK_VOTES: &str = "lock table vote in share row exclusive mode";

/// Says that a worker is alive: those that run in a test send no heartbeats.
pub async fn worker_is_alive(pool: &PgPool) {
    sqlx::query(
        "insert into worker (name, started_at, seen_at) values ('x', now(), now() + interval '1 hour')",
    )
    .execute(pool)
    .await
    .expect("the owner may");
}

/// Runs a statement in a transaction of its own.
/// Others wait for its locks until the transaction is rolled back.
pub async fn blocker(pool: &PgPool, statement: &str) -> Transaction<'static, Postgres> {
    let mut blocker = pool.begin().await.expect("a transaction");
    sqlx::query(statement)
        .execute(&mut *blocker)
        .await
        .expect("a lock");
    blocker
}

/// Waits for connections that wait for a lock, and has Postgres end them.
/// `condition` on `pg_stat_activity` selects these connections.
pub async fn cut_blocked(pool: &PgPool, condition: &str) {
    let cut = format!(
        "select pg_terminate_backend(pid) from pg_stat_activity
         where wait_event_type = 'Lock' and {condition}"
    );
    super::eventually(
        &format!("a connection waits for a lock: {condition}"),
        async || {
            let cut: Vec<bool> = sqlx::query_scalar(&cut).fetch_all(pool).await.ok()?;
            (!cut.is_empty()).then_some(())
        },
    )
    .await;
}

/// Waits until a statement that begins like this one waits for a lock. A server's trial commits, which it makes
/// each second while there are no votes, do not count.
pub async fn until_blocked(pool: &PgPool, statement: &str) {
    super::eventually(&format!("{statement:?} waits for a lock"), async || {
        let waits: bool = sqlx::query_scalar(
            "select exists (select from pg_stat_activity
                            where wait_event_type = 'Lock' and starts_with(query, $1)
                              and query not like '%select 0 where false%')",
        )
        .bind(statement)
        .fetch_one(pool)
        .await
        .ok()?;
        waits.then_some(())
    })
    .await;
}

/// Makes statements like this one fail from now on, such as `insert on voided`.
pub async fn refuse(pool: &PgPool, statement: &str) {
    execute(
        pool,
        &format!(
            "create function refuse() returns trigger language plpgsql as $$
             begin
                 raise exception 'x';
             end $$;
             create trigger refuse before {statement} for each statement execute function refuse()"
        ),
    )
    .await;
}

/// Ends [`refuse`].
pub async fn refuse_no_more(pool: &PgPool) {
    execute(pool, "drop function refuse cascade").await;
}

/// Makes each read of this table look at this condition, which may wait or fail: a view takes the
/// table's place. A policy would not do: Tally's sessions refuse to be filtered by one.
pub async fn read_under(pool: &PgPool, table: &str, condition: &str) {
    execute(
        pool,
        &format!(
            "alter table {table} rename to {table}_behind_a_view;
             create view {table} as select * from {table}_behind_a_view where {condition};
             grant select on {table} to tally_server, tally_worker"
        ),
    )
    .await;
}

/// Ends [`read_under`].
pub async fn read_plainly(pool: &PgPool, table: &str) {
    execute(
        pool,
        &format!("drop view {table}; alter table {table}_behind_a_view rename to {table}"),
    )
    .await;
}

/// Makes the watermark pass the next id, as if someone had set the sequence back.
pub async fn pass_next_vote_id(pool: &PgPool) {
    execute(
        pool,
        "update watermark set vote_id = (select last_value + is_called::int from vote_id_seq)",
    )
    .await;
}

async fn execute(pool: &PgPool, statements: &str) {
    sqlx::raw_sql(statements)
        .execute(pool)
        .await
        .expect("the owner may");
}
