//! Counts into their items, and the marks that say so.

use super::{SyncError, Worker};
use crate::domain::{CountToSave, ItemId, Revision};
use crate::ledger::Saved;
use crate::live::Marked;

impl Worker {
    /// The first half of a flush: counts into their items. Public for the tests,
    /// which stop a worker between its write and its mark.
    ///
    /// # Errors
    /// When Postgres is unavailable.
    pub async fn write(&self, counts: &[CountToSave]) -> Result<Saved, SyncError> {
        if counts.is_empty() {
            return Ok(Saved::All);
        }
        Ok(self.ledger.save_counts(counts).await?)
    }

    /// The second half: those that were written are marked, unless they have
    /// changed. Returns how many were.
    ///
    /// # Errors
    /// When Redis is unavailable.
    pub async fn mark(&self, counts: &[CountToSave], written: &Saved) -> Result<usize, SyncError> {
        let marks: Vec<(ItemId, Revision)> = counts
            .iter()
            .filter(|one| written.contains(one.item_id))
            .map(|one| (one.item_id, one.revision))
            .collect();
        let marked = self.counters.mark_saved(&marks).await?;
        Ok(marked.iter().filter(|one| **one == Marked::Saved).count())
    }
}
