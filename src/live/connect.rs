//! How Tally connects to Redis.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ConnectionAddr, InfoDict};

use super::pooled::Pooled;
use super::route::Route;
use super::{KeyPrefix, LiveError, address};

/// How long a new connection may take.
pub const CONNECT_LIMIT: Duration = Duration::from_millis(500);
/// How long the server waits for an answer before the call counts as failed. It is the redis
/// crate's own default. A healthy Redis answers a pipeline in a millisecond.
pub const SERVER_ANSWER_LIMIT: Duration = Duration::from_millis(500);
/// How long the sync worker waits for an answer: no client waits for the worker.
pub const WORKER_ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// How long a lease entitles its holders to seed. Longer than a batch takes for its read of the
/// exact counts and its seed (`votes::SEED_LIMIT`); a batch that takes longer counts again.
pub const LEASE_LIMIT_MS: u64 = 10_000;

/// Where Redis is, and connections to it. Cheap to clone.
#[derive(Clone)]
pub struct Redis {
    route: Arc<Route>,
    keys: KeyPrefix,
}

impl Redis {
    /// Describes the connection, and makes none yet.
    ///
    /// # Errors
    /// When `redis_url` is no URL of a Redis, or names files that cannot be read.
    pub fn new(redis_url: &str, prefix: &KeyPrefix, answer_limit: Duration) -> Result<Self, LiveError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_LIMIT))
            .set_response_timeout(Some(answer_limit));
        Ok(Self {
            route: Arc::new(Route::new(address::read(redis_url)?, config)?),
            keys: prefix.clone(),
        })
    }

    /// A new connection outside of the pool. The calling runtime drives it.
    pub(super) async fn connect(&self) -> Result<MultiplexedConnection, LiveError> {
        self.route.connect().await
    }

    /// A connection of the pool.
    pub(super) async fn get(&self) -> Result<Pooled, LiveError> {
        self.route.get().await
    }

    /// The number of the Redis that is used now. Another number is another Redis: connections that are kept lead to
    /// the one from before.
    pub(super) async fn number(&self) -> Result<u64, LiveError> {
        Ok(self.route.node().await?.number)
    }

    /// Whether Sentinels say which Redis is the primary.
    pub(super) fn has_sentinels(&self) -> bool {
        self.route.is_followed()
    }

    /// Whether it logs in as `default`.
    pub(super) fn is_default_login(&self) -> bool {
        let settings = self.route.login().redis_settings();
        settings.username().is_none_or(|name| name == "default")
    }

    /// Whether it connects without a password.
    pub(super) fn asks_no_password(&self) -> bool {
        let settings = self.route.login().redis_settings();
        settings.password().is_none()
    }

    /// Whether what it sends crosses a network in plain text.
    pub(super) fn is_plain(&self) -> bool {
        match self.route.login().addr() {
            ConnectionAddr::Tcp(host, _) => {
                let is_loopback = |address: IpAddr| address.to_canonical().is_loopback();
                host != "localhost" && !host.parse().is_ok_and(is_loopback)
            }
            _ => false,
        }
    }

    /// The names of Tally's keys.
    pub(super) fn keys(&self) -> &KeyPrefix {
        &self.keys
    }

    /// Whether Redis answers.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn ping(&self) -> Result<(), LiveError> {
        let mut connection = self.get().await?;
        Ok(redis::cmd("PING").query_async(&mut connection).await?)
    }

    /// What Redis does when its memory is full (`maxmemory-policy`); `None`: it does not say. INFO
    /// has it too, so the login needs no right to read all settings.
    pub async fn eviction_policy(&self) -> Result<Option<String>, LiveError> {
        let mut connection = self.get().await?;
        let info: InfoDict = redis::cmd("INFO")
            .arg("memory")
            .query_async(&mut connection)
            .await?;
        Ok(info.get("maxmemory_policy"))
    }
}
