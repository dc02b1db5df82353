//! Two servers, two sync workers, both stores, a proxy before each store for each
//! program; and every fault, done to them.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use anyhow::Context;
use tally::dev::{PrivatePostgres, free_port};
use tally::ledger::Role;
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

use crate::programs::{Program, SHUTDOWN_LIMIT, SYNC_WORKER, TALLY};
use crate::proxy::Proxy;
use crate::schedule::{Fault, PAIR, Settings, Step};
use crate::stores::{Postgres, Redis};

/// How long a fault waits for its worker to come to the point it is to be hit at.
const POINT_LIMIT: Duration = Duration::from_secs(4);

/// What the worker's requests hold when it reads, and when it marks.
const PEEK: &str = "\r\nHMGET\r\n";
static MARK: LazyLock<String> = LazyLock::new(|| {
    redis::Script::new(include_str!("../../lua/mark_saved.lua"))
        .get_hash()
        .to_owned()
});

/// An address of the loopback network for one cluster alone, where the system has
/// more than one: while a program is down, nobody else takes its port.
fn own_address() -> Ipv4Addr {
    if cfg!(target_os = "linux") {
        let part = || rand::random_range(1..=254);
        Ipv4Addr::new(127, part(), part(), part())
    } else {
        Ipv4Addr::LOCALHOST
    }
}

pub struct Cluster {
    pub postgres: Mutex<Postgres>,
    pub redis: Mutex<Redis>,
    pub servers: Vec<Mutex<Program>>,
    pub workers: Vec<Mutex<Program>>,
    /// Each server's base URL.
    pub urls: Vec<String>,
    /// Where each worker tells its metrics.
    pub worker_urls: Vec<String>,
    /// For the servers and then the workers, each program's own.
    postgres_links: Links,
    redis_links: Links,
    small_disk: bool,
}

/// The proxies before one store.
struct Links {
    proxies: Vec<Proxy>,
    /// Held while one fault has its way with them.
    held: Mutex<()>,
}

impl Links {
    async fn start(port: u16) -> anyhow::Result<Self> {
        let mut proxies = Vec::new();
        for _ in 0..2 * PAIR {
            proxies.push(Proxy::start(port).await?);
        }
        Ok(Self {
            proxies,
            held: Mutex::new(()),
        })
    }

    fn port(&self, at: usize) -> u16 {
        self.proxies[at].port()
    }

    /// Those that a fault hurts: one program's, or all.
    fn hurt(&self, live_counts: Option<usize>) -> impl Iterator<Item = &Proxy> {
        self.proxies
            .iter()
            .enumerate()
            .filter(move |(at, _)| live_counts.is_none_or(|live_counts| live_counts == *at))
            .map(|(_, proxy)| proxy)
    }
}

impl Cluster {
    pub async fn start(
        folder: &Path,
        template: &PrivatePostgres,
        settings: &Settings,
    ) -> anyhow::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let postgres = Postgres::start(folder, template).await?;
        sqlx::query("insert into item (name) select 'item ' || n from generate_series(1, $1) n")
            .bind(settings.items)
            .execute(&postgres.owner())
            .await?;
        let redis = Redis::start(folder).await?;
        let postgres_links = Links::start(postgres.port()).await?;
        let redis_links = Links::start(redis.port()).await?;
        let mut cluster = Self {
            small_disk: postgres.has_small_disk(),
            postgres: Mutex::new(postgres),
            redis: Mutex::new(redis),
            servers: Vec::new(),
            workers: Vec::new(),
            urls: Vec::new(),
            worker_urls: Vec::new(),
            postgres_links,
            redis_links,
        };
        let address = own_address();
        for number in 0..PAIR {
            let listen = format!("{address}:{}", free_port()?);
            let mut variables = cluster.stores(Role::Server, number).await;
            variables.push(("TALLY_LISTEN", listen.clone()));
            variables.push(("TALLY_SHUTDOWN_LIMIT", SHUTDOWN_LIMIT.to_owned()));
            let name = format!("server-{}", number + 1);
            let server = Program::start(&name, TALLY, Some("serve"), &variables, folder)?;
            cluster.servers.push(Mutex::new(server));
            cluster.urls.push(format!("http://{listen}"));
        }
        for number in 0..PAIR {
            let listen = format!("{address}:{}", free_port()?);
            let mut variables = cluster.stores(Role::Worker, PAIR + number).await;
            for (name, value) in [
                ("TALLY_WORKER_METRICS_LISTEN", listen.as_str()),
                ("TALLY_FLUSH_EVERY", settings.flush_every),
                ("TALLY_FLUSH_PAGE", settings.flush_page),
                ("TALLY_RETENTION", settings.retention),
                ("TALLY_MAX_AGE", settings.max_age),
                ("TALLY_AUDIT_CRON", settings.audit_cron),
                ("TALLY_LAST_FLUSH_LIMIT", SHUTDOWN_LIMIT),
            ] {
                variables.push((name, value.to_owned()));
            }
            let name = format!("worker-{}", number + 1);
            let worker = Program::start(&name, SYNC_WORKER, None, &variables, folder)?;
            cluster.workers.push(Mutex::new(worker));
            cluster.worker_urls.push(format!("http://{listen}/metrics"));
        }
        Ok(cluster)
    }

    /// The variables that send a program to its own proxies.
    async fn stores(&self, role: Role, at: usize) -> Vec<(&'static str, String)> {
        let postgres = self.postgres.lock().await;
        vec![
            (
                "DATABASE_URL",
                postgres.login_url(role, self.postgres_links.port(at)),
            ),
            ("REDIS_URL", Redis::program_url(self.redis_links.port(at))),
            (
                "RUST_LOG",
                "info,tally=debug,sync_worker=debug,tally::http=info".to_owned(),
            ),
        ]
    }

    /// Lets a fault happen and end. Returns whether it could be injected: a worker
    /// may not come to the point at which it is to be hit, and a small disk may not
    /// be had.
    ///
    /// # Errors
    /// When something did not hold up that must: a program ended by itself, or did
    /// not stop when asked to; a store did not come back.
    pub async fn inject(&self, step: &Step) -> anyhow::Result<bool> {
        let lasting = step.lasting;
        match step.fault {
            Fault::ServerKilled => self.servers[step.which].lock().await.killed(lasting).await?,
            Fault::ServerRestarted => self.servers[step.which].lock().await.restarted(lasting).await?,
            Fault::ServerStopped => self.servers[step.which].lock().await.stopped(lasting).await?,
            Fault::WorkerKilled => self.workers[step.which].lock().await.killed(lasting).await?,
            Fault::WorkerRestarted => self.workers[step.which].lock().await.restarted(lasting).await?,
            Fault::WorkerStopped => self.workers[step.which].lock().await.stopped(lasting).await?,
            Fault::WorkerKilledBeforeMark => return self.kill_before_mark(step).await,
            Fault::WorkerAsleep => return self.put_to_sleep(step).await,

            Fault::RedisKilled => self.redis.lock().await.killed(lasting).await?,
            Fault::RedisStopped => self.redis.lock().await.stopped(lasting).await?,
            Fault::RedisEmpty => self.redis.lock().await.restarted_empty(lasting).await?,
            Fault::RedisOlder => {
                let mut redis = self.redis.lock().await;
                redis.restarted_from_older_snapshot(lasting).await?;
            }
            Fault::RedisFailover => {
                let point_to = |port| self.redis_links.proxies.iter().for_each(|one| one.point_to(port));
                self.redis.lock().await.failed_over(lasting, point_to).await?;
            }
            Fault::RedisWiped => self.redis.lock().await.wiped().await?,
            Fault::RedisScriptsFlushed => self.redis.lock().await.scripts_flushed().await?,
            Fault::RedisFull => self.redis.lock().await.out_of_memory(lasting).await?,
            Fault::RedisCut => self.redis_links.hurt(step.live_counts).for_each(Proxy::cut),
            Fault::RedisStalled => hurt(&self.redis_links, step, Proxy::stall).await,
            Fault::RedisReplyLost => hurt(&self.redis_links, step, Proxy::lose_replies).await,

            Fault::PostgresKilled => self.postgres.lock().await.killed(lasting).await?,
            Fault::PostgresBackendKilled => return self.postgres.lock().await.process_killed().await,
            Fault::PostgresImmediate => {
                let mut postgres = self.postgres.lock().await;
                postgres.restarted_immediately(lasting).await?;
            }
            Fault::PostgresStopped => self.postgres.lock().await.stopped(lasting).await?,
            Fault::PostgresFull if !self.small_disk => return Ok(false),
            Fault::PostgresFull => self.postgres.lock().await.disk_full(lasting).await?,
            Fault::PostgresNoConnections => {
                let mut postgres = self.postgres.lock().await;
                postgres.without_connections(lasting).await?;
            }
            Fault::PostgresCut => self.postgres_links.hurt(step.live_counts).for_each(Proxy::cut),
            Fault::PostgresStalled => hurt(&self.postgres_links, step, Proxy::stall).await,
            Fault::PostgresReplyLost => hurt(&self.postgres_links, step, Proxy::lose_replies).await,
        }
        Ok(true)
    }

    /// The counts are written to their items and the marks are on their way: that is
    /// where they stay.
    async fn kill_before_mark(&self, step: &Step) -> anyhow::Result<bool> {
        let mut worker = self.workers[step.which].lock().await;
        worker.expect_running()?;
        let live_counts = &self.redis_links.proxies[PAIR + step.which];
        let is_there = timeout(POINT_LIMIT, live_counts.spring(&MARK, false))
            .await
            .is_ok();
        let killed = if is_there {
            // What the proxy holds back goes with its connection.
            live_counts.cut();
            worker.killed(step.lasting).await
        } else {
            Ok(())
        };
        live_counts.release();
        killed.map(|()| is_there)
    }

    /// It has read and knows it, or has written and not marked, and then sleeps
    /// until nothing that it holds is worth anything any more.
    async fn put_to_sleep(&self, step: &Step) -> anyhow::Result<bool> {
        let mut worker = self.workers[step.which].lock().await;
        worker.expect_running()?;
        let live_counts = &self.redis_links.proxies[PAIR + step.which];
        let has_peeked = step.live_counts.is_some();
        let point = if has_peeked { PEEK } else { MARK.as_str() };
        let is_there = timeout(POINT_LIMIT, live_counts.spring(point, has_peeked))
            .await
            .is_ok();
        let slept = if is_there {
            worker.stopped(step.lasting).await
        } else {
            Ok(())
        };
        live_counts.release();
        slept.map(|()| is_there)
    }

    /// Makes Postgres slow for every program: each answer comes so much later.
    pub fn slow_postgres(&self, by: Duration) {
        for proxy in &self.postgres_links.proxies {
            proxy.delay_answers(by);
        }
    }

    /// Everything stands and every connection is open; a program that is gone was
    /// not ended by a fault.
    ///
    /// # Errors
    /// Names the program.
    pub async fn expect_all_running(&self) -> anyhow::Result<()> {
        for program in self.servers.iter().chain(&self.workers) {
            program.lock().await.expect_running()?;
        }
        Ok(())
    }

    pub async fn stop(&self) {
        for program in self.servers.iter().chain(&self.workers) {
            program.lock().await.kill().await;
        }
        self.redis.lock().await.stop().await;
        self.postgres.lock().await.stop().await;
    }

    /// The stores past every proxy, for `tally audit`.
    async fn audit_variables(&self) -> Vec<(&'static str, String)> {
        let postgres = self.postgres.lock().await;
        let redis = self.redis.lock().await;
        vec![
            ("DATABASE_URL", postgres.login_url(Role::Worker, postgres.port())),
            ("REDIS_URL", Redis::program_url(redis.port())),
        ]
    }

    /// Runs `tally audit`, which repairs nothing.
    ///
    /// # Errors
    /// Its output, unless it finds everything right.
    pub async fn audit(&self) -> anyhow::Result<()> {
        let output = tokio::process::Command::new(TALLY)
            .arg("audit")
            .env_clear()
            .envs(self.audit_variables().await)
            .output()
            .await
            .context("tally audit")?;
        let report = String::from_utf8_lossy(&output.stdout).into_owned();
        anyhow::ensure!(
            output.status.success(),
            "tally audit says: {report}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }
}

/// Hurts connections for a while. One such fault at a time, or the end of one would
/// be the end of another.
async fn hurt(links: &Links, step: &Step, how: impl Fn(&Proxy)) {
    let _held = links.held.lock().await;
    links.hurt(step.live_counts).for_each(how);
    sleep(step.lasting).await;
    links.hurt(step.live_counts).for_each(Proxy::open);
}
