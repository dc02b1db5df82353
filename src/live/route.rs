//! Which Redis is used: the one in the URL, the primary that Sentinels name, or the node of a Redis Cluster that has the
//! bucket.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use deadpool_redis::{Connection, Hook, HookError, Manager, Pool, PoolError, Runtime};
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, RedisError};
use tokio::time::{Instant, timeout};

use super::address::Address;
use super::any_connection::AnyConnection;
use super::buckets::Bucket;
use super::cluster::{Cluster, NodeConnections};
use super::login::{self, has_other_login, log_in};
use super::scripts::field;
use super::sentinels::Sentinels;
use super::{LiveError, pooled::Pooled};
use crate::store_url::StoreUrl;
use crate::telemetry;

/// How long a caller waits for one of the pool's connections.
pub const ACQUIRE_LIMIT: Duration = Duration::from_secs(2);
/// Connections in the pool.
pub const POOL_LIMIT_CONNECTIONS: usize = 4;
/// How long it is believed what Sentinels said. Whoever comes later asks again.
const BELIEVED_FOR: Duration = Duration::from_secs(1);
/// How long a Redis that is named anew may take to say that it is the primary.
const CHECK_LIMIT: Duration = Duration::from_secs(1);
/// What the check of a new connection of a pool says. [`PoolError`] takes a text, and no error of ours.
const NOT_THE_PRIMARY: &str = "not the primary";

/// Which Redis is used.
pub(super) struct Route {
    how: How,
}

enum How {
    /// Always this one.
    Fixed(Arc<Node>),
    /// The primary that Sentinels name.
    Followed(Box<Followed>),
    /// The node that has the bucket.
    Cluster {
        cluster: Arc<Cluster>,
        /// Those of whoever has no connections of its own.
        connections: Arc<NodeConnections>,
    },
}

struct Followed {
    sentinels: Sentinels,
    url: StoreUrl,
    config: AsyncConnectionConfig,
    known: Mutex<Known>,
    /// Whoever asks Sentinels holds it.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Known {
    primary: Option<Arc<Node>>,
    /// `None`: a connection has failed since. Whoever comes next asks.
    asked_at: Option<Instant>,
    /// The number of the latest failover that a Sentinel knew of.
    failover: u64,
}

/// A Redis, and a pool of connections to it.
struct Node {
    /// How to connect, but for a login that was read again.
    info: ConnectionInfo,
    url: StoreUrl,
    config: AsyncConnectionConfig,
    pool: Mutex<LoggedIn>,
    /// Counts the primaries that this program has followed. The first has 1.
    number: u64,
    /// Whether Sentinels have named it. A new connection then asks whether it is so.
    is_named: bool,
}

/// A pool whose connections log in with the login of this number.
struct LoggedIn {
    number: u64,
    pool: Pool,
}

impl Route {
    pub fn new(address: Address, url: StoreUrl, config: AsyncConnectionConfig) -> Result<Self, LiveError> {
        let how = match address {
            Address::Redis(info) => How::Fixed(Arc::new(Node::new(*info, &url, &config, 1, false)?)),
            Address::Sentinels(address) => How::Followed(Box::new(Followed {
                sentinels: Sentinels::new(*address)?,
                url,
                config,
                known: Mutex::default(),
                asking: tokio::sync::Mutex::default(),
            })),
            Address::Cluster(nodes) => {
                let cluster = Arc::new(Cluster::new(nodes, url, config));
                let connections = NodeConnections::new(Arc::clone(&cluster));
                How::Cluster { cluster, connections }
            }
        };
        Ok(Self { how })
    }

    /// How Tally logs in. With Sentinels, the host and port are not those of Redis.
    pub fn login(&self) -> &ConnectionInfo {
        match &self.how {
            How::Fixed(node) => &node.info,
            How::Followed(followed) => followed.sentinels.login(),
            How::Cluster { cluster, .. } => cluster.login(),
        }
    }

    /// Whether it is a Redis Cluster.
    pub fn is_cluster(&self) -> bool {
        matches!(self.how, How::Cluster { .. })
    }

    /// Whether Sentinels say which Redis is used.
    pub fn is_followed(&self) -> bool {
        matches!(self.how, How::Followed(_))
    }

    /// The Redis that is used now; `None`: the nodes of a Redis Cluster are.
    ///
    /// # Errors
    /// When Sentinels are to say it, and none ever has.
    async fn node(&self) -> Result<Option<Arc<Node>>, LiveError> {
        match &self.how {
            How::Fixed(node) => Ok(Some(Arc::clone(node))),
            How::Followed(followed) => followed.node().await.map(Some),
            How::Cluster { .. } => Ok(None),
        }
    }

    /// Counts the Redises that this program has seen to have this bucket. The first has 1.
    ///
    /// # Errors
    /// When it is not known.
    pub async fn number(&self, bucket: Bucket) -> Result<u64, LiveError> {
        match &self.how {
            How::Fixed(node) => Ok(node.number),
            How::Followed(followed) => Ok(followed.node().await?.number),
            How::Cluster { cluster, .. } => Ok(cluster.owner(bucket).await?.number),
        }
    }

    /// The buckets of each primary, in order. The lowest ones come first.
    ///
    /// # Errors
    /// When it is not known.
    pub async fn primaries(&self) -> Result<Vec<Vec<Bucket>>, LiveError> {
        match &self.how {
            How::Fixed(_) | How::Followed(_) => Ok(vec![vec![Bucket::FIRST]]),
            How::Cluster { cluster, .. } => cluster.primaries().await,
        }
    }

    /// The buckets that some node of a Redis Cluster says it takes over.
    pub async fn arriving(&self) -> Vec<Bucket> {
        match &self.how {
            How::Fixed(_) | How::Followed(_) => Vec::new(),
            How::Cluster { connections, .. } => connections.arriving().await,
        }
    }

    /// The buckets that are at the same Redis as this one, with itself.
    pub fn neighbours(&self, bucket: Bucket) -> Vec<Bucket> {
        match &self.how {
            How::Fixed(_) | How::Followed(_) => vec![bucket],
            How::Cluster { cluster, .. } => cluster.neighbours(bucket),
        }
    }

    /// The address of the node that has this bucket; `None`: it is no Redis Cluster, or not known.
    pub fn place(&self, bucket: Bucket) -> Option<String> {
        match &self.how {
            How::Fixed(_) | How::Followed(_) => None,
            How::Cluster { cluster, .. } => cluster.known_owner(bucket).map(|owner| owner.at.to_string()),
        }
    }

    /// Connections of the caller's own to the nodes of a Redis Cluster; `None`: it is none.
    pub fn own_connections(&self) -> Option<Arc<NodeConnections>> {
        match &self.how {
            How::Fixed(_) | How::Followed(_) => None,
            How::Cluster { cluster, .. } => Some(NodeConnections::new(Arc::clone(cluster))),
        }
    }

    /// A new connection, which the calling runtime drives; or a connection to the node of a Redis Cluster.
    pub async fn connect(&self, bucket: Bucket) -> Result<AnyConnection, LiveError> {
        if let How::Cluster { connections, .. } = &self.how {
            return connections
                .current(bucket)
                .await
                .map(|connection| AnyConnection::Bucket(Box::new(connection)));
        }
        self.connect_alone().await.map(AnyConnection::Own)
    }

    /// A new connection to the only Redis there is. The calling runtime drives it.
    pub async fn connect_alone(&self) -> Result<MultiplexedConnection, LiveError> {
        let Some(node) = self.node().await? else {
            return Err(LiveError::Unavailable);
        };
        let connected = node.connect().await;
        if connected.is_err() {
            self.ask_again();
        }
        connected
    }

    /// A connection of the pool, or a connection to the node of a Redis Cluster.
    pub async fn get(&self, bucket: Bucket) -> Result<AnyConnection, LiveError> {
        let Some(node) = self.node().await? else {
            return self.connect(bucket).await;
        };
        let got = node.get().await;
        if got.is_err() {
            self.ask_again();
        }
        got.map(AnyConnection::Pooled)
    }

    /// Closes the connections that the pool keeps. Those in use end with it.
    pub fn renew_pool(&self) {
        let node = match &self.how {
            How::Fixed(node) => Some(Arc::clone(node)),
            How::Followed(followed) => followed.known().primary.clone(),
            How::Cluster { .. } => None,
        };
        if let Some(node) = node {
            node.renew_pool();
        }
    }

    /// A connection failed: whoever comes next asks Sentinels again.
    fn ask_again(&self) {
        if let How::Followed(followed) = &self.how {
            followed.known().asked_at = None;
        }
    }
}

impl Followed {
    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The primary that is known, and whether that is believed without asking.
    fn primary(&self) -> (Option<Arc<Node>>, bool) {
        let known = self.known();
        let is_believed = known.asked_at.is_some_and(|at| at.elapsed() < BELIEVED_FOR);
        (known.primary.clone(), is_believed)
    }

    async fn node(&self) -> Result<Arc<Node>, LiveError> {
        let _asking = match self.primary() {
            (Some(node), true) => return Ok(node),
            (Some(node), false) => match self.asking.try_lock() {
                Ok(asking) => asking,
                // Another one asks. The answer is most often the same.
                Err(_) => return Ok(node),
            },
            (None, _) => self.asking.lock().await,
        };
        let (known, is_believed) = self.primary();
        if let (Some(node), true) = (&known, is_believed) {
            return Ok(Arc::clone(node));
        }
        let chosen = match self.sentinels.named().await {
            // In a box: it stands deep in the futures of all programs.
            Ok(named) => Box::pin(self.choose(named, known.as_ref())).await,
            Err(error) => Err(error),
        };
        let node = match (chosen, known) {
            (Ok(node), _) => node,
            (Err(error), None) => return Err(error),
            // Redis goes on without its Sentinels, and so does Tally.
            (Err(error), Some(node)) => {
                if telemetry::is_news("the primary of Redis is not known for certain", &error) {
                    tracing::warn!(%error, primary = %node.address(), "Redis is used as before");
                }
                node
            }
        };
        let mut known = self.known();
        known.primary = Some(Arc::clone(&node));
        known.asked_at = Some(Instant::now());
        Ok(node)
    }

    /// The first of those named that says itself that it is the primary. The one that is used is left only then. For
    /// one of an earlier failover than was known it is left only if it is none any more: Sentinels that were cut off,
    /// or lost their files, go on naming an old one, which may not have heard that it is replaced.
    async fn choose(
        &self,
        named: Vec<(u64, ConnectionInfo)>,
        used: Option<&Arc<Node>>,
    ) -> Result<Arc<Node>, LiveError> {
        let latest = self.known().failover;
        let mut failure = LiveError::Unavailable;
        for (failover, info) in named {
            let is_used = used.filter(|node| node.address() == info.addr());
            let chosen = match (is_used, used) {
                (Some(node), _) => Ok(Arc::clone(node)),
                (None, Some(node)) if failover < latest && node.check().await.is_ok() => Ok(Arc::clone(node)),
                (None, _) => {
                    let number = used.map_or(0, |node| node.number) + 1;
                    let node = Arc::new(Node::new(info, &self.url, &self.config, number, true)?);
                    node.check().await.map(|()| node)
                }
            };
            match chosen {
                Ok(node) => {
                    let is_new = used.is_none_or(|used| used.number != node.number);
                    // Sentinels that lost their files begin to count anew. Once one of theirs is used, theirs is the latest.
                    self.known().failover = if is_new { failover } else { latest.max(failover) };
                    if is_new {
                        report(&node, used);
                    }
                    return Ok(node);
                }
                Err(LiveError::Unavailable) => {}
                Err(error) if matches!(failure, LiveError::Unavailable) => failure = error,
                Err(_) => {}
            }
        }
        Err(failure)
    }
}

fn report(node: &Node, before: Option<&Arc<Node>>) {
    match before {
        None => tracing::info!(primary = %node.address(), "Sentinels name the primary of Redis"),
        Some(before) => tracing::warn!(
            primary = %node.address(),
            before = %before.address(),
            "Sentinels name another primary of Redis"
        ),
    }
}

impl Node {
    fn new(
        info: ConnectionInfo,
        url: &StoreUrl,
        config: &AsyncConnectionConfig,
        number: u64,
        is_named: bool,
    ) -> Result<Self, LiveError> {
        let logged_in = LoggedIn {
            number: url.login_number(),
            pool: pool(log_in(&info, url), config, is_named)?,
        };
        Ok(Self {
            info,
            url: url.clone(),
            config: config.clone(),
            pool: Mutex::new(logged_in),
            number,
            is_named,
        })
    }

    fn address(&self) -> &ConnectionAddr {
        self.info.addr()
    }

    /// The pool, with the number of the present login.
    fn pool(&self) -> Result<(u64, Pool), LiveError> {
        let mut logged_in = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        let number = self.url.login_number();
        if logged_in.number != number {
            // Connections that are in use go on, and end with the old pool.
            let pool = pool(log_in(&self.info, &self.url), &self.config, self.is_named)?;
            *logged_in = LoggedIn { number, pool };
        }
        Ok((number, logged_in.pool.clone()))
    }

    fn renew_pool(&self) {
        let mut logged_in = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        let number = self.url.login_number();
        // It could be made with the same settings before.
        if let Ok(pool) = pool(log_in(&self.info, &self.url), &self.config, self.is_named) {
            *logged_in = LoggedIn { number, pool };
        }
    }

    async fn connect(&self) -> Result<MultiplexedConnection, LiveError> {
        let mut connection = login::connect(&self.info, &self.url, &self.config).await?;
        if self.is_named && !is_primary(&mut connection).await? {
            return Err(self.is_not_the_primary());
        }
        Ok(connection)
    }

    /// Checks that this Redis is a primary.
    async fn check(&self) -> Result<(), LiveError> {
        timeout(CHECK_LIMIT, self.connect())
            .await
            .map_or(Err(LiveError::Unavailable), |connected| connected.map(drop))
    }

    async fn get(&self) -> Result<Pooled, LiveError> {
        self.url.refresh().await;
        let (number, pool) = self.pool()?;
        match self.got(pool.get().await) {
            // In a box: it stands deep in the futures of all programs.
            Err(error) => Box::pin(self.get_again(number, error)).await,
            got => got,
        }
    }

    /// Another try, if the login with this number was refused, and there is another one by now.
    async fn get_again(&self, number: u64, error: LiveError) -> Result<Pooled, LiveError> {
        let mut got = Err(error);
        if let Err(error) = &got
            && has_other_login(&self.url, number, error).await
        {
            let (_, pool) = self.pool()?;
            got = self.got(pool.get().await);
        }
        match got {
            Err(error) => Err(error.named(self.address()).await),
            got => got,
        }
    }

    fn got(&self, got: Result<Connection, PoolError>) -> Result<Pooled, LiveError> {
        match got {
            Ok(connection) => Ok(Pooled::new(connection)),
            Err(PoolError::PostCreateHook(HookError::Backend(error))) => Err(error.into()),
            Err(PoolError::PostCreateHook(_)) => Err(self.is_not_the_primary()),
            Err(error) => Err(error.into()),
        }
    }

    fn is_not_the_primary(&self) -> LiveError {
        LiveError::NotThePrimary(self.address().to_string())
    }
}

fn pool(info: ConnectionInfo, config: &AsyncConnectionConfig, is_named: bool) -> Result<Pool, LiveError> {
    let manager = Manager::new_with_config(info, config.clone()).map_err(LiveError::Url)?;
    let mut pool = Pool::builder(manager)
        .max_size(POOL_LIMIT_CONNECTIONS)
        .wait_timeout(Some(ACQUIRE_LIMIT))
        .create_timeout(Some(ACQUIRE_LIMIT))
        .recycle_timeout(Some(ACQUIRE_LIMIT))
        .runtime(Runtime::Tokio1);
    if is_named {
        pool = pool.post_create(Hook::async_fn(|connection: &mut MultiplexedConnection, _| {
            Box::pin(async move {
                match is_primary(connection).await {
                    Ok(true) => Ok(()),
                    Ok(false) => Err(HookError::message(NOT_THE_PRIMARY)),
                    Err(error) => Err(HookError::Backend(error)),
                }
            })
        }));
    }
    pool.build().map_err(|_| LiveError::Unavailable)
}

/// Whether this Redis takes writes from clients. `HELLO` says it to every login; `ROLE` would need a right of its own.
async fn is_primary(connection: &mut impl ConnectionLike) -> Result<bool, RedisError> {
    let greeting = redis::cmd("HELLO").query_async(connection).await?;
    Ok(field::<String>(greeting, "role").is_some_and(|role| role == "master"))
}
