//! How Tally connects to Redis.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ConnectionAddr, InfoDict};

use super::any_connection::AnyConnection;
use super::buckets::Bucket;
use super::cluster::NodeConnections;
use super::route::Route;
use super::{KeyPrefix, Keys, LiveError, address};
use crate::store_url::StoreUrl;

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

/// The policy of a Redis that drops no keys.
const NO_EVICTION: &str = "noeviction";

/// Where Redis is, and connections to it. Cheap to clone.
#[derive(Clone)]
pub struct Redis {
    route: Arc<Route>,
    keys: Arc<Keys>,
}

impl Redis {
    /// Describes the connection, and makes none yet.
    ///
    /// # Errors
    /// When `redis_url` is no URL of a Redis, or names files that cannot be read.
    pub fn new(
        redis_url: impl Into<StoreUrl>,
        prefix: &KeyPrefix,
        answer_limit: Duration,
    ) -> Result<Self, LiveError> {
        let url: StoreUrl = redis_url.into();
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_LIMIT))
            .set_response_timeout(Some(answer_limit));
        let route = Route::new(address::read(url.as_str())?, url, config)?;
        let keys = match route.is_cluster() {
            true => Keys::of_cluster(prefix.clone()),
            false => Keys::one(prefix.clone()),
        };
        Ok(Self {
            route: Arc::new(route),
            keys: Arc::new(keys),
        })
    }

    /// A new connection outside of the pool, which the calling runtime drives. In a Redis Cluster, a connection over
    /// connections that are shared.
    pub(super) async fn connect(&self, bucket: Bucket) -> Result<AnyConnection, LiveError> {
        self.route.connect(bucket).await
    }

    /// A new connection outside of the pool to a Redis that is no Cluster. The calling runtime drives it.
    pub(super) async fn connect_alone(&self) -> Result<MultiplexedConnection, LiveError> {
        self.route.connect_alone().await
    }

    /// Connections of the caller's own to the nodes of a Redis Cluster; `None`: it is none.
    pub(super) fn own_connections(&self) -> Option<Arc<NodeConnections>> {
        self.route.own_connections()
    }

    /// A connection of the pool, or a connection to the node of a Redis Cluster.
    pub(super) async fn get(&self, bucket: Bucket) -> Result<AnyConnection, LiveError> {
        self.route.get(bucket).await
    }

    /// Closes the connections that the pool keeps: they lead to another Redis than new ones.
    pub(super) fn renew_pool(&self) {
        self.route.renew_pool();
    }

    /// The number of the Redis that has this bucket now. Another number is another Redis: connections that are kept
    /// lead to the one from before.
    pub(super) async fn number(&self, bucket: Bucket) -> Result<u64, LiveError> {
        self.route.number(bucket).await
    }

    /// The buckets of each primary.
    pub(super) async fn primaries(&self) -> Result<Vec<Vec<Bucket>>, LiveError> {
        self.route.primaries().await
    }

    /// The buckets that some node of a Redis Cluster says it takes over.
    pub(super) async fn arriving(&self) -> Vec<Bucket> {
        self.route.arriving().await
    }

    /// The buckets that are at the same Redis as this one, with itself.
    pub(super) fn neighbours(&self, bucket: Bucket) -> Vec<Bucket> {
        self.route.neighbours(bucket)
    }

    /// The address of the node that has this bucket; `None`: it is no Redis Cluster, or not known.
    pub(super) fn place(&self, bucket: Bucket) -> Option<String> {
        self.route.place(bucket)
    }

    /// A connection to each primary.
    pub(super) async fn get_each(&self) -> Result<Vec<AnyConnection>, LiveError> {
        let mut connections = Vec::new();
        for buckets in self.primaries().await? {
            connections.push(self.get(buckets[0]).await?);
        }
        Ok(connections)
    }

    /// How many buckets it has.
    pub fn bucket_count(&self) -> i16 {
        i16::from(self.keys.buckets())
    }

    /// All buckets.
    pub(super) fn buckets(&self) -> impl ExactSizeIterator<Item = Bucket> + use<> {
        Bucket::first(self.keys.buckets())
    }

    /// Whether Sentinels say which Redis is the primary.
    pub(super) fn has_sentinels(&self) -> bool {
        self.route.is_followed()
    }

    /// Whether it is a Redis Cluster.
    pub fn is_cluster(&self) -> bool {
        self.route.is_cluster()
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
    pub(super) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Whether Redis answers, each primary of a Cluster.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn ping(&self) -> Result<(), LiveError> {
        for mut connection in self.get_each().await? {
            redis::cmd("PING").exec_async(&mut connection).await?;
        }
        Ok(())
    }

    /// What Redis does when its memory is full (`maxmemory-policy`); `None`: it does not say. INFO
    /// has it too, so the login needs no right to read all settings. Of a Cluster, what a primary does that evicts.
    pub async fn eviction_policy(&self) -> Result<Option<String>, LiveError> {
        let mut policy = None;
        for mut connection in self.get_each().await? {
            let info: InfoDict = redis::cmd("INFO")
                .arg("memory")
                .query_async(&mut connection)
                .await?;
            let of_this: Option<String> = info.get("maxmemory_policy");
            if policy.as_deref().is_none_or(|known| known == NO_EVICTION) {
                policy = of_this.or(policy);
            }
        }
        Ok(policy)
    }
}
