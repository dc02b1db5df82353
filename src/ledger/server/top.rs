//! Top lists.

use super::ServerLedger;
use crate::domain::{
    Count, ItemId, ItemKey, ItemKeyPrefix, Moment, PollId, TopItem, TopKind, TopList, TopOf, TopOver,
};
use crate::ledger::LedgerError;

impl ServerLedger {
    /// The first `limit` items; `None`: there is no such poll.
    pub async fn top_list(&self, kind: &TopKind, limit: i64) -> Result<Option<TopList>, LedgerError> {
        let poll = kind.of.poll().map(PollId::get);
        let (with_choices, prefix) = match &kind.of {
            TopOf::Items {
                with_choices,
                key_prefix,
            } => (*with_choices, key_prefix.as_ref()),
            TopOf::Poll(_) => (true, None),
        };
        let keys_end = prefix.and_then(ItemKeyPrefix::end);
        let keys_begin = prefix.map(ItemKeyPrefix::as_str);
        // The spans begin here: in full five minutes, and in full hours.
        let times = sqlx::query!(
            r#"select (extract(epoch from now()) * 1000000)::bigint as "now!",
                      (extract(epoch from date_bin('5 minutes', now() - interval '1 hour', timestamptz 'epoch')) * 1000000)::bigint as "hour!",
                      (extract(epoch from date_bin('1 hour', now() - interval '1 day', timestamptz 'epoch')) * 1000000)::bigint as "day!",
                      (select (extract(epoch from reached_at) * 1000000)::bigint from watermark) as "summed_at",
                      $1::bigint is null or exists (select from rule where id = $1 and title is not null) as "is_there!""#,
            poll
        )
        .fetch_one(&self.public)
        .await?;
        if !times.is_there {
            return Ok(None);
        }
        let since = match kind.over {
            TopOver::All => None,
            TopOver::Hour => Some(times.hour),
            TopOver::Day => Some(times.day),
        };
        let items = match since {
            None => {
                let rows = sqlx::query_file!(
                    "src/ledger/sql/top_items.sql",
                    kind.by.name(),
                    poll,
                    limit,
                    with_choices,
                    keys_begin,
                    keys_end
                )
                .fetch_all(&self.public)
                .await?;
                let items = rows.into_iter().filter_map(|row| {
                    let saved = Count {
                        net: row.vote_count,
                        downs: row.down_count,
                    };
                    item(row.id, row.name, row.key, saved, None)
                });
                items.collect()
            }
            Some(since) => {
                let rows = sqlx::query_file!(
                    "src/ledger/sql/top_recent.sql",
                    kind.by.name(),
                    poll,
                    limit,
                    since,
                    with_choices,
                    keys_begin,
                    keys_end
                )
                .fetch_all(&self.public)
                .await?;
                let items = rows.into_iter().filter_map(|row| {
                    let saved = Count {
                        net: row.vote_count,
                        downs: row.down_count,
                    };
                    let change = Count {
                        net: row.ups - row.downs,
                        downs: row.downs,
                    };
                    item(row.id, row.name, row.key, saved, Some(change))
                });
                items.collect()
            }
        };
        let as_of = match since {
            None => Some(times.now),
            Some(_) => times.summed_at,
        };
        Ok(Some(TopList {
            items,
            since: since.map(Moment::from_micros),
            as_of: as_of.map(Moment::from_micros),
        }))
    }
}

fn item(
    id: i64,
    name: String,
    key: Option<String>,
    saved_count: Count,
    change: Option<Count>,
) -> Option<TopItem> {
    Some(TopItem {
        id: ItemId::new(id)?,
        name,
        key: key.and_then(|key| ItemKey::parse(key).ok()),
        saved_count,
        change,
    })
}
