//! The epoch: whether Redis still has the data that was written to it.

use std::time::Duration;

use redis::{InfoDict, RedisError};

use super::Counters;
use crate::live::LiveError;
use crate::live::scripts::{self, fresh_token, text};

impl Counters {
    /// Which run of which Redis answers: `<run_id>:<master_replid>`. The first part changes when
    /// Redis restarts, the second when it fails over. A third part, if there is one, changes when a
    /// server comes from the old primary to this one: what it counted there until then is missing
    /// here.
    ///
    /// # Errors
    /// When Redis is unavailable, or hides its identity. There is no substitute: nothing else
    /// changes with every restart and every failover.
    pub async fn current_epoch(&self) -> Result<String, LiveError> {
        let mut connection = self.redis.get().await?;
        let server: InfoDict = redis::cmd("INFO")
            .arg("server")
            .query_async(&mut connection)
            .await?;
        let replication: InfoDict = redis::cmd("INFO")
            .arg("replication")
            .query_async(&mut connection)
            .await?;
        let part = |info: &InfoDict, name: &'static str| {
            info.get::<String>(name)
                .filter(|value| !value.is_empty())
                .ok_or(LiveError::NoIdentity(name))
        };
        let run_id = part(&server, "run_id")?;
        let replication_id = part(&replication, "master_replid")?;
        Ok(match self.read_token(self.redis.keys().moved()).await? {
            Some(moved) => format!("{run_id}:{replication_id}:{moved}"),
            None => format!("{run_id}:{replication_id}"),
        })
    }

    /// The epoch that a worker entered last; `None`: Redis is new or has lost its data.
    pub async fn known_epoch(&self) -> Result<Option<String>, LiveError> {
        self.read_token(self.redis.keys().epoch()).await
    }

    async fn read_token(&self, key: String) -> Result<Option<String>, LiveError> {
        let mut connection = self.redis.get().await?;
        let read: Result<Option<String>, RedisError> =
            redis::cmd("GET").arg(key).query_async(&mut connection).await;
        match read {
            // Someone has put another type there, which is no token. The next one replaces it.
            Err(error) if error.code() == Some("WRONGTYPE") => Ok(None),
            read => Ok(read?),
        }
    }

    /// Sets a mark before the worker looks at the first counter. If Redis loses its data, it loses
    /// the mark too: see [`Counters::enter_epoch`].
    pub async fn begin_epoch(&self) -> Result<EpochEntry, LiveError> {
        let mark = self.redis.keys().entering(&fresh_token());
        let mut connection = self.redis.get().await?;
        redis::cmd("SET")
            .arg(&mark)
            .arg("")
            .arg("EX")
            .arg(ENTERING_LIMIT.as_secs())
            .exec_async(&mut connection)
            .await?;
        Ok(EpochEntry { mark })
    }

    /// Notes this epoch as the known one, after the worker went through every counter. Returns
    /// `false` and notes nothing if Redis was wiped since [`Counters::begin_epoch`]. A wipe changes
    /// neither `run_id` nor `master_replid`.
    pub async fn enter_epoch(&self, epoch: &str, entering: EpochEntry) -> Result<bool, LiveError> {
        let mut connection = self.redis.get().await?;
        let reply = scripts::ENTER_EPOCH
            .call_once(
                &mut connection,
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

/// The mark in Redis of a worker that is entering an epoch.
#[derive(Debug)]
pub struct EpochEntry {
    mark: String,
}

/// How long entering an epoch may take. Then Redis removes the mark, for example that of a worker
/// that died.
const ENTERING_LIMIT: Duration = Duration::from_secs(24 * 3600);
