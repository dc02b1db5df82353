//! The flush: one scan over the index of unsaved counters, page by page. It writes unsaved counts
//! to their items and marks them saved. Then it rebuilds counts on request, and evicts counts that
//! are idle or old. Its cost depends on what has changed, not on how many counters there are.
//! `slow_scan.rs` looks at all counters, slowly.

use std::ops::ControlFlow;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::{FlushReport, SyncError, Worker};
use crate::domain::{CountToSave, ItemId};
use crate::ledger::{EpochNumber, SaveOutcome};
use crate::live::{Bucket, Counter, Scan, ScanPage};

/// How many counters with work the flush collects before it writes them. Of a million items,
/// Postgres writes 1,000 at once in 8 µs each, 10,000 in 6 µs and 50,000 in 4 µs: more of them then
/// share a page of the table, and Postgres prunes a page each time it comes to it.
pub(crate) const COLLECT_LIMIT_COUNTERS: usize = 50_000;
/// The longest time that the flush collects. A count that changes between its reading and its mark
/// stays unsaved, and saved counts should not wait for the end of a long scan.
pub(crate) const COLLECT_LIMIT: Duration = Duration::from_millis(250);
/// How long a scheduled scan writes gently. It is most of the second until the next scan may
/// begin. A burst of writes takes both cores from the voters: one voter in a hundred waited 13 ms
/// instead of 6 (10,000 items changing all the time, at half of what two cores can do).
pub(crate) const GENTLE_FOR: Duration = Duration::from_millis(750);
/// How many counters a gentle scan writes at once. With 1,000, one voter in a hundred
/// waited 10.6 ms, with 250 between 7.4 and 8.5, with 100 no less.
pub(crate) const GENTLE_LIMIT_COUNTERS: usize = 250;
/// After a write, a gentle scan rests this many times as long as it took.
const REST_TIMES: u32 = 3;
/// How many pages, or lots of collected counters, may wait for the next part of the scan. With one,
/// the parts already work at the same time.
const WAITING_LIMIT: usize = 1;

/// How a scan gets its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScanMode {
    /// This worker takes all pages, as fast as it can.
    Alone(Scan),
    /// The same for the unsaved counters of the buckets whose epoch is entered.
    Last,
    /// The unsaved counters, together with the other workers, when a flush is due. `begun` is the tick.
    /// The saves of an item are at least `spacing` apart.
    Shared { begun: Instant, spacing: Duration },
}

impl ScanMode {
    fn is_gentle(self) -> bool {
        matches!(self, Self::Shared { begun, .. } if begun.elapsed() < GENTLE_FOR)
    }

    fn scan(self) -> Scan {
        match self {
            Self::Alone(scan) => scan,
            Self::Last | Self::Shared { .. } => Scan::Unsaved,
        }
    }

    fn spacing(self) -> Duration {
        match self {
            Self::Alone(_) | Self::Last => Duration::ZERO,
            Self::Shared { spacing, .. } => spacing,
        }
    }

    fn collect_limit_counters(self) -> usize {
        if self.is_gentle() {
            GENTLE_LIMIT_COUNTERS
        } else {
            COLLECT_LIMIT_COUNTERS
        }
    }

    /// About how many counters a page has, if `page` are asked for. Redis does nothing else while
    /// it reads a page, so a gentle scan reads no more at once than it writes.
    fn page_counters(self, page: usize) -> usize {
        if self.is_gentle() {
            page.min(GENTLE_LIMIT_COUNTERS)
        } else {
            page
        }
    }
}

/// Passes all counters on, no more at once than the scan takes now. Returns false when nobody takes
/// them: a later part has failed and reports it.
async fn pass_on(busy: &mut Vec<Counter>, scan: ScanMode, collected: &mpsc::Sender<Vec<Counter>>) -> bool {
    while !busy.is_empty() {
        let rest = busy.split_off(busy.len().min(scan.collect_limit_counters()));
        if collected.send(std::mem::replace(busy, rest)).await.is_err() {
            return false;
        }
    }
    true
}

/// Counts that were written to their items and not marked yet.
struct Written {
    /// All counters that were collected.
    counters: Vec<Counter>,
    /// The counts that were unsaved.
    counts: Vec<CountToSave>,
    saved: SaveOutcome,
}

impl Worker {
    /// One scan over all counters by this worker alone, also over those outside of the index.
    ///
    /// # Errors
    /// When a store is unavailable. What the scan did not reach waits for the next one.
    pub async fn flush(&self) -> Result<FlushReport, SyncError> {
        self.scan(ScanMode::Alone(Scan::All)).await
    }

    /// One scan over the unsaved counters by this worker alone.
    ///
    /// # Errors
    /// As [`Worker::flush`].
    pub async fn flush_unsaved(&self) -> Result<FlushReport, SyncError> {
        self.scan(ScanMode::Alone(Scan::Unsaved)).await
    }

    /// The last scan of a worker that stops: over the unsaved counters of the buckets whose epoch is entered. The counts of
    /// others are not certain.
    ///
    /// # Errors
    /// As [`Worker::flush`].
    pub(super) async fn flush_entered(&self) -> Result<FlushReport, SyncError> {
        if self.entered.is_empty() {
            return Ok(FlushReport::default());
        }
        self.scan(ScanMode::Last).await
    }

    /// One scan over the unsaved counters, shared with every worker that scans now. Each page goes
    /// to the worker that claims it first. Ends with the scan, whichever worker ends the scan.
    ///
    /// # Errors
    /// As [`Worker::flush`].
    pub async fn flush_shared(&self) -> Result<FlushReport, SyncError> {
        self.scan(ScanMode::Shared {
            begun: Instant::now(),
            spacing: self.spacing().await?,
        })
        .await
    }

    /// Runs the parts of a scan at the same time. Each works on what the part before it passed on:
    /// Redis is scanned and read while Postgres writes. A part that fails takes nothing more. The
    /// parts before it then stop, and the parts behind it finish what they have. So no count is cut
    /// off between its write and its mark.
    async fn scan(&self, scan: ScanMode) -> Result<FlushReport, SyncError> {
        let started = Instant::now();
        // Before the first counter is read.
        let epoch = self.epoch_number().await?;
        let (to_read, pages) = mpsc::channel(WAITING_LIMIT);
        let (to_write, collected) = mpsc::channel(WAITING_LIMIT);
        let (to_finish, written) = mpsc::channel(WAITING_LIMIT);
        let (scanned, read, wrote, finished) = tokio::join!(
            self.find_pages(scan, to_read),
            self.read_pages(scan, pages, to_write),
            self.write_collected(scan, epoch, collected, to_finish),
            self.finish_written(epoch, written),
        );
        scanned?;
        let counters = read?;
        wrote?;
        let finished = finished?;
        self.read_unmet(started).await?;
        self.watch.ages(|ages| ages.scanned(started));
        let report = FlushReport {
            counters,
            oldest_unsaved: self.watch.ages(|ages| ages.oldest(Instant::now())),
            ..finished
        };
        report.measure(started.elapsed());
        self.watch.show();
        Ok(report)
    }

    /// The first part: finds pages, until the scan ends or this worker stops.
    async fn find_pages(&self, scan: ScanMode, pages: mpsc::Sender<ScanPage>) -> Result<(), SyncError> {
        let is_shared = matches!(scan, ScanMode::Shared { .. });
        let is_wanted = |bucket| matches!(scan, ScanMode::Alone(_)) || self.entered.has(bucket);
        let mut parts = self.counters.parts(scan.scan(), is_wanted).await?;
        if is_shared && !parts.is_empty() {
            // Workers begin at different ones, so that they do not meet.
            let from = rand::random_range(0..parts.len());
            parts.rotate_left(from);
        }
        let mut ended = Ok(());
        for part in parts {
            match self.find_pages_of(scan, part, &pages).await {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => break,
                // A bucket that fails holds up no other one.
                Err(error) if is_shared => ended = Err(error),
                Err(error) => return Err(error),
            }
        }
        ended
    }

    /// The same for one part of the scan. Breaks when this worker stops, or nobody takes pages any more.
    async fn find_pages_of(
        &self,
        scan: ScanMode,
        part: Bucket,
        pages: &mpsc::Sender<ScanPage>,
    ) -> Result<ControlFlow<()>, SyncError> {
        let mut cursor = 0;
        let mut behind = 0;
        loop {
            let page = match scan {
                ScanMode::Alone(_) | ScanMode::Last => {
                    let page = self
                        .counters
                        .scan(scan.scan(), part, cursor, self.options.flush_page);
                    page.await?
                }
                ScanMode::Shared { .. } => match self
                    .counters
                    .claim_page(Scan::Unsaved, part, scan.page_counters(self.options.flush_page))
                    .await?
                {
                    Some(page) => page,
                    None => {
                        // Another worker took the page. When that happens a few times in a row, the
                        // others do well alone until the next tick.
                        behind += 1;
                        if behind > CLAIM_LIMIT {
                            return Ok(ControlFlow::Continue(()));
                        }
                        continue;
                    }
                },
            };
            behind = 0;
            cursor = page.next;
            let is_shared = matches!(scan, ScanMode::Shared { .. });
            let is_stopping = is_shared && self.is_stopping();
            // Nobody takes the page when a later part has failed and reports it.
            if pages.send(page).await.is_err() || is_stopping {
                return Ok(ControlFlow::Break(()));
            }
            if cursor == 0 {
                return Ok(ControlFlow::Continue(()));
            }
        }
    }

    /// The second part: reads the pages' counters and collects those with work. Returns how many
    /// were read.
    async fn read_pages(
        &self,
        scan: ScanMode,
        mut pages: mpsc::Receiver<ScanPage>,
        collected: mpsc::Sender<Vec<Counter>>,
    ) -> Result<usize, SyncError> {
        let mut counters = 0;
        let mut busy: Vec<Counter> = Vec::new();
        let mut begun = Instant::now();
        while let Some(page) = pages.recv().await {
            let read = self.counters.read(&page.items).await?;
            counters += read.len();
            if scan.scan() == Scan::Unsaved {
                self.remove_saved(&read).await?;
            }
            let now = Instant::now();
            self.watch
                .ages(|ages| read.iter().for_each(|counter| ages.read(counter, now)));
            for counter in read {
                if self.has_work(&counter, scan.spacing()) {
                    busy.push(counter);
                }
            }
            if busy.is_empty() {
                begun = Instant::now();
            } else if busy.len() >= scan.collect_limit_counters() || begun.elapsed() >= COLLECT_LIMIT {
                if !pass_on(&mut busy, scan, &collected).await {
                    break;
                }
                begun = Instant::now();
            }
        }
        pass_on(&mut busy, scan, &collected).await;
        Ok(counters)
    }

    /// Reads counters that were unsaved before and that this scan did not meet. Another worker had
    /// their pages, or they are gone.
    async fn read_unmet(&self, begun: Instant) -> Result<(), SyncError> {
        let unmet = self.watch.ages(|ages| ages.not_read_since(begun));
        for counter in self.counters.read(&unmet).await? {
            self.watch.ages(|ages| ages.read(&counter, Instant::now()));
        }
        Ok(())
    }

    /// Removes counters from the index that are in it for nothing. Mostly, another worker has just
    /// saved them.
    async fn remove_saved(&self, counters: &[Counter]) -> Result<(), SyncError> {
        let saved: Vec<ItemId> = counters
            .iter()
            .filter(|one| !one.is_to_be_written())
            .map(|one| one.item_id)
            .collect();
        Ok(self.counters.remove_saved(&saved).await?)
    }

    /// Whether a counter needs work, if an item's saves are `spacing` apart.
    pub(super) fn has_work(&self, counter: &Counter, spacing: Duration) -> bool {
        let is_to_be_written = counter.is_to_be_written() && counter.is_due(spacing);
        is_to_be_written || self.is_idle(counter) || self.is_old(counter)
    }

    /// The third part: writes unsaved counts to their items.
    async fn write_collected(
        &self,
        scan: ScanMode,
        epoch: EpochNumber,
        mut collected: mpsc::Receiver<Vec<Counter>>,
        written: mpsc::Sender<Written>,
    ) -> Result<(), SyncError> {
        while let Some(mut counters) = collected.recv().await {
            keep_latest(&mut counters);
            let counts = counts_to_save(&counters);
            let started = Instant::now();
            let saved = self.write(&counts, epoch).await?;
            let took = started.elapsed();
            let passed_on = Written {
                counters,
                counts,
                saved,
            };
            if written.send(passed_on).await.is_err() {
                break;
            }
            if scan.is_gentle() && !self.is_stopping() {
                sleep(took.saturating_mul(REST_TIMES).min(GENTLE_FOR)).await;
            }
        }
        Ok(())
    }

    /// The last part: marks what was written, a page at a time. Then it rebuilds, expires and ages
    /// counts.
    async fn finish_written(
        &self,
        epoch: EpochNumber,
        mut written: mpsc::Receiver<Written>,
    ) -> Result<FlushReport, SyncError> {
        let mut report = FlushReport::default();
        while let Some(one) = written.recv().await {
            self.finish(&one, epoch, &mut report).await?;
        }
        Ok(report)
    }

    async fn finish(
        &self,
        written: &Written,
        epoch: EpochNumber,
        report: &mut FlushReport,
    ) -> Result<(), SyncError> {
        let marked = self.mark(&written.counts, &written.saved).await?;
        report.flushed += marked;
        report.unsaved += written.counts.len() - marked;
        for page in written.counters.chunks(self.options.flush_page) {
            self.rebuild(page, epoch, report).await?;
            self.evict(page, report).await?;
        }
        Ok(())
    }

    /// Does all work on the counters of one page, which were read in this epoch.
    pub(super) async fn work_on(
        &self,
        counters: Vec<Counter>,
        epoch: EpochNumber,
        report: &mut FlushReport,
    ) -> Result<(), SyncError> {
        let counts = counts_to_save(&counters);
        let saved = self.write(&counts, epoch).await?;
        let written = Written {
            counters,
            counts,
            saved,
        };
        self.finish(&written, epoch, report).await
    }
}

fn counts_to_save(counters: &[Counter]) -> Vec<CountToSave> {
    let unsaved = counters
        .iter()
        .filter_map(|one| Some((one.item_id, one.unsaved()?)));
    unsaved
        .map(|(item_id, (count, revision))| CountToSave {
            item_id,
            count,
            revision,
        })
        .collect()
}

/// When other workers took this many pages in a row, this worker leaves the scan to them.
const CLAIM_LIMIT: usize = 8;

/// Sorts counters by their items. SCAN may return one twice: the later reading stays.
fn keep_latest(counters: &mut Vec<Counter>) {
    counters.sort_by_key(|one| one.item_id);
    counters.dedup_by(|later, earlier| {
        let is_twice = later.item_id == earlier.item_id;
        if is_twice {
            std::mem::swap(later, earlier);
        }
        is_twice
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{RedisTime, Revision};

    #[test]
    fn a_count_waits_until_its_last_save_is_far_enough_back_unless_its_clock_or_a_request_says_otherwise() {
        let mut counter = Counter {
            item_id: ItemId::new(1).expect("positive"),
            now: RedisTime::from_seconds(100),
            count: Some((1.into(), Revision::from_micros(99_000_000))),
            saved: Some(Revision::from_micros(95_000_000)),
            seeded: None,
            rebuild: None,
        };
        let seconds = Duration::from_secs;
        assert!(counter.is_due(seconds(0)) && counter.is_due(seconds(5)));
        assert!(!counter.is_due(seconds(6)));
        counter.rebuild = Some("a request".to_owned());
        assert!(counter.is_due(seconds(6)));
        counter.rebuild = None;
        counter.now = RedisTime::from_seconds(94);
        assert!(counter.is_due(seconds(6)), "the clock was ahead");
        counter.now = RedisTime::from_seconds(100);
        counter.saved = None;
        assert!(counter.is_due(seconds(6)), "never saved");
    }

    #[test]
    fn a_counter_that_was_found_twice_is_kept_as_it_was_read_last() {
        let counter = |item: i64, revision: i64| Counter {
            item_id: ItemId::new(item).expect("positive"),
            now: RedisTime::from_micros(100 + revision),
            count: Some((revision.into(), Revision::from_micros(revision))),
            saved: None,
            seeded: None,
            rebuild: None,
        };
        let mut counters = vec![
            counter(2, 1),
            counter(1, 1),
            counter(2, 3),
            counter(3, 1),
            counter(2, 2),
        ];
        keep_latest(&mut counters);
        assert_eq!(counters, [counter(1, 1), counter(2, 2), counter(3, 1)]);
    }
}
