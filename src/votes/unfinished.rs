//! A batch on its way to Postgres.

use tokio::time::Instant;

use super::cast::{CastError, Queued};
use crate::domain::ItemId;
use crate::ledger::{InsertError, SERVER_STATEMENT_LIMIT};
use crate::live::LiveCounts;
use crate::telemetry::{name, trouble};

/// Makes a batch's items suspect, unless it is finished. Its writer was cut off in the middle of
/// the batch, or Postgres did not confirm it. The batch may be stored, now or a little later, and
/// nobody would count it. Postgres ends a statement within its limit, so a seed is exact from then
/// on.
///
/// A batch of decisions may also have taken back other choices of a poll. Crashed-writer recovery
/// counts these, since the connection of such a batch ends.
pub(super) struct UnfinishedBatch<Items: Iterator<Item = ItemId> + Clone> {
    live_counts: LiveCounts,
    items: Items,
    is_finished: bool,
}

impl<Items: Iterator<Item = ItemId> + Clone> UnfinishedBatch<Items> {
    pub fn new(live_counts: &LiveCounts, items: Items) -> Self {
        Self {
            live_counts: live_counts.clone(),
            items,
            is_finished: false,
        }
    }

    /// The batch is finished: its votes are counted, or certainly none is stored.
    pub fn finish(mut self) {
        self.is_finished = true;
    }

    /// Answers a batch that was not stored, or not for certain.
    pub fn fail<One: Queued>(
        mut self,
        error: &InsertError,
        batch: impl Iterator<Item = One>,
        failed: &metrics::Counter,
    ) {
        let refusal = match error {
            InsertError::NotStored(_) => CastError::NotStored,
            InsertError::Unknown(_) => CastError::Unconfirmed,
        };
        self.is_finished = refusal == CastError::NotStored;
        // Its items become suspect before anyone hears of the failure.
        drop(self);
        let mut votes = 0;
        for one in batch {
            votes += 1;
            let refusal = one.refusal(refusal);
            // A voter who no longer waits needs no answer.
            let _ = one.into_answer().send(Err(refusal));
        }
        failed.increment(votes);
        metrics::counter!(name::VOTE_FAILURES, "why" => error.failure()).increment(votes);
        trouble!(error, %error, votes = votes; "a batch of votes was not stored");
    }
}

impl<Items: Iterator<Item = ItemId> + Clone> Drop for UnfinishedBatch<Items> {
    fn drop(&mut self) {
        if !self.is_finished {
            let decided = Instant::now() + SERVER_STATEMENT_LIMIT;
            self.live_counts.suspect_later(self.items.clone(), decided);
        }
    }
}
