//! Exact counts out of the ledger, and saved counts into the items.

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
    /// item's `counted_at`. Returns the items whose saved count is now the given one.
    ///
    /// # Errors
    /// When Postgres is away or too slow; each item then has its old or its new count.
    pub async fn save_counts(&self, counts: &[CountToSave]) -> Result<Vec<ItemId>, LedgerError> {
        let ids: Vec<i64> = counts.iter().map(|one| one.item_id.get()).collect();
        let values: Vec<i64> = counts.iter().map(|one| one.count).collect();
        let revs: Vec<i64> = counts.iter().map(|one| one.rev.micros()).collect();
        let saved = sqlx::query_file_scalar!("src/ledger/sql/save_counts.sql", &ids, &values, &revs)
            .fetch_all(&self.pool)
            .await?;
        Ok(saved.into_iter().filter_map(ItemId::new).collect())
    }
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
