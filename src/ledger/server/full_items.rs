//! Full items, and the votes that they refuse.

use std::time::Duration;

use tokio::time::timeout;

use super::vote_writer::VoteWriter;
use crate::domain::{NewVote, VoterId};
use crate::ledger::LedgerError;

/// What a read says about a vote on an item that may be full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fullness {
    /// The item has places, or something other than its places may decide.
    Undecided,
    /// The item is full, but this vote would not be refused for that. Its voter holds one, for
    /// example.
    Full,
    /// A decision now would refuse the vote, since the item is full.
    Refuses,
}

/// How long the read may take. After that its votes are decided like all others.
pub(crate) const FULLNESS_LIMIT: Duration = Duration::from_millis(500);

impl VoteWriter {
    /// Says what would become of these votes, each of value 1, if their items are full. Looks at
    /// them in their order, all under one snapshot, without a lock. Uses the writer's own
    /// connection, between two batches; `None` if there is none. A read needs no check whether
    /// Postgres has closed the connection.
    ///
    /// # Errors
    /// When the read takes too long.
    pub async fn fullness(&mut self, votes: &[&NewVote]) -> Result<Option<Vec<Fullness>>, LedgerError> {
        let Some(mut writer) = self.take_kept() else {
            return Ok(None);
        };
        let items: Vec<i64> = votes.iter().map(|vote| vote.item_id.get()).collect();
        let voters: Vec<Option<&str>> = votes
            .iter()
            .map(|vote| vote.voter_id.as_ref().map(VoterId::as_str))
            .collect();
        let reading = sqlx::query_file!("src/ledger/sql/fullness.sql", &items, voters as _)
            .fetch_all(&mut writer.connection);
        let rows = match timeout(FULLNESS_LIMIT, reading).await {
            Ok(Ok(rows)) => rows,
            Ok(Err(error)) => {
                self.keep_after(&error, writer);
                return Err(error.into());
            }
            Err(_) => return Err(LedgerError::Timeout(FULLNESS_LIMIT)),
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
