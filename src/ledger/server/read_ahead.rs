//! Reads of whole blocks of items, before votes come to them.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::known_items::{KnownItems, by_kind};
use super::vote_writer::VoteWriter;
use crate::ledger::LedgerError;

/// How long no block is read after a read has failed or was too slow. It is only there to save work.
const REST_AFTER_FAILURE: Duration = Duration::from_secs(10);

impl VoteWriter {
    /// Reads the block of items that the last batches showed to be worth it, if they did and no other writer of the
    /// server reads one. Uses the writer's own connection, between two batches. Postgres ends a slow read, and the
    /// connection stays.
    ///
    /// # Errors
    /// When the read fails or takes too long.
    pub async fn read_ahead(&mut self) -> Result<(), LedgerError> {
        let Some((number, mut reads)) = self.block_to_read() else {
            return Ok(());
        };
        let Some(mut writer) = self.take_kept() else {
            return Ok(());
        };
        writer.block_to_read = None;
        // Until it is known better.
        reads.rest_until = Some(Instant::now() + REST_AFTER_FAILURE);
        let asked = writer.items.asking();
        let (first, last) = KnownItems::ids_of_block(number).into_inner();
        let limit = self.answer_limit();
        let reading = sqlx::query_file!("src/ledger/sql/kinds_of_block.sql", first, last)
            .fetch_one(&mut writer.connection);
        let found = match timeout(limit, reading).await {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => {
                self.keep_after(&error, writer);
                return Err(error.into());
            }
            Err(_) => return Err(LedgerError::Timeout(limit)),
        };
        let items = by_kind(found.plain, found.up_only, found.ruled);
        writer.items.add_block(writer.run(), number, asked, items);
        reads.rest_until = None;
        self.keep(writer);
        Ok(())
    }
}
