//! The rows of items, as statements read them.

use std::collections::HashMap;
use std::sync::Arc;

use sqlx::PgExecutor;

use crate::domain::{Count, Item, ItemId, ItemRules, Moment, PollId, Revision};
use crate::ledger::LedgerError;

/// An item's row, without its rules.
pub(super) struct ItemRow {
    pub id: i64,
    pub name: String,
    pub vote_count: i64,
    pub down_count: i64,
    pub counted_at: Option<i64>,
    pub key: Option<String>,
    pub is_hidden: bool,
    /// Whether the item has rules other than the default ones.
    pub has_rules: bool,
}

impl TryFrom<ItemRow> for Item {
    type Error = sqlx::Error;

    fn try_from(row: ItemRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            id: item_id(row.id)?,
            name: row.name.into(),
            key: row.key.map(Into::into),
            is_hidden: row.is_hidden,
            rules: None,
            saved_count: Count {
                net: row.vote_count,
                downs: row.down_count,
            },
            counted_at: row.counted_at.map(Revision::from_micros),
        })
    }
}

/// Columns of items; `None` when no item was found.
pub(super) struct Columns {
    ids: Option<Vec<i64>>,
    names: Option<Vec<String>>,
    vote_counts: Option<Vec<i64>>,
    down_counts: Option<Vec<i64>>,
    counted_at: Option<Vec<Option<i64>>>,
    keys: Option<Vec<Option<String>>>,
    are_hidden: Option<Vec<bool>>,
    have_rules: Option<Vec<bool>>,
}

impl Columns {
    pub fn into_rows(self) -> Vec<ItemRow> {
        let columns = self.names.unwrap_or_default().into_iter();
        let columns = columns
            .zip(self.vote_counts.unwrap_or_default())
            .zip(self.down_counts.unwrap_or_default())
            .zip(self.counted_at.unwrap_or_default())
            .zip(self.keys.unwrap_or_default())
            .zip(self.are_hidden.unwrap_or_default())
            .zip(self.have_rules.unwrap_or_default());
        let rows = self.ids.unwrap_or_default().into_iter().zip(columns);
        rows.map(
            |(id, ((((((name, vote_count), down_count), counted_at), key), is_hidden), has_rules))| ItemRow {
                id,
                name,
                vote_count,
                down_count,
                counted_at,
                key,
                is_hidden,
                has_rules,
            },
        )
        .collect()
    }
}

pub(super) fn item_id(id: i64) -> Result<ItemId, sqlx::Error> {
    ItemId::new(id).ok_or_else(|| sqlx::Error::Decode(format!("item id {id} is not positive").into()))
}

/// Reads the rules of items that have any. Most have none.
pub(super) async fn with_rules(
    executor: impl PgExecutor<'_>,
    rows: Vec<ItemRow>,
) -> Result<Vec<Item>, LedgerError> {
    let ruled: Vec<i64> = rows
        .iter()
        .filter(|row| row.has_rules)
        .map(|row| row.id)
        .collect();
    let mut items: Vec<Item> = rows.into_iter().map(Item::try_from).collect::<Result<_, _>>()?;
    if ruled.is_empty() {
        return Ok(items);
    }
    let rows = sqlx::query_file!("src/ledger/sql/item_rules.sql", &ruled)
        .fetch_all(executor)
        .await?;
    let mut rules: HashMap<i64, ItemRules> = rows
        .into_iter()
        .map(|row| {
            let rules = ItemRules {
                takes_down_votes: row.takes_down_votes,
                max_votes: row.max_votes,
                is_numbered: row.is_numbered,
                opens_at: row.opens_at.map(Moment::from_micros),
                closes_at: row.closes_at.map(Moment::from_micros),
                by_ballot: row.by_ballot,
                poll: row.poll_id.and_then(PollId::new),
                hides_count: row.hides_count,
            };
            (row.item_id, rules)
        })
        .collect();
    for item in &mut items {
        item.rules = rules.remove(&item.id.get()).map(Arc::new);
    }
    Ok(items)
}

/// One row of arrays. With a row for each item, decoding would cost more than reading.
pub(super) async fn find(executor: impl PgExecutor<'_>, ids: &[i64]) -> Result<Columns, sqlx::Error> {
    sqlx::query_as!(
        Columns,
        r#"select array_agg(id) as ids, array_agg(name) as names, array_agg(vote_count) as vote_counts,
                  array_agg(down_count) as down_counts,
                  array_agg((extract(epoch from counted_at) * 1000000)::bigint)
                      as "counted_at: Vec<Option<i64>>",
                  array_agg(key) as "keys: Vec<Option<String>>", array_agg(is_hidden) as are_hidden,
                  array_agg(rule_id is not null or not takes_down_votes) as have_rules
           from item where id = any($1)"#,
        ids
    )
    .fetch_one(executor)
    .await
}
