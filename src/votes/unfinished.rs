//! A batch on its way to Postgres.

use tokio::time::Instant;

use super::cast::{AnswerSender, CastError};
use crate::domain::ItemId;
use crate::ledger::{InsertError, SERVER_STATEMENT_LIMIT};
use crate::live::LiveCounts;

/// Makes a batch's items suspect, unless it is finished: its writer was cut off in mid-batch, or
/// Postgres did not confirm it. It may be stored, now or a little later, and nobody would count
/// it. Postgres ends a statement within its limit, so a seed is exact from then on.
///
/// What else a batch of decisions may have changed, choices of a poll that it takes back, is left
/// to crashed-writer recovery: the connection of such a batch ends.
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

    /// Its votes are counted, or it is certain that none is stored.
    pub fn finish(mut self) {
        self.is_finished = true;
    }

    /// Answers a batch that was not stored, or not for certain.
    pub fn fail(
        mut self,
        error: &InsertError,
        answers: impl Iterator<Item = AnswerSender>,
        failed: &metrics::Counter,
    ) {
        let refusal = match error {
            InsertError::NotStored(_) => CastError::NotStored,
            InsertError::Unknown(_) => CastError::Unconfirmed,
        };
        self.is_finished = refusal == CastError::NotStored;
        // Its items are suspect before anyone hears of it.
        drop(self);
        let mut votes = 0;
        for answer in answers {
            votes += 1;
            // A voter that no longer waits needs no answer.
            let _ = answer.send(Err(refusal));
        }
        failed.increment(votes);
        tracing::error!(%error, votes, "a batch of votes was not stored");
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
