//! The slow scan over all counters. It drops counts that are idle or old. It also writes unsaved
//! counts that are not in the index, which only a fault from outside can cause.

use std::time::Duration;

use super::{FlushReport, SyncError, Worker};

impl Worker {
    /// One page of the scan over all counters, which the workers share.
    ///
    /// # Errors
    /// When a store is unavailable. The page's counters wait for the next scan, as do those of buckets whose epoch is not
    /// entered.
    pub async fn scan_page(&self) -> Result<(), SyncError> {
        // Before the first counter is read.
        let epoch = self.epoch_number().await?;
        let page = self.counters.claim_page_of_all(self.options.flush_page).await?;
        // None: another worker has this page.
        if let Some(mut page) = page {
            // Nothing is done with what is known to be between two nodes: marking it would fail, with the rest of the page.
            self.entered
                .retain(&mut page.items, |item| self.counters.bucket_of(*item));
            let mut counters = self.counters.read(&page.items).await?;
            // The scan comes to a counter so rarely that its saves need not be spaced.
            counters.retain(|one| self.has_work(one, Duration::ZERO));
            let mut report = FlushReport::default();
            self.work_on(counters, epoch, &mut report).await?;
            report.count();
        }
        Ok(())
    }

    /// How long to wait between two pages, so that one worker takes `scan_every` for all. Redis
    /// also goes through the keys of others, so they count.
    pub async fn scan_pause(&self, scan_every: Duration) -> Result<Duration, SyncError> {
        let keys = self.counters.keys_in_database().await?;
        let pages = keys.div_ceil(self.options.flush_page.max(1) as u64).max(1);
        Ok(scan_every.div_f64(pages as f64))
    }
}
