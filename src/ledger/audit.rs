//! What the audit asks of Postgres.

use std::time::Duration;

use sqlx::postgres::PgConnection;
use tokio::time::{Instant, sleep};

use super::counts::{DEADLOCK_LIMIT_TRIES, is_deadlock};
use super::{Ledger, LedgerError};
use crate::domain::{ItemId, Rev};

/// How many vote ids one transaction of the audit folds at the most: it holds its
/// items' row locks for as long, and the flush waits for them.
pub const FOLD_LIMIT_IDS: i64 = 1_000_000;
/// How long the audit waits for the transactions that hold the ledger to end.
pub const DECIDE_LIMIT: Duration = Duration::from_secs(30);
/// How often it looks whether they have.
const DECIDE_EVERY: Duration = Duration::from_millis(5);

/// What the audit knows of an item from Postgres, all under one snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditRow {
    pub item_id: ItemId,
    pub saved_count: i64,
    /// When the saved count last changed; 0 µs if it was never saved.
    pub counted_at: Rev,
    pub exact_count: i64,
    /// The sum of the votes above 0 that may still be in flight.
    pub young_up: i64,
    /// The sum, without its sign, of the votes below 0 that may still be in flight.
    pub young_down: i64,
}

/// How far the watermark is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Folded {
    /// Every vote with an id up to this one is in its item's audited count.
    pub watermark: i64,
    /// How many votes those are.
    pub votes: i64,
    /// The last vote id that has been drawn by now.
    pub drawn: i64,
    /// Whether the vote beyond the watermark is too young to be folded.
    pub is_young_next: bool,
}

impl Ledger {
    /// A vote id up to which every id is decided: committed, or never to be.
    ///
    /// The sequence is read first. Whoever drew an id up to its last value has
    /// held a lock on `vote` since before it drew, so once all who hold that lock
    /// now have ended, those ids are decided. Blocks nobody.
    ///
    /// # Errors
    /// When Postgres is away, or a transaction does not end in time.
    pub async fn safe_vote_id(&self) -> Result<i64, LedgerError> {
        let last = sqlx::query!("select last_value, is_called from vote_id_seq")
            .fetch_one(&self.pool)
            .await?;
        let safe = if last.is_called {
            last.last_value
        } else {
            last.last_value - 1
        };
        self.wait_for_writers().await?;
        Ok(safe)
    }

    /// Waits until every transaction that is writing votes now has ended.
    ///
    /// # Errors
    /// When Postgres is away, or a transaction does not end in time.
    pub async fn wait_for_writers(&self) -> Result<(), LedgerError> {
        let deadline = Instant::now() + DECIDE_LIMIT;
        let mut writers = self.writers().await?;
        while !writers.is_empty() {
            if Instant::now() >= deadline {
                return Err(LedgerError::Undecided(DECIDE_LIMIT));
            }
            sleep(DECIDE_EVERY).await;
            let still = self.writers().await?;
            writers.retain(|writer| still.contains(writer));
        }
        Ok(())
    }

    /// The transactions that hold the lock which every insert into `vote` takes.
    async fn writers(&self) -> Result<Vec<String>, LedgerError> {
        Ok(sqlx::query_scalar!(
            r#"select distinct virtualtransaction as "writer!"
               from pg_locks
               where locktype = 'relation' and relation = 'vote'::regclass
                 and database = (select oid from pg_database where datname = current_database())
                 and mode = 'RowExclusiveLock' and granted"#
        )
        .fetch_all(&self.pool)
        .await?)
    }

    /// A token that stays the same until Postgres crashes, fails over, or is another one
    /// that was restored from a dump; see migrations/0004_recovery.sql and
    /// 0007_recovery_drawn_by.sql.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn recovery_token(&self) -> Result<String, LedgerError> {
        loop {
            let token = sqlx::query_scalar!("select token from recovery where xmin = drawn_by::xid")
                .fetch_optional(&self.pool)
                .await?;
            if let Some(token) = token {
                return Ok(token);
            }
            sqlx::query!("delete from recovery where xmin <> drawn_by::xid")
                .execute(&self.pool)
                .await?;
            sqlx::query!("insert into recovery default values on conflict do nothing")
                .execute(&self.pool)
                .await?;
        }
    }

    /// Adds one portion of the votes between the watermark and `safe_vote_id`, up to
    /// `limit_ids` ids, to their items' audited counts, and moves the watermark, in one
    /// transaction. Votes younger than `in_flight_limit` stay beyond the watermark,
    /// where [`Ledger::audit_page`] sees how young they are. Returns `None` when
    /// nothing is left to fold.
    ///
    /// # Errors
    /// When Postgres is away or too slow; the watermark then stays.
    pub async fn fold_votes(
        &self,
        safe_vote_id: i64,
        in_flight_limit: Duration,
        limit_ids: i64,
    ) -> Result<Option<Folded>, LedgerError> {
        let mut tries = 1;
        loop {
            match self.try_fold(safe_vote_id, in_flight_limit, limit_ids).await {
                // It waited for a flush in a circle. Nothing of it is left.
                Err(LedgerError::Postgres(error)) if is_deadlock(&error) && tries < DEADLOCK_LIMIT_TRIES => {
                    tracing::debug!(tries, "a deadlock with a flush: folding again");
                    tries += 1;
                }
                folded => return folded,
            }
        }
    }

    async fn try_fold(
        &self,
        safe_vote_id: i64,
        in_flight_limit: Duration,
        limit_ids: i64,
    ) -> Result<Option<Folded>, LedgerError> {
        let in_flight_secs = in_flight_limit.as_secs_f64();
        let mut transaction = self.pool.begin().await?;
        // The lock makes a second audit wait, then find the watermark moved.
        let watermark = sqlx::query_scalar!("select vote_id from watermark for no key update")
            .fetch_one(&mut *transaction)
            .await?;
        let mut end = safe_vote_id.min(watermark.saturating_add(limit_ids.min(FOLD_LIMIT_IDS)));
        if end <= watermark {
            return Ok(None);
        }
        let mut portion = fold_portion(&mut transaction, watermark, end, in_flight_secs).await?;
        let mut is_young_next = false;
        if portion.is_young {
            // Ids and ages are not in the same order: a batch may draw its ids long
            // after it began. So it is looked for, in the one portion that needs it.
            // A vote that is old enough by now was too young a moment ago: no matter.
            let first_young = sqlx::query_scalar!(
                r#"select id from vote
                   where id > $1 and id <= $2
                     and created_at > statement_timestamp() - make_interval(secs => $3)
                   order by id limit 1"#,
                watermark,
                end,
                in_flight_secs
            )
            .fetch_optional(&mut *transaction)
            .await?;
            is_young_next = first_young.is_some();
            end = first_young.map_or(end, |id| id - 1);
            if end <= watermark {
                return Ok(None);
            }
            portion = fold_portion(&mut transaction, watermark, end, in_flight_secs).await?;
            // Younger than a moment ago: the clock was set back. The next audit will do.
            if portion.is_young {
                return Ok(None);
            }
        }
        let moved = sqlx::query!(
            r#"update watermark set vote_id = $1, votes = votes + $2
               returning vote_id, votes, (select last_value from vote_id_seq) as "drawn!""#,
            end,
            portion.votes
        )
        .fetch_one(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(Some(Folded {
            watermark: moved.vote_id,
            votes: moved.votes,
            drawn: moved.drawn,
            is_young_next,
        }))
    }

    /// How many votes the ledger holds: those below the watermark were counted
    /// when it passed them, the rest are counted now.
    ///
    /// # Errors
    /// When Postgres is away or too slow.
    pub async fn vote_total(&self) -> Result<i64, LedgerError> {
        Ok(sqlx::query_scalar!(
            r#"select votes + (select count(*) from vote where id > watermark.vote_id) as "votes!"
               from watermark"#
        )
        .fetch_one(&self.pool)
        .await?)
    }

    /// What the audit compares with the live counts of these items, which it must
    /// have read *before*. Each id may be given once.
    ///
    /// # Errors
    /// When Postgres is away or too slow.
    pub async fn audit_page(
        &self,
        items: &[ItemId],
        in_flight_limit: Duration,
    ) -> Result<Vec<AuditRow>, LedgerError> {
        let ids: Vec<i64> = items.iter().map(|item| item.get()).collect();
        let rows = sqlx::query_file!(
            "src/ledger/sql/audit_page.sql",
            &ids,
            in_flight_limit.as_secs_f64()
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows
            .iter()
            .filter_map(|row| {
                Some(AuditRow {
                    item_id: ItemId::new(row.item_id)?,
                    saved_count: row.saved_count,
                    counted_at: Rev::from_micros(row.counted_at),
                    exact_count: row.exact_count,
                    young_up: row.young_up,
                    young_down: row.young_down,
                })
            })
            .collect())
    }
}

/// What became of a portion: how many votes it has, and whether none of them was
/// folded because one is too young.
struct Portion {
    votes: i64,
    is_young: bool,
}

async fn fold_portion(
    connection: &mut PgConnection,
    after: i64,
    end: i64,
    in_flight_secs: f64,
) -> Result<Portion, sqlx::Error> {
    sqlx::query_file_as!(
        Portion,
        "src/ledger/sql/fold_votes.sql",
        after,
        end,
        in_flight_secs
    )
    .fetch_one(connection)
    .await
}
