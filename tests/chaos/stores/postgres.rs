//! A round's Postgres, and what faults do to it.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use nix::errno::Errno;
use nix::mount::{MsFlags, mount, umount2};
use nix::sys::signal::Signal;
use sqlx::{Connection, Executor, PgConnection, PgPool};
use tally::dev::{Durability, PrivatePostgres};
use tally::ledger::Role;
use testkit::LOOK_EVERY;
use testkit::clock::Clock;
use testkit::proxy::Proxy;
use testkit::stores::{self, DATABASE, Variables};
use tokio::time::{Instant, sleep, timeout};

/// Large enough for a round, small enough to be filled in a moment.
const DISK_LIMIT_MEGABYTES: usize = 400;
/// How long Postgres may take to answer again after its disk was full or a process was killed.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// How long a transaction of a fault may take to begin or end: another fault may have stopped
/// Postgres.
const OPEN_LIMIT: Duration = Duration::from_secs(2);

/// Ends every session but the harness' own.
pub(super) const END_PROGRAMS: &str =
    "select pg_terminate_backend(pid) from pg_stat_activity where usename <> 'tally'";

/// Postgres, on a small disk of its own where one can be had.
pub struct Postgres {
    pub(super) server: PrivatePostgres,
    pub(super) disk: Option<PathBuf>,
    /// Where the round's files are.
    pub(super) folder: PathBuf,
    /// What is in the environment of each server.
    pub(super) variables: Variables,
    /// How many servers there were so far.
    pub(super) servers: usize,
    /// Leads the harness' own connections to the primary. No fault breaks it.
    pub(super) to_owner: Proxy,
    owner: PgPool,
}

impl Postgres {
    pub async fn start(folder: &Path, template: &PrivatePostgres, clock: &Clock) -> anyhow::Result<Self> {
        let disk = small_disk(&folder.join("disk"))?;
        let place = disk.as_deref().unwrap_or(folder).join("postgres");
        // The programs log in without a superuser's rights, so that limits apply to them.
        let variables = clock.variables();
        let server = stores::start_copy(template, &place, Durability::Full, variables.clone()).await?;
        let to_owner = Proxy::start(server.port()).await?;
        // So it writes even just after Postgres was read-only: a session notices the end of that only
        // with its next statement.
        let writing = "options[default_transaction_read_only]=off";
        let url = on_port(&server.url(DATABASE), &server, to_owner.port());
        let owner = stores::owner_pool(&format!("{url}?{writing}"))?;
        Ok(Self {
            server,
            disk,
            folder: folder.to_owned(),
            variables,
            servers: 1,
            to_owner,
            owner,
        })
    }

    pub fn port(&self) -> u16 {
        self.server.port()
    }

    /// The harness' own connections, which no fault breaks, with every right. They follow a failover.
    pub fn owner(&self) -> PgPool {
        self.owner.clone()
    }

    /// The URL for a session of the harness' own, with every right.
    pub fn owner_url(&self) -> String {
        on_port(&self.server.url(DATABASE), &self.server, self.to_owner.port())
    }

    pub fn has_small_disk(&self) -> bool {
        self.disk.is_some()
    }

    /// The URL of the login with this role, on the port of a proxy or on its own.
    pub fn login_url(&self, role: Role, port: u16) -> String {
        on_port(&self.server.login_url(role, DATABASE), &self.server, port)
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

    pub async fn restarted_in_order(&mut self, lasting: Duration) -> anyhow::Result<()> {
        self.server.stop().await;
        sleep(lasting).await;
        self.server.start().await
    }

    /// Makes every transaction read-only for a while, as on a primary that was demoted.
    pub async fn read_only(&mut self, lasting: Duration) -> anyhow::Result<()> {
        let mut owner = self.owner.acquire().await?;
        owner
            .execute("alter system set default_transaction_read_only = on")
            .await?;
        owner.execute("select pg_reload_conf()").await?;
        owner.execute(END_PROGRAMS).await?;
        sleep(lasting).await;
        owner
            .execute("alter system reset default_transaction_read_only")
            .await?;
        owner.execute("select pg_reload_conf()").await?;
        Ok(())
    }

    pub async fn stopped(&mut self, lasting: Duration) -> anyhow::Result<()> {
        self.server.signal_all(Signal::SIGSTOP)?;
        sleep(lasting).await;
        self.server.signal_all(Signal::SIGCONT)
    }

    /// Kills one process; Postgres then ends all others and recovers by itself. Returns whether
    /// there was one.
    pub async fn process_killed(&mut self) -> anyhow::Result<bool> {
        loop {
            let process: Option<i32> = sqlx::query_scalar(
                "select pid from pg_stat_activity
                 where backend_type = 'client backend' and usename <> 'tally'
                 order by random() limit 1",
            )
            .fetch_optional(&self.owner)
            .await?;
            let Some(process) = process else { return Ok(false) };
            match nix::sys::signal::kill(nix::unistd::Pid::from_raw(process), Signal::SIGKILL) {
                // It has ended since, with its connection.
                Err(Errno::ESRCH) => continue,
                killed => killed?,
            }
            // It starts again by itself.
            sleep(Duration::from_millis(100)).await;
            return self.answers_again().await.map(|()| true);
        }
    }

    /// Ends every connection of the programs, and refuses new ones for a while.
    pub async fn without_connections(&mut self, lasting: Duration) -> anyhow::Result<()> {
        let mut owner = self.owner.acquire().await?;
        owner.execute("alter database tally connection limit 0").await?;
        owner.execute(END_PROGRAMS).await?;
        sleep(lasting).await;
        owner.execute("alter database tally connection limit -1").await?;
        Ok(())
    }

    /// Fills the disk to the last byte for a while. If that ends Postgres, starts it again, as its
    /// supervisor would do.
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

    /// Keeps its log if a round failed: the small disk goes with the round.
    pub fn keep_log(&self, folder: &Path) {
        if let Some(disk) = &self.disk {
            let _ = std::fs::copy(disk.join("postgres/log"), folder.join("postgres.log"));
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Some(disk) = &self.disk {
            // A process that still has a file open there keeps the file until it ends.
            let _ = umount2(disk, nix::mount::MntFlags::MNT_DETACH);
        }
    }
}

/// Holds an item's row, like an `update` that someone left open in psql, and then commits or
/// rolls back. Returns whether it got the row.
pub async fn hold_row(url: &str, item: i64, commits: bool, lasting: Duration) -> anyhow::Result<bool> {
    hold(url, lasting, commits, async |session| {
        sqlx::query("update item set name = name where id = $1")
            .bind(item)
            .execute(session)
            .await
            .map(|_| ())
    })
    .await
}

/// Keeps a snapshot of everything open, as a long report or a dump does. Returns whether it got
/// one.
pub async fn hold_snapshot(url: &str, lasting: Duration) -> anyhow::Result<bool> {
    hold(url, lasting, false, async |session| {
        session
            .execute("set transaction isolation level repeatable read")
            .await?;
        session
            .execute("select sum(vote_count) from item")
            .await
            .map(|_| ())
    })
    .await
}

/// Leaves a transaction of its own open for a while, or until Postgres ends.
async fn hold(
    url: &str,
    lasting: Duration,
    commits: bool,
    begin: impl AsyncFnOnce(&mut PgConnection) -> sqlx::Result<()>,
) -> anyhow::Result<bool> {
    let opened = async {
        let mut session = PgConnection::connect(url).await?;
        session.execute("begin").await?;
        begin(&mut session).await?;
        Ok::<_, sqlx::Error>(session)
    };
    let Ok(Ok(mut session)) = timeout(OPEN_LIMIT, opened).await else {
        return Ok(false);
    };
    sleep(lasting).await;
    let end = if commits { "commit" } else { "rollback" };
    let _ = timeout(OPEN_LIMIT, session.execute(end)).await;
    Ok(true)
}

/// A URL of this server with another port.
fn on_port(url: &str, server: &PrivatePostgres, port: u16) -> String {
    url.replace(&format!(":{}/", server.port()), &format!(":{port}/"))
}

/// Mounts a file system in memory. Only root can; `None` for others.
pub(super) fn small_disk(place: &Path) -> anyhow::Result<Option<PathBuf>> {
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
