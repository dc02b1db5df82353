//! Recent changes of counts.

use super::ServerLedger;
use crate::domain::{Count, History, HistoryOver, ItemId, Moment, Span};
use crate::ledger::LedgerError;

impl ServerLedger {
    /// The recent changes of these items' counts, each item's spans in the order of time.
    pub async fn history(&self, items: &[ItemId], over: HistoryOver) -> Result<History, LedgerError> {
        // Begins in full five minutes or full hours, as top lists do.
        let times = sqlx::query!(
            r#"select (extract(epoch from date_bin('5 minutes', now() - interval '1 hour', timestamptz 'epoch')) * 1000000)::bigint as "hour!",
                      (extract(epoch from date_bin('1 hour', now() - interval '1 day', timestamptz 'epoch')) * 1000000)::bigint as "day!",
                      (select (extract(epoch from reached_at) * 1000000)::bigint from watermark) as "summed_at""#
        )
        .fetch_one(&self.public)
        .await?;
        let since = match over {
            HistoryOver::Hour => times.hour,
            HistoryOver::Day => times.day,
        };
        let ids: Vec<i64> = items.iter().map(|id| id.get()).collect();
        let rows = sqlx::query_file!("src/ledger/sql/changes_of_items.sql", &ids, since)
            .fetch_all(&self.public)
            .await?;
        let mut of_items: Vec<Vec<Span>> = items.iter().map(|_| Vec::new()).collect();
        for row in rows {
            let Some(at) = ids.iter().position(|id| *id == row.item_id) else {
                continue;
            };
            of_items[at].push(Span {
                starts_at: Moment::from_micros(row.starts_at),
                minutes: row.minutes,
                change: Count {
                    net: row.ups - row.downs,
                    downs: row.downs,
                },
            });
        }
        Ok(History {
            since: Moment::from_micros(since),
            as_of: times.summed_at.map(Moment::from_micros),
            of_items,
        })
    }
}
