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

/// Items with ids above `after`, up to `last`, of a bucket or several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemSpan {
    /// Their ids have one of these remainders when divided by this number.
    pub divisor: i64,
    pub remainders: Vec<i64>,
    pub after: i64,
    pub last: i64,
}

impl WorkerLedger {
    /// The lowest and the highest item id; 0 if there is none.
    pub async fn first_and_last_item(&self) -> Result<(i64, i64), LedgerError> {
        let found = sqlx::query!(
            r#"select coalesce(min(id), 0) as "first!", coalesce(max(id), 0) as "last!" from item"#
        )
        .fetch_one(&self.database.pool)
        .await?;
        Ok((found.first, found.last))
    }

    /// Up to `limit` item ids of this span, in order.
    pub async fn item_ids_of(&self, span: &ItemSpan, limit: i64) -> Result<Vec<ItemId>, LedgerError> {
        let ids = sqlx::query_scalar!(
            "select id from item where id > $1 and id <= $2 and id % $3 = any($4) order by id limit $5",
            span.after,
            span.last,
            span.divisor,
            &span.remainders,
            limit
        )
        .fetch_all(&self.database.pool)
        .await?;
        Ok(ids.into_iter().filter_map(ItemId::new).collect())
    }

    /// Of the first `limit` items of this span: those whose saved count is not the audited one.
    pub async fn items_behind_audit(&self, span: &ItemSpan, limit: i64) -> Result<Behind, LedgerError> {
        let found = sqlx::query_file!(
            "src/ledger/sql/items_behind_audit.sql",
            span.divisor,
            &span.remainders,
            span.after,
            span.last,
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
