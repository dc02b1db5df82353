//! Live counts for items that are read often. Without one, every read of an item asks Postgres.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::sleep;

use crate::domain::{Count, CountDelta, ItemId, TransactionId};
use crate::ledger::ServerLedger;
use crate::live::{CountReply, LiveCounts, Seed};
use crate::telemetry::name;

/// The most items that a thread seeds at once because they are read. The next reads of others seed them.
pub const READ_SEEDS_LIMIT_ITEMS: usize = 256;
/// How long a thread seeds none after a store failed.
const REST_AFTER_FAILURE: Duration = Duration::from_secs(1);

/// One thread's seeds of items that are read. They are made beside the reads, which do not wait for them.
pub(super) struct ReadSeeds {
    ledger: ServerLedger,
    live_counts: LiveCounts,
    /// One page of seeds at a time.
    turn: Arc<Semaphore>,
}

impl ReadSeeds {
    pub fn new(ledger: &ServerLedger, live_counts: &LiveCounts) -> Self {
        Self {
            ledger: ledger.clone(),
            live_counts: live_counts.clone(),
            turn: Arc::new(Semaphore::new(1)),
        }
    }

    /// Begins to seed the first of these items, which exist. Does nothing while earlier ones are being seeded.
    pub fn begin(&self, items: impl Iterator<Item = ItemId>) {
        let mut items = items.take(READ_SEEDS_LIMIT_ITEMS).peekable();
        if items.peek().is_none() {
            return;
        }
        let Ok(turn) = Arc::clone(&self.turn).try_acquire_owned() else {
            return;
        };
        let items: Vec<ItemId> = items.collect();
        let (ledger, live_counts) = (self.ledger.clone(), self.live_counts.clone());
        tokio::spawn(async move {
            if let Err(error) = seed(&ledger, &live_counts, &items).await {
                // Who reads and who votes says what is wrong with a store.
                tracing::debug!(%error, items = items.len(), "items that are read often were not seeded");
                sleep(REST_AFTER_FAILURE).await;
            }
            drop(turn);
        });
    }
}

/// Seeds the live counts that these items lack, as a batch does that adds nothing to them: its exact counts are read
/// under its leases. A seed that comes too late leaves the item to others.
async fn seed(ledger: &ServerLedger, live_counts: &LiveCounts, items: &[ItemId]) -> anyhow::Result<()> {
    let reading = |item: &ItemId| CountDelta {
        item_id: *item,
        delta: Count::ZERO,
    };
    let deltas: Vec<CountDelta> = items.iter().map(reading).collect();
    // Nothing is added, so the transaction does not matter.
    let replies = live_counts.count(&deltas, TransactionId(0)).await?;
    let leases = items.iter().zip(replies).filter_map(|(item, reply)| match reply {
        CountReply::Miss { lease } => Some((*item, lease)),
        CountReply::Count(_) | CountReply::Cold | CountReply::Unavailable => None,
    });
    let mut leases: HashMap<ItemId, String> = leases.collect();
    let leased: Vec<ItemId> = leases.keys().copied().collect();
    let exact = ledger.exact_counts(&leased).await?.into_iter();
    let seeds = exact.filter_map(|exact| leases.remove(&exact.item_id).map(|lease| Seed { exact, lease }));
    let seeds: Vec<Seed> = seeds.collect();
    if seeds.is_empty() {
        return Ok(());
    }
    let seeded = live_counts.seed(&seeds).await?;
    let seeded = seeded.into_iter().filter(|is_seeded| *is_seeded).count();
    metrics::counter!(name::SEEDS).increment(seeded as u64);
    Ok(())
}
