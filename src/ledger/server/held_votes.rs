//! What a voter holds on many items at once.

use super::ServerLedger;
use crate::domain::{ItemId, PollId, VoteId, VoterId};
use crate::ledger::LedgerError;

/// A vote that a voter holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldVote {
    pub item_id: ItemId,
    /// The item's own key.
    pub key: Option<String>,
    /// The poll that the item is a choice of.
    pub poll_id: Option<PollId>,
    /// The poll's own key.
    pub poll_key: Option<String>,
    pub id: VoteId,
    /// 1 or −1.
    pub value: i16,
    pub number: Option<i64>,
}

impl ServerLedger {
    /// The voter's votes on these items and in these polls, in the order of the items.
    pub async fn held_votes(
        &self,
        voter: &VoterId,
        items: &[ItemId],
        polls: &[PollId],
    ) -> Result<Vec<HeldVote>, LedgerError> {
        let items: Vec<i64> = items.iter().map(|id| id.get()).collect();
        let polls: Vec<i64> = polls.iter().map(|id| id.get()).collect();
        let rows = sqlx::query_file!("src/ledger/sql/held_votes.sql", voter.as_str(), &items, &polls)
            .fetch_all(&self.database.pool)
            .await?;
        let votes = rows.into_iter().filter_map(|row| {
            Some(HeldVote {
                item_id: ItemId::new(row.item_id)?,
                key: row.key,
                poll_id: row.poll_id.and_then(PollId::new),
                poll_key: row.poll_key,
                id: VoteId::new(row.id),
                value: row.value,
                number: row.number,
            })
        });
        Ok(votes.collect())
    }
}
