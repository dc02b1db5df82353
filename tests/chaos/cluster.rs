//! Two servers, two sync workers and both stores, with a proxy between each program and
//! each store; and every fault, done to them.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use anyhow::Context;
use tally::dev::{PrivatePostgres, free_port};
use tally::ledger::Role;
use testkit::programs::{Program, command, run_well};
use testkit::proxy::Proxy;
use testkit::stores::environment;
use tokio::process::Command;
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

use crate::programs::{self, SHUTDOWN_LIMIT, SYNC_WORKER, TALLY};
use crate::schedule::{Fault, PAIR, Settings, Step};
use crate::stores::{Postgres, Redis};

/// How long a fault waits for its worker to come to a certain point.
const POINT_LIMIT: Duration = Duration::from_secs(4);

/// What a request of the worker contains when it reads counters, and when it marks them
/// saved.
const READ: &str = "\r\nHMGET\r\n";
static MARK_SAVED: LazyLock<String> = LazyLock::new(|| {
    redis::Script::new(include_str!("../../lua/mark_saved.lua"))
        .get_hash()
        .to_owned()
});

/// An address of the loopback network for one cluster alone, where the system has more
/// than one: while a program is down, no other program takes its port.
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
    /// Where each worker reports its metrics.
    pub worker_urls: Vec<String>,
    to_postgres: Connections,
    to_redis: Connections,
    small_disk: bool,
}

/// The programs' connections to one store.
struct Connections {
    /// One for each program: the servers come first, then the workers.
    proxies: Vec<Proxy>,
    /// Locked while a fault breaks them.
    broken: Mutex<()>,
}

impl Connections {
    async fn start(port: u16) -> anyhow::Result<Self> {
        let mut proxies = Vec::new();
        for _ in 0..2 * PAIR {
            proxies.push(Proxy::start(port).await?);
        }
        Ok(Self {
            proxies,
            broken: Mutex::new(()),
        })
    }

    fn port(&self, at: usize) -> u16 {
        self.proxies[at].port()
    }

    /// One program's proxy, or all.
    fn of(&self, program: Option<usize>) -> &[Proxy] {
        match program {
            Some(at) => &self.proxies[at..=at],
            None => &self.proxies,
        }
    }

    /// Breaks connections for a while. One such fault at a time: the end of one would be the
    /// end of the other too.
    async fn break_for_a_while(&self, step: &Step, how: impl Fn(&Proxy)) {
        let _broken = self.broken.lock().await;
        self.of(step.program).iter().for_each(how);
        sleep(step.lasting).await;
        self.of(step.program).iter().for_each(Proxy::open);
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
        let to_postgres = Connections::start(postgres.port()).await?;
        let to_redis = Connections::start(redis.port()).await?;
        let mut cluster = Self {
            small_disk: postgres.has_small_disk(),
            postgres: Mutex::new(postgres),
            redis: Mutex::new(redis),
            servers: Vec::new(),
            workers: Vec::new(),
            urls: Vec::new(),
            worker_urls: Vec::new(),
            to_postgres,
            to_redis,
        };
        let address = own_address();
        for number in 0..PAIR {
            let listen = format!("{address}:{}", free_port()?);
            let mut serve = cluster.command(TALLY, Role::Server, number).await;
            serve
                .arg("serve")
                .env("TALLY_LISTEN", &listen)
                .env("TALLY_SHUTDOWN_LIMIT", SHUTDOWN_LIMIT);
            let server = Program::start(serve, folder, &format!("server-{}", number + 1))?;
            cluster.servers.push(Mutex::new(server));
            cluster.urls.push(format!("http://{listen}"));
        }
        for number in 0..PAIR {
            let listen = format!("{address}:{}", free_port()?);
            let mut worker = cluster.command(SYNC_WORKER, Role::Worker, PAIR + number).await;
            worker.envs([
                ("TALLY_WORKER_METRICS_LISTEN", listen.as_str()),
                ("TALLY_FLUSH_EVERY", settings.flush_every),
                ("TALLY_FLUSH_PAGE", settings.flush_page),
                ("TALLY_SCAN_EVERY", "200ms"),
                ("TALLY_RETENTION", settings.retention),
                ("TALLY_MAX_AGE", settings.max_age),
                ("TALLY_AUDIT_CRON", settings.audit_cron),
                ("TALLY_LAST_FLUSH_LIMIT", SHUTDOWN_LIMIT),
            ]);
            let worker = Program::start(worker, folder, &format!("worker-{}", number + 1))?;
            cluster.workers.push(Mutex::new(worker));
            cluster.worker_urls.push(format!("http://{listen}/metrics"));
        }
        Ok(cluster)
    }

    /// A command for a program, with its own proxies before the stores.
    async fn command(&self, binary: &str, role: Role, at: usize) -> Command {
        let postgres = self.postgres.lock().await;
        let mut command = command(binary);
        command
            .envs(environment(
                postgres.login_url(role, self.to_postgres.port(at)),
                Redis::program_url(self.to_redis.port(at)),
            ))
            .env("RUST_LOG", "info,tally=debug,sync_worker=debug,tally::http=info");
        command
    }

    /// Injects a fault and waits for its end. Returns whether it could be injected: a worker
    /// may not come to the point at which it is to fail, and the system may not have a
    /// small disk.
    ///
    /// # Errors
    /// When a program ended by itself or did not stop when asked to, or a store did not
    /// come back.
    pub async fn inject(&self, step: &Step) -> anyhow::Result<bool> {
        let lasting = step.lasting;
        let server = || self.servers[step.which].lock();
        let worker = || self.workers[step.which].lock();
        match step.fault {
            Fault::ServerKilled => programs::kill(&mut *server().await, lasting).await?,
            Fault::ServerRestarted => programs::restart(&mut *server().await, lasting).await?,
            Fault::ServerStopped => programs::freeze(&*server().await, lasting).await?,
            Fault::WorkerKilled => programs::kill(&mut *worker().await, lasting).await?,
            Fault::WorkerRestarted => programs::restart(&mut *worker().await, lasting).await?,
            Fault::WorkerStopped => programs::freeze(&*worker().await, lasting).await?,
            Fault::WorkerKilledBeforeMarkSaved => return self.kill_before_mark_saved(step).await,
            Fault::WorkerAsleep => return self.put_to_sleep(step).await,

            Fault::RedisKilled => self.redis.lock().await.killed(lasting).await?,
            Fault::RedisStopped => self.redis.lock().await.stopped(lasting).await?,
            Fault::RedisEmpty => self.redis.lock().await.restarted_empty(lasting).await?,
            Fault::RedisOlder => {
                let mut redis = self.redis.lock().await;
                redis.restarted_from_older_snapshot(lasting).await?;
            }
            Fault::RedisFailover => {
                let point_to = |port| self.to_redis.proxies.iter().for_each(|one| one.point_to(port));
                self.redis.lock().await.failed_over(lasting, point_to).await?;
            }
            Fault::RedisWiped => self.redis.lock().await.wiped().await?,
            Fault::RedisScriptsFlushed => self.redis.lock().await.scripts_flushed().await?,
            Fault::RedisFull => self.redis.lock().await.out_of_memory(lasting).await?,
            Fault::RedisCut => self.to_redis.of(step.program).iter().for_each(Proxy::cut),
            Fault::RedisStalled => self.to_redis.break_for_a_while(step, Proxy::stall).await,
            Fault::RedisReplyLost => self.to_redis.break_for_a_while(step, Proxy::lose_replies).await,

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
            Fault::PostgresCut => self.to_postgres.of(step.program).iter().for_each(Proxy::cut),
            Fault::PostgresStalled => self.to_postgres.break_for_a_while(step, Proxy::stall).await,
            Fault::PostgresReplyLost => {
                self.to_postgres
                    .break_for_a_while(step, Proxy::lose_replies)
                    .await
            }
        }
        Ok(true)
    }

    /// The counts are written to their items, and the request that marks them saved never
    /// arrives.
    async fn kill_before_mark_saved(&self, step: &Step) -> anyhow::Result<bool> {
        let mut worker = self.workers[step.which].lock().await;
        worker.expect_running()?;
        let proxy = &self.to_redis.proxies[PAIR + step.which];
        let is_there = timeout(POINT_LIMIT, proxy.trap(&MARK_SAVED, false)).await.is_ok();
        let killed = if is_there {
            // The request that waits in the proxy goes with its connection.
            proxy.cut();
            programs::kill(&mut worker, step.lasting).await
        } else {
            Ok(())
        };
        proxy.release();
        killed.map(|()| is_there)
    }

    /// The worker has read counters, or has written them and not marked them saved. It then
    /// sleeps until all of its deadlines have passed.
    async fn put_to_sleep(&self, step: &Step) -> anyhow::Result<bool> {
        let mut worker = self.workers[step.which].lock().await;
        worker.expect_running()?;
        let proxy = &self.to_redis.proxies[PAIR + step.which];
        let has_read = step.program.is_some();
        let point = if has_read { READ } else { MARK_SAVED.as_str() };
        let is_there = timeout(POINT_LIMIT, proxy.trap(point, has_read)).await.is_ok();
        let slept = if is_there {
            programs::freeze(&worker, step.lasting).await
        } else {
            Ok(())
        };
        proxy.release();
        slept.map(|()| is_there)
    }

    /// Makes Postgres slow for every program: each answer comes so much later.
    pub fn slow_postgres(&self, by: Duration) {
        for proxy in &self.to_postgres.proxies {
            proxy.delay_answers(by);
        }
    }

    /// Call it while no fault lasts: then every program must run.
    ///
    /// # Errors
    /// Names a program that has ended.
    pub async fn expect_all_running(&self) -> anyhow::Result<()> {
        for program in self.servers.iter().chain(&self.workers) {
            program.lock().await.expect_running()?;
        }
        Ok(())
    }

    pub async fn stop(&self) {
        for program in self.servers.iter().chain(&self.workers) {
            let _ = program.lock().await.kill().await;
        }
        self.redis.lock().await.stop().await;
        self.postgres.lock().await.stop().await;
    }

    /// Runs `tally audit` without a proxy; it repairs nothing.
    ///
    /// # Errors
    /// When it does not find everything right; its report is in the error.
    pub async fn audit(&self) -> anyhow::Result<()> {
        let mut audit = command(TALLY);
        {
            let (postgres, redis) = (self.postgres.lock().await, self.redis.lock().await);
            audit.arg("audit").envs(environment(
                postgres.login_url(Role::Worker, postgres.port()),
                Redis::program_url(redis.port()),
            ));
        }
        run_well(audit).await.context("tally audit")?;
        Ok(())
    }
}
