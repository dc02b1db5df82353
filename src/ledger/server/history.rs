//! Recent changes of counts.

use super::ServerLedger;
use crate::domain::{Count, History, HistoryOver, ItemHistory, ItemId, Moment, Span};
use crate::ledger::LedgerError;

impl ServerLedger {
    /// The recent changes of these items' counts, each item's spans in the order of time. At least one item.
    pub async fn history(&self, items: &[ItemId], over: HistoryOver) -> Result<History, LedgerError> {
        let ids: Vec<i64> = items.iter().map(|id| id.get()).collect();
        let is_hour = over == HistoryOver::Hour;
        let rows = sqlx::query_file!("src/ledger/sql/changes_of_items.sql", &ids, is_hour)
            .fetch_all(&self.public)
            .await?;
        let mut history = History {
            since: Moment::from_micros(rows.first().map_or(0, |row| row.since)),
            as_of: rows
                .first()
                .and_then(|row| row.summed_at)
                .map(Moment::from_micros),
            of_items: Vec::with_capacity(items.len()),
        };
        for row in rows {
            // The rows of an item stand together, and each item has one.
            if usize::try_from(row.at).is_ok_and(|at| at > history.of_items.len()) {
                history.of_items.push(ItemHistory {
                    total: Count {
                        net: row.vote_count,
                        downs: row.down_count,
                    },
                    spans: Vec::new(),
                });
            }
            let span = (row.starts_at, row.minutes, row.ups, row.downs);
            let (Some(item), (Some(starts_at), Some(minutes), Some(ups), Some(downs))) =
                (history.of_items.last_mut(), span)
            else {
                continue;
            };
            item.spans.push(Span {
                starts_at: Moment::from_micros(starts_at),
                minutes,
                change: Count {
                    net: ups - downs,
                    downs,
                },
            });
        }
        Ok(history)
    }
}
