//! Connections that nobody waits for any more.
//!
//! A commit waits for a synchronous standby without a limit: no timeout of Postgres ends it, nor does
//! the end of its client. With the standby gone, each program that gives up such a commit and goes on
//! over a new connection would leave one more behind, until Postgres takes no more. So what was given
//! up is ended. Its transaction is committed, perhaps on one disk only, and was acknowledged to nobody.

use std::time::Duration;

use sqlx::postgres::PgPool;
use sqlx::{Executor, PgExecutor};
use tokio::time::timeout;

use super::LedgerError;

/// How long ending them may take.
const END_LIMIT: Duration = Duration::from_secs(5);

/// Ends connections of this login and program that have waited for a standby for longer than any caller
/// waits. They may be another process's: nobody waits for these either.
pub(super) async fn end_old_waits(pool: &PgPool, age: Duration) {
    let end = format!(
        "select pg_terminate_backend(pid) from pg_stat_activity
         where usename = current_user and application_name = current_setting('application_name')
           and wait_event = 'SyncRep' and state_change < clock_timestamp() - interval '{} milliseconds'",
        age.as_millis()
    );
    let Ok(mut connection) = pool.acquire().await else {
        return;
    };
    if matches!(
        timeout(END_LIMIT, connection.execute(end.as_str())).await,
        Ok(Ok(_))
    ) {
        // The future owns the connection, and closes it when it is dropped.
        let _ = timeout(END_LIMIT, connection.return_to_pool()).await;
    } else {
        drop(connection.detach());
    }
}

/// Ends connections of this login by their names. Those of a login from before it may not end: they end with their next
/// use.
pub(super) async fn end_connections(
    executor: impl PgExecutor<'_>,
    names: &[String],
) -> Result<(), LedgerError> {
    sqlx::query_scalar!(
        "select pg_terminate_backend(pid) from pg_stat_activity
         where application_name = any($1) and usename = session_user",
        names
    )
    .fetch_all(executor)
    .await?;
    Ok(())
}
