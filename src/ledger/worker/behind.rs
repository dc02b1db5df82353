//! Items whose saved counts may lack votes: who enters an epoch looks closely at these alone.

use super::WorkerLedger;
use crate::domain::ItemId;
use crate::ledger::LedgerError;

/// A page of items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behind {
    /// Those whose saved count is not the audited one.
    pub items: Vec<ItemId>,
    /// The last item of the page; `None`: there was none.
    pub last: Option<i64>,
}

impl WorkerLedger {
    /// Of the next `limit` items above `after` whose ids have one of these remainders when divided by this number: those
    /// whose saved count is not the audited one.
    pub async fn items_behind_audit(
        &self,
        divisor: i64,
        remainders: &[i64],
        after: i64,
        limit: i64,
    ) -> Result<Behind, LedgerError> {
        let found = sqlx::query_file!(
            "src/ledger/sql/items_behind_audit.sql",
            divisor,
            remainders,
            after,
            limit
        )
        .fetch_one(&self.database.pool)
        .await?;
        Ok(Behind {
            items: found.items.into_iter().filter_map(ItemId::new).collect(),
            last: found.last,
        })
    }
}
