//! The roll-up: adds votes to their items' audited counts and moves the watermark past them.

use sqlx::{PgConnection, PgExecutor};

use super::WorkerLedger;
use super::counts::DEADLOCK_LIMIT_TRIES;
use super::jobs::{JobLease, hold};
use crate::domain::VoteId;
use crate::ledger::LedgerError;
use crate::ledger::error::{is_deadlock, is_lock_timeout};
use crate::ledger::fitness::check_steps;

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
}

impl WorkerLedger {
    /// How many vote ids were drawn beyond the watermark.
    ///
    /// # Errors
    /// When Postgres is unavailable.
    pub async fn watermark_lag(&self) -> Result<i64, LedgerError> {
        Ok(sqlx::query_scalar!(
            r#"select greatest(last_value - watermark.vote_id, 0) as "lag!" from vote_id_seq, watermark"#
        )
        .fetch_one(&self.database.pool)
        .await?)
    }

    /// Rolls up one chunk of the votes between the watermark and `safe_vote_id`, up to
    /// `limit_ids` ids, in one transaction, under the lease of [`super::Job::RollUp`]. Returns `None` when there
    /// is nothing to roll up, or a worker of a version without leases is at it.
    ///
    /// # Errors
    /// When the lease is lost ([`LedgerError::LeaseLost`]); when Postgres is unavailable or too slow; the watermark then stays.
    pub async fn roll_up_votes(
        &self,
        lease: &JobLease,
        safe_vote_id: VoteId,
        limit_ids: i64,
    ) -> Result<Option<RolledUp>, LedgerError> {
        let mut tries = 1;
        loop {
            match self.try_roll_up(lease, safe_vote_id, limit_ids).await {
                // The transaction was rolled back: nothing of it is stored.
                Err(LedgerError::Postgres(error))
                    if (is_deadlock(&error) || is_lock_timeout(&error)) && tries < DEADLOCK_LIMIT_TRIES =>
                {
                    tracing::debug!(tries, "a flush has the rows: rolling up again");
                    tries += 1;
                }
                rolled_up => return rolled_up,
            }
        }
    }

    async fn try_roll_up(
        &self,
        lease: &JobLease,
        safe_vote_id: VoteId,
        limit_ids: i64,
    ) -> Result<Option<RolledUp>, LedgerError> {
        let mut transaction = self.database.pool.begin().await?;
        let rolled_up = roll_up(&mut transaction, lease, safe_vote_id, limit_ids).await;
        if rolled_up.is_ok() {
            transaction.commit().await?;
        // Its end is waited for: Postgres reports an error before it lets go of the watermark, and
        // the next try would leave that to another worker.
        } else if let Err(error) = transaction.rollback().await {
            tracing::debug!(%error, "a roll-up that failed was not rolled back; its connection is given up");
        }
        rolled_up
    }
}

/// Rolls up in this transaction, as [`WorkerLedger::roll_up_votes`].
async fn roll_up(
    connection: &mut PgConnection,
    lease: &JobLease,
    safe_vote_id: VoteId,
    limit_ids: i64,
) -> Result<Option<RolledUp>, LedgerError> {
    hold(&mut *connection, lease).await?;
    let watermark = sqlx::query_scalar!("select vote_id from watermark for no key update skip locked")
        .fetch_optional(&mut *connection)
        .await?;
    // A worker of a version without leases rolls up.
    let Some(watermark) = watermark else {
        return Ok(None);
    };
    let safe = safe_vote_id.get();
    if safe <= watermark {
        return Ok(None);
    }
    check_steps(&mut *connection).await?;
    let passed = last_unused(&mut *connection, watermark, safe).await?;
    let end = safe.min(passed.saturating_add(limit_ids.min(ROLL_UP_LIMIT_IDS)));
    let votes = sqlx::query_file_scalar!("src/ledger/sql/roll_up_votes.sql", passed, end)
        .fetch_one(&mut *connection)
        .await?;
    let moved = sqlx::query!(
        r#"update watermark set vote_id = $1, vote_total = vote_total + $2
               returning vote_id, vote_total, (select last_value from vote_id_seq) as "drawn!""#,
        end,
        votes
    )
    .fetch_one(&mut *connection)
    .await?;
    if moved.drawn < end {
        // A batch with an id below may have been stored since the votes were summed.
        return Err(LedgerError::Sequence(format!(
            "was set back to {} while votes up to {end} were rolled up",
            moved.drawn
        )));
    }
    Ok(Some(RolledUp {
        watermark: VoteId::new(moved.vote_id),
        votes: moved.vote_total,
        drawn: VoteId::new(moved.drawn),
    }))
}

/// The last id before the next vote beyond `after`, and `last` at the most: in between, there
/// are no votes, as long as all up to `last` are decided. A sequence may have been set far ahead,
/// and to go through all its ids would take years.
pub(super) async fn last_unused<'a>(
    connection: impl PgExecutor<'a>,
    after: i64,
    last: i64,
) -> Result<i64, LedgerError> {
    let next = sqlx::query_scalar!("select min(id) from vote where id > $1", after)
        .fetch_one(connection)
        .await?;
    Ok(next.map_or(last, |next| last.min(next - 1)))
}
