//! Whether this is still the Redis, in the run, that the counters were written to.

use redis::InfoDict;

use super::{Counters, LiveError, keys};

impl Counters {
    /// Which run of which Redis answers: it changes when Redis restarts
    /// (`run_id`) or fails over (`master_replid`).
    ///
    /// # Errors
    /// When Redis is away.
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
    /// When Redis is away.
    pub async fn known_epoch(&self) -> Result<Option<String>, LiveError> {
        let mut connection = self.redis.pool.get().await?;
        Ok(redis::cmd("GET")
            .arg(keys::EPOCH)
            .query_async(&mut *connection)
            .await?)
    }

    /// Notes that every counter has been made sure of in this epoch.
    ///
    /// # Errors
    /// When Redis is away.
    pub async fn enter_epoch(&self, epoch: &str) -> Result<(), LiveError> {
        let mut connection = self.redis.pool.get().await?;
        Ok(redis::cmd("SET")
            .arg(keys::EPOCH)
            .arg(epoch)
            .exec_async(&mut *connection)
            .await?)
    }
}
