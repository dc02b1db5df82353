//! Reads of items with their counts: one item, many at once, or a page of the list.
//!
//! Reads of single items are batched. A batch of any size is one pipeline and at most two
//! statements, and reads an item once for all who ask for it. A live count that is marked as saved
//! is the same in Postgres. So if the item's name and rules are cached too, the batch does not ask
//! Postgres for that item.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::seeds::ReadSeeds;
use crate::batching::take;
use crate::domain::{Count, Item, ItemId};
use crate::ledger::{ItemFacts, ItemReader, LedgerError, Listing, ServerLedger};
use crate::live::{LiveCount, LiveCounts, LiveRead};
use crate::telemetry::trouble;

/// The most reads in one batch.
pub const READ_BATCH_LIMIT_ITEMS: usize = 1024;
/// The most reads that may wait for a batch, in all queues of a server together.
pub const READ_QUEUE_LIMIT_READS: usize = 4 * READ_BATCH_LIMIT_ITEMS;

/// An item and its count.
#[derive(Clone, Debug)]
pub struct ItemCount {
    pub item: Arc<Item>,
    /// The current count, if it differs from the saved one.
    pub live_count: Option<Count>,
    /// Whether the count is current. If not, Redis is unavailable, and this is the saved count, as
    /// of the item's `counted_at`.
    pub is_current: bool,
}

impl ItemCount {
    /// The count that a reader gets.
    pub fn count(&self) -> Count {
        self.live_count.unwrap_or(self.item.saved_count)
    }
}

/// Why a read has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    #[error("too many reads are waiting")]
    QueueFull,
    #[error("the ledger did not answer")]
    LedgerUnavailable,
    #[error("the server is shutting down")]
    Closing,
}

/// A read that waits for a batch.
struct QueuedRead {
    item: ItemId,
    kind: Kind,
}

/// What a read asks about an item.
enum Kind {
    /// The item and its count.
    Count(oneshot::Sender<Result<Option<ItemCount>, ReadError>>),
    /// Whether its live count is still this one; `None`: there was none.
    Still(Option<Count>, oneshot::Sender<bool>),
}

/// One thread's reads. Cheap to clone. Its task ends when all clones are gone, or with its runtime.
/// Every call fails when it needs Postgres and Postgres is unavailable.
#[derive(Clone)]
pub struct CountReader {
    queue: mpsc::Sender<QueuedRead>,
    pub(super) ledger: ServerLedger,
    live_counts: LiveCounts,
}

impl CountReader {
    /// Starts one reader, with its task on the current runtime. All `readers` share
    /// [`READ_QUEUE_LIMIT_READS`].
    pub fn start(ledger: &ServerLedger, live_counts: &LiveCounts, readers: usize) -> Self {
        let (queue, queued) = mpsc::channel(READ_QUEUE_LIMIT_READS.div_ceil(readers));
        let task = BatchReader {
            reader: ledger.item_reader(),
            ledger: ledger.clone(),
            live_counts: live_counts.clone(),
            seeds: ReadSeeds::new(ledger, live_counts),
        };
        tokio::spawn(task.run(queued));
        Self {
            queue,
            ledger: ledger.clone(),
            live_counts: live_counts.clone(),
        }
    }

    /// The item with this id and its live count; `None`: there is no such item.
    ///
    /// # Errors
    /// When the queue is full, Postgres does not answer, or the server is shutting down.
    pub async fn one(&self, item: ItemId) -> Result<Option<ItemCount>, ReadError> {
        let (answer, answered) = oneshot::channel();
        let kind = Kind::Count(answer);
        self.queue
            .try_send(QueuedRead { item, kind })
            .map_err(|error| match error {
                mpsc::error::TrySendError::Full(_) => ReadError::QueueFull,
                mpsc::error::TrySendError::Closed(_) => ReadError::Closing,
            })?;
        answered.await.unwrap_or(Err(ReadError::LedgerUnavailable))
    }

    /// Whether the live counts of these items are still these; `None`: there was none. Postgres is
    /// not asked, and without Redis nobody knows.
    ///
    /// This does not see a count that came and went in between. So a caller must not remember that
    /// there was none for longer than a live count stays in Redis.
    pub async fn are_still(&self, counts: &[(ItemId, Option<Count>)]) -> bool {
        if let [(item, count)] = counts {
            let (answer, answered) = oneshot::channel();
            let kind = Kind::Still(*count, answer);
            let is_queued = self.queue.try_send(QueuedRead { item: *item, kind }).is_ok();
            return is_queued && answered.await.unwrap_or(false);
        }
        let items: Vec<ItemId> = counts.iter().map(|(item, _)| *item).collect();
        if items.is_empty() {
            return true;
        }
        let Ok(reads) = self.live_counts.read(&items).await else {
            return false;
        };
        let mut pairs = counts.iter().zip(reads);
        pairs.all(|((_, count), read)| is_still(*count, read))
    }

    /// A page of items: see [`ServerLedger::items`]. Also returns the `after` of the next page.
    pub async fn page(
        &self,
        after: i64,
        limit: i64,
        listing: Listing<'_>,
    ) -> Result<(Vec<ItemCount>, Option<ItemId>), LedgerError> {
        let (items, next) = self.ledger.items(after, limit, listing).await?;
        Ok((self.with_counts(items).await?, next))
    }

    /// Those of these items that exist, with their counts, in the order given.
    pub async fn some(&self, ids: &[ItemId]) -> Result<Vec<ItemCount>, LedgerError> {
        let mut once = ids.to_vec();
        once.sort_unstable();
        once.dedup();
        let items = self.ledger.items_by_id(&once).await?;
        let counts = self.with_counts(items).await?;
        let by_id: HashMap<ItemId, ItemCount> = counts.into_iter().map(|one| (one.item.id, one)).collect();
        Ok(ids.iter().filter_map(|id| by_id.get(id).cloned()).collect())
    }

    /// Whether the saved count of this item has a counted vote. The caller must know the vote
    /// before this call. `None`: nobody knows, as while Redis is unavailable.
    pub async fn is_saved(&self, item: ItemId) -> Result<Option<bool>, LedgerError> {
        let read = self.live_counts.read(&[item]).await;
        let read = read.ok().and_then(|mut reads| reads.pop());
        match read {
            Some(LiveRead::Count(live)) => Ok(Some(live.saved.is_some())),
            // It has expired, or Redis has just lost it. A cold one waits for the roll-up.
            Some(LiveRead::Absent | LiveRead::Cold) => {
                let exact = self.ledger.exact_counts(&[item]).await?;
                let saved = self.ledger.items_by_id(&[item]).await?;
                let exact = exact.first().map(|one| one.count);
                let is_exact = saved.first().map(|one| one.saved_count) == exact;
                Ok(match read {
                    Some(LiveRead::Cold) => Some(is_exact),
                    _ => is_exact.then_some(true),
                })
            }
            // The count was invalidated: the rebuild will have the vote.
            Some(LiveRead::Rebuilding | LiveRead::Unavailable) | None => Ok(None),
        }
    }

    /// These items, which were just read, with their counts.
    pub async fn with_counts(&self, items: Vec<Item>) -> Result<Vec<ItemCount>, LedgerError> {
        let ids: Vec<ItemId> = items.iter().map(|item| item.id).collect();
        let reads = self.live_counts.read(&ids).await.ok();
        let (current, ended) = current_counts(&self.ledger, &ids, reads).await;
        ended?;
        // The items were read before the live counts. A count that was saved and expired in between
        // is in neither.
        let absent: Vec<ItemId> = items
            .iter()
            .zip(&current)
            .filter(|(_, current)| matches!(current, Current::Saved))
            .map(|(item, _)| item.id)
            .collect();
        let mut again: HashMap<ItemId, Item> = self
            .ledger
            .items_by_id(&absent)
            .await?
            .into_iter()
            .map(|item| (item.id, item))
            .collect();
        let counts = items.into_iter().zip(current).map(|(item, current)| {
            let item = again.remove(&item.id).unwrap_or(item);
            current.of(item)
        });
        Ok(counts.collect())
    }
}

fn is_still(count: Option<Count>, read: LiveRead) -> bool {
    match read {
        LiveRead::Count(live) => Some(live.count) == count,
        LiveRead::Absent => count.is_none(),
        LiveRead::Rebuilding | LiveRead::Cold | LiveRead::Unavailable => false,
    }
}

/// An item's current count, compared with the saved one.
#[derive(Clone, Copy, Debug)]
enum Current {
    /// The live count.
    Live(LiveCount),
    /// The exact count from the ledger.
    Exact(Count),
    /// The saved count is current.
    Saved,
    /// Redis is unavailable; or there were votes on cold items, and the ledger did not say in time whether on this
    /// one.
    Unknown,
    /// Redis knows that the saved count may be behind, and Postgres did not answer.
    Failed,
}

impl Current {
    fn of(self, item: Item) -> ItemCount {
        ItemCount {
            item: Arc::new(item),
            live_count: match self {
                Self::Live(live) => Some(live.count),
                Self::Exact(count) => Some(count),
                Self::Saved | Self::Unknown | Self::Failed => None,
            },
            is_current: !matches!(self, Self::Unknown | Self::Failed),
        }
    }
}

/// The current counts of these items, in their order, from what was read of live counts. `None`:
/// Redis is unavailable, and no count is current; the Redis client has logged that. If a rebuild is
/// requested, or there were votes on cold items, the saved count may be behind the counts that voters got,
/// so the ledger is asked. The error comes with the counts, if Postgres is needed and does not answer.
async fn current_counts(
    ledger: &ServerLedger,
    items: &[ItemId],
    reads: Option<Vec<LiveRead>>,
) -> (Vec<Current>, Result<(), LedgerError>) {
    let Some(reads) = reads else {
        return (vec![Current::Unknown; items.len()], Ok(()));
    };
    let behind: Vec<ItemId> = items
        .iter()
        .zip(&reads)
        .filter(|(_, read)| matches!(read, LiveRead::Rebuilding | LiveRead::Cold))
        .map(|(item, _)| *item)
        .collect();
    let exact = if behind.is_empty() {
        Ok(HashMap::new())
    } else {
        let exact = ledger.exact_counts(&behind).await;
        exact.map(|exact| exact.into_iter().map(|one| (one.item_id, one.count)).collect())
    };
    let is_needed = reads.contains(&LiveRead::Rebuilding);
    let current = items.iter().zip(reads).map(|(item, read)| match read {
        LiveRead::Count(live) => Current::Live(live),
        LiveRead::Rebuilding | LiveRead::Cold => match &exact {
            // An item that does not exist has no count.
            Ok(exact) => exact
                .get(item)
                .map_or(Current::Saved, |count| Current::Exact(*count)),
            Err(_) if read == LiveRead::Cold => Current::Unknown,
            Err(_) => Current::Failed,
        },
        LiveRead::Absent => Current::Saved,
        LiveRead::Unavailable => Current::Unknown,
    });
    let current = current.collect();
    match exact {
        Err(error) if is_needed => (current, Err(error)),
        Ok(_) | Err(_) => (current, Ok(())),
    }
}

/// The task behind the reads of single items.
struct BatchReader {
    reader: ItemReader,
    ledger: ServerLedger,
    live_counts: LiveCounts,
    seeds: ReadSeeds,
}

impl BatchReader {
    /// Takes batch after batch, until the queue is closed.
    async fn run(mut self, mut queue: mpsc::Receiver<QueuedRead>) {
        let mut batch = Vec::with_capacity(READ_BATCH_LIMIT_ITEMS);
        while take(&mut queue, &mut batch, READ_BATCH_LIMIT_ITEMS).await > 0 {
            self.answer(&mut batch).await;
        }
    }

    /// Answers every read of a batch, and leaves the batch empty.
    async fn answer(&mut self, batch: &mut Vec<QueuedRead>) {
        let items = sorted(batch.iter().map(|one| one.item));
        let reads = self.live_counts.read(&items).await.ok();
        let live = |item: &ItemId| Some(reads.as_ref()?[items.binary_search(item).ok()?]);
        let mut waiting = Vec::with_capacity(batch.len());
        for one in batch.drain(..) {
            match one.kind {
                // At once: this does not wait for other reads of Postgres.
                Kind::Still(count, answer) => {
                    let is_still = live(&one.item).is_some_and(|read| is_still(count, read));
                    // A reader that no longer waits needs no answer.
                    let _ = answer.send(is_still);
                }
                Kind::Count(answer) => waiting.push((one.item, answer)),
            }
        }
        let wanted = sorted(waiting.iter().map(|(item, _)| *item));
        let reads: Option<Vec<LiveRead>> = wanted.iter().map(live).collect();
        let often = reads
            .as_ref()
            .map(|reads| self.live_counts.note_reads(&wanted, reads));
        let mut counts: Vec<Option<ItemCount>> = vec![None; wanted.len()];
        let ended = self.read(&wanted, reads, &mut counts).await;
        if let Err(error) = &ended {
            trouble!(error, %error, reads = waiting.len(); "the ledger did not answer reads of items");
        }
        let is_found = |item: &ItemId| wanted.binary_search(item).is_ok_and(|at| counts[at].is_some());
        self.seeds.begin(often.into_iter().flatten().filter(is_found));
        for (item, answer) in waiting {
            let at = wanted.binary_search(&item).ok();
            let count = at.and_then(|at| counts[at].clone());
            let _ = answer.send(match (count, &ended) {
                (None, Err(_)) => Err(ReadError::LedgerUnavailable),
                (count, _) => Ok(count),
            });
        }
    }

    /// Fills in the counts of these items, from what was read of live counts. An item that does not
    /// exist has none. The items are in order, each once.
    ///
    /// # Errors
    /// When Postgres does not answer: what could be read without it is filled in.
    async fn read(
        &mut self,
        items: &[ItemId],
        reads: Option<Vec<LiveRead>>,
        counts: &mut [Option<ItemCount>],
    ) -> Result<(), LedgerError> {
        let (current, ended) = current_counts(&self.ledger, items, reads).await;
        let facts = self.reader.cached_facts(items);
        for (at, facts) in facts.iter().enumerate() {
            if let (Some(facts), Current::Live(live)) = (facts, current[at]) {
                counts[at] = saved(items[at], facts, live);
            }
        }
        // Read after Redis: a count that was saved and expired in between is in Postgres by now.
        let unsaved = items
            .iter()
            .zip(counts.iter())
            .filter(|(_, count)| count.is_none());
        let unsaved: Vec<ItemId> = unsaved.map(|(item, _)| *item).collect();
        for item in self.reader.read(&unsaved).await? {
            if let Ok(at) = items.binary_search(&item.id)
                && !matches!(current[at], Current::Failed)
            {
                counts[at] = Some(current[at].of(item));
            }
        }
        ended
    }
}

/// Each of these items once, in order.
fn sorted(items: impl Iterator<Item = ItemId>) -> Vec<ItemId> {
    let mut items: Vec<ItemId> = items.collect();
    items.sort_unstable();
    items.dedup();
    items
}

/// An item whose live count is marked as saved, as it stands in Postgres. If its counts are hidden,
/// Postgres is asked in any case: otherwise a missing read would tell which items have votes.
fn saved(id: ItemId, facts: &ItemFacts, live: LiveCount) -> Option<ItemCount> {
    if facts.rules.as_ref().is_some_and(|rules| rules.hides_count) {
        return None;
    }
    let item = Item {
        id,
        name: Arc::clone(&facts.name),
        key: facts.key.clone(),
        is_hidden: facts.is_hidden,
        rules: facts.rules.clone(),
        saved_count: live.count,
        counted_at: Some(live.saved?),
    };
    Some(Current::Live(live).of(item))
}
