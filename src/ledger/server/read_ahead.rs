//! Reads of whole blocks of items, before votes come to them.

use std::time::Duration;

use tokio::time::timeout;

use super::known_items::{KnownItems, by_kind};
use super::vote_writer::VoteWriter;
use crate::ledger::LedgerError;

/// How long the read of a block may take.
const READ_AHEAD_LIMIT: Duration = Duration::from_millis(500);

impl VoteWriter {
    /// Reads the block of items that the last batch showed to be worth it, if it did. Uses the writer's own
    /// connection, between two batches.
    ///
    /// # Errors
    /// When the read fails or takes too long.
    pub async fn read_ahead(&mut self) -> Result<(), LedgerError> {
        let Some(number) = self.block_to_read() else {
            return Ok(());
        };
        let Some(mut writer) = self.take_kept() else {
            return Ok(());
        };
        let asked = writer.items.asking();
        let ids = KnownItems::ids_of_block(number);
        let reading = sqlx::query_file!("src/ledger/sql/kinds_of_block.sql", ids.start, ids.end)
            .fetch_one(&mut writer.connection);
        let found = match timeout(READ_AHEAD_LIMIT, reading).await {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => {
                self.keep_after(&error, writer);
                return Err(error.into());
            }
            Err(_) => return Err(LedgerError::Timeout(READ_AHEAD_LIMIT)),
        };
        let items = by_kind(found.plain, found.up_only, found.ruled);
        writer.items.add_block(writer.run(), number, asked, items);
        self.keep(writer);
        Ok(())
    }
}
