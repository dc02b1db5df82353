//! Epochs. After Redis restarts, fails over or loses its data, no live count is certain. After
//! Postgres crashes or fails over, no visibility snapshot in Redis is.

mod lost_counts;
mod seen;

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout};

use self::lost_counts::Search;
pub(super) use self::seen::{EnteredBuckets, SeenEntries};
use self::seen::{InRedis, Standing};
use super::{SyncError, Worker};
use crate::ledger::{ALIVE_LIMIT_SILENCE, EpochNumber, LedgerError, NotedEntries, NotedEntry, Overtaken};
use crate::live::{Bucket, BucketEpoch, EpochEntry, Epochs, LiveError, Scan, ScanPart, fresh_token};
use crate::telemetry::name;

/// The layout of counters: their keys and format. Another layout is another epoch, so Tally does
/// not read what an older version left in Redis.
const COUNTER_LAYOUT: u32 = 5;

/// How long the pass that begins a search for lost counts waits for its end. Later ones save counts beside it.
const SEARCH_WAIT: Duration = Duration::from_millis(500);

/// How long a command waits for workers to enter the epoch of its Redis. If they do not, they count in another one; if
/// they are gone, it enters the epoch itself.
const ELSEWHERE_WAIT: Duration = Duration::from_secs(5).saturating_add(ALIVE_LIMIT_SILENCE);
/// How long a node may take to note its entries.
const ENTER_LIMIT: Duration = Duration::from_secs(2);
/// How often the number of the epoch is read, while others enter epochs.
const EPOCH_NUMBER_LIMIT_LOOKS: u32 = 3;
const ELSEWHERE_LOOK_EVERY: Duration = Duration::from_millis(100);

/// A bucket whose epoch is to be entered.
struct Entering {
    bucket: Bucket,
    /// The epoch of Redis that it had before.
    redis: String,
    /// The epoch that is entered.
    current: String,
    is_new: bool,
}

/// An entry under way. All counters of its buckets were invalidated, so those that are there now are exact: they are saved
/// while lost counts are searched for.
pub(super) struct Entry {
    stale: Vec<Entering>,
    marks: HashMap<Bucket, EpochEntry>,
    parts: Vec<ScanPart>,
    /// How many counters were invalidated.
    invalidated: usize,
    search: Search,
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

fn in_redis<'a>(one: &'a BucketEpoch, current: &str) -> InRedis<'a> {
    InRedis {
        bucket: one.bucket,
        redis: &one.current,
        known: one.known.as_deref(),
        is_current: one
            .known
            .as_deref()
            .and_then(|known| known.split_once(':'))
            .is_some_and(|(_, epoch)| epoch == current),
    }
}

fn note_first(failure: &mut Option<SyncError>, error: impl Into<SyncError>) {
    failure.get_or_insert_with(|| error.into());
}

impl Entry {
    fn buckets(&self) -> impl Iterator<Item = Bucket> {
        self.stale.iter().map(|one| one.bucket)
    }
}

/// What a worker finds when it looks at the epochs of all buckets.
struct Looked {
    /// The buckets whose epoch is entered.
    entered: Vec<Bucket>,
    stale: Vec<Entering>,
    /// Why others cannot be looked at.
    failure: Option<SyncError>,
}

impl Worker {
    /// Compares the current epoch of each bucket with the one that its counters belong to. In another epoch, it
    /// invalidates every counter, since a replica may have missed the last increments. It also
    /// requests a rebuild of every item without a counter whose saved count is not exact, since an
    /// unsaved count was lost. Returns how many counters and items that were. Returns `None` in the
    /// same epoch, and when the worker is stopping or Redis was wiped meanwhile: the next call then
    /// does all of it. A bucket that is moving from one node of a Cluster to another waits until it is there.
    ///
    /// # Errors
    /// When a store is unavailable, or the keys are another Tally's. The epoch is entered only at
    /// the very end, so the next try does all of it again. When some nodes of a Cluster are unavailable, the buckets of
    /// the others are entered all the same.
    pub async fn enter_epoch(&self) -> Result<Option<usize>, SyncError> {
        let deadline = Instant::now() + ELSEWHERE_WAIT;
        loop {
            let entered = self.look_at_epochs(Duration::MAX, Duration::MAX).await;
            match entered {
                Err(SyncError::Elsewhere) if Instant::now() < deadline => sleep(ELSEWHERE_LOOK_EVERY).await,
                Err(error) => {
                    self.give_up_entries().await;
                    return Err(error);
                }
                entered => return entered,
            }
        }
    }

    /// The same for a pass: where the search for lost counts takes long, it goes on beside the passes, and a later one
    /// enters the epoch.
    ///
    /// # Errors
    /// As [`Worker::enter_epoch`].
    pub(super) async fn go_on_entering(&self) -> Result<Option<usize>, SyncError> {
        self.look_at_epochs(SEARCH_WAIT, Duration::ZERO).await
    }

    /// `wait` and `wait_again`: how long to wait for a search that begins now, and for one that began earlier.
    async fn look_at_epochs(&self, wait: Duration, wait_again: Duration) -> Result<Option<usize>, SyncError> {
        let mut entries = self.entries.lock().await;
        self.entered.set(&[]);
        if let Err(error) = self.check_owner().await
            && (!self.counters.redis().is_cluster()
                || matches!(error, SyncError::Live(LiveError::Owner { .. })))
        {
            return Err(error);
        }
        let Looked {
            mut entered,
            mut stale,
            mut failure,
        } = self.compare_epochs().await?;
        self.entered.set(&entered);
        let mut under_way = Vec::new();
        for mut entry in entries.drain(..) {
            if let Err(error) = self.retain_current(&mut entry, &mut stale).await {
                failure = failure.or(Some(error));
            }
            if !entry.stale.is_empty() {
                under_way.push((entry, wait_again));
            }
        }
        if !stale.is_empty() {
            match self.begin_entry(stale, &mut failure).await {
                Ok(entry) => under_way.extend(entry.map(|entry| (entry, wait))),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        let mut invalidated = None;
        for (mut entry, wait) in under_way {
            let found = match timeout(wait, entry.search.end()).await {
                Err(_) => {
                    entered.extend(entry.buckets());
                    entries.push(entry);
                    continue;
                }
                Ok(found) => found,
            };
            match found {
                Ok(Some(lost)) => match self.end_entry(entry, lost, &mut entered).await {
                    Ok(None) => {}
                    Ok(Some(all)) => *invalidated.get_or_insert(0) += all,
                    Err(error) => failure = failure.or(Some(error)),
                },
                // The worker is stopping.
                Ok(None) => self.remove_marks(&entry.marks).await,
                Err(error) => {
                    // The counters stay exact: only the search begins again.
                    entry.search = Search::begin(self.clone(), entry.buckets().collect());
                    entered.extend(entry.buckets());
                    entries.push(entry);
                    failure = failure.or(Some(error));
                }
            }
        }
        self.entered.set(&entered);
        failure.map_or(Ok(invalidated), Err)
    }

    /// Whether the counts are in this Redis. Waits for workers that are about to enter its epoch.
    ///
    /// # Errors
    /// [`SyncError::Elsewhere`]; and when a store is unavailable.
    pub(super) async fn look_at_place(&self) -> Result<(), SyncError> {
        let deadline = Instant::now() + ELSEWHERE_WAIT;
        loop {
            self.compare_epochs().await?;
            match self.seen_entries.check_place() {
                Err(_) if Instant::now() < deadline => sleep(ELSEWHERE_LOOK_EVERY).await,
                place => return place,
            }
        }
    }

    /// For a worker that stops: gives up the entries under way, whose marks would stay in Redis for a day.
    pub(super) async fn give_up_entries(&self) {
        let entries = std::mem::take(&mut *self.entries.lock().await);
        for entry in entries {
            self.remove_marks(&entry.marks).await;
        }
    }

    async fn compare_epochs(&self) -> Result<Looked, SyncError> {
        let bucket_count = self.counters.redis().bucket_count();
        // Before Redis: an entry is made there first.
        let noted = self.ledger.noted_entries(bucket_count).await?;
        let Epochs { buckets, mut failure } = self.counters.epochs().await?;
        let postgres = self.ledger.incarnation().await?;
        let mut looked = Looked {
            entered: Vec::new(),
            stale: Vec::new(),
            failure: None,
        };
        let mut decided: Option<NotedEntries> = None;
        let mut has_other_workers = None;
        let reached: Vec<Bucket> = buckets
            .iter()
            .filter(|one| !one.is_moving)
            .map(|one| one.bucket)
            .collect();
        self.seen_entries.look_at(&reached);
        for one in buckets {
            let current = format!("{COUNTER_LAYOUT}:{}:{postgres}", one.current);
            if one.is_moving {
                // Counters that are elsewhere may come back, without the key of their epoch.
                if one.known.is_some()
                    && let Err(error) = self.counters.forget_epoch(one.bucket).await
                {
                    failure = failure.or(Some(error));
                }
                continue;
            }
            let in_redis = in_redis(&one, &current);
            let mut standing =
                self.seen_entries
                    .stand(decided.as_ref().unwrap_or(&noted), &postgres, in_redis);
            if standing != Standing::Entered && in_redis.is_current && decided.is_none() {
                // Another worker may be about to note it.
                let entries = self.ledger.decided_entries(bucket_count).await?;
                let noted = decided.insert(NotedEntries {
                    entries,
                    ..noted.clone()
                });
                standing = self.seen_entries.stand(noted, &postgres, in_redis);
            }
            if standing == Standing::Elsewhere
                && !*has_other_workers.get_or_insert(self.has_other_workers().await)
            {
                let alone = NotedEntries {
                    has_other_workers: false,
                    ..decided.as_ref().unwrap_or(&noted).clone()
                };
                standing = self.seen_entries.stand(&alone, &postgres, in_redis);
            }
            match standing {
                Standing::Entered => looked.entered.push(one.bucket),
                Standing::Stale => looked.stale.push(Entering {
                    bucket: one.bucket,
                    is_new: one.known.is_none(),
                    redis: one.current,
                    current,
                }),
                Standing::Elsewhere => looked.failure = Some(SyncError::Elsewhere),
            }
        }
        looked.failure = looked.failure.or(failure.map(SyncError::from));
        Ok(looked)
    }

    async fn has_other_workers(&self) -> bool {
        // Nobody says that there are none.
        self.ledger.has_other_workers().await.unwrap_or(true)
    }

    /// The number of the epoch in which this worker may save counts. Read it before the counters: nothing is written
    /// under it once another epoch has begun, or another worker has begun to enter one in another Redis.
    ///
    /// # Errors
    /// [`SyncError::Elsewhere`]; and when a store is unavailable.
    pub(super) async fn epoch_number(&self) -> Result<EpochNumber, SyncError> {
        for _ in 0..EPOCH_NUMBER_LIMIT_LOOKS {
            let noted = self
                .ledger
                .noted_entries(self.counters.redis().bucket_count())
                .await?;
            if self.seen_entries.are_last(&noted) != Some(false) {
                self.seen_entries.check_place()?;
                return Ok(noted.number);
            }
            self.compare_epochs().await?;
        }
        Err(LedgerError::Overtaken(Overtaken::EpochEnded).into())
    }

    /// Keeps those buckets of an entry that are as they were when it began: in the same epoch, which nobody else has
    /// entered, and with the mark. Takes them out of `stale`. A bucket that cannot be looked at is in neither: it begins
    /// again with the next tick.
    async fn retain_current(&self, entry: &mut Entry, stale: &mut Vec<Entering>) -> Result<(), SyncError> {
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
    async fn begin_entry(
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
                Ok(counters) => invalidated += counters,
                Err(error) => {
                    for bucket in part.buckets.drain(..) {
                        if let Some(mark) = marks.remove(&bucket) {
                            self.remove_mark(&mark).await;
                        }
                    }
                    note_first(failure, error);
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
    async fn remove_marks(&self, marks: &HashMap<Bucket, EpochEntry>) {
        for mark in marks.values() {
            self.remove_mark(mark).await;
        }
    }

    async fn remove_mark(&self, mark: &EpochEntry) {
        if let Err(error) = self.counters.remove_mark(mark).await {
            tracing::debug!(%error, "the mark of an entry into an epoch stays for a day");
        }
    }

    /// Invalidates all counters of the buckets of this part. Returns how many.
    async fn invalidate_part(&self, part: &ScanPart) -> Result<usize, SyncError> {
        let mut invalidated = 0;
        let mut cursor = 0;
        loop {
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
                return Ok(invalidated);
            }
        }
    }

    /// Enters the epochs of these buckets, and adds them to those that are. Returns how many counters were invalidated or
    /// lost. `None`: it has to be done again for some.
    async fn end_entry(
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
