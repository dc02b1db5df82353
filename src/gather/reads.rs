//! Reads of single items: each batch is one pipeline and at most two statements, however
//! many ask, and an item that many ask for is read once. A count that is saved stands in
//! its item as it is in Redis, so where the item's name is known too, Postgres has nothing
//! to add.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::take;
use crate::domain::ItemId;
use crate::ledger::{Item, ItemReader, LedgerError};
use crate::live::{Link, LiveCount};

/// Reads in one batch, at the most.
pub const READ_BATCH_LIMIT_ITEMS: usize = 1024;
/// Reads that may wait for a batch, at the most; as for votes.
pub const READ_QUEUE_LIMIT_READS: usize = 4 * READ_BATCH_LIMIT_ITEMS;

/// An item, and its live count if there is one.
#[derive(Clone, Debug)]
pub struct ItemRead {
    pub item: Arc<Item>,
    pub live_count: Option<i64>,
}

/// Why a read has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    #[error("too many reads are waiting")]
    QueueFull,
    #[error("the ledger did not answer")]
    LedgerAway,
    #[error("the server is shutting down")]
    Closing,
}

/// A read in the queue.
pub(super) struct Waiting {
    pub item: ItemId,
    pub answer: oneshot::Sender<Result<Option<ItemRead>, ReadError>>,
}

/// Takes batch after batch, until the queue is closed.
pub(super) struct Lane {
    pub reader: ItemReader,
    pub link: Link,
}

impl Lane {
    pub async fn run(mut self, mut queue: mpsc::Receiver<Waiting>) {
        let mut batch = Vec::with_capacity(READ_BATCH_LIMIT_ITEMS);
        while take(&mut queue, &mut batch, READ_BATCH_LIMIT_ITEMS).await > 0 {
            self.answer(&mut batch).await;
        }
    }

    /// Answers every read of a batch, and leaves it empty.
    async fn answer(&mut self, batch: &mut Vec<Waiting>) {
        let mut items: Vec<ItemId> = batch.iter().map(|one| one.item).collect();
        items.sort_unstable();
        items.dedup();
        let mut reads: Vec<Option<ItemRead>> = vec![None; items.len()];
        let ended = self.read(&items, &mut reads).await;
        if let Err(error) = &ended {
            tracing::error!(%error, reads = batch.len(), "the ledger did not answer reads of items");
        }
        for one in batch.drain(..) {
            let read = items
                .binary_search(&one.item)
                .ok()
                .and_then(|at| reads[at].clone());
            let answer = match (read, &ended) {
                (None, Err(_)) => Err(ReadError::LedgerAway),
                (read, _) => Ok(read),
            };
            // Whoever no longer waits needs no answer.
            let _ = one.answer.send(answer);
        }
    }

    /// Fills in those of these items that exist. They are in order, each of them once.
    ///
    /// # Errors
    /// When Postgres is away; what could be read without it is filled in.
    async fn read(&mut self, items: &[ItemId], reads: &mut [Option<ItemRead>]) -> Result<(), LedgerError> {
        let names = self.reader.known_names(items);
        let is_new = |at: &usize| names[*at].is_none();
        let new: Vec<ItemId> = (0..items.len()).filter(is_new).map(|at| items[at]).collect();
        let (found, counts) = tokio::join!(self.reader.read(&new), self.link.read(items));
        // None at all while Redis is away: the link has logged that.
        let counts = counts.unwrap_or_else(|_| vec![None; items.len()]);
        let mut unsaved = Vec::new();
        for (at, name) in names.into_iter().enumerate() {
            let Some(name) = name else { continue };
            reads[at] = saved(items[at], name, counts[at]);
            if reads[at].is_none() {
                unsaved.push(items[at]);
            }
        }
        for item in found?.into_iter().chain(self.reader.read(&unsaved).await?) {
            if let Ok(at) = items.binary_search(&item.id) {
                reads[at] = Some(ItemRead {
                    item: Arc::new(item),
                    live_count: counts[at].map(|live| live.count),
                });
            }
        }
        Ok(())
    }
}

/// An item whose live count is saved, as it stands in Postgres.
fn saved(id: ItemId, name: Arc<str>, live: Option<LiveCount>) -> Option<ItemRead> {
    let LiveCount { count, saved } = live?;
    let item = Item {
        id,
        name,
        saved_count: count,
        counted_at: Some(saved?),
    };
    Some(ItemRead {
        item: Arc::new(item),
        live_count: Some(count),
    })
}
