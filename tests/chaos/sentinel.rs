//! Failovers by real Sentinels, one after the other, while votes are cast. Two servers and two workers find Redis by
//! the Sentinels alone. Nobody audits: the counts must become exact by themselves.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use rand::rngs::StdRng;
use serde_json::Value;
use tally::dev::{PrivateRedis, PrivateSentinels};
use tally::ledger::Role;
use testkit::stores::{Stores, Watched, redis_connection, redis_info};
use tokio::time::{Instant, sleep};

use crate::check;
use crate::check::Counts;
use crate::pair::{self, Breakable, LOOK_EVERY, Pair};

/// How long replicas get nothing before their primary is lost. A primary takes no writes once both have been silent
/// for 2 s.
const LAG: Duration = Duration::from_millis(800);
/// How long a Redis that comes back may take to follow the new primary. Sentinel waits ten seconds or so before it
/// tells an old primary.
const FOLLOW_LIMIT: Duration = Duration::from_secs(60);

/// The server that asks the first Sentinel alone.
const LEFT_BEHIND: usize = 1;
/// How long all other programs may take to hear of a new primary. They ask once a second.
const HEARD: Duration = Duration::from_millis(1500);
/// How long the server then stays with the old one. It looks four times a second where the counts are.
const BEHIND: Duration = Duration::from_millis(2500);

/// What happens to the primary.
#[derive(Clone, Copy, Debug)]
enum Loss {
    Killed,
    KilledAfterALag,
    FrozenAndWoken,
    ReplacedByHand,
    /// Two of three Sentinels are silent while it is killed: nothing fails over until they are back.
    KilledWithoutSentinels,
    /// It is replaced, and goes on answering the server whose Sentinel is silent. The others are, too, once all other
    /// programs have heard: nobody tells it that it is a replica.
    ServerLeftBehind,
}

const LOSSES: [Loss; 6] = [
    Loss::Killed,
    Loss::KilledAfterALag,
    Loss::FrozenAndWoken,
    Loss::ReplacedByHand,
    Loss::KilledWithoutSentinels,
    Loss::ServerLeftBehind,
];

struct Installation {
    stores: Stores,
    watched: Watched,
    pair: Pair,
}

/// Plays failovers.
///
/// # Errors
/// When something does not start, or never becomes right.
pub async fn play(folder: &Path) -> anyhow::Result<(Value, Vec<String>)> {
    pair::play(Installation::start(folder).await?).await
}

impl Breakable for Installation {
    type Fault = Loss;

    const NAME: &str = "sentinel";

    fn pair(&self) -> &Pair {
        &self.pair
    }

    fn stores(&self) -> &Stores {
        &self.stores
    }

    fn worker_redis_url(&self) -> String {
        self.watched
            .sentinels
            .url(&self.stores.redis_login_url(Role::Worker))
    }

    fn draw(&self, round: usize, random: &mut StdRng) -> anyhow::Result<Loss> {
        pair::draw(&LOSSES, round, random)
    }

    fn forgets(_: Loss) -> bool {
        true
    }

    /// In every second round an old primary goes on counting until it hears of the new one.
    async fn prepare(&mut self, round: usize) -> anyhow::Result<()> {
        let guard = if round.is_multiple_of(2) { "0" } else { "1" };
        self.set("min-replicas-to-write", guard).await
    }

    async fn break_it(&mut self, loss: Loss) -> anyhow::Result<()> {
        self.lose(loss).await
    }

    async fn counts(&self) -> anyhow::Result<Vec<Counts>> {
        let port = self.primary().await?;
        let url = self.stores.redis.url();
        let url = url.replace(&format!(":{}/", self.stores.redis.port()), &format!(":{port}/"));
        check::counts(&self.stores.pool(), &mut redis_connection(&url).await?).await
    }

    /// Waits until the old primary is a replica of the new one, and Sentinels know all of them.
    async fn until_followed(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + FOLLOW_LIMIT;
        let primary = self.primary().await?;
        let ports = self.ports();
        loop {
            let mut following = 0;
            for port in &ports {
                let url = self.redis(*port)?.url();
                let Ok(info) = redis_info(&url, "replication").await else {
                    continue;
                };
                let of = info.get::<u16>("master_port");
                let is_up = info
                    .get::<String>("master_link_status")
                    .is_some_and(|link| link == "up");
                following += usize::from(of == Some(primary) && is_up);
            }
            if following + 1 == ports.len() {
                break;
            }
            if Instant::now() > deadline {
                bail!("an old primary does not follow the new one");
            }
            sleep(LOOK_EVERY).await;
        }
        self.watched.until_all_are_known().await;
        Ok(())
    }
}

impl Installation {
    async fn start(folder: &Path) -> anyhow::Result<Self> {
        let (stores, watched) = Stores::start().await.watched().await;
        let redis_url = |role, number| {
            let login = stores.redis_login_url(role);
            match (role, number) {
                (Role::Server, LEFT_BEHIND) => watched.sentinels.url_of([0], &login),
                _ => watched.sentinels.url(&login),
            }
        };
        let pair = Pair::start(folder, &stores, redis_url).await?;
        Ok(Self {
            stores,
            watched,
            pair,
        })
    }

    fn redis(&mut self, port: u16) -> anyhow::Result<&mut PrivateRedis> {
        let all = std::iter::once(&mut self.stores.redis).chain(&mut self.watched.replicas);
        all.into_iter()
            .find(|redis| redis.port() == port)
            .with_context(|| format!("no Redis has the port {port}"))
    }

    fn ports(&self) -> Vec<u16> {
        let all = std::iter::once(&self.stores.redis).chain(&self.watched.replicas);
        all.map(PrivateRedis::port).collect()
    }

    /// Changes a setting of each Redis.
    async fn set(&mut self, setting: &str, value: &str) -> anyhow::Result<()> {
        for port in self.ports() {
            let mut redis = redis_connection(&self.redis(port)?.url()).await?;
            let mut set = redis::cmd("CONFIG");
            set.arg("SET").arg(setting).arg(value);
            set.exec_async(&mut redis).await?;
        }
        Ok(())
    }

    async fn primary(&self) -> anyhow::Result<u16> {
        let named = self.watched.primary_port(0).await;
        named.context("Sentinel names no primary")
    }

    /// Has the second Sentinel promote a replica.
    async fn replace(&self) -> anyhow::Result<()> {
        let mut sentinel = redis_connection(&self.watched.sentinels.address(1)).await?;
        let mut failover = redis::cmd("SENTINEL");
        failover.arg("FAILOVER").arg(PrivateSentinels::NAME);
        failover.exec_async(&mut sentinel).await?;
        Ok(())
    }

    /// Loses the primary, and waits until another one is named. What was killed runs again afterwards.
    async fn lose(&mut self, loss: Loss) -> anyhow::Result<()> {
        let before = self.primary().await?;
        let replicas: Vec<u16> = self.ports().into_iter().filter(|port| *port != before).collect();
        match loss {
            Loss::Killed => self.redis(before)?.crash().await,
            Loss::KilledAfterALag => {
                for port in &replicas {
                    self.redis(*port)?.pause()?;
                }
                pair::cut_replicas(&self.redis(before)?.url()).await?;
                sleep(LAG).await;
                self.redis(before)?.crash().await;
                for port in &replicas {
                    self.redis(*port)?.resume()?;
                }
            }
            Loss::FrozenAndWoken => self.redis(before)?.pause()?,
            Loss::ReplacedByHand => self.replace().await?,
            Loss::ServerLeftBehind => {
                self.watched.sentinels.pause(0)?;
                self.replace().await?;
                self.watched.promoted(1, before).await;
                sleep(HEARD).await;
                for at in [1, 2] {
                    self.watched.sentinels.pause(at)?;
                }
                sleep(BEHIND).await;
                for at in 0..PrivateSentinels::NUMBER {
                    self.watched.sentinels.resume(at)?;
                }
            }
            Loss::KilledWithoutSentinels => {
                for at in [1, 2] {
                    self.watched.sentinels.pause(at)?;
                }
                self.redis(before)?.crash().await;
                sleep(LAG).await;
                for at in [1, 2] {
                    self.watched.sentinels.resume(at)?;
                }
            }
        }
        self.watched.promoted(0, before).await;
        match loss {
            Loss::FrozenAndWoken => self.redis(before)?.resume()?,
            Loss::ReplacedByHand | Loss::ServerLeftBehind => {}
            _ => self.redis(before)?.start().await?,
        }
        Ok(())
    }
}
