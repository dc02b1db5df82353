//! A server on private stores, full of data.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::{Context, bail};
use tally::app;
use tally::dev::{Durability, PrivatePostgres, PrivateRedis, free_port};
use tally::ledger::Role;
use testkit::programs::{Program, command, until_ready};
use testkit::stores::{DATABASE, SECRET, environment, folder, owner_pool};

use crate::data;

const TALLY: &str = env!("CARGO_BIN_EXE_tally");
const SYNC_WORKER: &str = env!("CARGO_BIN_EXE_sync-worker");
/// On a 29th of February: an audit of a million items would slow down one of the runs that are compared.
const AUDIT_CRON: &str = "0 0 0 29 2 *";

pub struct System {
    pub base: String,
    postgres: PrivatePostgres,
    redis: PrivateRedis,
    /// Killed when they are dropped.
    _programs: [Program; 2],
    folder: PathBuf,
    _lock: File,
}

impl System {
    /// # Errors
    /// When a store or a program does not start.
    pub async fn start() -> anyhow::Result<Self> {
        let base = folder("tmp")?;
        // A comparison beside it would spoil both.
        let lock = File::create(base.join("bench.lock"))?;
        if lock.try_lock().is_err() {
            bail!("another bench runs in {}", base.display());
        }
        let folder = base.join("readers");
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder)?;
        let mut postgres = PrivatePostgres::new(&folder.join("postgres"), SECRET, Durability::Full)?;
        postgres.start().await?;
        let url = postgres.create_database(DATABASE).await?;
        app::migrate(&url, "tally readers").await?;
        postgres.create_logins().await?;
        let mut redis = PrivateRedis::new(&folder.join("redis"), SECRET)?;
        redis.start().await?;
        let owner = owner_pool(&url)?;
        data::fill(&owner).await?;
        owner.close().await;

        let start = |program: &str, role: Role, name: &str, settings: &[(&str, &str)]| {
            let mut command = command(program);
            let login = postgres.login_url(role, DATABASE);
            command.envs(environment(login, redis.login_url(role)));
            command.env("RUST_LOG", "warn").envs(settings.iter().copied());
            if role == Role::Server {
                command.arg("serve");
            }
            Program::start(command, &folder, name)
        };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let listen = address.to_string();
        let server = start(
            TALLY,
            Role::Server,
            "server",
            &[("TALLY_LISTEN", &listen), ("TALLY_PROXIES", "127.0.0.0/8")],
        )?;
        let worker = start(
            SYNC_WORKER,
            Role::Worker,
            "worker",
            &[("TALLY_AUDIT_CRON", AUDIT_CRON)],
        )?;
        let base = format!("http://{address}");
        until_ready(&base).await.with_context(|| server.output())?;
        Ok(Self {
            base,
            _programs: [server, worker],
            postgres,
            redis,
            folder,
            _lock: lock,
        })
    }

    /// Stops the stores and deletes what they hold.
    pub async fn remove(mut self) {
        self.redis.stop().await;
        self.postgres.stop().await;
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
