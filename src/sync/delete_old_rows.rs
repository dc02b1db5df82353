//! Deletes old idempotency keys and old hashes of client addresses.

use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{SyncError, Worker};
use crate::domain::Moment;
use crate::ledger::Job;

/// About how often a worker looks for what is old.
const DELETE_EVERY: Duration = Duration::from_secs(600);
/// After a statement, the worker rests this many times as long as it took: voters come first.
const REST_TIMES: u32 = 3;
/// The longest rest.
const REST_LIMIT: Duration = Duration::from_secs(1);

/// What is deleted.
#[derive(Clone, Copy)]
enum Old {
    Keys,
    /// Hashes that are older than this.
    Addresses(Duration),
}

impl Worker {
    /// Deletes what is old again and again, until the worker stops. Hashes of client addresses are
    /// kept for `address_retention`.
    pub(super) async fn keep_deleting(&self, address_retention: Duration) {
        while !self.is_stopping() {
            // Both are tried, even if one fails.
            let (keys, addresses) = (
                self.delete_old_keys().await,
                self.delete_old_addresses(address_retention).await,
            );
            if let Err(error) = keys.and(addresses) {
                // Other tasks that need Postgres report it more loudly.
                tracing::debug!(%error, "what is old cannot be deleted; trying again");
            }
            sleep(DELETE_EVERY.mul_f64(rand::random_range(0.75..1.25))).await;
        }
    }

    /// Deletes all old idempotency keys, unless another worker is doing it.
    ///
    /// # Errors
    /// When another worker has taken the job over.
    pub async fn delete_old_keys(&self) -> Result<(), SyncError> {
        self.delete(Old::Keys).await
    }

    /// Deletes old hashes of client addresses, unless another worker is doing it. A hash is old
    /// beyond `age`.
    ///
    /// # Errors
    /// As [`Worker::delete_old_keys`].
    pub async fn delete_old_addresses(&self, age: Duration) -> Result<(), SyncError> {
        self.delete(Old::Addresses(age)).await
    }

    /// Deletes chunk after chunk in one run of a job. The run notes how many.
    async fn delete(&self, old: Old) -> Result<(), SyncError> {
        let (job, what) = match old {
            Old::Keys => (Job::DeleteKeys, "keys"),
            Old::Addresses(_) => (Job::DeleteAddresses, "addresses"),
        };
        let Some(run) = self.begin_job(job).await? else {
            return Ok(());
        };
        let deleting = async {
            let mut total = 0;
            loop {
                let started = Instant::now();
                let (deleted, is_more) = match old {
                    Old::Keys => self.ledger.delete_old_keys(Moment::now(), run.lease()).await?,
                    Old::Addresses(age) => self.ledger.delete_old_addresses(age, run.lease()).await?,
                };
                total += deleted;
                if !is_more || self.is_stopping() {
                    return Ok(((), json!({ what: total })));
                }
                sleep((started.elapsed() * REST_TIMES).min(REST_LIMIT)).await;
            }
        };
        run.end_with(deleting).await
    }
}
