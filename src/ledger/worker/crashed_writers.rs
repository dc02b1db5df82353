//! Crashed-writer recovery: which batch writers are gone, and what they may have left
//! uncounted.

use std::time::Duration;

use super::WorkerLedger;
use crate::domain::ItemId;
use crate::ledger::LedgerError;

/// Closed batch writers in one pass, at the most.
const CLOSED_LIMIT_WRITERS: i64 = 1000;
/// The time between two notes of an idle batch writer, at the least. A connection whose client
/// is gone may look idle for 11 s (`WRITER_KEEPALIVE`) and a little more. This is longer, so of
/// the two times that are kept, one is from before the client's end.
pub(crate) const NOTE_EVERY: Duration = Duration::from_secs(15);

impl WorkerLedger {
    /// Notes which batch writers are storing no batch now. Such a batch writer counts what it
    /// had committed by now within a batch's time, if it lives that long.
    ///
    /// # Errors
    /// When Postgres is unavailable.
    pub async fn note_idle_writers(&self) -> Result<(), LedgerError> {
        // A batch holds this lock from its first vote to the end of its commit.
        sqlx::query!(
            "update writer_connection set idle_at = noted_at, noted_at = statement_timestamp()
             from pg_stat_activity as session
             where session.application_name = writer_connection.name
               and writer_connection.noted_at < statement_timestamp() - make_interval(secs => $1)
               and not exists (
                   select from pg_locks
                   where pg_locks.pid = session.pid and pg_locks.relation = 'vote'::regclass
                     and pg_locks.mode = 'RowExclusiveLock')",
            NOTE_EVERY.as_secs_f64()
        )
        .execute(&self.database.pool)
        .await?;
        Ok(())
    }

    /// The names of batch writers whose connection is gone. All their votes are decided, and
    /// what they have not counted they never will.
    ///
    /// # Errors
    /// When Postgres is unavailable.
    pub async fn closed_writers(&self) -> Result<Vec<String>, LedgerError> {
        // A batch writer's connection is in pg_stat_activity before its row is in
        // writer_connection, and the rows are read first.
        Ok(sqlx::query_scalar!(
            "select name from writer_connection
             where name not in (select application_name from pg_stat_activity where application_name is not null)
             limit $1",
            CLOSED_LIMIT_WRITERS
        )
        .fetch_all(&self.database.pool)
        .await?)
    }

    /// Removes closed batch writers, after everything that they left is counted.
    ///
    /// # Errors
    /// When Postgres is unavailable.
    pub async fn forget_writers(&self, names: &[String]) -> Result<(), LedgerError> {
        sqlx::query!("delete from writer_connection where name = any($1)", names)
            .execute(&self.database.pool)
            .await?;
        Ok(())
    }

    /// The items with a vote that one of these closed batch writers may have left uncounted:
    /// votes from `before` ahead of a time at which all of them were idle and alive. Votes
    /// below the watermark are not looked at: the audit moves it only after crashed-writer
    /// recovery, and with Redis available to compare with.
    ///
    /// # Errors
    /// When Postgres is unavailable or too slow.
    pub async fn items_left_by(
        &self,
        closed: &[String],
        before: Duration,
    ) -> Result<Vec<ItemId>, LedgerError> {
        let ids = sqlx::query_scalar!(
            "select distinct item_id from vote
             where id > (select vote_id from watermark)
               and created_at > (select min(idle_at) from writer_connection where name = any($1))
                              - make_interval(secs => $2)",
            closed,
            before.as_secs_f64()
        )
        .fetch_all(&self.database.pool)
        .await?;
        Ok(ids.into_iter().filter_map(ItemId::new).collect())
    }
}
