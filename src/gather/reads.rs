//! Reads of single items: each batch is one statement and one pipeline, however many
//! ask, and an item that many ask for is read once.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::take;
use crate::domain::ItemId;
use crate::ledger::{Item, ItemReader};
use crate::live::Link;

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
        let (rows, counts) = tokio::join!(self.reader.read(&items), self.link.read(&items));
        let rows = match rows {
            Ok(rows) => rows,
            Err(error) => {
                tracing::error!(%error, reads = batch.len(), "the ledger did not answer reads of items");
                for one in batch.drain(..) {
                    // Whoever no longer waits needs no answer.
                    let _ = one.answer.send(Err(ReadError::LedgerAway));
                }
                return;
            }
        };
        // None at all while Redis is away: the link has logged that.
        let counts: HashMap<ItemId, i64> = items
            .iter()
            .zip(counts.unwrap_or_default())
            .filter_map(|(item, count)| Some((*item, count?)))
            .collect();
        let reads: HashMap<ItemId, ItemRead> = rows
            .into_iter()
            .map(|item| {
                let live_count = counts.get(&item.id).copied();
                let item = Arc::new(item);
                (item.id, ItemRead { item, live_count })
            })
            .collect();
        for one in batch.drain(..) {
            let _ = one.answer.send(Ok(reads.get(&one.item).cloned()));
        }
    }
}
