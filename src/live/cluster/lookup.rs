//! Asks nodes of a Redis Cluster which of them has what.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use rand::seq::SliceRandom;
use redis::{AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, RedisError};
use tokio::time::Instant;

use super::map::{Map, Owner};
use super::nodes::{self, At, Node};
use crate::live::LiveError;
use crate::live::address::at;
use crate::live::buckets::Bucket;
use crate::live::login;
use crate::store_url::StoreUrl;
use crate::telemetry;

/// How long it is believed what nodes said. Whoever comes later asks again.
const BELIEVED_FOR: Duration = Duration::from_secs(1);
/// The least time between two questions, after calls have failed.
const ASK_EVERY: Duration = Duration::from_millis(50);
/// How long a node may take to connect, and how long to answer.
pub(super) const ASK_LIMIT: Duration = Duration::from_millis(300);
/// How many nodes are asked at once. One that was cut off says what was.
const ASKED_NODES: usize = 3;
/// The most nodes that are asked if those do not answer.
const ASKED_LIMIT_NODES: usize = 32;

/// A Redis Cluster, and what is known of it.
pub struct Cluster {
    seeds: Vec<ConnectionInfo>,
    pub(super) url: StoreUrl,
    pub(super) config: AsyncConnectionConfig,
    known: Mutex<Known>,
    /// How often connections to each node have failed.
    failures: Mutex<HashMap<At, u64>>,
    /// Whoever asks nodes holds it.
    asking: tokio::sync::Mutex<()>,
}

struct Known {
    map: Map,
    asked_at: Option<Instant>,
    /// Whether calls have failed since.
    is_questioned: bool,
}

impl Cluster {
    /// A Cluster with these nodes of a URL among its nodes, at least one.
    pub fn new(seeds: Vec<ConnectionInfo>, url: StoreUrl, config: AsyncConnectionConfig) -> Self {
        Self {
            seeds,
            url,
            config,
            known: Mutex::new(Known {
                map: Map::new(),
                asked_at: None,
                is_questioned: false,
            }),
            failures: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
        }
    }

    /// How Tally logs in at each node. Host and port are those of the first in the URL.
    pub fn login(&self) -> &ConnectionInfo {
        &self.seeds[0]
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // No panic leaves it half changed, so the poison means nothing.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The owner of this bucket as it is known, without a question; `None`: nobody knows.
    pub fn known_owner(&self, bucket: Bucket) -> Option<Owner> {
        self.known().map.owner(bucket).cloned()
    }

    /// The owner of this bucket. Asks nodes if the last answer is older than a second, or calls have failed since.
    ///
    /// # Errors
    /// When nobody knows it.
    pub async fn owner(&self, bucket: Bucket) -> Result<Owner, LiveError> {
        let asked = self.look().await;
        match (self.known_owner(bucket), asked) {
            (Some(owner), _) => Ok(owner),
            (None, Err(error)) => Err(error),
            (None, Ok(())) => Err(LiveError::NoOwner(bucket.slot())),
        }
    }

    /// The buckets of each primary.
    ///
    /// # Errors
    /// When no node has ever answered, or a bucket has no primary.
    pub async fn primaries(&self) -> Result<Vec<Vec<Bucket>>, LiveError> {
        let asked = self.look().await;
        let primaries = self.known().map.primaries();
        if primaries.is_empty() {
            asked?;
            return Err(LiveError::NoOwner(Bucket::FIRST.slot()));
        }
        Ok(primaries)
    }

    /// All primaries that are known, also those without slots.
    pub(super) fn all_primaries(&self) -> Vec<At> {
        self.known().map.all_primaries().to_vec()
    }

    /// The buckets whose node is that of this one, with itself.
    pub fn neighbours(&self, bucket: Bucket) -> Vec<Bucket> {
        let primaries = self.known().map.primaries();
        let of_bucket = primaries.into_iter().find(|buckets| buckets.contains(&bucket));
        of_bucket.unwrap_or_else(|| vec![bucket])
    }

    /// A call failed: whoever comes next asks again.
    pub fn question(&self) {
        self.known().is_questioned = true;
    }

    /// How often connections to this node have failed, those of all threads.
    pub(super) fn failures(&self, node: &At) -> u64 {
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.get(node).copied().unwrap_or_default()
    }

    /// A connection to this node failed that was made after so many failures. One that is as old is not used again,
    /// whichever thread has it: the node may be another process by now, and its first call would fail.
    pub(super) fn failed(&self, node: &At, made_after: u64) {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        match failures.get_mut(node) {
            Some(failures) if *failures == made_after => *failures += 1,
            Some(_) => {}
            None => {
                failures.insert(node.clone(), 1);
            }
        }
    }

    /// A node sends callers of this bucket to another one.
    pub(super) fn moved(&self, bucket: Bucket, to: At) {
        let mut known = self.known();
        known.map.moved(bucket, to);
        known.is_questioned = true;
    }

    /// How to connect to this node.
    pub(super) fn info(&self, node: &At) -> ConnectionInfo {
        at(self.login(), node.host.clone(), node.port)
    }

    fn is_believed(&self) -> bool {
        let known = self.known();
        let limit = if known.is_questioned {
            ASK_EVERY
        } else {
            BELIEVED_FOR
        };
        known.asked_at.is_some_and(|at| at.elapsed() < limit)
    }

    /// Asks nodes, unless that was done lately, or another one does it.
    ///
    /// # Errors
    /// When no node answers, and none ever has.
    async fn look(&self) -> Result<(), LiveError> {
        if self.is_believed() {
            return Ok(());
        }
        let has_asked = self.known().asked_at.is_some();
        let _asking = match self.asking.try_lock() {
            Ok(asking) => asking,
            // What it learns is most often the same.
            Err(_) if has_asked => return Ok(()),
            Err(_) => self.asking.lock().await,
        };
        if self.is_believed() {
            return Ok(());
        }
        self.known().is_questioned = false;
        let answers = self.ask().await;
        let mut known = self.known();
        match answers {
            Ok(answers) => {
                known.map.learn(&answers, Instant::now());
                known.asked_at = Some(Instant::now());
                Ok(())
            }
            Err(error) if known.asked_at.is_none() => Err(error),
            // Its nodes may answer calls all the same.
            Err(error) => {
                known.asked_at = Some(Instant::now());
                drop(known);
                if telemetry::is_news("no node of the Redis Cluster answers", &error) {
                    tracing::warn!(%error, "the Redis Cluster is used as it was known");
                }
                Ok(())
            }
        }
    }

    /// What nodes say, at least one of them.
    async fn ask(&self) -> Result<Vec<Vec<Node>>, LiveError> {
        let mut nodes: Vec<ConnectionInfo> = self
            .known()
            .map
            .nodes()
            .iter()
            .map(|one| self.info(one))
            .collect();
        nodes.shuffle(&mut rand::rng());
        // Those in the URL too: all that are known may be gone.
        nodes.extend(self.seeds.iter().cloned());
        nodes.truncate(ASKED_LIMIT_NODES);
        let mut failure = LiveError::Unavailable;
        let mut without_slots = Vec::new();
        for some in nodes.chunks(ASKED_NODES) {
            let mut answers = Vec::new();
            for answer in join_all(some.iter().map(|info| self.ask_one(info))).await {
                match answer {
                    Ok(nodes) => answers.push(nodes),
                    // What waiting does not help says more.
                    Err(error) if error.is_unfit() || !failure.is_unfit() => failure = error,
                    Err(_) => {}
                }
            }
            // One that was taken out of the Cluster knows no slots.
            if answers.iter().flatten().any(|node| !node.slots.is_empty()) {
                return Ok(answers);
            }
            without_slots.extend(answers);
        }
        if without_slots.is_empty() {
            Err(failure)
        } else {
            Ok(without_slots)
        }
    }

    async fn ask_one(&self, info: &ConnectionInfo) -> Result<Vec<Node>, LiveError> {
        let config = self
            .config
            .clone()
            .set_connection_timeout(Some(ASK_LIMIT))
            .set_response_timeout(Some(ASK_LIMIT));
        let mut connection = login::connect(info, &self.url, &config).await?;
        let asked: Result<String, RedisError> = redis::cmd("CLUSTER")
            .arg("NODES")
            .query_async(&mut connection)
            .await;
        let (at, is_named) = place(info.addr());
        match asked {
            Ok(reply) => Ok(nodes::read(&reply, &at, is_named)),
            Err(error)
                if error
                    .detail()
                    .is_some_and(|text| text.contains("cluster support disabled")) =>
            {
                Err(LiveError::NotACluster(at.to_string()))
            }
            Err(error) if error.code() == Some("NOPERM") => Err(LiveError::NoNodesPermission(at.to_string())),
            Err(error) => Err(error.into()),
        }
    }
}

/// Where this address is, and whether it needs a name, as TLS does.
fn place(address: &ConnectionAddr) -> (At, bool) {
    let (host, port, is_tls) = match address {
        ConnectionAddr::TcpTls { host, port, .. } => (host.clone(), *port, true),
        ConnectionAddr::Tcp(host, port) => (host.clone(), *port, false),
        // A URL of a Cluster has hosts.
        _ => (String::new(), 0, false),
    };
    (At { host, port }, is_tls)
}
