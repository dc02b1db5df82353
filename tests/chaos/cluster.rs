//! Two servers, two sync workers and both stores, with a proxy between each program and
//! each store.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use tally::dev::{PrivatePostgres, free_port};
use tally::ledger::Role;
use testkit::clock::Clock;
use testkit::programs::{Program, command, run_well};
use testkit::proxy::Proxy;
use testkit::stores::environment;
use tokio::process::Command;
use tokio::sync::Mutex;
use tokio::time::sleep;

use crate::ballots;
use crate::credentials;
use crate::pause::Pause;
use crate::persons;
use crate::programs::{SHUTDOWN_LIMIT, SYNC_WORKER, TALLY, until_started};
use crate::ruled;
use crate::schedule::{PAIR, Settings, Step};
use crate::stores::{AllLost, Postgres, Redis, sessions};
use crate::throttled;
use crate::voiding;
use crate::webhook::Webhook;

/// A loopback address for this cluster alone, if the system has more than one. While a program
/// is down, no other program then takes its port.
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
    /// For the faults that need a moment without votes.
    pub pause: Pause,
    /// The same for the clients whose requests must all fit into the ledger's order: rules, ballots, voidings.
    pub orderly: Pause,
    /// What went with primaries of Postgres.
    pub lost: Mutex<AllLost>,
    /// Each program's own clock: the servers come first, then the workers.
    pub clocks: Vec<Clock>,
    pub postgres_clock: Clock,
    pub redis_clock: Clock,
    pub to_postgres: Connections,
    pub to_redis: Connections,
    pub small_disk: bool,
    /// What gets the workers' events.
    pub webhook: Webhook,
}

/// The programs' connections to one store.
pub struct Connections {
    /// One for each program: the servers come first, then the workers.
    pub proxies: Vec<Proxy>,
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
    pub fn of(&self, program: Option<usize>) -> &[Proxy] {
        match program {
            Some(at) => &self.proxies[at..=at],
            None => &self.proxies,
        }
    }

    /// Breaks connections for a while. Only one such fault runs at a time: its end would end
    /// another one too.
    pub async fn break_for_a_while(&self, step: &Step, how: impl Fn(&Proxy)) {
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
        let clock = |name: &str| {
            let folder = folder.join(name);
            std::fs::create_dir_all(&folder)?;
            Clock::new(&folder)
        };
        let (postgres_clock, redis_clock) = (clock("postgres-clock")?, clock("redis-clock")?);
        let clocks: anyhow::Result<Vec<Clock>> = (0..2 * PAIR)
            .map(|at| clock(&format!("clock-of-program-{at}")))
            .collect();
        let postgres = Postgres::start(folder, template, &postgres_clock).await?;
        sqlx::query("insert into item (name) select 'item ' || n from generate_series(1, $1) n")
            .bind(settings.items)
            .execute(&postgres.owner())
            .await?;
        ruled::create(&postgres.owner()).await?;
        ballots::create(&postgres.owner()).await?;
        voiding::create(&postgres.owner()).await?;
        persons::create(&postgres.owner()).await?;
        throttled::create(&postgres.owner()).await?;
        credentials::create(&postgres.owner()).await?;
        Webhook::want_events(&postgres.owner()).await?;
        sessions::set(&postgres.owner(), &settings.sessions).await?;
        let redis = Redis::start(folder, &redis_clock).await?;
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
            pause: Pause::default(),
            orderly: Pause::default(),
            lost: Mutex::default(),
            clocks: clocks?,
            postgres_clock,
            redis_clock,
            webhook: Webhook::start().await,
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
            // At the others first votes make live counts, since there are few items.
            if number == 1 {
                serve.env("TALLY_SEED", "warm");
            }
            if !settings.is_open {
                serve.envs(credentials::settings());
                // Only the first server keeps client addresses: then other statements store the votes.
                if number == 0 {
                    serve.env("TALLY_ADDRESS_KEYS", credentials::ADDRESS_KEY);
                }
            }
            let server = Program::start(serve, folder, &format!("server-{}", number + 1))?;
            cluster.servers.push(Mutex::new(server));
            cluster.urls.push(format!("http://{listen}"));
        }
        for number in 0..PAIR {
            let listen = format!("{address}:{}", free_port()?);
            let mut worker = cluster.command(SYNC_WORKER, Role::Worker, PAIR + number).await;
            worker.envs([
                ("TALLY_WORKER_LISTEN", listen.as_str()),
                ("TALLY_FLUSH_EVERY", settings.flush_every),
                ("TALLY_FLUSH_PAGE", settings.flush_page),
                ("TALLY_SCAN_EVERY", settings.scan_every),
                ("TALLY_RETENTION", settings.retention),
                ("TALLY_MAX_AGE", settings.max_age),
                ("TALLY_AUDIT_CRON", settings.audit_cron),
                ("TALLY_LAST_FLUSH_LIMIT", SHUTDOWN_LIMIT),
            ]);
            worker.envs(cluster.webhook.settings());
            let worker = Program::start(worker, folder, &format!("worker-{}", number + 1))?;
            cluster.workers.push(Mutex::new(worker));
            cluster.worker_urls.push(format!("http://{listen}/metrics"));
        }
        for program in cluster.servers.iter().chain(&cluster.workers) {
            until_started(&mut *program.lock().await).await?;
        }
        Ok(cluster)
    }

    /// A command for a program, with its own clock and its own proxies before the stores.
    async fn command(&self, binary: &str, role: Role, at: usize) -> Command {
        let mut command = command(binary);
        command
            .envs(self.environment(role, at).await)
            .envs(self.clocks[at].variables())
            .env("RUST_LOG", "info,tally=debug,sync_worker=debug,tally::web=info");
        command
    }

    /// The variables that tell a program where the stores are, behind its own proxies. `at` counts
    /// the servers first, then the workers.
    pub async fn environment(&self, role: Role, at: usize) -> [(&'static str, String); 2] {
        let postgres = self.postgres.lock().await;
        environment(
            postgres.login_url(role, self.to_postgres.port(at)),
            Redis::program_url(role, self.to_redis.port(at)),
        )
    }

    /// Makes Postgres slow for every program: each answer comes later by this much.
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
    /// When it finds something wrong; its report is in the error.
    pub async fn audit(&self) -> anyhow::Result<()> {
        let mut audit = command(TALLY);
        {
            let (postgres, redis) = (self.postgres.lock().await, self.redis.lock().await);
            audit.arg("audit").envs(environment(
                postgres.login_url(Role::Worker, postgres.port()),
                Redis::program_url(Role::Worker, redis.port()),
            ));
        }
        run_well(audit).await.context("tally audit")?;
        Ok(())
    }
}
