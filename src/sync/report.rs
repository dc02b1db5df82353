//! The report of a flush.

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
    /// Counts that were still unsaved after their page. They changed while they were written, or
    /// the item refused them because it is ahead.
    pub unsaved: usize,
    /// Counts dropped because they were saved and idle.
    pub expired: usize,
    /// Counts evicted because of their age.
    pub evicted: usize,
    /// Items whose exact count was written from the ledger.
    pub rebuilt: usize,
    /// Items that still have a rebuild request after their page.
    pub rebuilds_left: usize,
    /// How long the oldest count left has been unsaved, as far as this worker has met it.
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

    /// Whether the scan wrote nothing and left nothing to write.
    pub fn is_quiescent(&self) -> bool {
        self.flushed == 0
            && self.unsaved == 0
            && self.evicted == 0
            && self.rebuilt == 0
            && self.rebuilds_left == 0
    }

    /// Adds the report of a page to the metrics.
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

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: FlushReport = FlushReport {
        counters: 1,
        flushed: 2,
        unsaved: 3,
        expired: 4,
        evicted: 5,
        rebuilt: 6,
        rebuilds_left: 7,
        oldest_unsaved: Duration::from_secs(8),
    };

    #[test]
    fn pages_add_up_and_the_oldest_of_them_counts() {
        let mut total = FlushReport::default();
        total.add(&REPORT);
        assert_eq!(total, REPORT);
        total.add(&FlushReport {
            oldest_unsaved: Duration::from_secs(1),
            ..REPORT
        });
        let twice = FlushReport {
            counters: 2,
            flushed: 4,
            unsaved: 6,
            expired: 8,
            evicted: 10,
            rebuilt: 12,
            rebuilds_left: 14,
            oldest_unsaved: REPORT.oldest_unsaved,
        };
        assert_eq!(total, twice);
    }

    #[test]
    fn a_scan_is_quiescent_when_it_wrote_nothing_and_left_nothing_to_be_written() {
        let idle = FlushReport {
            counters: 9,
            expired: 9,
            ..FlushReport::default()
        };
        assert!(idle.is_quiescent());
        for busy in [
            FlushReport { flushed: 1, ..idle },
            FlushReport { unsaved: 1, ..idle },
            FlushReport { evicted: 1, ..idle },
            FlushReport { rebuilt: 1, ..idle },
            FlushReport {
                rebuilds_left: 1,
                ..idle
            },
        ] {
            assert!(!busy.is_quiescent(), "{busy:?}");
        }
    }
}
