//! Reads of items with their counts: one item, many such reads at once, or a page of the
//! list.
//!
//! Reads of single items are batched: a batch of any size is one pipeline and at most two
//! statements, and reads an item once for all who ask for it. A live count that is marked as
//! saved is the same in Postgres. So if the item's name is cached too, the batch does not ask
//! Postgres for that item at all.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::batching::take;
use crate::domain::{Item, ItemId};
use crate::ledger::{ItemReader, LedgerError, ServerLedger};
use crate::live::{LiveCount, LiveCounts};

/// The most reads in one batch.
pub const READ_BATCH_LIMIT_ITEMS: usize = 1024;
/// The most reads that may wait for a batch, in all queues of a server together.
pub const READ_QUEUE_LIMIT_READS: usize = 4 * READ_BATCH_LIMIT_ITEMS;

/// An item and its live count, if there is one.
#[derive(Clone, Debug)]
pub struct ItemCount {
    pub item: Arc<Item>,
    pub live_count: Option<i64>,
}

impl ItemCount {
    /// The count that a reader gets: the live count if there is one, else the saved count.
    pub fn vote_count(&self) -> i64 {
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
    answer: oneshot::Sender<Result<Option<ItemCount>, ReadError>>,
}

/// One thread's reads. Cheap to clone. Its task ends when all clones are gone, or with its
/// runtime.
#[derive(Clone)]
pub struct CountReader {
    queue: mpsc::Sender<QueuedRead>,
    ledger: ServerLedger,
    live_counts: LiveCounts,
}

impl CountReader {
    /// Starts one reader, with its task on the current runtime. `readers` of them share
    /// [`READ_QUEUE_LIMIT_READS`].
    pub fn start(ledger: &ServerLedger, live_counts: &LiveCounts, readers: usize) -> Self {
        let (queue, queued) = mpsc::channel(READ_QUEUE_LIMIT_READS.div_ceil(readers));
        let task = BatchReader {
            reader: ledger.item_reader(),
            live_counts: live_counts.clone(),
        };
        tokio::spawn(task.run(queued));
        Self {
            queue,
            ledger: ledger.clone(),
            live_counts: live_counts.clone(),
        }
    }

    /// The item with this id and its live count; `None` if there is no such item.
    ///
    /// # Errors
    /// When the queue is full, Postgres does not answer, or the server is shutting down.
    pub async fn one(&self, item: ItemId) -> Result<Option<ItemCount>, ReadError> {
        let (answer, answered) = oneshot::channel();
        self.queue
            .try_send(QueuedRead { item, answer })
            .map_err(|error| match error {
                mpsc::error::TrySendError::Full(_) => ReadError::QueueFull,
                mpsc::error::TrySendError::Closed(_) => ReadError::Closing,
            })?;
        answered.await.unwrap_or(Err(ReadError::LedgerUnavailable))
    }

    /// Up to `limit` items with ids above `after`, in the order of their ids; only those
    /// named `name`, if one is given.
    ///
    /// # Errors
    /// When Postgres does not answer.
    pub async fn page(
        &self,
        after: i64,
        limit: i64,
        name: Option<&str>,
    ) -> Result<Vec<ItemCount>, LedgerError> {
        let items = self.ledger.items(after, limit, name).await?;
        let ids: Vec<ItemId> = items.iter().map(|item| item.id).collect();
        let live = live_counts_of(&self.live_counts, &ids).await;
        let counts = items.into_iter().zip(live).map(|(item, live)| ItemCount {
            item: Arc::new(item),
            live_count: live.map(|live| live.count),
        });
        Ok(counts.collect())
    }
}

/// The live counts of these items, in their order. While Redis is unavailable there are none;
/// [`LiveCounts`] has logged that.
async fn live_counts_of(live_counts: &LiveCounts, items: &[ItemId]) -> Vec<Option<LiveCount>> {
    let read = live_counts.read(items).await;
    read.unwrap_or_else(|_| vec![None; items.len()])
}

/// The task behind the reads of single items.
struct BatchReader {
    reader: ItemReader,
    live_counts: LiveCounts,
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
        let mut items: Vec<ItemId> = batch.iter().map(|one| one.item).collect();
        items.sort_unstable();
        items.dedup();
        let mut counts: Vec<Option<ItemCount>> = vec![None; items.len()];
        let ended = self.read(&items, &mut counts).await;
        if let Err(error) = &ended {
            tracing::error!(%error, reads = batch.len(), "the ledger did not answer reads of items");
        }
        for one in batch.drain(..) {
            let count = items
                .binary_search(&one.item)
                .ok()
                .and_then(|at| counts[at].clone());
            let answer = match (count, &ended) {
                (None, Err(_)) => Err(ReadError::LedgerUnavailable),
                (count, _) => Ok(count),
            };
            // A reader that no longer waits needs no answer.
            let _ = one.answer.send(answer);
        }
    }

    /// Fills in the counts of these items; of an item that does not exist there is none. The
    /// items are in order, each of them once.
    ///
    /// # Errors
    /// When Postgres does not answer. What could be read without it is filled in.
    async fn read(&mut self, items: &[ItemId], counts: &mut [Option<ItemCount>]) -> Result<(), LedgerError> {
        let names = self.reader.cached_names(items);
        let is_new = |at: &usize| names[*at].is_none();
        let new: Vec<ItemId> = (0..items.len()).filter(is_new).map(|at| items[at]).collect();
        let (found, live) = tokio::join!(self.reader.read(&new), live_counts_of(&self.live_counts, items));
        let mut unsaved = Vec::new();
        for (at, name) in names.into_iter().enumerate() {
            let Some(name) = name else { continue };
            counts[at] = saved(items[at], name, live[at]);
            if counts[at].is_none() {
                unsaved.push(items[at]);
            }
        }
        for item in found?.into_iter().chain(self.reader.read(&unsaved).await?) {
            if let Ok(at) = items.binary_search(&item.id) {
                counts[at] = Some(ItemCount {
                    item: Arc::new(item),
                    live_count: live[at].map(|live| live.count),
                });
            }
        }
        Ok(())
    }
}

/// An item whose live count is marked as saved: it stands in Postgres like this.
fn saved(id: ItemId, name: Arc<str>, live: Option<LiveCount>) -> Option<ItemCount> {
    let LiveCount { count, saved } = live?;
    let item = Item {
        id,
        name,
        saved_count: count,
        counted_at: Some(saved?),
    };
    Some(ItemCount {
        item: Arc::new(item),
        live_count: Some(count),
    })
}
