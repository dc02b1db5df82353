//! Faults of a real Redis Cluster, one after the other, while votes are cast: nodes that are killed or frozen, slots that
//! move, and both at once.

mod moves;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use redis::Value as Reply;
use serde_json::Value;
use tally::app::{self, StoreUrls};
use tally::dev::{PrivateCluster, PrivateRedis};
use tally::domain::ItemId;
use tally::ledger::Role;
use tally::live::{Counters, KeyPrefix};
use testkit::stores::{Stores, redis_connection, redis_info};
use tokio::time::{Instant, sleep};

use crate::check;
use crate::check::Counts;
use crate::pair::{self, BEFORE, Breakable, LOOK_EVERY, Pair};

/// How long a replica gets nothing before its primary is lost.
const LAG: Duration = Duration::from_millis(400);
/// How long a node is frozen that is not voted out, and that is.
const SHORT_FREEZE: Duration = Duration::from_millis(900);
/// How long a failover may take, and how long a node that is back to follow its primary.
const FAILOVER_LIMIT: Duration = Duration::from_secs(60);
/// How often all connections to a node are cut in a row.
const CUTS: usize = 20;
/// How often a slot is moved in a row while connections are cut.
const CUT_MOVES: usize = 4;
/// More than a slot has while connections are cut.
const MOVED_AT_ONCE: usize = 10_000;
/// Keys that the step of a broken move takes: of a bucket's counters, most are left.
const MOVED_KEYS_OF_A_FEW: usize = 4;
/// The hash slots of some buckets, whose tags are `aR`, `7X`, `4X`, `Kf`, `QT` and `ib`.
const SLOTS: [u16; 6] = [684, 2047, 4780, 7510, 10_239, 15_702];

/// How long calls come to a node that is to run them and not answer.
const CALLS_COME: Duration = Duration::from_millis(20);
/// How long the command that cuts connections takes at most to come to it.
const CUT_COMES: Duration = Duration::from_millis(5);

/// Ends all clients' connections but the one that says it.
const CUT: [&str; 4] = ["CLIENT", "KILL", "TYPE", "normal"];

/// What happens.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    Killed,
    KilledAfterALag,
    FrozenAndWoken,
    FrozenForAWhile,
    SlotMoved,
    /// The node that hands a slot over is killed. The move is ended later.
    KilledInMidMove,
    /// The same, with a replica that lagged. It hands over the rest, with counts of before the lag.
    KilledInMidMoveAfterALag,
    Wiped,
    ScriptsForgotten,
    ReplacedByHand,
    /// Calls that ran are not answered.
    ConnectionsCut,
    /// The same, and the slot moves at once: of a call that ran, the node says soon after that the slot is elsewhere.
    ConnectionsCutAsASlotLeaves,
}

const TROUBLES: [Trouble; 12] = [
    Trouble::Killed,
    Trouble::SlotMoved,
    Trouble::KilledInMidMove,
    Trouble::FrozenAndWoken,
    Trouble::KilledAfterALag,
    Trouble::FrozenForAWhile,
    Trouble::Wiped,
    Trouble::KilledInMidMoveAfterALag,
    Trouble::ScriptsForgotten,
    Trouble::ReplacedByHand,
    Trouble::ConnectionsCut,
    Trouble::ConnectionsCutAsASlotLeaves,
];

/// A primary, and its slots.
#[derive(Clone, Debug)]
struct Owner {
    id: String,
    port: u16,
}

struct Installation {
    stores: Stores,
    cluster: PrivateCluster,
    counters: Counters,
    pair: Pair,
}

/// Plays faults.
///
/// # Errors
/// When something does not start, or never becomes right.
pub async fn play(folder: &Path) -> anyhow::Result<(Value, Vec<String>)> {
    pair::play(Installation::start(folder).await?).await
}

impl Breakable for Installation {
    /// What happens to this slot, or to the primary that has it.
    type Fault = (Trouble, u16);

    const NAME: &str = "cluster";

    fn pair(&self) -> &Pair {
        &self.pair
    }

    fn stores(&self) -> &Stores {
        &self.stores
    }

    fn worker_redis_url(&self) -> String {
        self.cluster.login_url(Role::Worker)
    }

    fn draw(&self, round: usize, random: &mut StdRng) -> anyhow::Result<(Trouble, u16)> {
        let trouble = pair::draw(&TROUBLES, round, random)?;
        Ok((trouble, *SLOTS.choose(random).context("a slot")?))
    }

    fn forgets((trouble, _): (Trouble, u16)) -> bool {
        match trouble {
            Trouble::Killed
            | Trouble::KilledAfterALag
            | Trouble::FrozenAndWoken
            | Trouble::KilledInMidMove
            | Trouble::KilledInMidMoveAfterALag
            | Trouble::Wiped => true,
            Trouble::FrozenForAWhile
            | Trouble::SlotMoved
            | Trouble::ScriptsForgotten
            | Trouble::ReplacedByHand
            | Trouble::ConnectionsCut
            | Trouble::ConnectionsCutAsASlotLeaves => false,
        }
    }

    async fn prepare(&mut self, _: usize) -> anyhow::Result<()> {
        Ok(())
    }

    async fn break_it(&mut self, (trouble, slot): (Trouble, u16)) -> anyhow::Result<()> {
        self.play(trouble, slot).await
    }

    async fn counts(&self) -> anyhow::Result<Vec<Counts>> {
        let live = async |items: Vec<i64>| {
            let items: Vec<ItemId> = items.into_iter().filter_map(ItemId::new).collect();
            let counters = self.counters.read(&items).await?;
            let live = counters.into_iter().map(|one| one.count.map(|(count, _)| count));
            Ok(live.collect())
        };
        check::counts_with(&self.stores.pool(), live).await
    }

    /// Waits until each primary has a replica with all of its data: another one is not promoted.
    async fn until_followed(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + FAILOVER_LIMIT;
        loop {
            let mut following = 0;
            for node in &self.cluster.nodes {
                let Ok(info) = redis_info(&node.url(), "replication").await else {
                    continue;
                };
                let is_up = info
                    .get::<String>("master_link_status")
                    .is_some_and(|link| link == "up");
                following += usize::from(is_up);
            }
            if following == PrivateCluster::PRIMARIES {
                return Ok(());
            }
            self.employ_the_idle().await?;
            if Instant::now() > deadline {
                let seen = self
                    .send(self.cluster.nodes[0].port(), &["CLUSTER", "NODES"])
                    .await;
                let seen: String = redis::from_redis_value(seen?)?;
                bail!("{following} replicas follow their primaries: {seen}");
            }
            sleep(LOOK_EVERY).await;
        }
    }
}

/// The port in `<host>:<port>@<port of the bus>`.
fn port_of(address: &str) -> anyhow::Result<u16> {
    let (address, _) = address.split_once('@').context("an address")?;
    let (_, port) = address.rsplit_once(':').context("a port")?;
    Ok(port.parse()?)
}

impl Installation {
    async fn start(folder: &Path) -> anyhow::Result<Self> {
        let (stores, cluster) = Stores::start().await.clustered().await;
        let pair = Pair::start(folder, &stores, |role, _| cluster.login_url(role)).await?;
        let counters = app::counters(&StoreUrls {
            database_url: "".into(),
            redis_url: cluster.login_url(Role::Worker).into(),
            key_prefix: KeyPrefix::default(),
        })?;
        Ok(Self {
            stores,
            cluster,
            counters,
            pair,
        })
    }

    fn node(&mut self, port: u16) -> anyhow::Result<&mut PrivateRedis> {
        let mut nodes = self.cluster.nodes.iter_mut();
        nodes
            .find(|node| node.port() == port)
            .with_context(|| format!("no node has the port {port}"))
    }

    fn ports(&self) -> Vec<u16> {
        self.cluster.nodes.iter().map(PrivateRedis::port).collect()
    }

    async fn send(&self, port: u16, words: &[&str]) -> anyhow::Result<Reply> {
        let mut nodes = self.cluster.nodes.iter();
        let node = nodes.find(|node| node.port() == port).context("a node")?;
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        Ok(command
            .query_async(&mut redis_connection(&node.url()).await?)
            .await?)
    }

    /// Cuts all connections to a node, which has run the last calls and has not answered them: it reads what came while it
    /// was frozen, one connection after the other, and answers once it has read all. Then it runs this command.
    async fn cut_unanswered(&mut self, port: u16, then: Option<&[String]>) -> anyhow::Result<()> {
        let node = self.node(port)?;
        let mut connection = redis_connection(&node.url()).await?;
        let mut pipeline = redis::pipe();
        pipeline.cmd(CUT[0]).arg(&CUT[1..]);
        if let Some(words) = then {
            pipeline.cmd(&words[0]).arg(&words[1..]);
        }
        node.pause()?;
        sleep(CALLS_COME).await;
        let resumed = async {
            sleep(CUT_COMES).await;
            node.resume()
        };
        let (cut, resumed) = tokio::join!(pipeline.exec_async(&mut connection), resumed);
        resumed?;
        Ok(cut?)
    }

    /// The primary of this slot, as this node sees it.
    async fn owner_by(&self, asked: u16, slot: u16) -> anyhow::Result<Option<Owner>> {
        let text: String = redis::from_redis_value(self.send(asked, &["CLUSTER", "NODES"]).await?)?;
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let is_there = words.iter().skip(8).any(|word| {
                let (from, to) = word.split_once('-').unwrap_or((word, word));
                let number = |text: &str| text.parse::<u16>().ok();
                number(from)
                    .zip(number(to))
                    .is_some_and(|(from, to)| (from..=to).contains(&slot))
            });
            let is_well = !words[2].contains("fail") && words[2].contains("master");
            if is_there && is_well {
                return Ok(Some(Owner {
                    id: words[0].to_owned(),
                    port: port_of(words[1])?,
                }));
            }
        }
        Ok(None)
    }

    /// The primary of this slot, which is not this one: it says so itself, and so do most nodes. One that takes the slot
    /// over hears of no failover until that is done.
    async fn owner(&self, slot: u16, but: Option<u16>) -> anyhow::Result<Owner> {
        let deadline = Instant::now() + FAILOVER_LIMIT;
        loop {
            let mut named = Vec::new();
            for port in self.ports().into_iter().filter(|port| Some(*port) != but) {
                named.extend(self.owner_by(port, slot).await?.map(|owner| (port, owner)));
            }
            let own = named.iter().find(|(port, owner)| *port == owner.port);
            if let Some((_, own)) = own
                && named.iter().filter(|(_, owner)| owner.id == own.id).count() > self.ports().len() / 2
            {
                return Ok(own.clone());
            }
            if Instant::now() > deadline {
                bail!("the nodes do not agree who has slot {slot}: {named:?}");
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Has a primary without slots follow the one without a replica, as its operator would. A node that comes back, and
    /// hears of one slot from another node than of its others, stays a primary (seen with Redis 7.0).
    async fn employ_the_idle(&self) -> anyhow::Result<()> {
        for port in self.ports() {
            let Ok(reply) = self.send(port, &["CLUSTER", "NODES"]).await else {
                continue;
            };
            let text: String = redis::from_redis_value(reply)?;
            let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
            let is_idle = |words: &&Vec<&str>| words[2] == "myself,master" && words.len() == 8;
            if !lines.iter().any(|words| is_idle(&words)) {
                continue;
            }
            let followed: Vec<&str> = lines.iter().map(|words| words[3]).collect();
            let is_alone = |words: &&Vec<&str>| words.len() > 8 && !followed.contains(&words[0]);
            if let Some(alone) = lines.iter().find(is_alone) {
                self.send(port, &["CLUSTER", "REPLICATE", alone[0]]).await?;
            }
        }
        Ok(())
    }

    /// The replicas of this primary.
    async fn replicas(&self, of: &Owner) -> anyhow::Result<Vec<u16>> {
        let mut replicas = Vec::new();
        for node in &self.cluster.nodes {
            let info = redis_info(&node.url(), "replication").await?;
            if info.get::<u16>("master_port") == Some(of.port) {
                replicas.push(node.port());
            }
        }
        Ok(replicas)
    }

    /// Kills a primary whose replicas miss its last writes.
    async fn kill_after_a_lag(&mut self, of: &Owner) -> anyhow::Result<()> {
        let replicas = self.replicas(of).await?;
        for port in &replicas {
            self.node(*port)?.pause()?;
        }
        pair::cut_replicas(&self.node(of.port)?.url()).await?;
        sleep(LAG).await;
        self.node(of.port)?.crash().await;
        for port in &replicas {
            self.node(*port)?.resume()?;
        }
        Ok(())
    }

    async fn play(&mut self, trouble: Trouble, slot: u16) -> anyhow::Result<()> {
        let before = self.owner(slot, None).await?;
        match trouble {
            Trouble::Killed => {
                self.node(before.port)?.crash().await;
                self.owner(slot, Some(before.port)).await?;
                self.node(before.port)?.start().await
            }
            Trouble::KilledAfterALag => {
                self.kill_after_a_lag(&before).await?;
                self.owner(slot, Some(before.port)).await?;
                self.node(before.port)?.start().await
            }
            Trouble::FrozenAndWoken => {
                self.node(before.port)?.pause()?;
                let after = self.owner(slot, Some(before.port)).await;
                self.node(before.port)?.resume()?;
                after.map(drop)
            }
            Trouble::FrozenForAWhile => {
                self.node(before.port)?.pause()?;
                sleep(SHORT_FREEZE).await;
                self.node(before.port)?.resume()
            }
            Trouble::SlotMoved => {
                let to = self.begin_move(slot, &before).await?;
                self.move_all(slot, &before, &to).await?;
                self.end_move(slot, Some(&before), &to).await
            }
            Trouble::ConnectionsCut => {
                for _ in 0..CUTS {
                    self.cut_unanswered(before.port, None).await?;
                    sleep(LOOK_EVERY).await;
                }
                Ok(())
            }
            Trouble::ConnectionsCutAsASlotLeaves => {
                let mut from = before;
                for _ in 0..CUT_MOVES {
                    let to = self.begin_move(slot, &from).await?;
                    let keys = self.keys_in(slot, &from, MOVED_AT_ONCE).await?;
                    let migrate = self.migrate(&to, &keys)?;
                    self.cut_unanswered(from.port, Some(&migrate)).await?;
                    self.move_all(slot, &from, &to).await?;
                    self.end_move(slot, Some(&from), &to).await?;
                    self.pair.until_counted().await?;
                    from = to;
                }
                Ok(())
            }
            Trouble::KilledInMidMove | Trouble::KilledInMidMoveAfterALag => {
                let to = self.begin_move(slot, &before).await?;
                self.move_some(slot, &before, &to, MOVED_KEYS_OF_A_FEW).await?;
                let is_moved_on = matches!(trouble, Trouble::KilledInMidMoveAfterALag);
                if is_moved_on {
                    self.kill_after_a_lag(&before).await?;
                } else {
                    self.node(before.port)?.crash().await;
                }
                let after = self.owner(slot, Some(before.port)).await?;
                sleep(BEFORE).await;
                if is_moved_on {
                    self.hand_over(&slot.to_string(), &after, &to).await?;
                    self.move_all(slot, &after, &to).await?;
                }
                self.node(before.port)?.start().await?;
                self.end_move(slot, is_moved_on.then_some(&after), &to).await
            }
            Trouble::Wiped => self.send(before.port, &["FLUSHALL"]).await.map(drop),
            Trouble::ScriptsForgotten => {
                for port in self.ports() {
                    self.send(port, &["SCRIPT", "FLUSH"]).await?;
                }
                Ok(())
            }
            Trouble::ReplacedByHand => {
                let replicas = self.replicas(&before).await?;
                let replica = *replicas.first().context("a replica")?;
                self.send(replica, &["CLUSTER", "FAILOVER"]).await?;
                let deadline = Instant::now() + FAILOVER_LIMIT;
                while self.owner(slot, None).await?.port != replica {
                    if Instant::now() > deadline {
                        bail!("the replica is not promoted");
                    }
                    sleep(LOOK_EVERY).await;
                }
                Ok(())
            }
        }
    }
}
