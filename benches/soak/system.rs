//! Tally as it runs in production: two servers and two workers with logins of their own, on a
//! private Postgres (durable) and a private Redis.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use sqlx::PgPool;
use tally::app;
use tally::dev::{Durability, PrivatePostgres, PrivateRedis, free_port};
use tally::ledger::Role;
use testkit::programs::{Program, command, run_well, until_ready};
use testkit::stores::{DATABASE, SECRET, environment, folder, owner_pool};
use tokio::process::Command;

use crate::load::ITEMS;

const TALLY: &str = env!("CARGO_BIN_EXE_tally");
const SYNC_WORKER: &str = env!("CARGO_BIN_EXE_sync-worker");
const SERVERS: usize = 2;
const WORKERS: usize = 2;
/// When the workers audit by themselves: on a 29th of February. The soak stands for a time between
/// two nightly audits.
const AUDIT_CRON: &str = "0 0 0 29 2 *";
/// How long a program may take to stop in order: a worker's last flush may take 20 s.
const STOP_LIMIT: Duration = Duration::from_secs(60);

pub struct System {
    pub postgres: PrivatePostgres,
    pub redis: PrivateRedis,
    /// As the owner of the tables.
    pub pool: PgPool,
    pub servers: Vec<Program>,
    pub workers: Vec<Program>,
    pub addresses: Vec<SocketAddr>,
    folder: PathBuf,
    /// Held for as long as the folder is in use.
    _lock: File,
}

/// The process ids. They stay the same for the whole run.
#[derive(Clone, Debug)]
pub struct Ids {
    pub servers: Vec<Pid>,
    pub workers: Vec<Pid>,
    pub postgres: Pid,
    pub redis: Pid,
}

impl System {
    pub async fn start() -> anyhow::Result<Self> {
        let base = folder("tmp")?;
        // A comparison beside a soak would spoil both.
        let lock = File::create(base.join("bench.lock"))?;
        if lock.try_lock().is_err() {
            bail!("another bench runs in {}", base.display());
        }
        let folder = base.join("soak");
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder)?;
        let mut postgres = PrivatePostgres::new(&folder.join("postgres"), SECRET, Durability::Full)?;
        postgres.start().await?;
        let url = postgres.create_database(DATABASE).await?;
        app::migrate(&url, "tally soak").await?;
        postgres.create_logins().await?;
        let mut redis = PrivateRedis::new(&folder.join("redis"), SECRET)?;
        redis.start().await?;
        let pool = owner_pool(&url)?;
        sqlx::query("insert into item (name) select 'item ' || n from generate_series(1, $1) n")
            .bind(i64::try_from(ITEMS)?)
            .execute(&pool)
            .await?;
        sqlx::raw_sql("vacuum analyze").execute(&pool).await?;
        let mut system = Self {
            postgres,
            redis,
            pool,
            servers: Vec::new(),
            workers: Vec::new(),
            addresses: Vec::new(),
            folder,
            _lock: lock,
        };
        for number in 1..=SERVERS {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
            let mut command = system.command(TALLY, Role::Server);
            command.arg("serve").env("TALLY_LISTEN", address.to_string());
            let server = Program::start(command, &system.folder, &format!("server-{number}"))?;
            system.servers.push(server);
            system.addresses.push(address);
        }
        for number in 1..=WORKERS {
            let command = system.command(SYNC_WORKER, Role::Worker);
            let worker = Program::start(command, &system.folder, &format!("worker-{number}"))?;
            system.workers.push(worker);
        }
        for (address, server) in system.addresses.iter().zip(&system.servers) {
            let ready = until_ready(&format!("http://{address}")).await;
            ready.with_context(|| server.output())?;
        }
        Ok(system)
    }

    fn command(&self, program: &str, role: Role) -> Command {
        let mut command = command(program);
        command
            .envs(environment(
                self.postgres.login_url(role, DATABASE),
                self.redis.login_url(role),
            ))
            .env("RUST_LOG", "warn");
        if role == Role::Worker {
            command.env("TALLY_AUDIT_CRON", AUDIT_CRON);
        }
        command
    }

    /// # Errors
    /// When one of the programs has ended.
    pub fn ids(&mut self) -> anyhow::Result<Ids> {
        self.expect_running()?;
        let ids = |programs: &[Program]| programs.iter().map(Program::id).collect::<Result<_, _>>();
        let pid = |id: Option<u32>| anyhow::Ok(Pid::from_raw(i32::try_from(id.context("no process")?)?));
        Ok(Ids {
            servers: ids(&self.servers)?,
            workers: ids(&self.workers)?,
            postgres: pid(self.postgres.process_id())?,
            redis: pid(self.redis.process_id())?,
        })
    }

    /// # Errors
    /// When one of the programs has ended.
    pub fn expect_running(&mut self) -> anyhow::Result<()> {
        self.servers
            .iter_mut()
            .chain(&mut self.workers)
            .try_for_each(Program::expect_running)
    }

    /// Stops the programs in order, and then flushes and audits as an operator would.
    ///
    /// # Errors
    /// When a program does not stop in order, or the audit finds something wrong.
    pub async fn stop_programs(&mut self) -> anyhow::Result<()> {
        for program in self.servers.iter_mut().chain(&mut self.workers) {
            let code = program.stop(Signal::SIGTERM, STOP_LIMIT).await?;
            if code != Some(0) {
                bail!("exit code {code:?} at SIGTERM: {}", program.output());
            }
        }
        let mut once = self.command(SYNC_WORKER, Role::Worker);
        once.arg("--once");
        run_well(once).await.context("sync-worker --once")?;
        Ok(())
    }

    /// Compares the acknowledged votes with the stored and counted ones.
    ///
    /// `check` in benches/compare/voting.rs does the same for databases that began with votes.
    ///
    /// # Errors
    /// What differs.
    pub async fn check(&self, acknowledged: u64) -> anyhow::Result<()> {
        let rows: i64 = sqlx::query_scalar("select count(*) from vote")
            .fetch_one(&self.pool)
            .await?;
        if u64::try_from(rows) != Ok(acknowledged) {
            bail!("{acknowledged} votes acknowledged, {rows} rows");
        }
        let wrong: i64 = sqlx::query_scalar(
            "select count(*) from item
             left join (select item_id, sum(value) as sum from vote group by item_id) as ledger
                    on ledger.item_id = item.id
             where item.vote_count <> coalesce(ledger.sum, 0)",
        )
        .fetch_one(&self.pool)
        .await?;
        if wrong > 0 {
            bail!("{wrong} items have a wrong count");
        }
        Ok(())
    }

    /// Stops the stores and deletes what they hold: gigabytes after half an hour.
    pub async fn remove(mut self) {
        self.pool.close().await;
        self.redis.stop().await;
        self.postgres.stop().await;
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
