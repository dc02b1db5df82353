//! The roll-up: adds votes to their items' audited counts and moves the watermark past them.

use std::time::Duration;

use sqlx::postgres::PgConnection;

use super::WorkerLedger;
use super::counts::DEADLOCK_LIMIT_TRIES;
use crate::domain::VoteId;
use crate::ledger::LedgerError;
use crate::ledger::error::is_deadlock;

/// Vote ids in one transaction of the roll-up, at the most. The transaction holds the row locks
/// of its items until it ends, and the flush waits for them.
pub const ROLL_UP_LIMIT_IDS: i64 = 1_000_000;

/// How far the roll-up is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RolledUp {
    /// Every vote with an id up to this one is in its item's audited count.
    pub watermark: VoteId,
    /// How many votes there are up to the watermark.
    pub votes: i64,
    /// The last vote id that was drawn.
    pub drawn: VoteId,
    /// Whether the first vote beyond the watermark may be in flight.
    pub is_next_in_flight: bool,
}

impl WorkerLedger {
    /// Rolls up one chunk of the votes between the watermark and `safe_vote_id`, up to
    /// `limit_ids` ids, in one transaction. Votes that are newer than `in_flight_limit` stay
    /// beyond the watermark, where [`WorkerLedger::audit_page`] sees that they may be in
    /// flight. Returns `None` when there is nothing to roll up.
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
                // The transaction was rolled back: nothing of it is stored.
                Err(LedgerError::Postgres(error)) if is_deadlock(&error) && tries < DEADLOCK_LIMIT_TRIES => {
                    tracing::debug!(tries, "a deadlock with a flush: rolling up again");
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
            // The first vote that may be in flight must be looked for, in this chunk alone: ids
            // and ages are not in the same order, since a batch may draw its ids long after it
            // began. A vote that was too new a moment ago may be old enough by now, which does
            // no harm.
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
            // A vote is newer than a moment ago: the clock was set back. The next audit rolls
            // the chunk up.
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

/// What became of a chunk.
struct Chunk {
    /// How many votes it has.
    votes: i64,
    /// Whether one of them may be in flight: then none was rolled up.
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
