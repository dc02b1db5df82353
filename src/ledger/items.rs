//! Items: made once, read often.

use super::{Ledger, LedgerError};
use crate::domain::{ItemId, ItemName, Rev};

/// An item as it stands in Postgres.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    pub id: ItemId,
    pub name: String,
    /// The saved count.
    pub saved_count: i64,
    /// When the saved count's last change was; `None` if it was never saved.
    pub counted_at: Option<Rev>,
}

struct Row {
    id: i64,
    name: String,
    vote_count: i64,
    counted_at: Option<i64>,
}

impl TryFrom<Row> for Item {
    type Error = sqlx::Error;

    fn try_from(row: Row) -> Result<Self, sqlx::Error> {
        let id = ItemId::new(row.id)
            .ok_or_else(|| sqlx::Error::Decode(format!("item id {} is not positive", row.id).into()))?;
        Ok(Self {
            id,
            name: row.name,
            saved_count: row.vote_count,
            counted_at: row.counted_at.map(Rev::from_micros),
        })
    }
}

impl Ledger {
    /// Makes an item. Its name need not be unique.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn create_item(&self, name: &ItemName) -> Result<Item, LedgerError> {
        let row = sqlx::query_as!(
            Row,
            r#"insert into item (name) values ($1)
               returning id, name, vote_count, null::bigint as counted_at"#,
            name.as_str()
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(row.try_into()?)
    }

    /// Those of these items that exist, in no order. Each id may be given once.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn items_by_id(&self, ids: &[ItemId]) -> Result<Vec<Item>, LedgerError> {
        let ids: Vec<i64> = ids.iter().map(|id| id.get()).collect();
        let rows = sqlx::query_as!(
            Row,
            r#"select id, name, vote_count,
                      (extract(epoch from counted_at) * 1000000)::bigint as counted_at
               from item where id = any($1)"#,
            &ids
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows.into_iter().map(Item::try_from).collect::<Result<_, _>>()?)
    }

    /// Up to `limit` items with ids above `after`, in the order of their ids;
    /// only those named `name`, if one is given.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn items(&self, after: i64, limit: i64, name: Option<&str>) -> Result<Vec<Item>, LedgerError> {
        // Two statements: with `name is null or name = $3` in one, the planner
        // could use neither index well.
        let rows = match name {
            None => {
                sqlx::query_as!(
                    Row,
                    r#"select id, name, vote_count,
                              (extract(epoch from counted_at) * 1000000)::bigint as counted_at
                       from item where id > $1 order by id limit $2"#,
                    after,
                    limit
                )
                .fetch_all(&self.pool)
                .await?
            }
            Some(name) => {
                sqlx::query_as!(
                    Row,
                    r#"select id, name, vote_count,
                              (extract(epoch from counted_at) * 1000000)::bigint as counted_at
                       from item where name = $3 and id > $1 order by id limit $2"#,
                    after,
                    limit,
                    name
                )
                .fetch_all(&self.pool)
                .await?
            }
        };
        Ok(rows.into_iter().map(Item::try_from).collect::<Result<_, _>>()?)
    }

    /// Up to `limit` item ids above `after`, in order.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn item_ids(&self, after: i64, limit: i64) -> Result<Vec<ItemId>, LedgerError> {
        let ids = sqlx::query_scalar!(
            "select id from item where id > $1 order by id limit $2",
            after,
            limit
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(ids.into_iter().filter_map(ItemId::new).collect())
    }
}
