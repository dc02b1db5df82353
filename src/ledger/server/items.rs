//! Items: created once, read often.

use std::sync::Arc;

use sqlx::PgExecutor;
use tokio::time::timeout;

use super::ServerLedger;
use super::connection::DedicatedConnection;
use super::item_cache::ItemCache;
use crate::domain::{ExactCount, Item, ItemId, ItemName, Revision};
use crate::ledger::LedgerError;
use crate::ledger::connect::{ANSWER_MARGIN, KEPT_PLANS};
use crate::ledger::error::is_disconnect;
use crate::ledger::exact_counts::exact_counts;

/// Items in the cache of one reader, at the most: a few megabytes a reader, 40 MB if every
/// name is as long as a name may be.
pub(crate) const NAMES_LIMIT_ITEMS: usize = 50_000;

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
            name: row.name.into(),
            saved_count: row.vote_count,
            counted_at: row.counted_at.map(Revision::from_micros),
        })
    }
}

impl ServerLedger {
    /// Creates an item. Its name need not be unique.
    ///
    /// # Errors
    /// When Postgres is unavailable.
    pub async fn create_item(&self, name: &ItemName) -> Result<Item, LedgerError> {
        let row = sqlx::query_as!(
            Row,
            r#"insert into item (name) values ($1)
               returning id, name, vote_count, null::bigint as counted_at"#,
            name.as_str()
        )
        .fetch_one(&self.database.pool)
        .await?;
        Ok(row.try_into()?)
    }

    /// A reader of items, with a connection of its own.
    pub fn item_reader(&self) -> ItemReader {
        let options = self.database.options.clone().options([KEPT_PLANS]);
        ItemReader {
            connection: DedicatedConnection::new(
                options,
                self.database.session.clone(),
                self.database.statement_limit + ANSWER_MARGIN,
            ),
            names: ItemCache::new(NAMES_LIMIT_ITEMS),
        }
    }

    /// Up to `limit` items with ids above `after`, in the order of their ids; if `name` is
    /// given, only items with this name.
    ///
    /// # Errors
    /// When Postgres is unavailable.
    pub async fn items(&self, after: i64, limit: i64, name: Option<&str>) -> Result<Vec<Item>, LedgerError> {
        // Two statements: for `name is null or name = $3` in one, the planner could use neither
        // index well.
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
                .fetch_all(&self.database.pool)
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
                .fetch_all(&self.database.pool)
                .await?
            }
        };
        Ok(rows.into_iter().map(Item::try_from).collect::<Result<_, _>>()?)
    }

    /// The items among these that exist, in no order. Each id may be given once.
    ///
    /// # Errors
    /// When Postgres is unavailable or too slow.
    pub async fn items_by_id(&self, ids: &[ItemId]) -> Result<Vec<Item>, LedgerError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<i64> = ids.iter().map(|id| id.get()).collect();
        Ok(find(&self.database.pool, &ids).await?.into_items()?)
    }

    /// The exact counts of these items, all under one snapshot. Each id may be given once;
    /// unknown items are left out.
    ///
    /// # Errors
    /// When Postgres is unavailable or too slow.
    pub async fn exact_counts(&self, items: &[ItemId]) -> Result<Vec<ExactCount>, LedgerError> {
        exact_counts(&self.database.pool, items).await
    }
}

/// Reads items by their ids, many at once, over a connection of its own. Over a connection of
/// the pool, each batch would be planned again, and the connection tested first.
pub struct ItemReader {
    connection: DedicatedConnection,
    /// Names that were read over this connection.
    names: ItemCache<Arc<str>>,
}

impl ItemReader {
    /// The names of these items, in their order; `None` for an item that is not in the cache.
    pub fn cached_names(&mut self, ids: &[ItemId]) -> Vec<Option<Arc<str>>> {
        let names = self.names.of(ids.iter().map(|id| id.get()));
        names.into_iter().map(|name| name.cloned()).collect()
    }

    /// The items among these that exist, in no order. Each id may be given once.
    ///
    /// # Errors
    /// When Postgres is unavailable or too slow.
    pub async fn read(&mut self, ids: &[ItemId]) -> Result<Vec<Item>, LedgerError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<i64> = ids.iter().map(|id| id.get()).collect();
        let found = loop {
            let (mut connection, was_kept) = self.connection.take().await?;
            if !was_kept {
                self.names.clear();
            }
            let limit = self.connection.answer_limit;
            match timeout(limit, find(&mut connection, &ids)).await {
                Ok(Ok(found)) => {
                    self.connection.keep(connection);
                    break found;
                }
                // Postgres was restarted, for example. To read again does no harm.
                Ok(Err(error)) if was_kept && is_disconnect(&error) => {}
                Ok(Err(error)) => return Err(error.into()),
                Err(_) => return Err(LedgerError::Timeout(limit)),
            }
        };
        let items = found.into_items()?;
        let names = items.iter().map(|item| (item.id.get(), Arc::clone(&item.name)));
        self.names.add(names);
        Ok(items)
    }
}

/// Columns of items; `None` when no item was found.
struct Columns {
    ids: Option<Vec<i64>>,
    names: Option<Vec<String>>,
    vote_counts: Option<Vec<i64>>,
    counted_at: Option<Vec<Option<i64>>>,
}

impl Columns {
    fn into_items(self) -> Result<Vec<Item>, sqlx::Error> {
        let columns = self.names.unwrap_or_default().into_iter();
        let columns = columns
            .zip(self.vote_counts.unwrap_or_default())
            .zip(self.counted_at.unwrap_or_default());
        let rows = self.ids.unwrap_or_default().into_iter().zip(columns);
        rows.map(|(id, ((name, vote_count), counted_at))| {
            Item::try_from(Row {
                id,
                name,
                vote_count,
                counted_at,
            })
        })
        .collect()
    }
}

/// One row of arrays: with a row for each item, to decode would cost more than to read.
async fn find(executor: impl PgExecutor<'_>, ids: &[i64]) -> Result<Columns, sqlx::Error> {
    sqlx::query_as!(
        Columns,
        r#"select array_agg(id) as ids, array_agg(name) as names, array_agg(vote_count) as vote_counts,
                  array_agg((extract(epoch from counted_at) * 1000000)::bigint)
                      as "counted_at: Vec<Option<i64>>"
           from item where id = any($1)"#,
        ids
    )
    .fetch_one(executor)
    .await
}
