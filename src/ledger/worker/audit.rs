//! What the audit compares live and saved counts with.

use super::WorkerLedger;
use crate::domain::{Count, ItemId, Revision, VoteId};
use crate::ledger::LedgerError;

/// An item's counts in Postgres, all under one snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditRow {
    pub item_id: ItemId,
    pub saved_count: Count,
    /// The revision of the saved count; `None` if it was never saved.
    pub counted_at: Option<Revision>,
    pub exact_count: Count,
    /// The rows that may be in flight.
    pub in_flight: Moved,
    /// Those that the saved count of a cold item may lack: they are in flight, or the next roll-up saves them.
    pub unsaved: Moved,
}

/// By how much some rows moved the exact count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Those that raised it.
    pub up: Count,
    /// Those that lowered it, without the sign.
    pub down: Count,
}

impl WorkerLedger {
    /// How many votes the ledger has, with those that were archived. The roll-up has counted those up to
    /// the watermark. Only the rest is counted now.
    pub async fn vote_total(&self) -> Result<i64, LedgerError> {
        Ok(sqlx::query_scalar!(
            r#"select vote_total + (select count(*) from vote where id > watermark.vote_id) as "votes!"
               from watermark"#
        )
        .fetch_one(&self.database.pool)
        .await?)
    }

    /// How many of these are in files of `tally archive` alone. The audit cannot look at them.
    pub async fn archived_total(&self) -> Result<i64, LedgerError> {
        let total =
            sqlx::query_scalar!(r#"select coalesce(sum(dropped_total), 0)::bigint as "total!" from archive"#);
        Ok(total.fetch_one(&self.database.pool).await?)
    }

    /// The counts of these items. The audit must read their live counts *before* this call. Votes
    /// with ids above `in_flight_after`, which the audit must read even earlier, may be in flight.
    /// Each id may be given once.
    pub async fn audit_page(
        &self,
        items: &[ItemId],
        in_flight_after: VoteId,
    ) -> Result<Vec<AuditRow>, LedgerError> {
        let ids: Vec<i64> = items.iter().map(|item| item.get()).collect();
        let rows = sqlx::query_file!("src/ledger/sql/audit_page.sql", &ids, in_flight_after.get())
            .fetch_all(&self.database.pool)
            .await?;
        Ok(rows
            .iter()
            .filter_map(|row| {
                Some(AuditRow {
                    item_id: ItemId::new(row.item_id)?,
                    saved_count: Count {
                        net: row.saved_count,
                        downs: row.saved_downs,
                    },
                    counted_at: row.counted_at.map(Revision::from_micros),
                    exact_count: Count {
                        net: row.exact_count,
                        downs: row.exact_downs,
                    },
                    in_flight: Moved {
                        up: Count {
                            net: row.in_flight_up,
                            downs: row.in_flight_downs_cast,
                        },
                        down: Count {
                            net: row.in_flight_down,
                            downs: row.in_flight_downs_taken_back,
                        },
                    },
                    unsaved: Moved {
                        up: Count {
                            net: row.unsaved_up,
                            downs: row.unsaved_downs_cast,
                        },
                        down: Count {
                            net: row.unsaved_down,
                            downs: row.unsaved_downs_taken_back,
                        },
                    },
                })
            })
            .collect())
    }
}
