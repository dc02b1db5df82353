//! Saving: writes counts to their items, and marks them as saved.

use super::{SyncError, Worker};
use crate::domain::{CountToSave, ItemId, Revision};
use crate::ledger::{EpochNumber, SaveOutcome};
use crate::live::MarkReply;
use crate::telemetry::name;

impl Worker {
    /// The first half of a flush: writes counts to their items. Public for the tests, which stop a
    /// worker between its write and its mark.
    ///
    /// # Errors
    /// When another epoch has begun.
    pub async fn write(&self, counts: &[CountToSave], epoch: EpochNumber) -> Result<SaveOutcome, SyncError> {
        if counts.is_empty() {
            return Ok(SaveOutcome::All);
        }
        Ok(self.ledger.save_counts(counts, epoch).await?)
    }

    /// The second half of a flush: marks written counts, unless they have changed. Returns how many
    /// were marked.
    ///
    /// An item with a later revision refuses its count. Mostly another worker wrote that revision,
    /// and the count has changed since. If the count has not changed, no write will ever succeed.
    /// So this invalidates it, and it is seeded again above the item's revision.
    pub async fn mark(&self, counts: &[CountToSave], written: &SaveOutcome) -> Result<usize, SyncError> {
        let which = |is_wanted: &dyn Fn(ItemId) -> bool| -> Vec<(ItemId, Revision)> {
            let wanted = counts.iter().filter(|one| is_wanted(one.item_id));
            wanted.map(|one| (one.item_id, one.revision)).collect()
        };
        let saved = which(&|item| written.contains(item));
        let refused = which(&|item| written.has_refused(item));
        let marked = self.counters.mark_saved(&saved).await?;
        self.watch.ages(|ages| {
            for ((item, _), marked) in saved.iter().zip(&marked) {
                ages.written(*item, *marked == MarkReply::Saved);
            }
        });
        let stuck = self.counters.invalidate_unchanged(&refused).await?;
        if stuck > 0 {
            metrics::counter!(name::INVALIDATIONS, "why" => "refused").increment(stuck as u64);
            tracing::warn!(stuck, "live counts that their items refused are rebuilt");
        }
        Ok(marked.iter().filter(|one| **one == MarkReply::Saved).count())
    }
}
