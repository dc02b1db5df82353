//! What faults do to a round's Postgres and Redis.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use nix::mount::{MsFlags, mount, umount2};
use nix::sys::signal::Signal;
use redis::aio::MultiplexedConnection;
use sqlx::{Executor, PgPool};
use tally::dev::{Durability, PrivatePostgres, PrivateRedis};
use tally::ledger::Role;
use testkit::LOOK_EVERY;
use testkit::stores::{self, DATABASE, SECRET};
use tokio::time::{Instant, sleep};

/// Large enough for a round, small enough to be filled in a moment.
const DISK_LIMIT_MEGABYTES: usize = 400;
/// How long a replica may take to follow.
const FOLLOW_LIMIT: Duration = Duration::from_secs(5);
/// How long Postgres may take to answer again after its disk was full or a process was killed.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// A migrated Postgres, stopped, that every round copies.
pub async fn template(folder: &Path) -> anyhow::Result<PrivatePostgres> {
    // The write-ahead log must fit onto the small disk.
    let settings = ["alter system set max_wal_size = '96MB'"];
    stores::make_template(&folder.join("template"), Durability::Full, &settings).await
}

/// Postgres, on a small disk of its own where one can be had.
pub struct Postgres {
    server: PrivatePostgres,
    disk: Option<PathBuf>,
    owner: PgPool,
}

impl Postgres {
    pub async fn start(folder: &Path, template: &PrivatePostgres) -> anyhow::Result<Self> {
        let disk = small_disk(&folder.join("disk"))?;
        let place = disk.as_deref().unwrap_or(folder).join("postgres");
        // The programs log in without a superuser's rights, so that limits apply to them.
        let server = stores::start_copy(template, &place, Durability::Full).await?;
        let owner = stores::owner_pool(&server.url(DATABASE))?;
        Ok(Self { server, disk, owner })
    }

    pub fn port(&self) -> u16 {
        self.server.port()
    }

    /// The harness' own connections, without a proxy and with every right.
    pub fn owner(&self) -> PgPool {
        self.owner.clone()
    }

    pub fn has_small_disk(&self) -> bool {
        self.disk.is_some()
    }

    /// The URL of the login with this role, on the port of a proxy or on its own.
    pub fn login_url(&self, role: Role, port: u16) -> String {
        let own = format!(":{}/", self.server.port());
        self.server
            .login_url(role, DATABASE)
            .replace(&own, &format!(":{port}/"))
    }

    pub async fn killed(&mut self, lasting: Duration) -> anyhow::Result<()> {
        self.server.kill().await;
        sleep(lasting).await;
        self.server.start().await
    }

    pub async fn restarted_immediately(&mut self, lasting: Duration) -> anyhow::Result<()> {
        self.server.crash().await;
        sleep(lasting).await;
        self.server.start().await
    }

    pub async fn stopped(&mut self, lasting: Duration) -> anyhow::Result<()> {
        self.server.signal_all(Signal::SIGSTOP)?;
        sleep(lasting).await;
        self.server.signal_all(Signal::SIGCONT)
    }

    /// One process is killed; Postgres then ends all others and recovers by itself.
    /// Returns whether there was one.
    pub async fn process_killed(&mut self) -> anyhow::Result<bool> {
        let process: Option<i32> = sqlx::query_scalar(
            "select pid from pg_stat_activity
             where backend_type = 'client backend' and usename <> 'tally'
             order by random() limit 1",
        )
        .fetch_optional(&self.owner)
        .await?;
        let Some(process) = process else { return Ok(false) };
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(process), Signal::SIGKILL)?;
        // It starts again by itself.
        sleep(Duration::from_millis(100)).await;
        self.answers_again().await.map(|()| true)
    }

    /// Every connection of the programs is ended, and new ones are refused.
    pub async fn without_connections(&mut self, lasting: Duration) -> anyhow::Result<()> {
        let mut owner = self.owner.acquire().await?;
        owner.execute("alter database tally connection limit 0").await?;
        owner
            .execute("select pg_terminate_backend(pid) from pg_stat_activity where usename <> 'tally'")
            .await?;
        sleep(lasting).await;
        owner.execute("alter database tally connection limit -1").await?;
        Ok(())
    }

    /// The disk is full to the last byte for a while. If Postgres ends because of it, it is
    /// started again, as its supervisor would do.
    pub async fn disk_full(&mut self, lasting: Duration) -> anyhow::Result<()> {
        let disk = self.disk.as_deref().context("Postgres has no small disk")?;
        let ballast = disk.join("ballast");
        fill(&ballast)?;
        sleep(lasting).await;
        std::fs::remove_file(&ballast)?;
        self.answers_again().await
    }

    async fn answers_again(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + ANSWER_LIMIT;
        while !tally::ledger::answers(&self.server.url(DATABASE)).await {
            if !self.server.runs() {
                self.server.crash().await;
                self.server.start().await?;
            }
            if Instant::now() > deadline {
                bail!("Postgres did not come back");
            }
            sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    pub async fn stop(&mut self) {
        self.server.stop().await;
    }

    /// Keeps its log, for a round that failed: the small disk goes with the round.
    pub fn keep_log(&self, folder: &Path) {
        if let Some(disk) = &self.disk {
            let _ = std::fs::copy(disk.join("postgres/log"), folder.join("postgres.log"));
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Some(disk) = &self.disk {
            // A process that still has a file open there keeps it until its end.
            let _ = umount2(disk, nix::mount::MntFlags::MNT_DETACH);
        }
    }
}

/// A file system in memory, which only root can mount; `None` for others.
fn small_disk(place: &Path) -> anyhow::Result<Option<PathBuf>> {
    if !nix::unistd::Uid::effective().is_root() {
        return Ok(None);
    }
    std::fs::create_dir_all(place)?;
    let options = format!("size={DISK_LIMIT_MEGABYTES}m");
    let mounted = mount(
        Some("tmpfs"),
        place,
        Some("tmpfs"),
        MsFlags::empty(),
        Some(options.as_str()),
    );
    Ok(mounted.is_ok().then(|| place.to_owned()))
}

fn fill(ballast: &Path) -> anyhow::Result<()> {
    let mut file = File::create(ballast)?;
    let mut block = vec![0_u8; 1024 * 1024];
    while !block.is_empty() {
        match file.write_all(&block) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::StorageFull => {
                let half = block.len() / 2;
                block.truncate(half);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

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
    async fn start(folder: PathBuf) -> anyhow::Result<Self> {
        let server = stores::start_redis(&folder, SECRET).await?;
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
    pub async fn start(folder: &Path) -> anyhow::Result<Self> {
        Ok(Self {
            current: Server::start(folder.join("redis-1")).await?,
            spare: Server::start(folder.join("redis-2")).await?,
        })
    }

    pub fn port(&self) -> u16 {
        self.current.server.port()
    }

    /// The URL for a program, through the proxy on this port.
    pub fn program_url(port: u16) -> String {
        format!("redis://:{SECRET}@127.0.0.1:{port}/0")
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

    /// It comes back as it was `lasting` ago.
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

    /// The spare follows, stops following while votes go on, and takes over: the counts
    /// from between are lost. `point_to` sends the programs to it.
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
        // The old one has gone with its machine; a new spare takes its place.
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
