//! Expires counts that are saved and idle for the retention, and evicts counts that are too old.

use super::{FlushReport, SyncError, Worker};
use crate::domain::{ItemId, Revision};
use crate::live::{Counter, ExpireReply};
use crate::telemetry::name;

impl Worker {
    /// Whether a count is saved and has been idle for the retention.
    pub(super) fn is_idle(&self, counter: &Counter) -> bool {
        self.idle_revision(counter).is_some()
    }

    /// Whether a count is as old as a count may get, since its seed.
    pub(super) fn is_old(&self, counter: &Counter) -> bool {
        self.options.max_age.is_some_and(|max_age| {
            // Counts that were seeded at the same time, as after a restart of Redis, are not
            // evicted at the same time: each item has its own share of the last eighth.
            let early = max_age / 8 / 256 * u32::from(counter.item_id.get() as u8);
            counter.is_older_than(max_age - early)
        })
    }

    fn idle_revision(&self, counter: &Counter) -> Option<Revision> {
        counter.idle(self.options.retention?)
    }

    /// Drops counts that are saved and idle, and invalidates those that are too old.
    pub(super) async fn evict(
        &self,
        counters: &[Counter],
        report: &mut FlushReport,
    ) -> Result<(), SyncError> {
        if let Some(retention) = self.options.retention {
            let idle: Vec<(ItemId, Revision)> = counters
                .iter()
                .filter_map(|one| Some((one.item_id, self.idle_revision(one)?)))
                .collect();
            let expired = self.counters.expire(&idle, retention).await?;
            report.expired += expired.iter().filter(|one| **one == ExpireReply::Expired).count();
        }
        // Also counts that are not saved yet: the rebuild request has them written.
        let old: Vec<ItemId> = counters
            .iter()
            .filter(|one| self.is_old(one) && !self.is_idle(one))
            .map(|one| one.item_id)
            .collect();
        self.counters.invalidate(&old).await?;
        metrics::counter!(name::INVALIDATIONS, "why" => "age").increment(old.len() as u64);
        report.evicted += old.len();
        Ok(())
    }
}
