//! Exact counts: the ledger's sums, read under one snapshot.

use sqlx::PgExecutor;

use super::LedgerError;
use crate::domain::{Count, ExactCount, ItemId, Revision, Snapshot};

/// Reads the exact counts of these items. Works over the pool or a batch writer's connection. Each
/// id may be given once. Unknown items are left out.
pub(super) async fn exact_counts(
    executor: impl PgExecutor<'_>,
    items: &[ItemId],
) -> Result<Vec<ExactCount>, LedgerError> {
    let ids: Vec<i64> = items.iter().map(|item| item.get()).collect();
    let rows = sqlx::query_file!("src/ledger/sql/exact_counts.sql", &ids)
        .fetch_all(executor)
        .await?;
    // All rows have the same snapshot: parse it once.
    let Some(first) = rows.first() else {
        return Ok(Vec::new());
    };
    let snapshot = Snapshot::parse(&first.snapshot)?;
    Ok(rows
        .iter()
        .filter_map(|row| {
            Some(ExactCount {
                item_id: ItemId::new(row.item_id)?,
                count: Count {
                    net: row.count,
                    downs: row.down_count,
                },
                counted_at: row.counted_at.map(Revision::from_micros),
                snapshot: snapshot.clone(),
            })
        })
        .collect())
}
