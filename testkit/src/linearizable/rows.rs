//! What the ledger says happened: rows, and the requests that stored them.

use std::collections::BTreeSet;

use sqlx::PgExecutor;

use super::items::{Effect, Stored, Vote};
use super::polls::Choices;

/// A row of `vote`.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub id: i64,
    pub item: i64,
    /// `None`: the vote has no voter.
    pub voter: Option<u32>,
    pub value: i64,
    /// Even: the row casts a vote. Odd: the row takes back the vote before it.
    pub change_number: i16,
    pub number: Option<i64>,
    /// The transaction that stored the row.
    /// In a transaction, a voter has at most one request on an item or in a poll.
    pub transaction: i64,
}

/// The rows of these items, in the order of their ids.
/// A voter's number follows the hyphen at the end of the voter's name.
///
/// # Errors
/// When Postgres does not answer.
pub async fn of_items(owner: impl PgExecutor<'_>, items: &[i64]) -> Result<Vec<Row>, sqlx::Error> {
    type Columns = (i64, i64, Option<i32>, i64, i16, Option<i64>, i64);
    let rows: Vec<Columns> = sqlx::query_as(
        "select id, item_id, substring(voter_id from '-([0-9]+)$')::int, value::bigint, change_number, number,
                xmin::text::bigint
         from vote where item_id = any($1) order by id",
    )
    .bind(items)
    .fetch_all(owner)
    .await?;
    let row = |(id, item, voter, value, change_number, number, transaction): Columns| Row {
        id,
        item,
        voter: voter.and_then(|voter| u32::try_from(voter).ok()),
        value,
        change_number,
        number,
        transaction,
    };
    Ok(rows.into_iter().map(row).collect())
}

/// What happened to an item with a rule, in the order of ids.
pub fn of_item(rows: &[Row], item: i64) -> Vec<Effect> {
    let rows: Vec<Row> = rows.iter().filter(|row| row.item == item).copied().collect();
    effects(&rows)
}

/// What a voter did on an item without a rule, in the order of change numbers.
pub fn of_voter(rows: &[Row], item: i64, voter: u32) -> Vec<Effect> {
    let is_of = |row: &&Row| row.item == item && row.voter == Some(voter);
    let mut rows: Vec<Row> = rows.iter().filter(is_of).copied().collect();
    rows.sort_by_key(|row| row.change_number);
    effects(&rows)
}

fn effects(rows: &[Row]) -> Vec<Effect> {
    let mut effects = Vec::new();
    let mut rows = rows.iter().peekable();
    while let Some(row) = rows.next() {
        let vote = |row: &Row| Vote {
            id: row.id,
            value: row.value,
            number: row.number,
        };
        let is_change = |next: &&Row| {
            row.voter.is_some()
                && (next.voter, next.transaction) == (row.voter, row.transaction)
                && next.change_number == row.change_number + 1
        };
        let stored = if row.change_number % 2 == 0 {
            Stored::New(vote(row))
        } else if let Some(next) = rows.next_if(is_change) {
            Stored::Changed(vote(next))
        } else {
            Stored::TakenBack(row.id)
        };
        effects.push(Effect {
            voter: row.voter,
            stored,
        });
    }
    effects
}

/// What a voter held in a poll of these items, after each of the voter's changes.
pub fn of_poll(rows: &[Row], items: &[i64], voter: u32) -> Vec<Choices> {
    let is_of = |row: &&Row| items.contains(&row.item) && row.voter == Some(voter);
    let rows: Vec<Row> = rows.iter().filter(is_of).copied().collect();
    let mut held: Choices = BTreeSet::new();
    rows.chunk_by(|one, next| one.transaction == next.transaction)
        .map(|change| {
            for row in change {
                if row.change_number % 2 == 0 {
                    held.insert(row.item);
                } else {
                    held.remove(&row.item);
                }
            }
            held.clone()
        })
        .collect()
}
