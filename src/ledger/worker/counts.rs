//! Saves counts to the items.

use std::collections::HashSet;

use super::WorkerLedger;
use crate::domain::{CountToSave, ExactCount, ItemId};
use crate::ledger::LedgerError;
use crate::ledger::error::is_deadlock;
use crate::ledger::exact_counts::exact_counts;

/// Tries of a statement over many items that ends in a deadlock, at the most.
pub(super) const DEADLOCK_LIMIT_TRIES: u32 = 5;

/// Which items have the counts that were given for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Saved {
    All,
    Only(HashSet<ItemId>),
}

impl Saved {
    /// Whether this item, one of those given, has its count.
    pub fn contains(&self, item: ItemId) -> bool {
        match self {
            Self::All => true,
            Self::Only(items) => items.contains(&item),
        }
    }
}

impl WorkerLedger {
    /// The exact counts of these items, all under one snapshot. Each id may be given once;
    /// unknown items are left out.
    ///
    /// # Errors
    /// When Postgres is unavailable or too slow.
    pub async fn exact_counts(&self, items: &[ItemId]) -> Result<Vec<ExactCount>, LedgerError> {
        exact_counts(&self.database.pool, items).await
    }

    /// Writes counts behind to their items, each only if its revision is not below the
    /// item's `counted_at`. Each item may be given once.
    ///
    /// # Errors
    /// When Postgres is unavailable or too slow. Each item then has its old or its new count.
    pub async fn save_counts(&self, counts: &[CountToSave]) -> Result<Saved, LedgerError> {
        let ids: Vec<i64> = counts.iter().map(|one| one.item_id.get()).collect();
        let values: Vec<i64> = counts.iter().map(|one| one.count).collect();
        let revisions: Vec<i64> = counts.iter().map(|one| one.revision.micros()).collect();
        let mut tries = 1;
        let written = loop {
            let saved = sqlx::query_file!("src/ledger/sql/save_counts.sql", &ids, &values, &revisions)
                .execute(&self.database.pool)
                .await;
            match saved {
                Ok(done) => break done.rows_affected(),
                // Rows are locked in the order of their ids, so there is no deadlock as long as
                // the plan keeps that order. A count may be written twice.
                Err(error) if is_deadlock(&error) && tries < DEADLOCK_LIMIT_TRIES => {
                    tracing::debug!(tries, "a deadlock among workers: saving again");
                    tries += 1;
                }
                Err(error) => return Err(error.into()),
            }
        };
        if written == counts.len() as u64 {
            return Ok(Saved::All);
        }
        // Some items have a later `counted_at`. If a rebuild has written the same count, that
        // count is saved too. Otherwise each flush would try it again, until the next vote.
        let held = sqlx::query_file_scalar!("src/ledger/sql/held_counts.sql", &ids, &values, &revisions)
            .fetch_all(&self.database.pool)
            .await?;
        Ok(Saved::Only(held.into_iter().filter_map(ItemId::new).collect()))
    }
}
