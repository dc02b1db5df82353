//! Whether this is still the Redis, in the run, that the counters were written to.

use std::time::Duration;

use redis::InfoDict;

use super::Counters;
use crate::live::LiveError;
use crate::live::scripts::{self, fresh_token, text};

impl Counters {
    /// Which run of which Redis answers: it changes when Redis restarts
    /// (`run_id`) or fails over (`master_replid`).
    ///
    /// # Errors
    /// When Redis is unavailable.
    pub async fn current_epoch(&self) -> Result<String, LiveError> {
        let mut connection = self.redis.pool.get().await?;
        let server: InfoDict = redis::cmd("INFO")
            .arg("server")
            .query_async(&mut *connection)
            .await?;
        let replication: InfoDict = redis::cmd("INFO")
            .arg("replication")
            .query_async(&mut *connection)
            .await?;
        let part = |info: &InfoDict, name: &str| info.get::<String>(name).unwrap_or_default();
        Ok(format!(
            "{}:{}",
            part(&server, "run_id"),
            part(&replication, "master_replid")
        ))
    }

    /// The epoch that the counters were last made sure of; `None` when Redis has
    /// lost its data, or is new.
    ///
    /// # Errors
    /// When Redis is unavailable.
    pub async fn known_epoch(&self) -> Result<Option<String>, LiveError> {
        let mut connection = self.redis.pool.get().await?;
        Ok(redis::cmd("GET")
            .arg(self.redis.keys().epoch())
            .query_async(&mut *connection)
            .await?)
    }

    /// Marks that a worker begins to make sure of every counter. The mark goes with
    /// the data: see [`Counters::enter_epoch`].
    ///
    /// # Errors
    /// When Redis is unavailable.
    pub async fn begin_epoch(&self) -> Result<EpochEntry, LiveError> {
        let mark = self.redis.keys().entering(&fresh_token());
        let mut connection = self.redis.pool.get().await?;
        redis::cmd("SET")
            .arg(&mark)
            .arg("")
            .arg("EX")
            .arg(ENTERING_LIMIT.as_secs())
            .exec_async(&mut *connection)
            .await?;
        Ok(EpochEntry { mark })
    }

    /// Notes that every counter has been made sure of in this epoch; unless Redis was
    /// wiped since that was begun, which neither its run nor its replication tells.
    /// Returns whether the epoch is entered.
    ///
    /// # Errors
    /// When Redis is unavailable.
    pub async fn enter_epoch(&self, epoch: &str, entering: EpochEntry) -> Result<bool, LiveError> {
        let mut connection = self.redis.pool.get().await?;
        let reply = scripts::ENTER_EPOCH
            .call_once(
                &mut *connection,
                &[&self.redis.keys().epoch(), &entering.mark],
                epoch,
            )
            .await?;
        match text(&reply) {
            Some("ENTERED") => Ok(true),
            Some("LOST") => Ok(false),
            _ => Err(scripts::ENTER_EPOCH.unexpected(reply)),
        }
    }
}

/// A worker's mark in Redis, while it makes sure of every counter.
#[derive(Debug)]
pub struct EpochEntry {
    mark: String,
}

/// How long that may take. It only clears away the marks of workers that died.
const ENTERING_LIMIT: Duration = Duration::from_secs(24 * 3600);
