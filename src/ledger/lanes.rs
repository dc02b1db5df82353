//! The lanes' connections: who stores votes, and who has gone.

use std::time::Duration;

use sqlx::postgres::PgConnection;

use super::{Ledger, LedgerError};
use crate::domain::ItemId;

/// How many departed lanes are looked at in one pass.
const DEPARTED_LIMIT_LANES: i64 = 1000;
/// How often a lane is noted as idle, at the most. Longer than a connection whose client
/// is gone may look idle (`WRITER_KEEPALIVE`: 11 s, and what probes are late): of the two
/// times that are kept, one is then from before its end.
const NOTE_EVERY: Duration = Duration::from_secs(15);

/// A name for a new connection, unlike that of any other. Postgres keeps the first
/// 63 bytes of an application's name.
pub(super) fn fresh_name() -> String {
    format!("tally lane {:032x}", rand::random::<u128>())
}

/// Notes this connection, before its first vote.
pub(super) async fn announce(connection: &mut PgConnection, name: &str) -> Result<(), sqlx::Error> {
    sqlx::query!("insert into lane (name) values ($1)", name)
        .execute(connection)
        .await?;
    Ok(())
}

impl Ledger {
    /// Notes which lanes have no vote under way now. What such a lane had committed by
    /// then it counts within a batch's time, if it lives that long.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn note_idle_lanes(&self) -> Result<(), LedgerError> {
        // From its first vote to the end of its commit a batch holds this lock.
        sqlx::query!(
            "update lane set idle_at = noted_at, noted_at = statement_timestamp()
             from pg_stat_activity as session
             where session.application_name = lane.name
               and lane.noted_at < statement_timestamp() - make_interval(secs => $1)
               and not exists (
                   select from pg_locks
                   where pg_locks.pid = session.pid and pg_locks.relation = 'vote'::regclass
                     and pg_locks.mode = 'RowExclusiveLock')",
            NOTE_EVERY.as_secs_f64()
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// The lanes whose connection is gone: whatever they committed is decided, and
    /// what they had not counted by then they never will.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn departed_lanes(&self) -> Result<Vec<String>, LedgerError> {
        // A lane's connection is in pg_stat_activity before its row is here, and the
        // rows are read first.
        Ok(sqlx::query_scalar!(
            "select name from lane
             where name not in (select application_name from pg_stat_activity where application_name is not null)
             limit $1",
            DEPARTED_LIMIT_LANES
        )
        .fetch_all(&self.pool)
        .await?)
    }

    /// Forgets departed lanes, once nothing of theirs is left to be counted.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn forget_lanes(&self, names: &[String]) -> Result<(), LedgerError> {
        sqlx::query!("delete from lane where name = any($1)", names)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// The items with a vote that one of these departed lanes may have left uncounted:
    /// made no longer than `before` ahead of a time at which all of them were idle, and
    /// alive. What the audit has summed is not looked at: no audit sums without having
    /// settled departures, with Redis there to compare with.
    ///
    /// # Errors
    /// When Postgres is away or too slow.
    pub async fn items_left_by(
        &self,
        departed: &[String],
        before: Duration,
    ) -> Result<Vec<ItemId>, LedgerError> {
        let ids = sqlx::query_scalar!(
            "select distinct item_id from vote
             where id > (select vote_id from watermark)
               and created_at > (select min(idle_at) from lane where name = any($1))
                              - make_interval(secs => $2)",
            departed,
            before.as_secs_f64()
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(ids.into_iter().filter_map(ItemId::new).collect())
    }
}
