//! Rebuilding: writes an item's exact count from the ledger.

use std::collections::HashMap;

use super::{FlushReport, SyncError, Worker};
use crate::domain::{ExactCount, ItemId};
use crate::ledger::{EpochNumber, RebuiltCount};
use crate::live::{ClearRebuildReply, Counter};

impl Worker {
    /// Writes the exact counts of the items with a request, then clears their requests. An item
    /// with a live count needs no rebuild: its count was seeded after the request, so saving that
    /// count does the same.
    ///
    /// The steps, and why they come in this order:
    /// 1. The request was read with its counter. A later reason to invalidate makes another
    ///    request, which step 5 leaves alone.
    /// 2. The exact count and the item's `counted_at` are read under one snapshot.
    /// 3. A revision is claimed in Redis, above `counted_at` and above every revision that a
    ///    count of this item had. A live count that is seeded later gets a higher one.
    /// 4. The exact count is written if `counted_at` is still what step 2 read. So it never
    ///    replaces a count that someone has saved since.
    /// 5. The request is cleared. What was not written keeps its request for the next scan.
    pub(super) async fn rebuild(
        &self,
        counters: &[Counter],
        epoch: EpochNumber,
        report: &mut FlushReport,
    ) -> Result<(), SyncError> {
        let mut requests: HashMap<ItemId, String> = counters
            .iter()
            .filter(|one| one.count.is_none())
            .filter_map(|one| Some((one.item_id, one.rebuild.clone()?)))
            .collect();
        if requests.is_empty() {
            return Ok(());
        }
        let items: Vec<ItemId> = requests.keys().copied().collect();
        let exact = self.ledger.exact_counts(&items).await?;
        // One list of both, so that each reply meets the exact count that was read for its request.
        let (exact, to_claim): (Vec<ExactCount>, Vec<_>) = exact
            .into_iter()
            .filter_map(|one| {
                let request = requests.get(&one.item_id)?.clone();
                let claim = (one.item_id, request, one.counted_at);
                Some((one, claim))
            })
            .unzip();
        let claimed = self.counters.claim_rebuilds(&to_claim).await?;
        let counts: Vec<RebuiltCount> = exact
            .iter()
            .zip(claimed)
            .filter_map(|(exact, revision)| {
                Some(RebuiltCount {
                    exact: exact.clone(),
                    revision: revision?,
                })
            })
            .collect();
        let written = self.ledger.save_rebuilt_counts(&counts, epoch).await?;
        // An item that does not exist has nothing to write.
        for one in exact.iter().filter(|one| !written.contains(&one.item_id)) {
            requests.remove(&one.item_id);
        }
        let requests: Vec<(ItemId, String)> = requests.into_iter().collect();
        let cleared = self.counters.clear_rebuilds(&requests).await?;
        let rebuilt = cleared
            .iter()
            .filter(|one| **one == ClearRebuildReply::Cleared)
            .count();
        report.rebuilt += rebuilt;
        report.rebuilds_left += items.len() - rebuilt;
        Ok(())
    }
}
