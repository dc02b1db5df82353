//! Epochs. After Redis restarts, fails over or loses its data, no live count is certain. After
//! Postgres crashes or fails over, no visibility snapshot in Redis is.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{SyncError, Worker};
use crate::domain::{ItemId, VoteId};
use crate::live::{Scan, fresh_token};
use crate::telemetry::name;

/// The layout of counters: their keys and format. Another layout is another epoch, so Tally does
/// not read what an older version left in Redis.
const COUNTER_LAYOUT: u32 = 5;

/// The most epochs that a worker remembers: some 200 bytes each.
const SEEN_LIMIT_EPOCHS: usize = 1000;

/// The epochs that this worker has seen in Redis.
///
/// Each entry has a name of its own, so an entry that was gone and is back shows that Redis went
/// back to earlier data, though it was not restarted: with SWAPDB, say, once before a worker entered
/// an epoch and once after.
#[derive(Debug, Default)]
pub(super) struct SeenEpochs(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    last: Option<String>,
    gone: VecDeque<String>,
}

impl SeenEpochs {
    /// Whether the epoch in Redis is an entry of the current one, and not one that was gone.
    fn is_entered(&self, known: Option<&str>, current: &str) -> bool {
        let seen = self.see(known);
        known.is_some_and(|known| {
            known.split_once(':').is_some_and(|(_, epoch)| epoch == current)
                && !seen.gone.iter().any(|gone| gone == known)
        })
    }

    /// Notes what is in Redis now. What was there before is gone.
    fn see(&self, known: Option<&str>) -> MutexGuard<'_, Seen> {
        // No panic leaves it half changed, so the poison means nothing.
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.last.as_deref() != known {
            let last = std::mem::replace(&mut seen.last, known.map(str::to_owned));
            seen.gone.extend(last);
            if seen.gone.len() > SEEN_LIMIT_EPOCHS {
                seen.gone.pop_front();
            }
        }
        seen
    }
}

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
        if self.seen_epochs.is_entered(known.as_deref(), &current) {
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
        let entry = format!("{}:{current}", fresh_token());
        if !self.counters.enter_epoch(&entry, entering).await? {
            tracing::warn!(
                "Redis lost its data while its counters were invalidated: the next tick begins again"
            );
            return Ok(None);
        }
        drop(self.seen_epochs.see(Some(&entry)));
        metrics::counter!(name::INVALIDATIONS, "why" => "epoch").increment(suspect as u64);
        metrics::counter!(name::EPOCHS).increment(1);
        match known {
            Some(_) => tracing::warn!(
                suspect,
                "Redis or Postgres restarted, failed over or went back: all counts are rebuilt"
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_was_gone_and_is_back_is_no_entry() {
        let seen = SeenEpochs::default();
        assert!(!seen.is_entered(None, "1:x"));
        assert!(seen.is_entered(Some("a:1:x"), "1:x") && seen.is_entered(Some("a:1:x"), "1:x"));
        assert!(!seen.is_entered(Some("a:1:x"), "1:y"), "another epoch");
        // Another worker's entry, and then the earlier one.
        assert!(seen.is_entered(Some("b:1:x"), "1:x"));
        assert!(!seen.is_entered(Some("a:1:x"), "1:x"));
        assert!(!seen.is_entered(Some("a:1:x"), "1:x"), "and again");
        assert!(seen.is_entered(Some("c:1:x"), "1:x"));
        assert!(!seen.is_entered(None, "1:x"));
        assert!(!seen.is_entered(Some("c:1:x"), "1:x"), "gone and back");
    }
}
