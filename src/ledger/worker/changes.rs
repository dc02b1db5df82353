//! What votes changed, and when: on each item lately and by day, and on all items together. Roll-ups add to
//! these sums, for top lists, histories and reports.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::WorkerLedger;
use super::jobs::JobLease;
use super::spread::Statements;
use crate::ledger::LedgerError;
use crate::ledger::pool::InUse;

/// The most rows of five minutes that one statement merges. Each hour, all rows of the hour before the
/// last become old at once: twelve of each item.
const MERGE_LIMIT_ROWS: i64 = 2500;
/// The most items whose hours one statement moves into their day. An item has at most 24 rows of a day.
const MOVE_LIMIT_ITEMS: i64 = 250;

/// How many spans a quarter of an hour has. The offset of every time zone in use is whole quarters.
const SPANS_OF_A_QUARTER: i64 = 3;

/// An item, and the span in which its votes were cast: how many five minutes had passed since 1970.
pub(super) type ItemSpan = (i64, i64);

/// What some rows of the ledger change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    /// Up-votes less down-votes: the sum of the rows' values.
    pub net: i64,
    pub downs_cast: i64,
    pub ups_taken_back: i64,
    pub downs_taken_back: i64,
}

impl Change {
    /// Down-votes that were cast, less those that were taken back.
    pub fn downs(self) -> i64 {
        self.downs_cast - self.downs_taken_back
    }

    /// Up-votes that were cast, less those that were taken back.
    fn ups(self) -> i64 {
        self.net + self.downs()
    }

    pub fn add(&mut self, other: Self) {
        self.net += other.net;
        self.downs_cast += other.downs_cast;
        self.ups_taken_back += other.ups_taken_back;
        self.downs_taken_back += other.downs_taken_back;
    }
}

/// Changes, as the statements take them: a column each.
#[derive(Debug, Default)]
struct Columns {
    ups: Vec<i64>,
    downs: Vec<i64>,
    ups_taken_back: Vec<i64>,
    downs_taken_back: Vec<i64>,
}

impl<'a> FromIterator<&'a Change> for Columns {
    fn from_iter<T: IntoIterator<Item = &'a Change>>(changes: T) -> Self {
        let mut columns = Self::default();
        for change in changes {
            columns.ups.push(change.ups());
            columns.downs.push(change.downs());
            columns.ups_taken_back.push(change.ups_taken_back);
            columns.downs_taken_back.push(change.downs_taken_back);
        }
        columns
    }
}

/// Adds changes: to the recent ones from the span `first_recent` on, to those by day before it, and all
/// to those of all items together.
pub(super) async fn add_changes(
    connection: &mut InUse,
    changes: &BTreeMap<ItemSpan, Change>,
    first_recent: i64,
    statements: &mut Statements,
) -> Result<(), LedgerError> {
    let (recent, old): (Vec<_>, Vec<_>) = changes.iter().partition(|((_, span), _)| *span >= first_recent);
    for (some, are_recent) in [(recent, true), (old, false)] {
        for some in some.chunks(statements.limit_rows()) {
            let started = Instant::now();
            let items: Vec<i64> = some.iter().map(|((item, _), _)| *item).collect();
            let spans: Vec<i64> = some.iter().map(|((_, span), _)| *span).collect();
            let columns: Columns = some.iter().map(|(_, change)| *change).collect();
            let Columns {
                ups,
                downs,
                ups_taken_back,
                downs_taken_back,
            } = columns;
            if are_recent {
                sqlx::query_file!(
                    "src/ledger/sql/add_recent_changes.sql",
                    &items,
                    &spans,
                    &ups,
                    &downs,
                    &ups_taken_back,
                    &downs_taken_back
                )
                .execute(&mut *connection)
                .await?;
            } else {
                sqlx::query_file!(
                    "src/ledger/sql/add_day_changes.sql",
                    &items,
                    &spans,
                    &ups,
                    &downs,
                    &ups_taken_back,
                    &downs_taken_back
                )
                .execute(&mut *connection)
                .await?;
            }
            statements.rest_after(started.elapsed()).await;
        }
    }
    let quarters = by_quarter(changes);
    let spans: Vec<i64> = quarters.keys().copied().collect();
    let columns: Columns = quarters.values().collect();
    sqlx::query_file!(
        "src/ledger/sql/add_total_changes.sql",
        &spans,
        &columns.ups,
        &columns.downs,
        &columns.ups_taken_back,
        &columns.downs_taken_back
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Pure: the changes of all items together, by quarter of an hour.
fn by_quarter(changes: &BTreeMap<ItemSpan, Change>) -> BTreeMap<i64, Change> {
    let mut quarters: BTreeMap<i64, Change> = BTreeMap::new();
    for ((_, span), change) in changes {
        // Also before 1970.
        let quarter = span.div_euclid(SPANS_OF_A_QUARTER);
        quarters.entry(quarter).or_default().add(*change);
    }
    quarters
}

impl WorkerLedger {
    /// Merges the recent changes that are older than an hour into hours, and moves those of days that ended
    /// 25 hours ago into the changes by day. Works under the lease of [`super::Job::RollUp`]. Returns
    /// whether there may be more.
    ///
    /// # Errors
    /// When the lease is lost ([`Overtaken::LeaseLost`](crate::ledger::Overtaken::LeaseLost)).
    pub async fn merge_changes(&self, lease: &JobLease) -> Result<bool, LedgerError> {
        let merged = sqlx::query_file!(
            "src/ledger/sql/merge_changes.sql",
            lease.number(),
            lease.holder(),
            MERGE_LIMIT_ROWS,
            MOVE_LIMIT_ITEMS
        )
        .fetch_one(&self.database.pool)
        .await?;
        if !merged.is_held {
            return Err(lease.lost());
        }
        Ok(merged.is_more)
    }
}
