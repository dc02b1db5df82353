//! Recent changes: summed for top lists, after everything else.

use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{SyncError, Worker};
use crate::ledger::Job;

/// About how often recent changes are summed: as often as the watermark moves.
const SUM_EVERY: Duration = Duration::from_secs(5);
/// After a statement, the worker rests this many times as long as it took: voters come first.
const REST_TIMES: u32 = 4;
/// The longest rest.
const REST_LIMIT: Duration = Duration::from_secs(1);

impl Worker {
    /// Sums recent changes again and again, until the worker stops.
    pub(super) async fn keep_summing_recent(&self) {
        while !self.is_stopping() {
            sleep(SUM_EVERY.mul_f64(rand::random_range(0.75..1.25))).await;
            if let Err(error) = self.sum_recent().await {
                // Top lists say how old they are. Other tasks that need Postgres report it more
                // loudly.
                tracing::debug!(%error, "recent changes cannot be summed; trying again");
            }
        }
    }

    /// Sums what was rolled up since, unless another worker is doing it.
    ///
    /// # Errors
    /// When another worker has taken the job over.
    pub async fn sum_recent(&self) -> Result<(), SyncError> {
        let Some(run) = self.begin_job(Job::SumRecent).await? else {
            return Ok(());
        };
        let summing = async {
            let mut total = 0;
            loop {
                let started = Instant::now();
                let (ids, is_more) = self.ledger.sum_recent(run.lease()).await?;
                total += ids;
                if !is_more || self.is_stopping() {
                    break;
                }
                sleep((started.elapsed() * REST_TIMES).min(REST_LIMIT)).await;
            }
            loop {
                let started = Instant::now();
                let is_more = self.ledger.shrink_recent(run.lease()).await?;
                if !is_more || self.is_stopping() {
                    break;
                }
                sleep((started.elapsed() * REST_TIMES).min(REST_LIMIT)).await;
            }
            Ok(((), json!({ "vote_ids": total })))
        };
        run.end_with(summing).await
    }
}
