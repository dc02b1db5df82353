//! Items that are full, and who holds their votes.

use std::collections::HashSet;

use super::writer::VoteWriter;
use crate::domain::{ItemId, VoterId};
use crate::ledger::LedgerError;

/// Voters of one full item who are read, at the most: a megabyte or so.
pub const HOLDERS_LIMIT_VOTERS: usize = 10_000;

impl VoteWriter {
    /// Who holds a vote on this item, if it is full; `None`: it is not, or too many hold one. Over
    /// the writer's own connection, which is free between two batches.
    ///
    /// # Errors
    /// When Postgres is unavailable.
    pub async fn holders_if_full(&mut self, item: ItemId) -> Result<Option<HashSet<VoterId>>, LedgerError> {
        let Some(mut writer) = self.take_kept() else {
            return Ok(None);
        };
        let reading = sqlx::query_file_scalar!(
            "src/ledger/sql/holders_if_full.sql",
            item.get(),
            HOLDERS_LIMIT_VOTERS as i64 + 1
        )
        .fetch_one(&mut writer.connection);
        let holders = match tokio::time::timeout(self.answer_limit(), reading).await {
            Ok(read) => read?,
            Err(_) => return Err(LedgerError::Timeout(self.answer_limit())),
        };
        self.keep(writer);
        Ok(holders
            .filter(|holders| holders.len() <= HOLDERS_LIMIT_VOTERS)
            .map(|holders| {
                holders
                    .into_iter()
                    .filter_map(|voter| VoterId::parse(voter).ok())
                    .collect()
            }))
    }
}
