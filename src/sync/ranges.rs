//! Makes the next range of the ledger in time, if it is in ranges.

use std::time::Duration;

use tokio::time::sleep;

use super::Worker;

/// About how often a worker looks whether the ledger needs its next range. There are always one to two whole ranges
/// ahead, and a range has a million ids at least: enough for 100,000 votes a second.
const LOOK_EVERY: Duration = Duration::from_secs(10);

impl Worker {
    /// Makes the next range again and again, until the worker stops.
    pub(super) async fn keep_adding_ranges(&self) {
        while !self.is_stopping() {
            match self.ledger.add_ranges().await {
                Ok(0) => {}
                Ok(made) => tracing::info!(made, "the ledger has a further range"),
                // It comes long before the ids run out.
                Err(error) => {
                    tracing::warn!(%error, "the ledger's ranges cannot be looked after; trying again")
                }
            }
            sleep(LOOK_EVERY.mul_f64(rand::random_range(0.75..1.25))).await;
        }
    }
}
