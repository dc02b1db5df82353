//! Full items, and the votes that they refuse.

use super::writer::VoteWriter;
use crate::domain::{NewVote, VoterId};
use crate::ledger::LedgerError;

/// What a read says of a vote on an item that may be full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fullness {
    /// The item is not full, or something else than its places may decide.
    Undecided,
    /// The item is full. That is not why this vote would be refused: its voter holds one, say.
    Full,
    /// A decision at this moment would refuse the vote, since the item is full.
    Refuses,
}

impl VoteWriter {
    /// What becomes of these votes, each of value 1, if their items are full: in their order, all
    /// under one snapshot, without a lock. Over the writer's own connection, between two batches;
    /// `None` without an open one.
    ///
    /// # Errors
    /// When Postgres is unavailable.
    pub async fn fullness(&mut self, votes: &[&NewVote]) -> Result<Option<Vec<Fullness>>, LedgerError> {
        let Some(mut writer) = self.open_kept().await else {
            return Ok(None);
        };
        let items: Vec<i64> = votes.iter().map(|vote| vote.item_id.get()).collect();
        let voters: Vec<Option<&str>> = votes
            .iter()
            .map(|vote| vote.voter_id.as_ref().map(VoterId::as_str))
            .collect();
        let reading = sqlx::query_file!("src/ledger/sql/fullness.sql", &items, voters as _)
            .fetch_all(&mut writer.connection);
        let rows = match tokio::time::timeout(self.answer_limit(), reading).await {
            Ok(rows) => rows?,
            Err(_) => return Err(LedgerError::Timeout(self.answer_limit())),
        };
        self.keep(writer);
        let fullness = rows.iter().map(|row| match (row.is_full, row.is_refused) {
            (false, _) => Fullness::Undecided,
            (true, false) => Fullness::Full,
            (true, true) => Fullness::Refuses,
        });
        Ok(Some(fullness.collect()))
    }
}
