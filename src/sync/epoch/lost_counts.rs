//! The search for counts that Redis lost before they were saved.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::JoinHandle;

use crate::domain::{ItemId, VoteId};
use crate::ledger::ItemSpan;
use crate::live::Bucket;
use crate::sync::{SyncError, Worker};

/// The most items whose saved counts are compared by one statement, while an epoch is entered.
const COMPARE_PAGE_ITEMS: i64 = 10_000;

/// The most vote ids that are not rolled up, for which only items that differ or have such votes are looked at closely.
const CLOSE_LOOK_LIMIT_IDS: i64 = 1_000_000;
/// The most vote ids whose items one statement reads for that.
const VOTED_PAGE_IDS: i64 = 50_000;

/// A search under way. Once it is dropped, it ends with its page: a statement is not cut off.
pub struct Search {
    is_given_up: Arc<AtomicBool>,
    running: JoinHandle<Result<Option<usize>, SyncError>>,
}

impl Search {
    /// Begins a search among the items of these buckets.
    pub fn begin(worker: Worker, buckets: Vec<Bucket>) -> Self {
        let is_given_up = Arc::<AtomicBool>::default();
        let searcher = Searcher {
            worker,
            buckets,
            is_given_up: Arc::clone(&is_given_up),
        };
        let running = tokio::spawn(async move { searcher.invalidate_lost().await });
        Self { is_given_up, running }
    }

    /// Waits for its end. Returns for how many items it has requested rebuilds; `None`: the worker is stopping. Not to
    /// be called again once it has returned.
    ///
    /// # Errors
    /// When a store is unavailable.
    pub async fn end(&mut self) -> Result<Option<usize>, SyncError> {
        match (&mut self.running).await {
            Ok(found) => found,
            Err(failed) => match failed.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime is ending.
                Err(_) => Ok(None),
            },
        }
    }
}

impl Drop for Search {
    fn drop(&mut self) {
        self.is_given_up.store(true, Ordering::Relaxed);
    }
}

struct Searcher {
    worker: Worker,
    buckets: Vec<Bucket>,
    is_given_up: Arc<AtomicBool>,
}

impl Searcher {
    fn is_over(&self) -> bool {
        self.worker.is_stopping() || self.is_given_up.load(Ordering::Relaxed)
    }

    /// Requests rebuilds of the items of these buckets that have no counter, and whose saved count is not exact. Returns
    /// how many; `None`: the worker is stopping.
    async fn invalidate_lost(&self) -> Result<Option<usize>, SyncError> {
        let ledger = &self.worker.ledger;
        // Before the first saved count is read: a later vote may be rolled up before or after its item is compared.
        let progress = ledger.saving_progress().await?;
        let rolled_up = progress.watermark;
        let is_short = |drawn: VoteId| drawn.get() - rolled_up.get() <= CLOSE_LOOK_LIMIT_IDS;
        let halves = self.halves().await?;
        let mut invalidated = 0;
        if is_short(progress.drawn) {
            let behind = self.both(halves.clone().map(|half| self.invalidate_behind_audit(half)));
            let Some(behind) = behind.await? else {
                return Ok(None);
            };
            invalidated += behind;
            let drawn = ledger.saving_progress().await?.drawn;
            if is_short(drawn) {
                let voted = self.invalidate_voted(rolled_up, drawn).await?;
                return Ok(voted.map(|voted| invalidated + voted));
            }
        }
        // Many votes that are not rolled up are on many items: each item is looked at once.
        let each = self.both(halves.map(|half| self.invalidate_each(half)));
        Ok(each.await?.map(|each| invalidated + each))
    }

    /// The items of these buckets in two parts that are about as large, if their ids have no great gaps. Later items are in
    /// the second one.
    async fn halves(&self) -> Result<[ItemSpan; 2], SyncError> {
        let (divisor, remainders) = self.worker.counters.items_of(&self.buckets);
        let (first, last) = self.worker.ledger.first_and_last_item().await?;
        let middle = i64::midpoint(first, last);
        Ok([(0, middle), (middle, i64::MAX)].map(|(after, last)| ItemSpan {
            divisor,
            remainders: remainders.clone(),
            after,
            last,
        }))
    }

    /// Searches two parts at the same time: Postgres takes one core for each. When one fails, the other ends with its page.
    async fn both(
        &self,
        parts: [impl Future<Output = Result<Option<usize>, SyncError>>; 2],
    ) -> Result<Option<usize>, SyncError> {
        let [first, second] = parts.map(|part| async {
            let found = part.await;
            if found.is_err() {
                self.is_given_up.store(true, Ordering::Relaxed);
            }
            found
        });
        let (first, second) = tokio::join!(first, second);
        Ok(first?.zip(second?).map(|(first, second)| first + second))
    }

    async fn invalidate_each(&self, mut span: ItemSpan) -> Result<Option<usize>, SyncError> {
        let limit = i64::try_from(self.worker.options.audit_page).unwrap_or(i64::MAX);
        let mut invalidated = 0;
        loop {
            let items = self.worker.ledger.item_ids_of(&span, limit).await?;
            let Some(last) = items.last() else {
                return Ok(Some(invalidated));
            };
            if self.is_over() {
                return Ok(None);
            }
            span.after = last.get();
            invalidated += self.invalidate_behind(&items).await?;
        }
    }

    /// The same of items whose saved count is not the audited one.
    async fn invalidate_behind_audit(&self, mut span: ItemSpan) -> Result<Option<usize>, SyncError> {
        let mut invalidated = 0;
        loop {
            let page = self.worker.ledger.items_behind_audit(&span, COMPARE_PAGE_ITEMS);
            let page = page.await?;
            let Some(last) = page.last else {
                return Ok(Some(invalidated));
            };
            if self.is_over() {
                return Ok(None);
            }
            span.after = last;
            invalidated += self.invalidate_behind(&page.items).await?;
        }
    }

    /// The same of items that have votes above `after`, up to `drawn`. Each is looked at once.
    async fn invalidate_voted(&self, after: VoteId, drawn: VoteId) -> Result<Option<usize>, SyncError> {
        let Worker { ledger, counters, .. } = &self.worker;
        let (mut seen, mut invalidated) = (HashSet::new(), 0);
        let mut after = after.get();
        while after < drawn.get() {
            if self.is_over() {
                return Ok(None);
            }
            let until = drawn.get().min(after + VOTED_PAGE_IDS);
            let mut items = ledger
                .items_of_votes(VoteId::new(after), VoteId::new(until))
                .await?;
            items.retain(|item| counters.is_among(*item, &self.buckets) && seen.insert(*item));
            invalidated += self.invalidate_behind(&items).await?;
            after = until;
        }
        Ok(Some(invalidated))
    }

    /// Requests rebuilds of those of these items that have no counter, and whose saved count is not exact. Returns how
    /// many.
    async fn invalidate_behind(&self, items: &[ItemId]) -> Result<usize, SyncError> {
        let Worker { ledger, counters, .. } = &self.worker;
        let mut invalidated = 0;
        for page in items.chunks(self.worker.options.audit_page) {
            let rows = ledger.audit_page(page, VoteId::LAST).await?;
            let behind: Vec<ItemId> = rows
                .iter()
                .filter(|row| row.saved_count != row.exact_count)
                .map(|row| row.item_id)
                .collect();
            // Items with a live count will be flushed. The others are invalidated, which requests
            // their rebuilds.
            let lost: Vec<ItemId> = counters
                .read(&behind)
                .await?
                .into_iter()
                .filter(|counter| counter.count.is_none() && counter.rebuild.is_none())
                .map(|counter| counter.item_id)
                .collect();
            counters.invalidate(&lost).await?;
            invalidated += lost.len();
        }
        Ok(invalidated)
    }
}
