//! Splits the ledger into ranges of ids, while votes go on.
//!
//! `vote` becomes a partitioned table, and the table that it was its first range. `vote_of_voter`, which was a view of
//! the rows with a voter, becomes a table with these rows: a voter's vote is unique in it over all ranges.

use std::pin::pin;
use std::time::Duration;

use serde_json::json;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{Connection as _, Executor as _, Row as _};
use tokio::time::{Instant, sleep};

use super::OwnerLedger;
use crate::domain::{ActKind, NewAct};
use crate::ledger::error::{is_deadlock, is_lock_timeout};
use crate::ledger::safe_vote_id::safe_vote_id;
use crate::ledger::settings::WRITER_KEEPALIVE;
use crate::ledger::{LedgerError, trail};

/// How many ids a range has at least. The command takes no less than a million: workers must keep up.
pub const RANGE_LEAST_IDS: i64 = 10_000;
/// Ids whose rows one statement copies.
const FILL_LIMIT_IDS: i64 = 1_000_000;
/// Ids whose rows are copied while `vote` is locked, at the most, in the first try. Each try takes twice as many, since
/// that many votes may come between the copy and the lock.
const FIRST_TAIL_LIMIT_IDS: i64 = 1_000;
/// The most of them in any try: about 0.3 s.
const TAIL_LIMIT_IDS: i64 = 64_000;
/// How long a lock on `vote` is waited for, and one on each view of it. Votes wait behind it meanwhile.
const LOCK_WAIT: Duration = Duration::from_millis(50);
/// The time between two tries to get the lock.
const LOCK_EVERY: Duration = Duration::from_millis(250);
/// How long the lock is tried for.
const LOCK_LIMIT: Duration = Duration::from_secs(60);
/// How long vacuum is waited for before each try. Votes do not wait for that, and autovacuum gives way after
/// `deadlock_timeout`, a second by default.
const VACUUM_WAIT: Duration = Duration::from_secs(10);

/// The time between two looks at how many ids are left.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// As many ids must be left up to the end of the first range, which votes must not reach before the switch.
const LEFT_LEAST_IDS: i64 = 10_000_000;
/// The time between two tries to break off what runs, once fewer are left: between two statements nothing does.
const CANCEL_EVERY: Duration = Duration::from_millis(20);

/// How soon Postgres ends a session whose program is gone, in the midst of a statement of hours, too. Not every system
/// can do that.
const NOTICE_END: &str = "set client_connection_check_interval = '2s'";
/// How many ids are left; null: there is no end yet, or no more.
const LEFT_IDS: &str = "select (regexp_match(pg_get_constraintdef(pg_constraint.oid), '\\d+'))[1]::bigint - last_value
                        from vote_id_seq left join pg_constraint on conrelid = 'vote'::regclass and conname = 'vote_is_first_range'";
/// Of two programs that split the ledger, the second waits, and finds that it is done. Edits of voters change rows that
/// are copied meanwhile: the one that runs is waited for, and others are refused.
const TAKE_A_TURN: &str = "select pg_advisory_lock(7416153285)";
const TAKE_A_TURN_AT_ONCE: &str = "select pg_try_advisory_lock(7416153285)";
const FILL: &str = "insert into vote_of_voter_filled (id, item_id, created_at, value, change_number, voter_id, poll_id, number)
                    select id, item_id, created_at, value, change_number, voter_id, poll_id, number
                    from vote where id > $1 and id <= $2 and voter_id is not null";
/// Once most rows are there: an index is made faster than it is kept.
const INDEX: &str = "alter table vote_of_voter_filled add constraint vote_of_voter_filled_pkey primary key (id);
                     create unique index vote_of_voter_once on vote_of_voter_filled (item_id, voter_id, change_number)
                         where voter_id is not null;
                     create index vote_of_voter_in_poll on vote_of_voter_filled (poll_id, voter_id, item_id, change_number)
                         where poll_id is not null;
                     analyze vote_of_voter_filled";
/// Leaves the ledger as it was.
const GIVE_UP: &str = "select end_split()";

/// What splitting the ledger came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partitioned {
    /// It was in ranges before.
    Already,
    /// It is in ranges now.
    Done {
        /// How many ids a range has.
        range_ids: i64,
        /// How long votes were locked out.
        locked: Duration,
    },
}

impl OwnerLedger {
    /// Splits the ledger into ranges of this many ids, unless it is in ranges. Votes go on; edits of voters are refused.
    /// `progress` hears up to which id the rows are copied, and which is the last. If it breaks off, everything is as
    /// it was, and the next call begins again.
    ///
    /// # Errors
    /// When something depends on `vote` that cannot follow it; when others hold locks on `vote` for longer than
    /// about a minute, as a report or a backup may; when votes draw too many ids meanwhile; when Postgres is
    /// unavailable.
    pub async fn partition(
        &self,
        range_ids: i64,
        progress: impl Fn(i64, i64),
    ) -> Result<Partitioned, LedgerError> {
        let mut connection = self.database.pool.unlimited().await.acquire().await?.detach();
        // Copies, and indexes of all rows, take as long as they take.
        connection.execute("set statement_timeout = 0").await?;
        connection.execute(NOTICE_END).await.ok();
        for (setting, value) in WRITER_KEEPALIVE {
            connection
                .execute(format!("set {setting} = '{value}'").as_str())
                .await?;
        }
        let is_first: bool = sqlx::query_scalar(TAKE_A_TURN_AT_ONCE)
            .fetch_one(&mut connection)
            .await?;
        if !is_first {
            tracing::info!(
                "waiting for another program that splits the ledger, edits a voter or deletes archived votes"
            );
            connection.execute(TAKE_A_TURN).await?;
        }
        let done = self.take_turn(&mut connection, range_ids, progress).await;
        let _ = connection.close().await;
        done
    }

    async fn take_turn(
        &self,
        connection: &mut PgConnection,
        range_ids: i64,
        progress: impl Fn(i64, i64),
    ) -> Result<Partitioned, LedgerError> {
        let is_in_ranges: bool = sqlx::query_scalar("select exists (select from vote_range)")
            .fetch_one(&mut *connection)
            .await?;
        if is_in_ranges {
            self.finish(connection).await?;
            return Ok(Partitioned::Already);
        }
        let range_ids = range_ids.max(RANGE_LEAST_IDS);
        let process: i32 = sqlx::query_scalar("select pg_backend_pid()")
            .fetch_one(&mut *connection)
            .await?;
        let split = {
            let mut splitting = pin!(self.split(connection, range_ids, progress));
            tokio::select! {
                done = &mut splitting => done,
                () = self.until_few_ids_are_left() => tokio::select! {
                    done = &mut splitting => done.map_err(|_| LedgerError::RangeEnds),
                    () = self.cancel_again_and_again(process) => Err(LedgerError::RangeEnds),
                },
            }
        };
        match split {
            Ok(locked) => {
                if let Err(error) = self.finish(connection).await {
                    tracing::warn!(
                        "the ledger is in ranges; what follows the switch failed: run the command again"
                    );
                    return Err(error);
                }
                Ok(Partitioned::Done { range_ids, locked })
            }
            Err(error) => {
                // Whatever it met may be over. If this fails, a worker does it.
                if let Err(error) = when_free(connection, GIVE_UP, &[]).await {
                    tracing::warn!(%error, "what was prepared to split the ledger is still there: a worker removes it");
                }
                Err(error)
            }
        }
    }

    /// Returns how long votes were locked out.
    async fn split(
        &self,
        connection: &mut PgConnection,
        range_ids: i64,
        progress: impl Fn(i64, i64),
    ) -> Result<Duration, LedgerError> {
        when_free(connection, "select begin_ranges($1)", &[range_ids]).await?;
        connection
            .execute("alter table vote validate constraint vote_is_first_range")
            .await?;
        let mut filled = self.fill(connection, 0, &progress).await?;
        connection.execute(INDEX).await?;
        let mut tail_ids = FIRST_TAIL_LIMIT_IDS;
        loop {
            filled = self.fill(connection, filled, &progress).await?;
            let entered = when_free(
                connection,
                "select is_done, locked_micros from enter_ranges($1, $2, $3)",
                &[range_ids, filled, tail_ids],
            )
            .await?;
            if entered.try_get("is_done")? {
                let micros: i64 = entered.try_get("locked_micros")?;
                return Ok(Duration::from_micros(micros.unsigned_abs()));
            }
            if tail_ids == TAIL_LIMIT_IDS {
                return Err(LedgerError::RangeEnds);
            }
            tail_ids = (2 * tail_ids).min(TAIL_LIMIT_IDS);
        }
    }

    /// What follows the switch, unless it is done.
    async fn finish(&self, connection: &mut PgConnection) -> Result<(), LedgerError> {
        connection.execute("select add_ranges()").await?;
        // Nothing else looks at what all ranges have in common.
        let is_analyzed: bool =
            sqlx::query_scalar("select reltuples >= 0 from pg_class where oid = 'vote'::regclass")
                .fetch_one(&mut *connection)
                .await?;
        if !is_analyzed {
            connection.execute("analyze vote").await?;
        }
        let noted: Option<i64> = sqlx::query_scalar(
            "select case when not exists (select from act where what = 'migrate' and details ? 'range_ids')
                         then (select max(next_ids) from vote_range) end",
        )
        .fetch_one(&mut *connection)
        .await?;
        if let Some(range_ids) = noted {
            let act = NewAct::with(ActKind::Migrate, &self.tool).details(json!({ "range_ids": range_ids }));
            trail::note(&self.database.pool, &act, None).await?;
        }
        Ok(())
    }

    /// Waits until votes have drawn so many ids that the switch would come too late.
    async fn until_few_ids_are_left(&self) {
        loop {
            sleep(LOOK_EVERY).await;
            let pool = self.database.pool.unlimited().await;
            // While Postgres does not answer, it draws no ids.
            let left: Result<Option<i64>, _> = sqlx::query_scalar(LEFT_IDS).fetch_one(pool).await;
            if left.is_ok_and(|left| left.is_some_and(|left| left < LEFT_LEAST_IDS)) {
                return;
            }
        }
    }

    /// Breaks off whatever this session does.
    async fn cancel_again_and_again(&self, process: i32) {
        loop {
            let pool = self.database.pool.unlimited().await;
            let cancelled = sqlx::query("select pg_cancel_backend($1)").bind(process);
            cancelled.execute(pool).await.ok();
            sleep(CANCEL_EVERY).await;
        }
    }

    /// Copies the rows with a voter behind this id, as far as all votes are decided. Returns up to which id.
    async fn fill(
        &self,
        connection: &mut PgConnection,
        after: i64,
        progress: &impl Fn(i64, i64),
    ) -> Result<i64, LedgerError> {
        let until = self.decided().await?;
        let mut filled = after;
        while filled < until {
            // The ids of a cell, or those behind a sequence that was set ahead, begin far from 0.
            let next: Option<i64> = sqlx::query_scalar("select min(id) from vote where id > $1")
                .bind(filled)
                .fetch_one(&mut *connection)
                .await?;
            let from = next.map_or(until, |next| (next - 1).min(until));
            let to = from.saturating_add(FILL_LIMIT_IDS).min(until);
            sqlx::query(FILL)
                .bind(from)
                .bind(to)
                .execute(&mut *connection)
                .await?;
            filled = to;
            progress(filled, until);
        }
        Ok(filled)
    }

    /// Up to which id all votes are decided. A transaction that writes votes may keep it waiting for as long as one
    /// that holds a lock.
    async fn decided(&self) -> Result<i64, LedgerError> {
        let deadline = Instant::now() + LOCK_LIMIT;
        loop {
            match safe_vote_id(&self.database.pool).await {
                Ok((safe, _)) => return Ok(safe.get()),
                Err(LedgerError::Undecided(_)) if Instant::now() < deadline => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Runs a statement that locks `vote` against everything. It waits [`LOCK_WAIT`] for the lock, and is tried again
/// until [`LOCK_LIMIT`].
async fn when_free(
    connection: &mut PgConnection,
    sql: &'static str,
    values: &[i64],
) -> Result<PgRow, LedgerError> {
    let deadline = Instant::now() + LOCK_LIMIT;
    loop {
        let error = match locking(connection, sql, values).await {
            Ok(row) => return Ok(row),
            Err(error) => error,
        };
        if Instant::now() >= deadline || !is_lock_timeout(&error) && !is_deadlock(&error) {
            return Err(error.into());
        }
        sleep(LOCK_EVERY).await;
    }
}

async fn locking(
    connection: &mut PgConnection,
    sql: &'static str,
    values: &[i64],
) -> Result<PgRow, sqlx::Error> {
    let mut transaction = connection.begin().await?;
    // Autovacuum gives way to who waits for longer than LOCK_WAIT, and none begins behind this lock.
    let vacuum = format!(
        "set local lock_timeout = {}; lock table vote in share update exclusive mode; set local lock_timeout = {}",
        VACUUM_WAIT.as_millis(),
        LOCK_WAIT.as_millis()
    );
    transaction.execute(vacuum.as_str()).await?;
    let query = values
        .iter()
        .fold(sqlx::query(sql), |query, value| query.bind(*value));
    let row = query.fetch_one(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(row)
}
