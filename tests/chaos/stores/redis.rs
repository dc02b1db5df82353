//! A round's Redis, and what faults do to it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use redis::aio::MultiplexedConnection;
use tally::dev::{PrivateRedis, redis_login_url};
use tally::ledger::Role;
use testkit::LOOK_EVERY;
use testkit::clock::Clock;
use testkit::stores::{self, SECRET};
use tokio::time::{Instant, sleep};

/// How long a replica may take to follow.
const FOLLOW_LIMIT: Duration = Duration::from_secs(5);

/// Redis, and another one that it can fail over to.
pub struct Redis {
    current: Server,
    spare: Server,
}

struct Server {
    server: PrivateRedis,
    folder: PathBuf,
}

impl Server {
    async fn start(folder: PathBuf, clock: &Clock) -> anyhow::Result<Self> {
        let server = stores::start_redis(&folder, SECRET, clock.variables()).await?;
        Ok(Self { server, folder })
    }

    /// Where Redis keeps its append-only files.
    fn data(&self) -> PathBuf {
        self.folder.join("appendonlydir")
    }

    async fn connection(&self) -> anyhow::Result<MultiplexedConnection> {
        stores::redis_connection(&self.server.url()).await
    }

    async fn run(&self, words: &[&str]) -> anyhow::Result<()> {
        let mut command = redis::cmd(words.first().context("a command")?);
        command.arg(&words[1..]);
        Ok(command.exec_async(&mut self.connection().await?).await?)
    }
}

impl Redis {
    pub async fn start(folder: &Path, clock: &Clock) -> anyhow::Result<Self> {
        Ok(Self {
            current: Server::start(folder.join("redis-1"), clock).await?,
            spare: Server::start(folder.join("redis-2"), clock).await?,
        })
    }

    pub fn port(&self) -> u16 {
        self.current.server.port()
    }

    /// The URL for a program with the login of its role, through the proxy on this port.
    pub fn program_url(role: Role, port: u16) -> String {
        redis_login_url(SECRET, role, port)
    }

    /// Its own URL, without a proxy.
    pub fn url(&self) -> String {
        self.current.server.url()
    }

    /// The harness' own connection, without a proxy.
    pub async fn connection(&self) -> anyhow::Result<MultiplexedConnection> {
        self.current.connection().await
    }

    pub async fn killed(&mut self, lasting: Duration) -> anyhow::Result<()> {
        self.current.server.crash().await;
        sleep(lasting).await;
        self.current.server.start().await
    }

    pub async fn stopped(&mut self, lasting: Duration) -> anyhow::Result<()> {
        self.current.server.pause()?;
        sleep(lasting).await;
        self.current.server.resume()
    }

    pub async fn restarted_empty(&mut self, lasting: Duration) -> anyhow::Result<()> {
        self.current.server.crash().await;
        std::fs::remove_dir_all(self.current.data())?;
        sleep(lasting).await;
        self.current.server.start().await
    }

    /// Brings it back as it was `lasting` ago.
    pub async fn restarted_from_older_snapshot(&mut self, lasting: Duration) -> anyhow::Result<()> {
        let (data, snapshot) = (self.current.data(), self.current.folder.join("snapshot"));
        copy_folder(&data, &snapshot)?;
        sleep(lasting).await;
        self.current.server.crash().await;
        std::fs::remove_dir_all(&data)?;
        std::fs::rename(&snapshot, &data)?;
        self.current.server.start().await
    }

    pub async fn wiped(&mut self) -> anyhow::Result<()> {
        self.current.run(&["FLUSHALL"]).await
    }

    pub async fn scripts_flushed(&mut self) -> anyhow::Result<()> {
        self.current.run(&["SCRIPT", "FLUSH"]).await
    }

    pub async fn out_of_memory(&mut self, lasting: Duration) -> anyhow::Result<()> {
        self.current.run(&["CONFIG", "SET", "maxmemory", "1"]).await?;
        sleep(lasting).await;
        self.current.run(&["CONFIG", "SET", "maxmemory", "0"]).await
    }

    /// Limits its memory to what it uses and `spare_bytes` more: the next small increments still
    /// fit, or do not.
    pub async fn almost_out_of_memory(&mut self, spare_bytes: i64, lasting: Duration) -> anyhow::Result<()> {
        let info = stores::redis_info(&self.url(), "memory").await?;
        let used: i64 = info.get("used_memory").context("used_memory")?;
        let limit = (used + spare_bytes).to_string();
        self.current.run(&["CONFIG", "SET", "maxmemory", &limit]).await?;
        sleep(lasting).await;
        self.current.run(&["CONFIG", "SET", "maxmemory", "0"]).await
    }

    /// The spare follows, stops following while votes go on, and takes over. The counts of the
    /// time in between are lost. `point_to` sends the programs to the spare.
    pub async fn failed_over(&mut self, lasting: Duration, point_to: impl Fn(u16)) -> anyhow::Result<()> {
        self.current
            .run(&["CONFIG", "SET", "repl-diskless-sync-delay", "0"])
            .await?;
        self.spare.run(&["CONFIG", "SET", "masterauth", SECRET]).await?;
        let port = self.port().to_string();
        self.spare.run(&["REPLICAOF", "127.0.0.1", &port]).await?;
        let deadline = Instant::now() + FOLLOW_LIMIT;
        let spare = self.spare.server.url();
        while stores::redis_info(&spare, "replication")
            .await?
            .get::<String>("master_link_status")
            .is_none_or(|status| status != "up")
        {
            if Instant::now() > deadline {
                bail!("the replica did not follow");
            }
            sleep(LOOK_EVERY).await;
        }
        self.spare.run(&["REPLICAOF", "NO", "ONE"]).await?;
        sleep(lasting).await;
        std::mem::swap(&mut self.current, &mut self.spare);
        point_to(self.port());
        // The old one is gone with its machine; a new spare takes its place.
        self.spare.server.crash().await;
        std::fs::remove_dir_all(self.spare.data())?;
        self.spare.server.start().await
    }

    pub async fn stop(&mut self) {
        self.current.server.crash().await;
        self.spare.server.crash().await;
    }
}

fn copy_folder(from: &Path, to: &Path) -> anyhow::Result<()> {
    if to.exists() {
        std::fs::remove_dir_all(to)?;
    }
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        std::fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}
