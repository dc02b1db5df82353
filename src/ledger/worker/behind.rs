//! Items whose saved counts may lack votes: who enters an epoch looks at these alone.

use super::WorkerLedger;
use crate::domain::{ItemId, VoteId};
use crate::ledger::LedgerError;

/// The most votes whose items one statement reads.
const VOTED_LIMIT_VOTES: i64 = 50_000;

/// Some items, and where the next ones begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behind {
    /// Each once.
    pub items: Vec<ItemId>,
    /// What was looked at last; `None`: there was nothing more.
    pub last: Option<i64>,
}

impl WorkerLedger {
    /// The last vote that is in the audited counts, with all before it.
    pub async fn rolled_up_vote_id(&self) -> Result<VoteId, LedgerError> {
        let id = sqlx::query_scalar!("select vote_id from watermark")
            .fetch_one(&self.database.pool)
            .await?;
        Ok(VoteId::new(id))
    }

    /// Of the next `limit` items above `after` whose ids have one of these remainders when divided by this number: those
    /// whose saved count is not the audited one. `last` is an item.
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

    /// The items of the next votes behind this one. `last` is a vote.
    pub async fn items_voted_after(&self, after: VoteId) -> Result<Behind, LedgerError> {
        let found = sqlx::query_file!(
            "src/ledger/sql/items_voted_after.sql",
            after.get(),
            VOTED_LIMIT_VOTES
        )
        .fetch_one(&self.database.pool)
        .await?;
        Ok(Behind {
            items: found.items.into_iter().filter_map(ItemId::new).collect(),
            last: found.last,
        })
    }
}
