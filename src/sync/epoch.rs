//! Epochs. After Redis restarts, fails over or loses its data, no live count is certain. After
//! Postgres crashes or fails over, no visibility snapshot in Redis is.

use super::{SyncError, Worker};
use crate::domain::{ItemId, VoteId};
use crate::live::Scan;
use crate::telemetry::name;

/// The layout of counters: their keys and fields. Another layout is another epoch, so Tally does
/// not read what an older version left in Redis.
const COUNTER_LAYOUT: u32 = 4;

impl Worker {
    /// Compares the current epoch with the one that the counters belong to. In another epoch, it
    /// invalidates every counter, since a replica may have missed the last increments. It also
    /// requests a rebuild of every item without a counter whose saved count is not exact, since an
    /// unsaved count was lost. Returns how many counters and items that were. Returns `None` in the
    /// same epoch, and when the worker is stopping or Redis was wiped meanwhile: the next call then
    /// does all of it.
    ///
    /// # Errors
    /// When a store is unavailable, or the keys are another Tally's. The epoch is entered only at
    /// the very end, so the next try does all of it again.
    pub async fn enter_epoch(&self) -> Result<Option<usize>, SyncError> {
        self.check_owner().await?;
        let (redis, postgres) = (
            self.counters.current_epoch().await?,
            self.ledger.incarnation().await?,
        );
        let current = format!("{COUNTER_LAYOUT}:{redis}:{postgres}");
        let known = self.counters.known_epoch().await?;
        if known.as_deref() == Some(current.as_str()) {
            return Ok(None);
        }
        // Before the first counter is read: a wipe from now on removes this mark.
        let entering = self.counters.begin_epoch().await?;
        // A worker may have stalled with counts from the epoch before: it no longer writes them.
        self.ledger.begin_epoch().await?;
        let mut suspect = 0;
        let mut cursor = 0;
        loop {
            let page = self
                .counters
                .scan(Scan::All, cursor, self.options.flush_page)
                .await?;
            self.counters.invalidate(&page.items).await?;
            suspect += page.items.len();
            cursor = page.next;
            if cursor == 0 {
                break;
            }
        }
        let mut after = 0;
        loop {
            let limit = i64::try_from(self.options.audit_page).unwrap_or(i64::MAX);
            let items = self.ledger.item_ids(after, limit).await?;
            let Some(last) = items.last() else { break };
            if self.is_stopping() {
                return Ok(None);
            }
            after = last.get();
            let rows = self.ledger.audit_page(&items, VoteId::LAST).await?;
            let behind: Vec<ItemId> = rows
                .iter()
                .filter(|row| row.saved_count != row.exact_count)
                .map(|row| row.item_id)
                .collect();
            // Items with a live count will be flushed. The others are invalidated, which requests
            // their rebuilds.
            let lost: Vec<ItemId> = self
                .counters
                .read(&behind)
                .await?
                .into_iter()
                .filter(|counter| counter.count.is_none() && counter.rebuild.is_none())
                .map(|counter| counter.item_id)
                .collect();
            self.counters.invalidate(&lost).await?;
            suspect += lost.len();
        }
        if !self.counters.enter_epoch(&current, entering).await? {
            tracing::warn!(
                "Redis lost its data while its counters were invalidated: the next tick begins again"
            );
            return Ok(None);
        }
        metrics::counter!(name::INVALIDATIONS, "why" => "epoch").increment(suspect as u64);
        metrics::counter!(name::EPOCHS).increment(1);
        match known {
            Some(_) => tracing::warn!(
                suspect,
                "Redis or Postgres restarted or failed over: all counts are rebuilt"
            ),
            None if suspect == 0 => tracing::info!("the first epoch of this Redis"),
            None => tracing::warn!(
                suspect,
                "Redis is new or has lost its data: the counts that were lost are rebuilt"
            ),
        }
        Ok(Some(suspect))
    }
}
