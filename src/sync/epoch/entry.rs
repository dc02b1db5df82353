//! Entering an epoch: every counter of its buckets is invalidated, lost counts are searched for, then Redis and Postgres
//! note it.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;

use super::lost_counts::Search;
use crate::ledger::NotedEntry;
use crate::live::{Bucket, EpochEntry, LiveError, Scan, ScanPart, fresh_token};
use crate::sync::{SyncError, Worker};
use crate::telemetry::name;

/// How long a node may take to note its entries.
const ENTER_LIMIT: Duration = Duration::from_secs(2);

/// A bucket whose epoch is to be entered.
pub(super) struct Entering {
    pub bucket: Bucket,
    /// The epoch of Redis that it had before.
    pub redis: String,
    /// The epoch that is entered.
    pub current: String,
    pub is_new: bool,
}

/// An entry under way. All counters of its buckets were invalidated, so those that are there now are exact: they are saved
/// while lost counts are searched for.
pub struct Entry {
    pub(super) stale: Vec<Entering>,
    pub(super) marks: HashMap<Bucket, EpochEntry>,
    parts: Vec<ScanPart>,
    /// How many counters were invalidated.
    invalidated: usize,
    pub(super) search: Search,
}

impl Entering {
    /// As Postgres notes it.
    fn noted(&self, entry: &str) -> NotedEntry {
        NotedEntry {
            bucket: self.bucket.place(),
            entry: entry.to_owned(),
            redis: self.redis.clone(),
        }
    }
}

impl Entry {
    pub(super) fn buckets(&self) -> impl Iterator<Item = Bucket> {
        self.stale.iter().map(|one| one.bucket)
    }
}

fn note_first(failure: &mut Option<SyncError>, error: impl Into<SyncError>) {
    failure.get_or_insert_with(|| error.into());
}

impl Worker {
    /// Keeps those buckets of an entry that are as they were when it began: in the same epoch, which nobody else has
    /// entered, and with the mark. Takes them out of `stale`. A bucket that cannot be looked at is in neither: it begins
    /// again with the next tick.
    pub(super) async fn retain_current(
        &self,
        entry: &mut Entry,
        stale: &mut Vec<Entering>,
    ) -> Result<(), SyncError> {
        let mut looked = Ok(());
        for one in std::mem::take(&mut entry.stale) {
            let is_same = |other: &Entering| (other.bucket, &other.current) == (one.bucket, &one.current);
            let Some(mark) = entry.marks.remove(&one.bucket) else {
                continue;
            };
            let Some(at) = stale.iter().position(is_same) else {
                self.remove_mark(&mark).await;
                continue;
            };
            match self.counters.has_mark(&mark).await {
                Ok(true) => {
                    stale.swap_remove(at);
                    entry.marks.insert(one.bucket, mark);
                    entry.stale.push(one);
                }
                Ok(false) => {}
                Err(error) => {
                    stale.swap_remove(at);
                    looked = Err(error.into());
                }
            }
        }
        looked
    }

    /// Invalidates all counters of these buckets, and begins to search for lost ones. A bucket whose node takes no writes
    /// is left out: its error is in `failure`.
    pub(super) async fn begin_entry(
        &self,
        mut stale: Vec<Entering>,
        failure: &mut Option<SyncError>,
    ) -> Result<Option<Entry>, SyncError> {
        let all: Vec<Bucket> = stale.iter().map(|one| one.bucket).collect();
        let mut parts = self.counters.parts_with(&all).await?;
        // Before the first counter is read: a wipe from now on removes these marks.
        let mut marks = HashMap::with_capacity(all.len());
        for bucket in all {
            match self.counters.begin_epoch(bucket).await {
                Ok(mark) => {
                    marks.insert(bucket, mark);
                }
                Err(error) => note_first(failure, error),
            }
        }
        stale.retain(|one| marks.contains_key(&one.bucket));
        let noted: Vec<NotedEntry> = stale
            .iter()
            .map(|one| one.noted(marks[&one.bucket].mark()))
            .collect();
        let begun = async {
            if !stale.is_empty() {
                // A worker may have stalled with counts from the epoch before: it no longer writes them. One that is
                // left behind in another Redis sees that it is.
                self.ledger
                    .begin_epoch(self.counters.redis().bucket_count(), &noted)
                    .await?;
                self.seen_entries.enter(&noted);
            }
            Ok::<(), SyncError>(())
        };
        if let Err(error) = begun.await {
            self.remove_marks(&marks).await;
            return Err(error);
        }
        let mut invalidated = 0;
        for part in &mut parts {
            part.buckets.retain(|bucket| marks.contains_key(bucket));
            if part.buckets.is_empty() {
                continue;
            }
            match self.invalidate_part(part).await {
                Ok(Some(counters)) => invalidated += counters,
                ended => {
                    for bucket in part.buckets.drain(..) {
                        if let Some(mark) = marks.remove(&bucket) {
                            self.remove_mark(&mark).await;
                        }
                    }
                    if let Err(error) = ended {
                        note_first(failure, error);
                    }
                }
            }
        }
        parts.retain(|part| !part.buckets.is_empty());
        stale.retain(|one| marks.contains_key(&one.bucket));
        if stale.is_empty() {
            return Ok(None);
        }
        let buckets = stale.iter().map(|one| one.bucket).collect();
        Ok(Some(Entry {
            stale,
            marks,
            parts,
            invalidated,
            search: Search::begin(self.clone(), buckets),
        }))
    }

    /// Removes the marks of an entry that is given up.
    pub(super) async fn remove_marks(&self, marks: &HashMap<Bucket, EpochEntry>) {
        for mark in marks.values() {
            self.remove_mark(mark).await;
        }
    }

    async fn remove_mark(&self, mark: &EpochEntry) {
        if let Err(error) = self.counters.remove_mark(mark).await {
            tracing::debug!(%error, "the mark of an entry into an epoch stays for a day");
        }
    }

    /// Invalidates all counters of the buckets of this part. Returns how many. `None`: the worker is stopping, and some
    /// are left, which the next entry invalidates.
    async fn invalidate_part(&self, part: &ScanPart) -> Result<Option<usize>, SyncError> {
        let mut invalidated = 0;
        let mut cursor = 0;
        loop {
            // Of millions of counters, all would take longer than a stop may.
            if self.is_stopping() {
                return Ok(None);
            }
            let page = self
                .counters
                .scan(Scan::All, part.begin, cursor, self.options.flush_page)
                .await?;
            let mut items = page.items;
            items.retain(|item| self.counters.is_among(*item, &part.buckets));
            self.counters.invalidate(&items).await?;
            invalidated += items.len();
            cursor = page.next;
            if cursor == 0 {
                return Ok(Some(invalidated));
            }
        }
    }

    /// Enters the epochs of these buckets, and adds them to those that are. Returns how many counters were invalidated or
    /// lost. `None`: it has to be done again for some.
    pub(super) async fn end_entry(
        &self,
        entry: Entry,
        lost: usize,
        entered: &mut Vec<Bucket>,
    ) -> Result<Option<usize>, SyncError> {
        let Entry {
            mut stale,
            mut marks,
            parts,
            invalidated,
            search: _,
        } = entry;
        let suspect = invalidated + lost;
        let all = stale.len();
        let ended = async {
            self.retain_still(&mut stale, &parts).await?;
            self.enter_still(&stale, &mut marks, entered).await
        };
        let ended = ended.await;
        // Those of buckets that are not entered.
        self.remove_marks(&marks).await;
        if !ended? {
            tracing::warn!(
                "Redis lost its data while its counters were invalidated, or another worker moved them: the next tick begins again"
            );
            return Ok(None);
        }
        if stale.len() < all {
            tracing::info!("buckets moved while their counters were invalidated: the next tick begins again");
            return Ok(None);
        }
        metrics::counter!(name::INVALIDATIONS, "why" => "epoch").increment(suspect as u64);
        metrics::counter!(name::EPOCHS).increment(1);
        if stale.iter().any(|one| !one.is_new) {
            tracing::warn!(
                suspect,
                buckets = stale.len(),
                "Redis or Postgres restarted, failed over, moved or went back: all counts of these buckets are rebuilt"
            );
        } else if suspect == 0 {
            tracing::info!("the first epoch of this Redis");
        } else {
            tracing::warn!(
                suspect,
                "Redis is new or has lost its data: the counts that were lost are rebuilt"
            );
        }
        Ok(Some(suspect))
    }

    /// Stores the epochs of these buckets. Returns whether all have their marks, and are still in these Redises.
    async fn enter_still(
        &self,
        stale: &[Entering],
        marks: &mut HashMap<Bucket, EpochEntry>,
        entered: &mut Vec<Bucket>,
    ) -> Result<bool, SyncError> {
        let noted: Vec<NotedEntry> = stale
            .iter()
            .map(|one| one.noted(&format!("{}:{}", fresh_token(), one.current)))
            .collect();
        let noting = self
            .ledger
            .begin_noting(self.counters.redis().bucket_count(), &noted)
            .await?;
        let (mut ended, mut failure) = (Vec::new(), None);
        let still: Vec<&NotedEntry> = noted
            .iter()
            .filter(|one| noting.still.contains(&one.bucket))
            .collect();
        let entering = still.iter().filter_map(|noted| {
            let one = stale.iter().find(|one| one.bucket.place() == noted.bucket)?;
            let mark = marks.remove(&one.bucket)?;
            let enter = self.counters.enter_epoch(&noted.entry, mark);
            // Others wait for this.
            Some(async move { (one.bucket, timeout(ENTER_LIMIT, enter).await) })
        });
        for (bucket, has_entered) in join_all(entering.collect::<Vec<_>>()).await {
            match has_entered {
                Ok(Ok(true)) => ended.push(bucket),
                Ok(Ok(false)) => {}
                Ok(Err(error)) => note_first(&mut failure, error),
                Err(_) => note_first(&mut failure, LiveError::Unavailable),
            }
        }
        let noted: Vec<NotedEntry> = still.into_iter().cloned().collect();
        noting.end().await?;
        self.seen_entries.enter(&noted);
        let have_all = ended.len() == stale.len();
        entered.extend(ended);
        failure.map_or(Ok(have_all), Err)
    }

    /// Keeps those buckets that are where they were, if the parts with them were scanned there to the end: a scan that
    /// went on at another node has missed counters.
    async fn retain_still(&self, stale: &mut Vec<Entering>, parts: &[ScanPart]) -> Result<(), SyncError> {
        if !self.counters.redis().is_cluster() {
            // The mark is enough: a Redis that restarts or fails over has another epoch, which the next tick sees.
            return Ok(());
        }
        let now = self.counters.epochs().await?.buckets;
        let buckets: Vec<Bucket> = stale.iter().map(|one| one.bucket).collect();
        let parts_now = self.counters.parts_with(&buckets).await?;
        stale.retain(|one| {
            let is_there = now
                .iter()
                .any(|other| other.bucket == one.bucket && other.current == one.redis && !other.is_moving);
            let has = |part: &&ScanPart| part.buckets.contains(&one.bucket);
            let scanned = parts.iter().find(has).map(|part| (part.begin, part.at));
            let is_scanned = scanned == parts_now.iter().find(has).map(|part| (part.begin, part.at));
            is_there && is_scanned
        });
        Ok(())
    }
}
