//! A private Redis.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use nix::sys::signal::Signal;
use sha2::{Digest as _, Sha256};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::{Instant, sleep};

use super::postgres::{self, last_lines};
use super::process::{Process, free_port};
use crate::ledger::Role;
use crate::live::{self, KeyPrefix};

/// How long a start may take, with reading its append-only file if it has one.
const START_LIMIT: Duration = Duration::from_secs(30);
/// The time between two looks whether it answers.
const START_EVERY: Duration = Duration::from_millis(10);

/// A primary that Sentinels watch takes no writes once its replicas have been silent for this many seconds.
const REPLICA_LAG_LIMIT_S: u32 = 2;

/// The script that says what each program's user may do. Operators run it too.
const USERS: &str = include_str!("../../scripts/redis-users");

/// A Redis in a folder of its own, on a free port of the loopback interface. It keeps nothing on
/// disk. After a restart Tally rebuilds everything, whatever came back.
pub struct PrivateRedis {
    folder: PathBuf,
    is_persistent: bool,
    secret: String,
    port: u16,
    prefix: KeyPrefix,
    variables: Vec<(String, String)>,
    settings: Vec<String>,
    /// Whether Sentinels watch it.
    is_watched: bool,
    /// Whether it is a node of a Redis Cluster.
    is_of_cluster: bool,
    process: Option<Process>,
}

/// Shows no password.
impl std::fmt::Debug for PrivateRedis {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("PrivateRedis")
            .field("folder", &self.folder)
            .field("port", &self.port)
            .field("process", &self.process)
            .finish_non_exhaustive()
    }
}

impl PrivateRedis {
    /// Describes the Redis, and starts nothing yet.
    ///
    /// # Errors
    /// When no port is free.
    pub fn new(folder: &Path, secret: &str) -> anyhow::Result<Self> {
        Ok(Self {
            folder: folder.to_owned(),
            is_persistent: false,
            secret: secret.to_owned(),
            port: free_port()?,
            prefix: KeyPrefix::default(),
            variables: Vec::new(),
            settings: Vec::new(),
            is_watched: false,
            is_of_cluster: false,
            process: None,
        })
    }

    /// Lets its users use the keys with this prefix.
    #[must_use]
    pub fn with_key_prefix(mut self, prefix: KeyPrefix) -> Self {
        self.prefix = prefix;
        self
    }

    /// Turns on its append-only file, for tests. After the end of its process, Redis comes back
    /// with the counts from before. Nothing waits for the disk.
    #[must_use]
    pub fn persistent(mut self) -> Self {
        self.is_persistent = true;
        self
    }

    /// Adds these variables to its environment, for tests.
    #[must_use]
    pub fn with_variables(mut self, variables: Vec<(String, String)>) -> Self {
        self.variables = variables;
        self
    }

    /// Adds these lines to its settings from its next start on, for tests.
    pub fn set_settings(&mut self, lines: &[&str]) {
        self.settings = lines.iter().map(|line| (*line).to_owned()).collect();
    }

    /// Adds these lines to those, for tests.
    pub fn add_settings(&mut self, lines: &[&str]) {
        self.settings.extend(lines.iter().map(|line| (*line).to_owned()));
    }

    /// Describes another Redis in this folder, with the same users, which follows this one each time it starts. Call it
    /// before this one starts: both get the settings that Sentinels need.
    ///
    /// # Errors
    /// When no port is free.
    pub fn replica(&mut self, folder: &Path) -> anyhow::Result<Self> {
        let watched = settings_of_watched(&self.secret);
        let mut replica = Self::new(folder, &self.secret)?.with_key_prefix(self.prefix.clone());
        replica.is_persistent = self.is_persistent;
        replica.settings.clone_from(&watched);
        replica
            .settings
            .push(format!("replicaof 127.0.0.1 {}", self.port));
        self.settings = watched;
        (self.is_watched, replica.is_watched) = (true, true);
        Ok(replica)
    }

    /// Makes it a node of a Redis Cluster from its next start on, which talks to other nodes at `bus_port`. `nodes` is its
    /// file of what it knows of them, which it writes anew when it learns more; `None`: it knows none. Redis 7 or later.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(super) fn set_cluster(
        &mut self,
        bus_port: u16,
        timeout: Duration,
        nodes: Option<&str>,
    ) -> anyhow::Result<()> {
        if let Some(nodes) = nodes {
            std::fs::create_dir_all(&self.folder)?;
            std::fs::write(self.folder.join("nodes.conf"), nodes)?;
        }
        self.is_of_cluster = true;
        self.settings = vec![
            "cluster-enabled yes".to_owned(),
            "cluster-config-file nodes.conf".to_owned(),
            format!("cluster-port {bus_port}"),
            format!("cluster-node-timeout {}", timeout.as_millis()),
            // The buckets of a primary that is gone are served by nobody, and all others are.
            "cluster-require-full-coverage no".to_owned(),
            "cluster-allow-replica-migration no".to_owned(),
            "masteruser replica".to_owned(),
            format!("masterauth {}", self.secret),
            "repl-diskless-sync-delay 0".to_owned(),
        ];
        Ok(())
    }

    /// Makes it a node of a Redis Cluster that knows no other node and serves no slots, from its next start on, for tests.
    /// Redis 7 or later. It talks to others at a port that was free: Redis' own choice, 10,000 above the first port, may
    /// be taken.
    ///
    /// # Errors
    /// When no port is free.
    pub fn set_cluster_alone(&mut self) -> anyhow::Result<()> {
        let bus_port = free_port()?;
        self.settings = vec![
            "cluster-enabled yes".to_owned(),
            format!("cluster-port {bus_port}"),
        ];
        Ok(())
    }

    /// The password of the user that may do everything.
    pub(super) fn secret(&self) -> &str {
        &self.secret
    }

    /// Starts Redis, and waits until it answers.
    ///
    /// # Errors
    /// When it does not answer; the error has the end of its log.
    pub async fn start(&mut self) -> anyhow::Result<()> {
        std::fs::create_dir_all(&self.folder)?;
        let log = self.folder.join("log");
        // In a file that only we can read: every user of the machine can read arguments.
        let configuration = self.folder.join("redis.conf");
        let users = self.folder.join("users.acl");
        write_for_us_alone(&users, &self.users().await?)?;
        write_for_us_alone(
            &configuration,
            &format!(
                "bind 127.0.0.1\nport {}\ndir \"{}\"\naclfile \"{}\"\nappendonly {}\nappendfsync no\nsave \"\"\nmaxmemory-policy noeviction\n{}\n",
                self.port,
                self.folder.display(),
                users.display(),
                if self.is_persistent { "yes" } else { "no" },
                self.settings.join("\n")
            ),
        )?;
        let mut process = Process::start(
            "Redis",
            "redis-server",
            [&configuration],
            &self.variables,
            &log,
            false,
        )?;
        let deadline = Instant::now() + START_LIMIT;
        loop {
            let redis = live::Redis::new(self.url(), &live::KeyPrefix::default(), START_LIMIT)?;
            if redis.ping().await.is_ok() {
                break;
            }
            if process.has_ended() || Instant::now() >= deadline {
                bail!(
                    "Redis did not start (it comes with Debian's and Ubuntu's package redis-server); {} ends with: {}",
                    log.display(),
                    last_lines(&log)
                );
            }
            sleep(START_EVERY).await;
        }
        self.process = Some(process);
        Ok(())
    }

    /// Its users, each with its permissions.
    async fn users(&self) -> anyhow::Result<String> {
        let mut command = Command::new("sh");
        command
            .arg("-s")
            .env("TALLY_KEY_PREFIX", self.prefix.to_string())
            .env("REDIS_PASSWORD", &self.secret)
            .env("SERVER_PASSWORD", password(&self.secret, Role::Server))
            .env("WORKER_PASSWORD", password(&self.secret, Role::Worker))
            .env("OPERATOR_PASSWORD", password(&self.secret, Role::Operator));
        if self.is_watched {
            command
                .env("REPLICA_PASSWORD", &self.secret)
                .env("SENTINEL_PASSWORD", &self.secret);
        }
        if self.is_of_cluster {
            command
                .env("REPLICA_PASSWORD", &self.secret)
                .env("REDIS_CLUSTER", "1");
        }
        let mut running = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("sh could not be started")?;
        if let Some(mut input) = running.stdin.take() {
            input.write_all(USERS.as_bytes()).await?;
        }
        let output = running.wait_with_output().await?;
        if !output.status.success() {
            bail!(
                "Redis' users could not be made: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Its URL for the login of this role, which may do what the role's program does.
    pub fn login_url(&self, role: Role) -> String {
        redis_login_url(&self.secret, role, self.port)
    }

    /// Its URL, with the password, for the user that may do everything.
    pub fn url(&self) -> String {
        format!("redis://:{}@127.0.0.1:{}/0", self.secret, self.port)
    }

    /// Its port on the loopback interface.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its process id.
    pub fn process_id(&self) -> Option<u32> {
        self.process.as_ref().and_then(Process::id)
    }

    /// Stops Redis, after it has written its data.
    pub async fn stop(&mut self) {
        if let Some(process) = self.process.take() {
            process.stop(Signal::SIGTERM).await;
        }
    }

    /// Kills Redis.
    pub async fn crash(&mut self) {
        if let Some(process) = self.process.take() {
            process.kill().await;
        }
    }

    /// Pauses Redis: connections stay open, and nothing answers.
    ///
    /// # Errors
    /// When Redis does not run.
    pub fn pause(&self) -> anyhow::Result<()> {
        self.signal(Signal::SIGSTOP)
    }

    /// Lets Redis go on.
    ///
    /// # Errors
    /// When Redis does not run.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.signal(Signal::SIGCONT)
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        match &self.process {
            Some(process) => process.signal(signal),
            None => bail!("Redis does not run"),
        }
    }
}

/// The URL of a private Redis with this port and secret, for this role's login. Reports use no
/// Redis, so their role has no login.
pub fn redis_login_url(secret: &str, role: Role, port: u16) -> String {
    let (login, password) = (postgres::login(role), password(secret, role));
    format!("redis://{login}:{password}@127.0.0.1:{port}/0")
}

/// The settings of each Redis that Sentinels watch: whoever is promoted or demoted must know the password, and an old
/// primary without a replica takes no writes.
fn settings_of_watched(secret: &str) -> Vec<String> {
    vec![
        "masteruser replica".to_owned(),
        format!("masterauth {secret}"),
        "min-replicas-to-write 1".to_owned(),
        format!("min-replicas-max-lag {REPLICA_LAG_LIMIT_S}"),
        // A replica is sent everything over the connection, and no file is written for it.
        "repl-diskless-sync-delay 0".to_owned(),
    ]
}

/// Derived from the secret, so that it is the same after a restart. Nobody learns the secret from
/// it.
fn password(secret: &str, role: Role) -> String {
    let digest = Sha256::digest(format!("{}:{secret}", postgres::login(role)));
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes a file that only we can read.
pub(super) fn write_for_us_alone(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(text.as_bytes())
}
