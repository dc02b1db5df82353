//! Receipts: what became of a vote.

use super::ServerLedger;
use super::decisions::VoteRow;
use crate::domain::{ApiKeyId, ArchiveId, ItemId, VoteId};
use crate::ledger::LedgerError;

/// A vote's row, as a receipt shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    pub row: VoteRow,
    /// Whether all batch writers have noted that their votes up to this one are counted.
    pub is_counted: bool,
}

impl ServerLedger {
    /// The receipt of this vote; `None`: there is none, or its poll hides its results.
    pub async fn receipt(&self, id: VoteId) -> Result<Option<Receipt>, LedgerError> {
        let row = sqlx::query_file!("src/ledger/sql/receipt.sql", id.get())
            .fetch_optional(&self.database.pool)
            .await?;
        Ok(row.and_then(|row| {
            Some(Receipt {
                row: VoteRow {
                    id,
                    item_id: ItemId::new(row.item_id)?,
                    value: row.value,
                    change_number: row.change_number,
                    number: row.number,
                },
                is_counted: row.is_counted,
            })
        }))
    }

    /// An archive that has votes before this one and behind it, or this one; `None`: there is none.
    pub async fn archive_around(&self, id: VoteId) -> Result<Option<ArchiveId>, LedgerError> {
        let found = sqlx::query_scalar!(
            "select id from archive where dropped_total > 0 and $1 between first_vote_id and last_vote_id limit 1",
            id.get()
        )
        .fetch_optional(&self.database.pool)
        .await?;
        Ok(found.map(ArchiveId))
    }

    /// The archive that this item's votes are in, or will be in; `None`: none.
    pub async fn archive_of(&self, item: ItemId) -> Result<Option<ArchiveId>, LedgerError> {
        let found = sqlx::query_scalar!(
            "select archive_id from archived_item where item_id = $1",
            item.get()
        );
        let found = found.fetch_optional(&self.database.pool).await?;
        Ok(found.map(ArchiveId))
    }

    /// The API key that this vote was cast with; `None`: none, or the row is no vote.
    pub async fn api_key_of(&self, id: VoteId) -> Result<Option<ApiKeyId>, LedgerError> {
        let found = sqlx::query_file_scalar!("src/ledger/sql/api_key_of_vote.sql", id.get())
            .fetch_optional(&self.database.pool)
            .await?;
        Ok(found.map(ApiKeyId))
    }
}
