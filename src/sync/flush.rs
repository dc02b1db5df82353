//! The walk: flush, expire, age and recount, page by page.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

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

/// How many counters with something to be done are gathered before they are dealt with.
/// Of a million items Postgres writes 1,000 at once in 8 µs each, 10,000 in 6 µs and
/// 50,000 in 4 µs: more of them then share a page of the table, which Postgres tidies up
/// each time it comes to it.
const GATHER_LIMIT_COUNTERS: usize = 50_000;
/// For how long they are gathered at the most. What changes between its peek and its
/// mark stays unmarked, and saved counts should not wait for a long walk's end.
const GATHER_LIMIT: Duration = Duration::from_millis(250);
/// A scheduled walk takes its time at first: half of the second after which the next one
/// usually begins. A burst of writes takes both cores from the voters, one in a hundred
/// of whom then waited 13 ms instead of 6 (10,000 items changing all the time, half of
/// what two cores can do).
const GENTLE_FOR: Duration = Duration::from_millis(500);
/// How many counters it then passes on at once. With 1,000, one in a hundred voters waited
/// 10.6 ms, with 250 between 7.4 and 8.5, with 100 no less.
const GENTLE_LIMIT_COUNTERS: usize = 250;
/// How many times as long as their writing took it rests after it.
const REST_TIMES: u32 = 3;
/// How many pages, or gathered counters, may wait for the next part of the walk. One is
/// enough for the parts to work at the same time.
const WAITING_LIMIT: usize = 1;

/// How a walk gets its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Walk {
    /// All of them, as fast as it can.
    Alone,
    /// With the other workers, at each tick; begun then.
    Shared { begun: Instant },
}

impl Walk {
    fn is_gentle(self) -> bool {
        matches!(self, Self::Shared { begun } if begun.elapsed() < GENTLE_FOR)
    }

    fn gather_limit_counters(self) -> usize {
        if self.is_gentle() {
            GENTLE_LIMIT_COUNTERS
        } else {
            GATHER_LIMIT_COUNTERS
        }
    }
}

/// Passes all of them on, no more at once than the walk takes now. False when nobody
/// takes them: a later part has failed, which says so itself.
async fn pass_on(busy: &mut Vec<Counter>, walk: Walk, gathered: &mpsc::Sender<Vec<Counter>>) -> bool {
    while !busy.is_empty() {
        let rest = busy.split_off(busy.len().min(walk.gather_limit_counters()));
        if gathered.send(std::mem::replace(busy, rest)).await.is_err() {
            return false;
        }
    }
    true
}

/// Counts that were written to their items, and are still to be marked.
struct Written {
    /// All counters that were gathered.
    counters: Vec<Counter>,
    /// Those of them that were unsaved.
    counts: Vec<CountToSave>,
    saved: Saved,
}

impl Worker {
    /// One walk over all counters, alone.
    ///
    /// # Errors
    /// When a store is away. What was not reached waits for the next walk.
    pub async fn flush(&self) -> Result<FlushReport, SyncError> {
        self.walk(Walk::Alone).await
    }

    /// One walk over all counters, shared with every worker that walks now: each
    /// page goes to the one that claims it first. Ends with the walk, whoever ends it.
    ///
    /// # Errors
    /// As [`Worker::flush`].
    pub async fn flush_shared(&self) -> Result<FlushReport, SyncError> {
        self.walk(Walk::Shared {
            begun: Instant::now(),
        })
        .await
    }

    /// The parts of a walk work at the same time, each on what the part before it has
    /// passed on, since each waits for a store: Redis is scanned and peeked while
    /// Postgres writes. A part that fails takes nothing more; the parts before it then
    /// stop, and those behind it end what they have. So nothing is cut off between its
    /// write and its mark.
    async fn walk(&self, walk: Walk) -> Result<FlushReport, SyncError> {
        let started = Instant::now();
        let (to_peek, pages) = mpsc::channel(WAITING_LIMIT);
        let (to_write, gathered) = mpsc::channel(WAITING_LIMIT);
        let (to_finish, written) = mpsc::channel(WAITING_LIMIT);
        let (scanned, peeked, wrote, finished) = tokio::join!(
            self.find_pages(walk, to_peek),
            self.peek_pages(walk, pages, to_write),
            self.write_gathered(walk, gathered, to_finish),
            self.finish_written(written),
        );
        scanned?;
        let (counters, oldest_unsaved) = peeked?;
        wrote?;
        let report = FlushReport {
            counters,
            oldest_unsaved,
            ..finished?
        };
        measure(&report, started);
        Ok(report)
    }

    /// The first part: finds pages, to the walk's end, or until this worker is to stop.
    async fn find_pages(&self, walk: Walk, pages: mpsc::Sender<Page>) -> Result<(), SyncError> {
        let mut cursor = 0;
        let mut behind = 0;
        loop {
            let page = match walk {
                Walk::Alone => self.counters.scan(cursor, self.limits.flush_page).await?,
                Walk::Shared { .. } => match self.counters.claim_page(self.limits.flush_page).await? {
                    Some(page) => page,
                    None => {
                        // Another worker took the page. After a few of those it is doing
                        // well without this one, which comes back with its next tick.
                        behind += 1;
                        if behind > CLAIM_LIMIT {
                            return Ok(());
                        }
                        continue;
                    }
                },
            };
            behind = 0;
            cursor = page.next;
            let is_last = cursor == 0 || (walk != Walk::Alone && self.is_stopping());
            // Nobody takes it when a later part has failed, which says so itself.
            if pages.send(page).await.is_err() || is_last {
                return Ok(());
            }
        }
    }

    /// The second part: peeks the pages' counters and gathers those with something to be
    /// done. Returns how many were peeked, and for how long the oldest unsaved one has
    /// not changed.
    async fn peek_pages(
        &self,
        walk: Walk,
        mut pages: mpsc::Receiver<Page>,
        gathered: mpsc::Sender<Vec<Counter>>,
    ) -> Result<(usize, Duration), SyncError> {
        let mut counters = 0;
        let mut oldest_unsaved = Duration::ZERO;
        let mut busy: Vec<Counter> = Vec::new();
        let mut begun = Instant::now();
        while let Some(page) = pages.recv().await {
            let peeked = self.counters.peek(&page.items).await?;
            counters += peeked.len();
            for counter in peeked {
                if let Some((_, rev)) = counter.unsaved() {
                    oldest_unsaved = oldest_unsaved.max(since(rev, counter.now));
                }
                if self.has_work(&counter) {
                    busy.push(counter);
                }
            }
            if busy.is_empty() {
                begun = Instant::now();
            } else if busy.len() >= walk.gather_limit_counters() || begun.elapsed() >= GATHER_LIMIT {
                if !pass_on(&mut busy, walk, &gathered).await {
                    break;
                }
                begun = Instant::now();
            }
        }
        pass_on(&mut busy, walk, &gathered).await;
        Ok((counters, oldest_unsaved))
    }

    /// Whether there is anything to be done with a counter.
    fn has_work(&self, counter: &Counter) -> bool {
        counter.unsaved().is_some()
            || counter.recount.is_some()
            || counter.idle(self.limits.retention).is_some()
            || counter.is_older_than(self.limits.max_age)
    }

    /// The third part: writes what is unsaved to its items.
    async fn write_gathered(
        &self,
        walk: Walk,
        mut gathered: mpsc::Receiver<Vec<Counter>>,
        written: mpsc::Sender<Written>,
    ) -> Result<(), SyncError> {
        while let Some(mut counters) = gathered.recv().await {
            keep_latest(&mut counters);
            let counts: Vec<CountToSave> = counters
                .iter()
                .filter_map(|one| {
                    let (count, rev) = one.unsaved()?;
                    Some(CountToSave {
                        item_id: one.item_id,
                        count,
                        rev,
                    })
                })
                .collect();
            let started = Instant::now();
            let saved = self.write(&counts).await?;
            let took = started.elapsed();
            let passed_on = Written {
                counters,
                counts,
                saved,
            };
            if written.send(passed_on).await.is_err() {
                break;
            }
            if walk.is_gentle() && !self.is_stopping() {
                sleep(took.saturating_mul(REST_TIMES).min(GENTLE_FOR)).await;
            }
        }
        Ok(())
    }

    /// The last part: marks what was written, then recounts, expires and ages, a page
    /// at a time.
    async fn finish_written(&self, mut written: mpsc::Receiver<Written>) -> Result<FlushReport, SyncError> {
        let mut report = FlushReport::default();
        while let Some(one) = written.recv().await {
            let marked = self.mark(&one.counts, &one.saved).await?;
            report.flushed += marked;
            report.unsaved += one.counts.len() - marked;
            for page in one.counters.chunks(self.limits.flush_page) {
                self.recount(page, &mut report).await?;
                self.drop_idle_and_old(page, &mut report).await?;
            }
        }
        Ok(report)
    }

    /// The first half of a flush: counts into their items. Public for the tests,
    /// which stop a worker between its write and its mark.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn write(&self, counts: &[CountToSave]) -> Result<Saved, SyncError> {
        if counts.is_empty() {
            return Ok(Saved::All);
        }
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

/// Sorts counters by their items. SCAN may return one twice: it is kept as it was
/// peeked last.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_was_found_twice_is_kept_as_it_was_peeked_last() {
        let counter = |item: i64, rev: i64| Counter {
            item_id: ItemId::new(item).expect("positive"),
            now: Rev::from_micros(100 + rev),
            count: Some((rev, Rev::from_micros(rev))),
            saved: None,
            seeded: None,
            recount: None,
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
