//! The walk: flush, expire, age and recount, page by page.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::time::Instant;

use super::{SyncError, Worker};
use crate::domain::{CountToSave, ItemId, Rev};
use crate::ledger::Saved;
use crate::live::{Counter, Expired, Marked, Page, Recounted};
use crate::telemetry::name;

/// What a walk, or a page of it, has done.
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
    pub aged: usize,
    /// Items whose exact count was written from the ledger.
    pub recounted: usize,
    /// Items whose recount token is still there after their page.
    pub uncounted: usize,
    /// For how long the oldest unsaved count has not changed, at the most.
    pub oldest_unsaved: Duration,
}

impl FlushReport {
    pub(super) fn add(&mut self, page: &Self) {
        self.counters += page.counters;
        self.flushed += page.flushed;
        self.unsaved += page.unsaved;
        self.expired += page.expired;
        self.aged += page.aged;
        self.recounted += page.recounted;
        self.uncounted += page.uncounted;
        self.oldest_unsaved = self.oldest_unsaved.max(page.oldest_unsaved);
    }

    /// Whether the walk left anything to be written.
    pub fn is_at_rest(&self) -> bool {
        self.flushed == 0 && self.unsaved == 0 && self.aged == 0 && self.recounted == 0 && self.uncounted == 0
    }
}

impl Worker {
    /// One walk over all counters, alone.
    ///
    /// # Errors
    /// When a store is away. What was not reached waits for the next walk.
    pub async fn flush(&self) -> Result<FlushReport, SyncError> {
        let started = Instant::now();
        let mut report = FlushReport::default();
        let mut cursor = 0;
        loop {
            let page = self.counters.scan(cursor, self.limits.flush_page).await?;
            report.add(&self.flush_page(&page).await?);
            cursor = page.next;
            if cursor == 0 {
                break;
            }
        }
        measure(&report, started);
        Ok(report)
    }

    /// One walk over all counters, shared with every worker that walks now: each
    /// page goes to the one that claims it first. Ends with the walk, whoever ends it.
    ///
    /// # Errors
    /// As [`Worker::flush`].
    pub async fn flush_shared(&self) -> Result<FlushReport, SyncError> {
        let started = Instant::now();
        let mut report = FlushReport::default();
        let mut behind = 0;
        loop {
            let Some(page) = self.counters.claim_page(self.limits.flush_page).await? else {
                // Another worker took the page. After a few of those it is doing
                // well without this one, which comes back with its next tick.
                behind += 1;
                if behind > CLAIM_LIMIT { break } else { continue }
            };
            behind = 0;
            report.add(&self.flush_page(&page).await?);
            if page.next == 0 || self.is_stopping() {
                break;
            }
        }
        measure(&report, started);
        Ok(report)
    }

    /// Flushes, expires, ages and recounts one page of counters.
    ///
    /// # Errors
    /// As [`Worker::flush`].
    pub async fn flush_page(&self, page: &Page) -> Result<FlushReport, SyncError> {
        let counters = self.counters.peek(&page.items).await?;
        let mut report = FlushReport {
            counters: counters.len(),
            ..FlushReport::default()
        };
        self.save(&counters, &mut report).await?;
        self.recount(&counters, &mut report).await?;
        self.drop_idle_and_old(&counters, &mut report).await?;
        Ok(report)
    }

    /// Writes what is unsaved to its items, then marks it.
    async fn save(&self, counters: &[Counter], report: &mut FlushReport) -> Result<(), SyncError> {
        let unsaved: Vec<CountToSave> = counters
            .iter()
            .filter_map(|one| {
                let (count, rev) = one.unsaved()?;
                report.oldest_unsaved = report.oldest_unsaved.max(since(rev, one.now));
                Some(CountToSave {
                    item_id: one.item_id,
                    count,
                    rev,
                })
            })
            .collect();
        if unsaved.is_empty() {
            return Ok(());
        }
        let written = self.write(&unsaved).await?;
        let marked = self.mark(&unsaved, &written).await?;
        report.flushed += marked;
        report.unsaved += unsaved.len() - marked;
        Ok(())
    }

    /// The first half of a flush: counts into their items. Public for the tests,
    /// which stop a worker between its write and its mark.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn write(&self, counts: &[CountToSave]) -> Result<Saved, SyncError> {
        Ok(self.ledger.save_counts(counts).await?)
    }

    /// The second half: those that were written are marked, unless they have
    /// changed. Returns how many were.
    ///
    /// # Errors
    /// When Redis is away.
    pub async fn mark(&self, counts: &[CountToSave], written: &Saved) -> Result<usize, SyncError> {
        let marks: Vec<(ItemId, Rev)> = counts
            .iter()
            .filter(|one| written.contains(one.item_id))
            .map(|one| (one.item_id, one.rev))
            .collect();
        let marked = self.counters.mark_saved(&marks).await?;
        Ok(marked.iter().filter(|one| **one == Marked::Saved).count())
    }

    /// Writes the exact counts of doubted items, then clears their tokens.
    async fn recount(&self, counters: &[Counter], report: &mut FlushReport) -> Result<(), SyncError> {
        let doubted: Vec<(ItemId, String, Rev)> = counters
            .iter()
            .filter_map(|one| Some((one.item_id, one.recount.clone()?, one.now)))
            .collect();
        if doubted.is_empty() {
            return Ok(());
        }
        let items: Vec<ItemId> = doubted.iter().map(|(item, ..)| *item).collect();
        // Two statements, not one: an update that has to wait for a row would go on
        // with that row's new audited_count and the old snapshot's votes.
        let exact = self.ledger.exact_counts(&items).await?;
        // The token was peeked before the ledger was read, and at that time the
        // count is written: a change that the ledger did not show yet is later.
        let times: HashMap<ItemId, Rev> = doubted.iter().map(|(item, _, now)| (*item, *now)).collect();
        let counts: Vec<CountToSave> = exact
            .iter()
            .filter_map(|one| {
                // Not behind what was saved when the ledger was read, even if this
                // Redis' clock is: the exact count has all of that in it.
                let rev = one.counted_at.max(*times.get(&one.item_id)?);
                Some(CountToSave {
                    item_id: one.item_id,
                    count: one.count,
                    rev,
                })
            })
            .collect();
        let written = self.ledger.save_counts(&counts).await?;
        // An item that does not exist has nothing to be written. One that was saved
        // since the ledger was read keeps its token, and comes again with the next walk.
        let known: HashSet<ItemId> = exact.iter().map(|one| one.item_id).collect();
        let tokens: Vec<(ItemId, String)> = doubted
            .into_iter()
            .filter(|(item, ..)| !known.contains(item) || written.contains(*item))
            .map(|(item, token, _)| (item, token))
            .collect();
        let cleared = self.counters.recounted(&tokens).await?;
        let recounted = cleared.iter().filter(|one| **one == Recounted::Recounted).count();
        report.recounted += recounted;
        report.uncounted += items.len() - recounted;
        Ok(())
    }

    /// Drops counts that are saved and idle, throws away those that are too old.
    async fn drop_idle_and_old(
        &self,
        counters: &[Counter],
        report: &mut FlushReport,
    ) -> Result<(), SyncError> {
        let idle: Vec<(ItemId, Rev)> = counters
            .iter()
            .filter_map(|one| Some((one.item_id, one.idle(self.limits.retention)?)))
            .collect();
        let expired = self.counters.expire(&idle, self.limits.retention).await?;
        report.expired += expired.iter().filter(|one| **one == Expired::Expired).count();

        // Also what is not saved yet: its recount token has it written.
        let old: Vec<ItemId> = counters
            .iter()
            .filter(|one| one.is_older_than(self.limits.max_age))
            .filter(|one| one.idle(self.limits.retention).is_none())
            .map(|one| one.item_id)
            .collect();
        self.counters.invalidate(&old).await?;
        metrics::counter!(name::INVALIDATIONS, "why" => "age").increment(old.len() as u64);
        report.aged += old.len();
        Ok(())
    }
}

/// How many pages in a row another worker may take before this one leaves the
/// walk to it.
const CLAIM_LIMIT: usize = 8;

fn since(rev: Rev, now: Rev) -> Duration {
    Duration::from_micros(u64::try_from(now.micros() - rev.micros()).unwrap_or(0))
}

fn measure(report: &FlushReport, started: Instant) {
    metrics::histogram!(name::WALK_SECONDS).record(started.elapsed().as_secs_f64());
    metrics::counter!(name::FLUSHED).increment(report.flushed as u64);
    metrics::counter!(name::EXPIRED).increment(report.expired as u64);
    metrics::counter!(name::RECOUNTED).increment(report.recounted as u64);
    metrics::gauge!(name::UNSAVED).set(report.unsaved as f64);
    metrics::gauge!(name::DOUBTED).set((report.uncounted + report.aged) as f64);
    metrics::gauge!(name::OLDEST_UNSAVED_SECONDS).set(report.oldest_unsaved.as_secs_f64());
    if !report.is_at_rest() {
        tracing::debug!(?report, "walked");
    }
}
