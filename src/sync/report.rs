//! What a flush has done.

use std::fmt;
use std::time::Duration;

use crate::telemetry::name;

/// What a scan, or a page of it, has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlushReport {
    /// Counters looked at.
    pub counters: usize,
    /// Counts written behind and marked as saved.
    pub flushed: usize,
    /// Counts that were still unsaved after their page: changed while they were
    /// written, or turned away because the item is ahead.
    pub unsaved: usize,
    /// Counts dropped because they were saved and idle.
    pub expired: usize,
    /// Counts thrown away for their age.
    pub evicted: usize,
    /// Items whose exact count was written from the ledger.
    pub rebuilt: usize,
    /// Items whose rebuild request is still there after their page.
    pub rebuilds_left: usize,
    /// For how long the oldest count that is still unsaved has been so, as far as this worker has
    /// met it.
    pub oldest_unsaved: Duration,
}

impl FlushReport {
    pub(super) fn add(&mut self, page: &Self) {
        self.counters += page.counters;
        self.flushed += page.flushed;
        self.unsaved += page.unsaved;
        self.expired += page.expired;
        self.evicted += page.evicted;
        self.rebuilt += page.rebuilt;
        self.rebuilds_left += page.rebuilds_left;
        self.oldest_unsaved = self.oldest_unsaved.max(page.oldest_unsaved);
    }

    /// Whether the scan left anything to be written.
    pub fn is_quiescent(&self) -> bool {
        self.flushed == 0
            && self.unsaved == 0
            && self.evicted == 0
            && self.rebuilt == 0
            && self.rebuilds_left == 0
    }

    /// Adds what was done to the metrics.
    pub(super) fn count(&self) {
        metrics::counter!(name::FLUSHED).increment(self.flushed as u64);
        metrics::counter!(name::EXPIRED).increment(self.expired as u64);
        metrics::counter!(name::REBUILT).increment(self.rebuilt as u64);
    }

    /// Puts the report of one whole flush into the metrics.
    pub(super) fn measure(&self, took: Duration) {
        self.count();
        metrics::histogram!(name::FLUSH_SECONDS).record(took.as_secs_f64());
        metrics::gauge!(name::UNSAVED).set(self.unsaved as f64);
        metrics::gauge!(name::REBUILDS_WAITING).set((self.rebuilds_left + self.evicted) as f64);
        if !self.is_quiescent() {
            tracing::debug!(report = ?self, "scanned");
        }
    }
}

/// For `sync-worker --once`.
impl fmt::Display for FlushReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            flushed,
            expired,
            rebuilt,
            ..
        } = self;
        writeln!(out, "flushed {flushed}, expired {expired}, rebuilt {rebuilt}")
    }
}
