//! After a server died: what it had stored but not counted is counted afresh.

use super::{SyncError, Worker};
use crate::telemetry::name;

impl Worker {
    /// Looks for lanes of servers whose connection to Postgres is gone. Their last
    /// batch may be committed and not counted, so every item with a vote that may have
    /// been in flight then is invalidated. Returns how many that were, `None` when no
    /// lane has departed.
    ///
    /// A server that stops in order, or only reconnects, is taken for a dead one:
    /// invalidating is always safe, and nobody needs to tell the two apart.
    ///
    /// # Errors
    /// When a store is away. The lanes are forgotten only at the very end, so the
    /// next try does all of it again.
    pub async fn settle_departures(&self) -> Result<Option<usize>, SyncError> {
        self.ledger.note_idle_lanes().await?;
        let departed = self.ledger.departed_lanes().await?;
        if departed.is_empty() {
            return Ok(None);
        }
        let items = self
            .ledger
            .items_left_by(&departed, self.limits.in_flight_limit)
            .await?;
        for page in items.chunks(self.limits.flush_page) {
            self.counters.invalidate(page).await?;
        }
        self.ledger.forget_lanes(&departed).await?;
        metrics::counter!(name::INVALIDATIONS, "why" => "departure").increment(items.len() as u64);
        tracing::info!(
            lanes = departed.len(),
            items = items.len(),
            "connections of a server are gone: its newest votes are counted afresh"
        );
        Ok(Some(items.len()))
    }
}
