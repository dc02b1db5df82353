//! What votes changed lately: summed for top lists, behind everything else.

use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{SyncError, Worker};
use crate::ledger::Job;

/// How often it is summed, about: as often as the watermark moves.
const SUM_EVERY: Duration = Duration::from_secs(5);
/// How many times as long as a statement took the worker rests after it: voters come first.
const REST_TIMES: u32 = 4;
/// How long it rests at the most.
const REST_LIMIT: Duration = Duration::from_secs(1);

impl Worker {
    /// Sums again and again, until the worker stops.
    pub(super) async fn keep_summing_recent(&self) {
        while !self.is_stopping() {
            sleep(SUM_EVERY.mul_f64(rand::random_range(0.75..1.25))).await;
            if let Err(error) = self.sum_recent().await {
                // Top lists say how old they are; what else needs Postgres says it louder.
                tracing::debug!(%error, "recent changes cannot be summed; trying again");
            }
        }
    }

    /// Sums what was rolled up since, unless another worker is at it.
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
