//! The roll-up: adds votes to their items' audited counts and moves the watermark past them.

use std::collections::BTreeMap;

use sqlx::PgExecutor;
use tokio::time::Instant;

use super::WorkerLedger;
use super::jobs::{JobLease, hold};
use super::spread::{Pacing, Statements};
use crate::domain::VoteId;
use crate::ledger::fitness::check_steps;
use crate::ledger::pool::InUse;
use crate::ledger::safe_vote_id::SafeVoteId;
use crate::ledger::{LedgerError, Overtaken, UnfitDatabase};

/// The most vote ids in one transaction of the roll-up. The worker has the sums of their items in
/// memory: by calculation 50 MB for a million items.
pub const ROLL_UP_LIMIT_IDS: i64 = 1_000_000;

/// How far the roll-up is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RollUpProgress {
    /// Every vote with an id up to this one is in its item's audited count.
    pub watermark: VoteId,
    /// How many votes there are up to the watermark.
    pub votes: i64,
    /// The last vote id that was drawn.
    pub drawn: VoteId,
}

impl WorkerLedger {
    /// How many vote ids were drawn beyond the watermark.
    pub async fn watermark_lag(&self) -> Result<i64, LedgerError> {
        Ok(sqlx::query_scalar!(
            r#"select greatest(last_value - watermark.vote_id, 0) as "lag!" from vote_id_seq, watermark"#
        )
        .fetch_one(&self.database.pool)
        .await?)
    }

    /// Rolls up one chunk of the votes between the watermark and the safe id. The chunk has up to
    /// `limit_ids` ids. It is one transaction, under the lease of [`super::Job::RollUp`]. Returns
    /// `None` when there is nothing to roll up, or someone else has moved the watermark.
    ///
    /// # Errors
    /// When the lease is lost ([`Overtaken::LeaseLost`]). When another Postgres said what is safe
    /// ([`Overtaken::OtherIncarnation`]). When someone else has locked the watermark or an audited
    /// count. The watermark then stays.
    pub async fn roll_up_votes(
        &self,
        lease: &JobLease,
        safe: &SafeVoteId,
        limit_ids: i64,
        pacing: Pacing,
    ) -> Result<Option<RollUpProgress>, LedgerError> {
        let mut transaction = self.database.pool.begin().await?;
        let rolled_up = roll_up(&mut transaction, lease, safe, limit_ids, pacing).await;
        // Wait for its end: Postgres reports an error before it unlocks the watermark, and the next
        // roll-up would take the lock for someone else's.
        transaction.end(rolled_up).await
    }
}

/// Rolls up in this transaction, as [`WorkerLedger::roll_up_votes`].
///
/// It sums before it locks anything: decided votes never change, and no more are added to them.
/// Until it writes, the transaction has no id, and holds back no vacuum. It must still be one
/// transaction: Postgres ends it if the worker stalls, since the sequence may be set back meanwhile
/// and the sums would be wrong.
async fn roll_up(
    connection: &mut InUse,
    lease: &JobLease,
    safe: &SafeVoteId,
    limit_ids: i64,
    pacing: Pacing,
) -> Result<Option<RollUpProgress>, LedgerError> {
    // A failover may have come since the safe id was read. This transaction would not survive one.
    let incarnation = sqlx::query_scalar!("select token from incarnation where xmin = drawn_by::xid")
        .fetch_optional(&mut *connection)
        .await?;
    if incarnation.as_ref() != Some(&safe.incarnation) {
        return Err(LedgerError::Overtaken(Overtaken::OtherIncarnation));
    }
    let watermark = sqlx::query_scalar!("select vote_id from watermark")
        .fetch_one(&mut *connection)
        .await?;
    let safe = safe.vote_id.get();
    if safe <= watermark {
        return Ok(None);
    }
    let passed = last_unused(&mut *connection, watermark, safe).await?;
    let end = safe.min(passed.saturating_add(limit_ids.min(ROLL_UP_LIMIT_IDS)));
    let sums = sum_votes(&mut *connection, passed, end, pacing).await?;
    hold(&mut *connection, lease).await?;
    let locked = sqlx::query_scalar!("select vote_id from watermark for no key update")
        .fetch_one(&mut *connection)
        .await?;
    if locked != watermark {
        // Someone else has moved the watermark.
        return Ok(None);
    }
    check_steps(&mut *connection).await?;
    add_to_audited_counts(&mut *connection, &sums, pacing).await?;
    let votes: i64 = sums.values().map(|sum| sum.votes).sum();
    let moved = sqlx::query!(
        r#"update watermark set vote_id = $1, vote_total = vote_total + $2
               returning vote_id, vote_total, (select last_value from vote_id_seq) as "drawn!""#,
        end,
        votes
    )
    .fetch_one(&mut *connection)
    .await?;
    if moved.drawn < end {
        // A batch with a lower id may have been stored since the votes were summed.
        return Err(LedgerError::Unfit(UnfitDatabase::Sequence(format!(
            "was set back to {} while votes up to {end} were rolled up",
            moved.drawn
        ))));
    }
    Ok(Some(RollUpProgress {
        watermark: VoteId::new(moved.vote_id),
        votes: moved.vote_total,
        drawn: VoteId::new(moved.drawn),
    }))
}

/// The sum of an item's votes in a chunk.
#[derive(Default)]
struct Sum {
    net: i64,
    downs: i64,
    votes: i64,
}

/// The sums of the votes with ids above `after`, up to `last`, by item.
async fn sum_votes(
    connection: &mut InUse,
    after: i64,
    last: i64,
    pacing: Pacing,
) -> Result<BTreeMap<i64, Sum>, LedgerError> {
    let mut sums = BTreeMap::<i64, Sum>::new();
    let mut pieces = Statements::that_sum(last.abs_diff(after), pacing);
    let mut from = after;
    while from < last {
        let started = Instant::now();
        let to = last.min(from.saturating_add(pieces.limit_ids()));
        let of_piece = sqlx::query_file!("src/ledger/sql/sum_votes.sql", from, to)
            .fetch_all(&mut *connection)
            .await?;
        for one in of_piece {
            let sum = sums.entry(one.item_id).or_default();
            sum.net += one.sum;
            sum.downs += one.downs;
            sum.votes += one.votes;
        }
        from = to;
        pieces.rest_after(started.elapsed()).await;
    }
    Ok(sums)
}

/// Adds sums to the audited counts, in the order of their items.
async fn add_to_audited_counts(
    connection: &mut InUse,
    sums: &BTreeMap<i64, Sum>,
    pacing: Pacing,
) -> Result<(), LedgerError> {
    let sums: Vec<(&i64, &Sum)> = sums.iter().collect();
    let mut statements = Statements::that_write(sums.len(), pacing);
    for some in sums.chunks(statements.limit_rows()) {
        let started = Instant::now();
        let items: Vec<i64> = some.iter().map(|(item, _)| **item).collect();
        let net: Vec<i64> = some.iter().map(|(_, sum)| sum.net).collect();
        let downs: Vec<i64> = some.iter().map(|(_, sum)| sum.downs).collect();
        sqlx::query_file!("src/ledger/sql/add_to_audited_counts.sql", &items, &net, &downs)
            .execute(&mut *connection)
            .await?;
        statements.rest_after(started.elapsed()).await;
    }
    Ok(())
}

/// The last id before the next vote above `after`, at most `last`. In between there are no votes,
/// as long as all ids up to `last` are decided. A sequence may have been set far ahead, and going
/// through all its ids would take years.
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
