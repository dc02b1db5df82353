//! Counts one committed batch, with the calls that [`Counting`] asks for.

use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::backoff::SeedBackoff;
use super::batch::StoredBatch;
use super::counting_steps::{Counting, Step};
use crate::domain::{CountDelta, ExactCount, ItemId, TransactionId};
use crate::ledger::{LedgerError, VoteWriter};
use crate::live::{CountReply, LiveCounts};
use crate::telemetry::{name, trouble};

/// How long a batch may take to seed its missing live counts, in all rounds.
pub const SEED_LIMIT: Duration = Duration::from_secs(4);
/// How long one read of exact counts may take. Then its items wait without a count, and the batch
/// writer goes on.
pub const SEED_READ_LIMIT: Duration = Duration::from_secs(2);

/// How long after the beginning of its statement a vote may find its item cold. Later, it makes the item
/// suspect: a roll-up may have passed the vote before (`TALLY_WRITER_STALL_LIMIT`), and nobody else would save
/// its count.
pub const COLD_LIMIT: Duration = Duration::from_secs(5);

/// How long a batch that is being counted keeps its thread's turn, so that the next one has all votes that came
/// meanwhile. A Redis that hangs must not hold up votes.
const TURN_LIMIT: Duration = Duration::from_millis(5);

/// The counting of one committed batch.
pub(super) struct BatchCounting<'a> {
    live_counts: &'a LiveCounts,
    writer: &'a mut VoteWriter,
    backoff: &'a SeedBackoff,
    /// Before the batch's statement was sent.
    begun: Instant,
    started: Instant,
    /// When it gives up what is still missing.
    deadline: Instant,
}

impl<'a> BatchCounting<'a> {
    /// `begun`: a time before the batch's statement was sent.
    pub fn new(
        live_counts: &'a LiveCounts,
        writer: &'a mut VoteWriter,
        backoff: &'a SeedBackoff,
        begun: Instant,
    ) -> Self {
        let started = Instant::now();
        Self {
            live_counts,
            writer,
            backoff,
            begun,
            started,
            deadline: started + SEED_LIMIT,
        }
    }

    /// Counts the batch, which this transaction stored, and answers every vote in it. It gives the turn back once
    /// Redis has answered, and those votes are answered that need nothing else.
    pub async fn finish<Turn>(
        mut self,
        transaction: TransactionId,
        deltas: Vec<CountDelta>,
        mut batch: StoredBatch<'_>,
        turn: Turn,
    ) {
        self.count(Counting::new(transaction, deltas), &mut batch, Some(turn))
            .await;
        batch.answer_rest(self.started);
    }

    /// Counts the batch, and seeds the live counts that are missing, except of cold items. Votes on items
    /// that have a live count are answered before the others' exact counts are read.
    async fn count<Turn>(
        &mut self,
        mut counting: Counting,
        batch: &mut StoredBatch<'_>,
        mut turn: Option<Turn>,
    ) {
        loop {
            match counting.step() {
                Step::Done => return,
                Step::GiveUp => break,
                Step::Count(_) if Instant::now() >= self.deadline => break,
                Step::Count(deltas) => {
                    // After a failure the items are suspect already, and the votes are
                    // acknowledged without a count.
                    let mut call = pin!(self.live_counts.count(&deltas, counting.transaction()));
                    let replies = match timeout(TURN_LIMIT, &mut call).await {
                        Ok(replies) => replies,
                        Err(_) => {
                            drop(turn.take());
                            call.await
                        }
                    };
                    let Ok(replies) = replies else {
                        return;
                    };
                    if self.begun.elapsed() >= COLD_LIMIT {
                        let replies = deltas.iter().zip(&replies);
                        let cold = replies.filter(|(_, reply)| **reply == CountReply::Cold);
                        self.live_counts.suspect(cold.map(|(delta, _)| delta.item_id));
                    }
                    batch.answer(&counting.counted(replies));
                    drop(turn.take());
                }
                Step::Seed(missing) => {
                    metrics::counter!(name::MISSES).increment(missing.len() as u64);
                    match self.seed(&mut counting, &missing, batch).await {
                        Ok(()) => {}
                        Err(error) => {
                            trouble!(warn, %error, items = missing.len(); "missing live counts were not seeded");
                            break;
                        }
                    }
                }
            }
        }
        self.live_counts.suspect(counting.give_up());
    }

    /// Reads the exact counts of the missing items, and seeds those that are not cold. Items whose exact
    /// counts cannot be read in time stay without a live count.
    async fn seed(
        &mut self,
        counting: &mut Counting,
        missing: &[ItemId],
        batch: &mut StoredBatch<'_>,
    ) -> anyhow::Result<()> {
        let exact = self.exact_counts(counting, missing).await?;
        let Some(exact) = exact else {
            self.live_counts.suspect(counting.leave(missing));
            return Ok(());
        };
        let cold = counting.cold_counts(&exact);
        metrics::counter!(name::COLD).increment(cold.len() as u64);
        batch.answer(&cold);
        let seeds = counting.seeds(exact);
        if !seeds.is_empty() {
            let replies = self.live_counts.seed(&seeds).await?;
            let seeded = counting.seeded(&seeds, &replies);
            metrics::counter!(name::SEEDS).increment(seeded.len() as u64);
            batch.answer(&seeded);
        }
        Ok(())
    }

    /// The exact counts of the missing items; `None`: they cannot be read in time.
    async fn exact_counts(
        &mut self,
        counting: &Counting,
        missing: &[ItemId],
    ) -> Result<Option<Vec<ExactCount>>, LedgerError> {
        let Some(leave) = self.backoff.may_read(Instant::now()) else {
            return Ok(None);
        };
        let (cold, leased): (Vec<ItemId>, Vec<ItemId>) =
            missing.iter().partition(|item| counting.is_cold(**item));
        let whole = Instant::now() + SEED_READ_LIMIT;
        let read = self.writer.exact_counts(&leased, &cold, whole.min(self.deadline));
        match read.await {
            Ok(counts) => {
                self.backoff.succeeded();
                Ok(Some(counts))
            }
            Err(error @ (LedgerError::Cancelled | LedgerError::LongTail)) => {
                trouble!(warn, %error, items = missing.len(); "exact counts were not read in time: their items wait");
                metrics::counter!(name::SEED_TIMEOUTS).increment(1);
                // A read that had less time may not be slow.
                if whole <= self.deadline {
                    self.backoff.failed(leave, Instant::now());
                }
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}
