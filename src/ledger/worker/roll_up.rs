//! The roll-up: votes below the watermark, summed into their items.

use std::time::Duration;

use sqlx::postgres::PgConnection;

use super::WorkerLedger;
use super::counts::DEADLOCK_LIMIT_TRIES;
use crate::domain::VoteId;
use crate::ledger::LedgerError;
use crate::ledger::error::is_deadlock;

/// How many vote ids one transaction of the roll-up takes at the most: it holds its items'
/// row locks for as long, and the flush waits for them.
pub const ROLL_UP_LIMIT_IDS: i64 = 1_000_000;

/// How far the watermark is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RolledUp {
    /// Every vote with an id up to this one is in its item's audited count.
    pub watermark: VoteId,
    /// How many votes those are.
    pub votes: i64,
    /// The last vote id that has been drawn by now.
    pub drawn: VoteId,
    /// Whether the vote beyond the watermark may still be in flight.
    pub is_next_in_flight: bool,
}

impl WorkerLedger {
    /// Adds one chunk of the votes between the watermark and `safe_vote_id`, up to
    /// `limit_ids` ids, to their items' audited counts, and moves the watermark, in one
    /// transaction. Votes newer than `in_flight_limit` stay beyond the watermark,
    /// where [`WorkerLedger::audit_page`] sees how in-flight they are. Returns `None` when
    /// nothing is left to fold.
    ///
    /// # Errors
    /// When Postgres is unavailable or too slow; the watermark then stays.
    pub async fn roll_up_votes(
        &self,
        safe_vote_id: VoteId,
        in_flight_limit: Duration,
        limit_ids: i64,
    ) -> Result<Option<RolledUp>, LedgerError> {
        let mut tries = 1;
        loop {
            match self.try_roll_up(safe_vote_id, in_flight_limit, limit_ids).await {
                // It waited for a flush in a circle. Nothing of it is left.
                Err(LedgerError::Postgres(error)) if is_deadlock(&error) && tries < DEADLOCK_LIMIT_TRIES => {
                    tracing::debug!(tries, "a deadlock with a flush: rolling_up again");
                    tries += 1;
                }
                rolled_up => return rolled_up,
            }
        }
    }

    async fn try_roll_up(
        &self,
        safe_vote_id: VoteId,
        in_flight_limit: Duration,
        limit_ids: i64,
    ) -> Result<Option<RolledUp>, LedgerError> {
        let in_flight_secs = in_flight_limit.as_secs_f64();
        let mut transaction = self.database.pool.begin().await?;
        // The lock makes a second audit wait, then find the watermark moved.
        let watermark = sqlx::query_scalar!("select vote_id from watermark for no key update")
            .fetch_one(&mut *transaction)
            .await?;
        let mut end = safe_vote_id
            .get()
            .min(watermark.saturating_add(limit_ids.min(ROLL_UP_LIMIT_IDS)));
        if end <= watermark {
            return Ok(None);
        }
        let mut chunk = roll_up_chunk(&mut transaction, watermark, end, in_flight_secs).await?;
        let mut is_next_in_flight = false;
        if chunk.has_in_flight {
            // Ids and ages are not in the same order: a batch may draw its ids long
            // after it began. So it is looked for, in the one chunk that needs it.
            // A vote that is old enough by now was too new a moment ago: no matter.
            let first_in_flight = sqlx::query_scalar!(
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
            is_next_in_flight = first_in_flight.is_some();
            end = first_in_flight.map_or(end, |id| id - 1);
            if end <= watermark {
                return Ok(None);
            }
            chunk = roll_up_chunk(&mut transaction, watermark, end, in_flight_secs).await?;
            // Younger than a moment ago: the clock was set back. The next audit will do.
            if chunk.has_in_flight {
                return Ok(None);
            }
        }
        let moved = sqlx::query!(
            r#"update watermark set vote_id = $1, votes = votes + $2
               returning vote_id, votes, (select last_value from vote_id_seq) as "drawn!""#,
            end,
            chunk.votes
        )
        .fetch_one(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(Some(RolledUp {
            watermark: VoteId::new(moved.vote_id),
            votes: moved.votes,
            drawn: VoteId::new(moved.drawn),
            is_next_in_flight,
        }))
    }
}

/// What became of a chunk: how many votes it has, and whether none of them was
/// rolled_up because one is too in-flight.
struct Chunk {
    votes: i64,
    has_in_flight: bool,
}

async fn roll_up_chunk(
    connection: &mut PgConnection,
    after: i64,
    end: i64,
    in_flight_secs: f64,
) -> Result<Chunk, sqlx::Error> {
    sqlx::query_file_as!(
        Chunk,
        "src/ledger/sql/roll_up_votes.sql",
        after,
        end,
        in_flight_secs
    )
    .fetch_one(connection)
    .await
}
