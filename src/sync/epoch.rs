//! Epochs. After Redis restarts, fails over or loses its data, no live count is certain. After
//! Postgres crashes or fails over, no visibility snapshot in Redis is.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{SyncError, Worker};
use crate::domain::{ItemId, VoteId};
use crate::live::{Bucket, Epochs, Scan, ScanPart, fresh_token};
use crate::telemetry::name;

/// The layout of counters: their keys and format. Another layout is another epoch, so Tally does
/// not read what an older version left in Redis.
const COUNTER_LAYOUT: u32 = 5;

/// The most items whose saved counts are compared by one statement, while an epoch is entered.
const COMPARE_PAGE_ITEMS: i64 = 10_000;

/// The most vote ids that are not rolled up, for which only items that differ or have such votes are looked at closely.
const CLOSE_LOOK_LIMIT_IDS: i64 = 1_000_000;
/// The most vote ids whose items one statement reads for that.
const VOTED_PAGE_IDS: i64 = 50_000;

/// The most epochs that a worker remembers: some 200 bytes each.
const SEEN_LIMIT_EPOCHS: usize = 1000;

/// The epochs that this worker has seen in Redis, of each bucket.
///
/// Each entry has a name of its own, so an entry that was gone and is back shows that Redis went
/// back to earlier data, though it was not restarted: with SWAPDB, say, once before a worker entered
/// an epoch and once after.
#[derive(Debug, Default)]
pub(super) struct SeenEpochs(Mutex<HashMap<Bucket, Seen>>);

#[derive(Debug, Default)]
struct Seen {
    last: Option<String>,
    gone: VecDeque<String>,
}

impl SeenEpochs {
    /// Whether the epoch of a bucket in Redis is an entry of the current one, and not one that was gone.
    fn is_entered(&self, bucket: Bucket, known: Option<&str>, current: &str) -> bool {
        let mut all = self.lock();
        let seen = all.entry(bucket).or_default();
        seen.see(known);
        known.is_some_and(|known| {
            known.split_once(':').is_some_and(|(_, epoch)| epoch == current)
                && !seen.gone.iter().any(|gone| gone == known)
        })
    }

    /// Notes what this worker has put there.
    fn enter(&self, bucket: Bucket, entry: &str) {
        self.lock().entry(bucket).or_default().see(Some(entry));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Bucket, Seen>> {
        // No panic leaves it half changed, so the poison means nothing.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    /// Notes what is in Redis now. What was there before is gone.
    fn see(&mut self, known: Option<&str>) {
        if self.last.as_deref() != known {
            let last = std::mem::replace(&mut self.last, known.map(str::to_owned));
            self.gone.extend(last);
            if self.gone.len() > SEEN_LIMIT_EPOCHS {
                self.gone.pop_front();
            }
        }
    }
}

/// A bucket whose epoch is to be entered.
struct Entering {
    bucket: Bucket,
    /// The epoch of Redis that it had before.
    redis: String,
    /// The epoch that is entered.
    current: String,
    is_new: bool,
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
        self.entered.set(&[]);
        if let Err(error) = self.check_owner().await
            && (error.is_unfit() || !self.counters.redis().is_cluster())
        {
            return Err(error);
        }
        let Epochs { buckets, mut failure } = self.counters.epochs().await?;
        let postgres = self.ledger.incarnation().await?;
        let (mut entered, mut stale) = (Vec::new(), Vec::new());
        for one in buckets {
            let current = format!("{COUNTER_LAYOUT}:{}:{postgres}", one.current);
            let is_entered = self
                .seen_epochs
                .is_entered(one.bucket, one.known.as_deref(), &current);
            if one.is_moving {
                // Counters that are elsewhere may come back, without the key of their epoch.
                if one.known.is_some()
                    && let Err(error) = self.counters.forget_epoch(one.bucket).await
                {
                    failure = failure.or(Some(error));
                }
            } else if is_entered {
                entered.push(one.bucket);
            } else {
                stale.push(Entering {
                    bucket: one.bucket,
                    redis: one.current,
                    current,
                    is_new: one.known.is_none(),
                });
            }
        }
        self.entered.set(&entered);
        let suspect = match stale.is_empty() {
            true => None,
            false => self.enter(stale, &mut entered).await?,
        };
        self.entered.set(&entered);
        match failure {
            Some(error) => Err(error.into()),
            None => Ok(suspect),
        }
    }

    /// Enters the epochs of these buckets, and adds them to those that are. `None`: it has to be done again for some.
    async fn enter(
        &self,
        mut stale: Vec<Entering>,
        entered: &mut Vec<Bucket>,
    ) -> Result<Option<usize>, SyncError> {
        let buckets: Vec<Bucket> = stale.iter().map(|one| one.bucket).collect();
        let parts = self.counters.parts_with(&buckets).await?;
        // Before the first counter is read: a wipe from now on removes these marks.
        let mut marks = HashMap::with_capacity(buckets.len());
        for bucket in &buckets {
            marks.insert(*bucket, self.counters.begin_epoch(*bucket).await?);
        }
        // A worker may have stalled with counts from the epoch before: it no longer writes them.
        self.ledger.begin_epoch().await?;
        let mut suspect = 0;
        for part in &parts {
            let mut cursor = 0;
            loop {
                let page = self
                    .counters
                    .scan(Scan::All, part.begin, cursor, self.options.flush_page)
                    .await?;
                let mut items = page.items;
                items.retain(|item| self.counters.is_among(*item, &buckets));
                self.counters.invalidate(&items).await?;
                suspect += items.len();
                cursor = page.next;
                if cursor == 0 {
                    break;
                }
            }
        }
        let Some(lost) = self.invalidate_lost(&buckets).await? else {
            return Ok(None);
        };
        suspect += lost;
        self.retain_still(&mut stale, &parts).await?;
        let mut has_lost = false;
        for one in &stale {
            let Some(mark) = marks.remove(&one.bucket) else {
                continue;
            };
            let entry = format!("{}:{}", fresh_token(), one.current);
            if self.counters.enter_epoch(&entry, mark).await? {
                self.seen_epochs.enter(one.bucket, &entry);
                entered.push(one.bucket);
            } else {
                has_lost = true;
            }
        }
        if has_lost {
            tracing::warn!(
                "Redis lost its data while its counters were invalidated: the next tick begins again"
            );
            return Ok(None);
        }
        if stale.len() < buckets.len() {
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

    /// Requests rebuilds of the items of these buckets that have no counter, and whose saved count is not exact. Returns
    /// how many; `None`: the worker is stopping.
    async fn invalidate_lost(&self, buckets: &[Bucket]) -> Result<Option<usize>, SyncError> {
        // Before the first saved count is read: a later vote may be rolled up before or after its item is compared.
        let progress = self.ledger.saving_progress().await?;
        let rolled_up = progress.watermark;
        let is_short = |drawn: VoteId| drawn.get() - rolled_up.get() <= CLOSE_LOOK_LIMIT_IDS;
        let mut invalidated = 0;
        if is_short(progress.drawn) {
            let Some(behind) = self.invalidate_behind_audit(buckets).await? else {
                return Ok(None);
            };
            invalidated += behind;
            let drawn = self.ledger.saving_progress().await?.drawn;
            if is_short(drawn) {
                let voted = self.invalidate_voted(buckets, rolled_up, drawn).await?;
                return Ok(voted.map(|voted| invalidated + voted));
            }
        }
        // Many votes that are not rolled up are on many items: each item is looked at once.
        let (divisor, remainders) = self.counters.items_of(buckets);
        let limit = i64::try_from(self.options.audit_page).unwrap_or(i64::MAX);
        let mut after = 0;
        loop {
            let items = self
                .ledger
                .item_ids_of(divisor, &remainders, after, limit)
                .await?;
            let Some(last) = items.last() else {
                return Ok(Some(invalidated));
            };
            if self.is_stopping() {
                return Ok(None);
            }
            after = last.get();
            invalidated += self.invalidate_behind(&items).await?;
        }
    }

    /// The same of items whose saved count is not the audited one.
    async fn invalidate_behind_audit(&self, buckets: &[Bucket]) -> Result<Option<usize>, SyncError> {
        let (divisor, remainders) = self.counters.items_of(buckets);
        let (mut after, mut invalidated) = (0, 0);
        loop {
            let page = self
                .ledger
                .items_behind_audit(divisor, &remainders, after, COMPARE_PAGE_ITEMS)
                .await?;
            let Some(last) = page.last else {
                return Ok(Some(invalidated));
            };
            if self.is_stopping() {
                return Ok(None);
            }
            after = last;
            invalidated += self.invalidate_behind(&page.items).await?;
        }
    }

    /// The same of items that have votes above `after`, up to `drawn`. Each is looked at once.
    async fn invalidate_voted(
        &self,
        buckets: &[Bucket],
        after: VoteId,
        drawn: VoteId,
    ) -> Result<Option<usize>, SyncError> {
        let (mut seen, mut invalidated) = (HashSet::new(), 0);
        let mut after = after.get();
        while after < drawn.get() {
            if self.is_stopping() {
                return Ok(None);
            }
            let until = drawn.get().min(after + VOTED_PAGE_IDS);
            let mut items = self
                .ledger
                .items_of_votes(VoteId::new(after), VoteId::new(until))
                .await?;
            items.retain(|item| self.counters.is_among(*item, buckets) && seen.insert(*item));
            invalidated += self.invalidate_behind(&items).await?;
            after = until;
        }
        Ok(Some(invalidated))
    }

    /// Requests rebuilds of those of these items that have no counter, and whose saved count is not exact. Returns how
    /// many.
    async fn invalidate_behind(&self, items: &[ItemId]) -> Result<usize, SyncError> {
        let mut invalidated = 0;
        for page in items.chunks(self.options.audit_page) {
            let rows = self.ledger.audit_page(page, VoteId::LAST).await?;
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
            invalidated += lost.len();
        }
        Ok(invalidated)
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

/// The buckets whose counters are of the current epoch. Shared by a worker's clones.
#[derive(Debug, Default)]
pub(super) struct EnteredBuckets(Mutex<Option<Vec<Bucket>>>);

impl EnteredBuckets {
    fn set(&self, buckets: &[Bucket]) {
        *self.lock() = Some(buckets.to_vec());
    }

    /// Whether a flush saves counts of this bucket. Whoever has not looked at epochs saves all.
    pub fn has(&self, bucket: Bucket) -> bool {
        self.lock()
            .as_ref()
            .is_none_or(|buckets| buckets.contains(&bucket))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.lock().as_ref().is_some_and(Vec::is_empty)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<Bucket>>> {
        // No panic leaves it half changed, so the poison means nothing.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_was_gone_and_is_back_is_no_entry() {
        let seen = SeenEpochs::default();
        assert!(!seen.is_entered(Bucket::FIRST, None, "1:x"));
        assert!(
            seen.is_entered(Bucket::FIRST, Some("a:1:x"), "1:x")
                && seen.is_entered(Bucket::FIRST, Some("a:1:x"), "1:x")
        );
        assert!(
            !seen.is_entered(Bucket::FIRST, Some("a:1:x"), "1:y"),
            "another epoch"
        );
        // Another worker's entry, and then the earlier one.
        assert!(seen.is_entered(Bucket::FIRST, Some("b:1:x"), "1:x"));
        assert!(!seen.is_entered(Bucket::FIRST, Some("a:1:x"), "1:x"));
        assert!(!seen.is_entered(Bucket::FIRST, Some("a:1:x"), "1:x"), "and again");
        assert!(seen.is_entered(Bucket::FIRST, Some("c:1:x"), "1:x"));
        assert!(!seen.is_entered(Bucket::FIRST, None, "1:x"));
        assert!(
            !seen.is_entered(Bucket::FIRST, Some("c:1:x"), "1:x"),
            "gone and back"
        );
    }
}
