//! A private Redis Cluster.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::bail;
use tokio::time::{Instant, sleep};

use super::process::free_port;
use super::redis::PrivateRedis;
use crate::ledger::Role;
use crate::live::{self, KeyPrefix, RedisFacts};

/// How long a node may be silent until it counts as gone.
const NODE_TIMEOUT: Duration = Duration::from_secs(2);
/// The hash slots of a Redis Cluster.
const SLOTS: usize = 16_384;
/// How long all nodes may take until they serve all slots, and replicas follow.
const START_LIMIT: Duration = Duration::from_secs(30);
/// The time between two looks.
const START_EVERY: Duration = Duration::from_millis(50);

/// Primaries, and replicas of each.
#[derive(Debug)]
pub struct PrivateCluster {
    /// The primaries first, as they were at the first start.
    pub nodes: Vec<PrivateRedis>,
    /// How many each primary has.
    replicas: usize,
}

impl PrivateCluster {
    /// How many primaries it has at first.
    pub const PRIMARIES: usize = 3;

    /// Starts its nodes in `folder`, and waits until all slots are served and each primary has so many replicas. `make`
    /// makes a node in its folder.
    ///
    /// # Errors
    /// When a node does not start; the error has the end of its log.
    pub async fn start(
        folder: &Path,
        replicas: usize,
        make: impl Fn(&Path) -> anyhow::Result<PrivateRedis>,
    ) -> anyhow::Result<Self> {
        let number = (1 + replicas) * Self::PRIMARIES;
        let mut places = Vec::with_capacity(number);
        for at in 1..=number {
            let node = make(&folder.join(at.to_string()))?;
            places.push((node, free_port()?, format!("{:040x}", rand::random::<u128>())));
        }
        let known: Vec<(u16, u16, String)> = places
            .iter()
            .map(|(node, bus_port, id)| (node.port(), *bus_port, id.clone()))
            .collect();
        let mut nodes = Vec::with_capacity(number);
        for (at, (mut node, bus_port, _)) in places.into_iter().enumerate() {
            node.set_cluster(bus_port, NODE_TIMEOUT, Some(&nodes_file(&known, at)))?;
            node.start().await?;
            nodes.push(node);
        }
        let cluster = Self { nodes, replicas };
        cluster.until_whole().await?;
        Ok(cluster)
    }

    /// Starts a node, the last of all, which knows no other one and has no slots, for tests: `redis-cli --cluster
    /// add-node` takes it in.
    ///
    /// # Errors
    /// When it does not start; the error has the end of its log.
    pub async fn start_another(&mut self, mut node: PrivateRedis) -> anyhow::Result<()> {
        node.set_cluster(free_port()?, NODE_TIMEOUT, None)?;
        node.start().await?;
        self.nodes.push(node);
        Ok(())
    }

    /// The password of the user that may do everything, which is the same at each node.
    pub fn secret(&self) -> &str {
        self.nodes[0].secret()
    }

    /// Waits until all slots are served, and each primary has its replicas.
    async fn until_whole(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            let redis = live::Redis::new(self.url(), &KeyPrefix::default(), START_LIMIT)?;
            let is_whole = redis.takes_writes().await.is_ok()
                && redis.facts().await.is_ok_and(|facts| {
                    let has_all = |primary: &RedisFacts| primary.replicas >= self.replicas as u64;
                    facts.iter().all(|one| one.as_ref().is_ok_and(has_all))
                });
            if is_whole {
                return Ok(());
            }
            if Instant::now() >= deadline {
                bail!("the Redis Cluster is not whole after {} s", START_LIMIT.as_secs());
            }
            sleep(START_EVERY).await;
        }
    }

    /// Its URL for the login of this role.
    pub fn login_url(&self, role: Role) -> String {
        self.of_all(&self.nodes[0].login_url(role))
    }

    /// Its URL for the user that may do everything.
    pub fn url(&self) -> String {
        self.of_all(&self.nodes[0].url())
    }

    /// The URL of all nodes, with the login of this URL of one of them.
    fn of_all(&self, url: &str) -> String {
        let login = url
            .strip_prefix("redis://")
            .and_then(|rest| rest.rsplit_once('@'))
            .map_or("", |(login, _)| login);
        let hosts: Vec<String> = self
            .nodes
            .iter()
            .map(|node| format!("127.0.0.1:{}", node.port()))
            .collect();
        format!("redis+cluster://{login}@{}", hosts.join(","))
    }

    /// Stops all.
    pub async fn stop(mut self) {
        for node in &mut self.nodes {
            node.stop().await;
        }
    }
}

/// What the node at this place knows of all nodes, as it would have stored it: the first ones are primaries with equally
/// many slots, each of the others is a replica of one of them.
fn nodes_file(nodes: &[(u16, u16, String)], own: usize) -> String {
    let primaries = PrivateCluster::PRIMARIES;
    let mut text = String::new();
    for (at, (port, bus_port, id)) in nodes.iter().enumerate() {
        let myself = if at == own { "myself," } else { "" };
        let place = format!("{id} 127.0.0.1:{port}@{bus_port} {myself}");
        // A line of a string takes any.
        let _ = if at < primaries {
            let (from, end) = (SLOTS * at / primaries, SLOTS * (at + 1) / primaries - 1);
            writeln!(text, "{place}master - 0 0 {} connected {from}-{end}", at + 1)
        } else {
            let primary = at % primaries;
            writeln!(
                text,
                "{place}slave {} 0 0 {} connected",
                nodes[primary].2,
                primary + 1
            )
        };
    }
    let _ = writeln!(text, "vars currentEpoch {} lastVoteEpoch 0", nodes.len());
    text
}
