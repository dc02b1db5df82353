//! After a server died: what it had stored but not counted is rebuilt.

use super::{SyncError, Worker};
use crate::telemetry::name;

impl Worker {
    /// Looks for batch writers of servers whose connection to Postgres is gone. Their last
    /// batch may be committed and not counted, so every item with a vote that may have
    /// been in flight then is invalidated. Returns how many that were, `None` when no
    /// batch writer has closed.
    ///
    /// A server that stops in order, or only reconnects, is taken for a dead one:
    /// invalidating is always safe, and nobody needs to tell the two apart.
    ///
    /// # Errors
    /// When a store is unavailable. The batch writers are forgotten only at the very end, so the
    /// next try does all of it again.
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
            "connections of a server are gone: its newest votes are rebuilt"
        );
        Ok(Some(items.len()))
    }
}
