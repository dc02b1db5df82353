//! The roll-up: adds votes to their items' audited counts and to what changed when, and moves the
//! watermark past them.

use std::collections::BTreeMap;

use sqlx::PgExecutor;
use tokio::time::Instant;

use super::WorkerLedger;
use super::changes::{Change, ItemSpan, add_changes};
use super::epochs::{EpochNumber, check_epoch};
use super::jobs::{JobLease, hold};
use super::spread::{Pacing, Statements};
use crate::domain::{Count, CountDelta, ItemId, VoteId};
use crate::ledger::fitness::check_steps;
use crate::ledger::pool::InUse;
use crate::ledger::safe_vote_id::SafeVoteId;
use crate::ledger::{LedgerError, Overtaken, UnfitDatabase};

/// The most vote ids in one transaction of the roll-up. The worker has their sums by item and span in
/// memory: by calculation 130 MB for a million sums.
pub const ROLL_UP_LIMIT_IDS: i64 = 1_000_000;

/// About how many ids a row of `vote_time` is for: a report on some time may read as many votes too many at either end.
const VOTE_TIME_LIMIT_IDS: i64 = 65_536;

/// How far the roll-up is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RollUpProgress {
    /// Every vote with an id up to this one is in its item's audited count, and in what changed when.
    pub watermark: VoteId,
    /// How many votes there are up to the watermark.
    pub votes: i64,
    /// The last vote id that was drawn.
    pub drawn: VoteId,
    /// The sums of the votes that were rolled up, in the order of the items. What is cold of them is to be
    /// saved: see [`WorkerLedger::note_saved`].
    pub sums: Vec<CountDelta>,
}

/// How far the counts of cold items are saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavingProgress {
    /// Every vote up to this id is in a live count or in a saved count.
    pub saved: VoteId,
    pub watermark: VoteId,
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

    /// The first vote above the one id, up to the other.
    pub async fn next_vote_id(&self, after: VoteId, up_to: VoteId) -> Result<Option<VoteId>, LedgerError> {
        let next = sqlx::query_scalar!(
            "select min(id) from vote where id > $1 and id <= $2",
            after.get(),
            up_to.get()
        )
        .fetch_one(&self.database.pool)
        .await?;
        Ok(next.map(VoteId::new))
    }

    /// How far the counts of cold items are saved.
    pub async fn saving_progress(&self) -> Result<SavingProgress, LedgerError> {
        let row = sqlx::query!(
            r#"select saved_vote_id, vote_id, last_value as "drawn!" from watermark, vote_id_seq"#
        )
        .fetch_one(&self.database.pool)
        .await?;
        Ok(SavingProgress {
            saved: VoteId::new(row.saved_vote_id),
            watermark: VoteId::new(row.vote_id),
            drawn: VoteId::new(row.drawn),
        })
    }

    /// The items of the votes above `after`, up to `last`, in order.
    pub async fn items_of_votes(&self, after: VoteId, last: VoteId) -> Result<Vec<ItemId>, LedgerError> {
        let ids = sqlx::query_scalar!(
            "select distinct item_id from vote where id > $1 and id <= $2 order by item_id",
            after.get(),
            last.get()
        )
        .fetch_all(&self.database.pool)
        .await?;
        Ok(ids.into_iter().filter_map(ItemId::new).collect())
    }

    /// Notes that every vote up to this id, which is rolled up, is in a live count or in a saved count.
    ///
    /// # Errors
    /// When the lease is lost, or another Postgres said what is safe, as [`WorkerLedger::roll_up_votes`].
    pub async fn note_saved(
        &self,
        lease: &JobLease,
        safe: &SafeVoteId,
        epoch: EpochNumber,
        up_to: VoteId,
    ) -> Result<(), LedgerError> {
        let mut transaction = self.database.pool.begin().await?;
        let noted = async {
            check_incarnation(&mut transaction, safe).await?;
            check_epoch(&mut transaction, epoch).await?;
            hold(&mut *transaction, lease).await?;
            sqlx::query!(
                "update watermark set saved_vote_id = $1 where saved_vote_id < $1 and vote_id >= $1",
                up_to.get()
            )
            .execute(&mut *transaction)
            .await?;
            Ok(())
        };
        let noted = noted.await;
        transaction.end(noted).await
    }

    /// Rolls up one chunk of the votes between the watermark and the safe id. The chunk has up to
    /// `limit_ids` ids. It is one transaction, under the lease of [`super::Job::RollUp`]. Returns
    /// `None` when there is nothing to roll up, or someone else has moved the watermark. If everything
    /// up to the safe id is rolled up, notes when that id was read.
    ///
    /// # Errors
    /// When the lease is lost ([`Overtaken::LeaseLost`]). When another Postgres said what is safe
    /// ([`Overtaken::OtherIncarnation`]). When someone else has locked the watermark, an audited
    /// count or a recent change. The watermark then stays.
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
    check_incarnation(connection, safe).await?;
    let begin = sqlx::query!(
        r#"select vote_id as watermark,
                  -- The first span of the first day that is not moved to the changes by day. A list of a
                  -- day begins later, in a full hour.
                  (date_part('epoch', date_trunc('day', now() - interval '25 hours', 'UTC')) / 300)::bigint
                      as "first_recent!",
                  events_are_made() as "makes_events!"
           from watermark"#
    )
    .fetch_one(&mut *connection)
    .await?;
    let watermark = begin.watermark;
    let safe_id = safe.vote_id.get();
    if safe_id <= watermark {
        hold(&mut *connection, lease).await?;
        note_reached(&mut *connection, safe).await?;
        return Ok(None);
    }
    let passed = last_unused(&mut *connection, watermark, safe_id).await?;
    let end = safe_id.min(passed.saturating_add(limit_ids.min(ROLL_UP_LIMIT_IDS)));
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
    let counts = by_item(&sums.of);
    let adding = Adding {
        first_recent: begin.first_recent,
        makes_events: begin.makes_events,
    };
    add(&mut *connection, &counts, &sums.of, adding, pacing).await?;
    note_times(&mut *connection, &sums.times).await?;
    let moved = sqlx::query!(
        r#"update watermark set vote_id = $1, vote_total = vote_total + $2
               returning vote_id, vote_total, (select last_value from vote_id_seq) as "drawn!""#,
        end,
        sums.votes
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
    if end >= safe_id {
        note_reached(&mut *connection, safe).await?;
    }
    Ok(Some(RollUpProgress {
        watermark: VoteId::new(moved.vote_id),
        votes: moved.vote_total,
        drawn: VoteId::new(moved.drawn),
        sums: counts,
    }))
}

/// Checks that the Postgres that said what is safe is still the same. A failover may have come since. This
/// transaction would not survive one.
async fn check_incarnation(connection: &mut InUse, safe: &SafeVoteId) -> Result<(), LedgerError> {
    let incarnation = sqlx::query_scalar!("select token from incarnation where xmin = drawn_by::xid")
        .fetch_optional(&mut *connection)
        .await?;
    if incarnation.as_ref() != Some(&safe.incarnation) {
        return Err(LedgerError::Overtaken(Overtaken::OtherIncarnation));
    }
    Ok(())
}

/// Notes when these votes were cast, for reports.
async fn note_times(connection: &mut InUse, times: &[TimesOf]) -> Result<(), LedgerError> {
    for of in times {
        sqlx::query_file!(
            "src/ledger/sql/note_vote_time.sql",
            of.after,
            of.last,
            of.first_span,
            of.last_span,
            VOTE_TIME_LIMIT_IDS
        )
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}

/// Notes that everything up to the safe id is rolled up.
async fn note_reached(connection: &mut InUse, safe: &SafeVoteId) -> Result<(), LedgerError> {
    sqlx::query!(
        "update watermark
         set reached_at = timestamptz 'epoch' + $1::bigint / 1000000 * interval '1 second'
                          + $1::bigint % 1000000 * interval '1 microsecond'",
        safe.read_at.micros()
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// The sums of votes.
#[derive(Debug, Default)]
struct Sums {
    of: BTreeMap<ItemSpan, Change>,
    /// How many votes they are.
    votes: i64,
    /// When they were cast, by ranges of ids.
    times: Vec<TimesOf>,
}

/// Between which times the votes of a range of ids were cast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TimesOf {
    /// The range begins after this id, and ends with `last`.
    after: i64,
    last: i64,
    first_span: i64,
    last_span: i64,
}

impl Sums {
    /// Adds a range. Small ranges become one.
    fn add_times(&mut self, times: TimesOf) {
        match self.times.last_mut() {
            Some(one) if times.last - one.after <= VOTE_TIME_LIMIT_IDS => {
                one.last = times.last;
                one.first_span = one.first_span.min(times.first_span);
                one.last_span = one.last_span.max(times.last_span);
            }
            _ => self.times.push(times),
        }
    }

    fn add(&mut self, of: impl Iterator<Item = (ItemSpan, Change)>) {
        for (item_span, change) in of {
            self.of.entry(item_span).or_default().add(change);
        }
    }
}

/// The changes of a piece, in its order. Two statements give pieces of two types.
macro_rules! changes {
    ($piece:ident) => {
        $piece
            .nets
            .iter()
            .zip(&$piece.downs_cast)
            .zip(&$piece.ups_taken_back)
            .zip(&$piece.downs_taken_back)
            .map(|(((net, downs_cast), ups_taken_back), downs_taken_back)| Change {
                net: *net,
                downs_cast: *downs_cast,
                ups_taken_back: *ups_taken_back,
                downs_taken_back: *downs_taken_back,
            })
    };
}

/// The sums of the votes with ids above `after`, up to `last`. Most pieces are of one span, and are read
/// once: to sum by span, too, takes Postgres a quarter longer.
async fn sum_votes(
    connection: &mut InUse,
    after: i64,
    last: i64,
    pacing: Pacing,
) -> Result<Sums, LedgerError> {
    let mut sums = Sums::default();
    let mut pieces = Statements::that_sum(last.abs_diff(after), pacing);
    let mut from = after;
    while from < last {
        let started = Instant::now();
        let to = last.min(from.saturating_add(pieces.limit_ids()));
        let piece = sqlx::query_file!("src/ledger/sql/sum_votes.sql", from, to)
            .fetch_one(&mut *connection)
            .await?;
        sums.votes += piece.votes;
        if let (Some(first_span), Some(last_span)) = (piece.first_span, piece.last_span) {
            sums.add_times(TimesOf {
                after: from,
                last: to,
                first_span,
                last_span,
            });
        }
        match piece.first_span {
            Some(span) if piece.last_span == Some(span) => {
                let of = piece.items.iter().map(|item| (*item, span));
                sums.add(of.zip(changes!(piece)));
            }
            _ => {
                let piece = sqlx::query_file!("src/ledger/sql/sum_votes_by_span.sql", from, to)
                    .fetch_one(&mut *connection)
                    .await?;
                let of = piece.items.iter().copied().zip(piece.spans);
                sums.add(of.zip(changes!(piece)));
            }
        }
        from = to;
        pieces.rest_after(started.elapsed()).await;
    }
    Ok(sums)
}

/// How sums are added.
#[derive(Clone, Copy, Debug)]
struct Adding {
    /// The first span whose changes are recent.
    first_recent: i64,
    /// Whether events are made of what the sums change.
    makes_events: bool,
}

/// Adds sums to the audited counts, and to what changed when, each in the order of their items.
async fn add(
    connection: &mut InUse,
    counts: &[CountDelta],
    sums: &BTreeMap<ItemSpan, Change>,
    adding: Adding,
    pacing: Pacing,
) -> Result<(), LedgerError> {
    // Together: their rests are in one transaction.
    let mut statements = Statements::that_write(counts.len() + sums.len(), pacing);
    for some in counts.chunks(statements.limit_rows()) {
        let started = Instant::now();
        let items: Vec<i64> = some.iter().map(|one| one.item_id.get()).collect();
        let net: Vec<i64> = some.iter().map(|one| one.delta.net).collect();
        let downs: Vec<i64> = some.iter().map(|one| one.delta.downs).collect();
        sqlx::query_file!("src/ledger/sql/add_to_audited_counts.sql", &items, &net, &downs)
            .execute(&mut *connection)
            .await?;
        if adding.makes_events {
            sqlx::query!("select note_item_events($1, $2)", &items, &net)
                .execute(&mut *connection)
                .await?;
        }
        statements.rest_after(started.elapsed()).await;
    }
    add_changes(connection, sums, adding.first_recent, &mut statements).await
}

/// Pure: the sums of each item, in the order of the items.
fn by_item(sums: &BTreeMap<ItemSpan, Change>) -> Vec<CountDelta> {
    let deltas = sums.iter().filter_map(|((item, _), change)| {
        Some(CountDelta {
            item_id: ItemId::new(*item)?,
            delta: Count {
                net: change.net,
                downs: change.downs(),
            },
        })
    });
    let mut deltas = deltas.collect();
    CountDelta::merge(&mut deltas);
    deltas
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
