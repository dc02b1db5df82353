//! A Postgres and a Redis for one test, and locks that a test makes others wait for.

use sqlx::{PgPool, Postgres, Transaction};

pub use testkit::stores::Stores;

/// For [`blocker`]: keeps all others from writing to the ledger.
pub const LOCK_VOTES: &str = "lock table vote in share row exclusive mode";

/// Runs a statement in a transaction of its own. Others wait for what it has locked until
/// the transaction is rolled back.
pub async fn blocker(pool: &PgPool, statement: &str) -> Transaction<'static, Postgres> {
    let mut blocker = pool.begin().await.expect("a transaction");
    sqlx::query(statement)
        .execute(&mut *blocker)
        .await
        .expect("a lock");
    blocker
}

/// Waits until a statement that begins like this one waits for a lock.
pub async fn until_blocked(pool: &PgPool, statement: &str) {
    super::eventually(&format!("{statement:?} waits for a lock"), async || {
        let waits: bool = sqlx::query_scalar(
            "select exists (select from pg_stat_activity
                            where wait_event_type = 'Lock' and starts_with(query, $1))",
        )
        .bind(statement)
        .fetch_one(pool)
        .await
        .ok()?;
        waits.then_some(())
    })
    .await;
}
