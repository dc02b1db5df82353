//! Exact counts out of the ledger, and saved counts into the items.

use std::collections::HashSet;

use sqlx::PgExecutor;

use super::{Ledger, LedgerError};
use crate::domain::{CountToSave, ExactCount, ItemId, Rev, Snapshot};

impl Ledger {
    /// The exact counts of these items, all under one snapshot. Each id may be
    /// given once; unknown items are left out.
    ///
    /// # Errors
    /// When Postgres is away or too slow.
    pub async fn exact_counts(&self, items: &[ItemId]) -> Result<Vec<ExactCount>, LedgerError> {
        exact_counts(&self.pool, items).await
    }

    /// Writes counts behind to their items, each only if its rev is not below the
    /// item's `counted_at`. Each item may be given once.
    ///
    /// # Errors
    /// When Postgres is away or too slow; each item then has its old or its new count.
    pub async fn save_counts(&self, counts: &[CountToSave]) -> Result<Saved, LedgerError> {
        let ids: Vec<i64> = counts.iter().map(|one| one.item_id.get()).collect();
        let values: Vec<i64> = counts.iter().map(|one| one.count).collect();
        let revs: Vec<i64> = counts.iter().map(|one| one.rev.micros()).collect();
        let mut tries = 1;
        let written = loop {
            let saved = sqlx::query_file!("src/ledger/sql/save_counts.sql", &ids, &values, &revs)
                .execute(&self.pool)
                .await;
            match saved {
                Ok(done) => break done.rows_affected(),
                // Rows are locked in the order of ids, which rules it out as long as
                // the plan keeps that order. To write a count twice is the same as once.
                Err(error) if is_deadlock(&error) && tries < DEADLOCK_LIMIT_TRIES => {
                    tracing::debug!(tries, "a deadlock among workers: writing again");
                    tries += 1;
                }
                Err(error) => return Err(error.into()),
            }
        };
        if written == counts.len() as u64 {
            return Ok(Saved::All);
        }
        // Some were turned away. Where a recount came first and wrote the same count,
        // it is saved all the same; without this it would be tried, and turned away,
        // until its next vote.
        let held = sqlx::query_file_scalar!("src/ledger/sql/held_counts.sql", &ids, &values, &revs)
            .fetch_all(&self.pool)
            .await?;
        Ok(Saved::Only(held.into_iter().filter_map(ItemId::new).collect()))
    }
}

/// How often a statement over many items is tried when others wait for it in a circle.
pub(super) const DEADLOCK_LIMIT_TRIES: u32 = 5;

/// Which items hold the counts that were given for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Saved {
    All,
    Only(HashSet<ItemId>),
}

impl Saved {
    /// Whether this item, one of those given, holds its count.
    pub fn contains(&self, item: ItemId) -> bool {
        match self {
            Self::All => true,
            Self::Only(items) => items.contains(&item),
        }
    }
}

/// Whether Postgres ended a statement because others waited for it, and it for them.
pub(super) fn is_deadlock(error: &sqlx::Error) -> bool {
    const DEADLOCK_DETECTED: &str = "40P01";
    error
        .as_database_error()
        .is_some_and(|error| error.code().as_deref() == Some(DEADLOCK_DETECTED))
}

/// Reads exact counts over the pool, or over a lane's own connection.
pub(super) async fn exact_counts(
    executor: impl PgExecutor<'_>,
    items: &[ItemId],
) -> Result<Vec<ExactCount>, LedgerError> {
    let ids: Vec<i64> = items.iter().map(|item| item.get()).collect();
    let rows = sqlx::query_file!("src/ledger/sql/exact_counts.sql", &ids)
        .fetch_all(executor)
        .await?;
    // All rows carry the same snapshot: parse it once.
    let Some(first) = rows.first() else {
        return Ok(Vec::new());
    };
    let snapshot = Snapshot::parse(&first.snapshot)?;
    Ok(rows
        .iter()
        .filter_map(|row| {
            Some(ExactCount {
                item_id: ItemId::new(row.item_id)?,
                count: row.count,
                counted_at: Rev::from_micros(row.counted_at),
                snapshot: snapshot.clone(),
            })
        })
        .collect())
}
