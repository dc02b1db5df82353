//! The ledger's rows of an item or a poll, page by page.

use super::ServerLedger;
use crate::domain::{ItemId, Moment, PollId, VoteId};
use crate::ledger::LedgerError;

/// The most ids that a page looks at. There is no index by item, and these took about 20 ms.
const PAGE_LIMIT_IDS: i64 = 100_000;

/// Whose votes they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VotesOf {
    Item(ItemId),
    /// All choices of the poll.
    Poll(PollId),
}

/// A row of the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerRow {
    pub id: VoteId,
    pub item_id: ItemId,
    pub created_at: Moment,
    /// `None`: an anonymous vote.
    pub voter_id: Option<String>,
    /// What the row adds to the count.
    pub value: i16,
    /// Even: it casts a vote. Odd: it takes that vote back.
    pub change_number: i16,
    pub number: Option<i64>,
}

/// A page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VotesPage {
    pub rows: Vec<LedgerRow>,
    /// Where the next page begins. `None`: there is none yet.
    pub next_after: Option<VoteId>,
    /// Every vote up to this one is on these pages, and none will be added: the watermark.
    pub until: VoteId,
}

impl ServerLedger {
    /// The rows above `after`, in the order of ids, up to `limit`. A page looks at [`PAGE_LIMIT_IDS`] ids, so it
    /// may have fewer rows, or none, and a next page all the same.
    pub async fn votes_of(&self, of: VotesOf, after: VoteId, limit: i64) -> Result<VotesPage, LedgerError> {
        let place = sqlx::query_file!("src/ledger/sql/votes_between.sql", after.get())
            .fetch_one(&self.public)
            .await?;
        let until = place.until;
        let begins_after = place.begins_after.unwrap_or(until).max(after.get());
        let up_to = until.min(begins_after.saturating_add(PAGE_LIMIT_IDS));
        let (item, poll) = match of {
            VotesOf::Item(item) => (Some(item.get()), None),
            VotesOf::Poll(poll) => (None, Some(poll.get())),
        };
        // Ids up to the watermark are decided, so no snapshot of both is needed.
        let rows = sqlx::query_file!(
            "src/ledger/sql/votes_of.sql",
            item,
            poll,
            begins_after,
            up_to,
            limit
        )
        .fetch_all(&self.public)
        .await?;
        let rows: Vec<LedgerRow> = rows
            .into_iter()
            .filter_map(|row| {
                Some(LedgerRow {
                    id: VoteId::new(row.id),
                    item_id: ItemId::new(row.item_id)?,
                    created_at: Moment::from_micros(row.created_at),
                    voter_id: row.voter_id,
                    value: row.value,
                    change_number: row.change_number,
                    number: row.number,
                })
            })
            .collect();
        let is_full = i64::try_from(rows.len()) == Ok(limit);
        let last = rows.last().filter(|_| is_full).map(|row| row.id);
        let next_after = last.or((up_to < until).then_some(VoteId::new(up_to)));
        Ok(VotesPage {
            rows,
            next_after: next_after.filter(|next| next.get() < until),
            until: VoteId::new(until),
        })
    }
}
