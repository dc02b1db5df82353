//! Crashed-writer recovery. A server that dies between a batch's commit and its count
//! leaves votes that nobody counts: the counts of their items are rebuilt.

use super::{SyncError, Worker};
use crate::telemetry::name;

impl Worker {
    /// Looks for batch writers whose connection to Postgres is gone. Their last batch may be
    /// committed and not counted, so this invalidates every item with a vote that may have
    /// been in flight then. Returns how many items that were; `None` when no connection is
    /// gone.
    ///
    /// A server that stops in order, or only reconnects, is treated as a crashed one:
    /// invalidating is always safe, so nothing has to tell the two apart.
    ///
    /// # Errors
    /// When a store is unavailable. The connections are forgotten only at the very end, so
    /// the next try does all of it again.
    pub async fn recover_crashed_writers(&self) -> Result<Option<usize>, SyncError> {
        self.ledger.note_idle_writers().await?;
        let closed = self.ledger.closed_writers().await?;
        if closed.is_empty() {
            return Ok(None);
        }
        let items = self
            .ledger
            .items_left_by(&closed, self.options.in_flight_limit)
            .await?;
        for page in items.chunks(self.options.flush_page) {
            self.counters.invalidate(page).await?;
        }
        self.ledger.forget_writers(&closed).await?;
        metrics::counter!(name::INVALIDATIONS, "why" => "crashed_writer").increment(items.len() as u64);
        tracing::info!(
            writers = closed.len(),
            items = items.len(),
            "connections of a server are gone: the counts of its newest votes are rebuilt"
        );
        Ok(Some(items.len()))
    }
}
