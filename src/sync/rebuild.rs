//! Rebuilding: an item's exact count from the ledger, written to the item.

use std::collections::{HashMap, HashSet};

use super::{FlushReport, SyncError, Worker};
use crate::domain::{CountToSave, ItemId, RedisTime};
use crate::live::{ClearedRebuild, Counter};

impl Worker {
    /// Writes the exact counts of the items with a request, then clears their requests.
    pub(super) async fn rebuild(
        &self,
        counters: &[Counter],
        report: &mut FlushReport,
    ) -> Result<(), SyncError> {
        let suspect: Vec<(ItemId, String, RedisTime)> = counters
            .iter()
            .filter_map(|one| Some((one.item_id, one.rebuild.clone()?, one.now)))
            .collect();
        if suspect.is_empty() {
            return Ok(());
        }
        let items: Vec<ItemId> = suspect.iter().map(|(item, ..)| *item).collect();
        // Two statements, not one: an update that has to wait for a row would go on
        // with that row's new audited_count and the old snapshot's votes.
        let exact = self.ledger.exact_counts(&items).await?;
        // The request was read before the ledger, and the time of that reading is the
        // count's revision: a change that the ledger did not show yet is later.
        let times: HashMap<ItemId, RedisTime> = suspect.iter().map(|(item, _, now)| (*item, *now)).collect();
        let counts: Vec<CountToSave> = exact
            .iter()
            .filter_map(|one| {
                // Not behind what was saved when the ledger was read, even if this
                // Redis' clock is: the exact count has all of that in it.
                let now = times.get(&one.item_id)?.as_revision();
                let revision = one.counted_at.map_or(now, |saved| saved.max(now));
                Some(CountToSave {
                    item_id: one.item_id,
                    count: one.count,
                    revision,
                })
            })
            .collect();
        let written = self.ledger.save_counts(&counts).await?;
        // An item that does not exist has nothing to be written. One that was saved
        // since the ledger was read keeps its token, and comes again with the next scan.
        let known: HashSet<ItemId> = exact.iter().map(|one| one.item_id).collect();
        let tokens: Vec<(ItemId, String)> = suspect
            .into_iter()
            .filter(|(item, ..)| !known.contains(item) || written.contains(*item))
            .map(|(item, token, _)| (item, token))
            .collect();
        let cleared = self.counters.clear_rebuilds(&tokens).await?;
        let rebuilt = cleared
            .iter()
            .filter(|one| **one == ClearedRebuild::Cleared)
            .count();
        report.rebuilt += rebuilt;
        report.rebuilds_left += items.len() - rebuilt;
        Ok(())
    }
}
