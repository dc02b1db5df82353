//! The systems' processes.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

use crate::measure::Processes;
use crate::stores::{Database, Stores, run};
use crate::systems::{self, System};

/// How long a server may take until it answers.
const START_LIMIT: Duration = Duration::from_secs(30);
const START_EVERY: Duration = Duration::from_millis(20);
/// When the worker audits by itself: on a 29th of February. Once a minute, as it
/// comes, would hit some runs of a few seconds and not others; what an audit costs the
/// voters is measured by a workload of its own.
const AUDIT_CRON: &str = "0 0 0 29 2 *";

/// A system that runs: its servers, and Tally's worker.
pub struct Servers {
    system: System,
    servers: Vec<Child>,
    worker: Option<Child>,
    pub addresses: Vec<SocketAddr>,
}

impl Servers {
    /// Starts a system and waits until it answers.
    pub async fn start(stores: &Stores, database: &Database, system: System, servers: usize) -> Self {
        let environment = stores.environment(&database.url);
        let mut started = Self {
            system,
            servers: Vec::new(),
            worker: None,
            addresses: Vec::new(),
        };
        for _ in 0..servers {
            let address = std::net::TcpListener::bind("127.0.0.1:0")
                .and_then(|one| one.local_addr())
                .expect("a port");
            let mut command = if system == System::Tally {
                let mut command = Command::new(env!("CARGO_BIN_EXE_tally"));
                command.arg("serve");
                command
            } else {
                let mut command = Command::new(std::env::current_exe().expect("this program"));
                command
                    .env(systems::VARIABLE, system.name())
                    .env(systems::SERVERS, servers.to_string());
                command
            };
            command.env(systems::LISTEN, address.to_string());
            started.servers.push(spawn(command.envs(environment.clone())));
            started.addresses.push(address);
        }
        if system == System::Tally {
            let mut command = Command::new(env!("CARGO_BIN_EXE_sync-worker"));
            command.env("TALLY_AUDIT_CRON", AUDIT_CRON);
            started.worker = Some(spawn(command.envs(environment)));
        }
        for address in &started.addresses {
            wait_until_ready(*address, system).await;
        }
        started
    }

    /// What the run is measured by.
    pub fn processes(&self, stores: &Stores) -> Processes {
        Processes {
            servers: self.servers.iter().filter_map(Child::id).collect(),
            worker: self.worker.as_ref().and_then(Child::id),
            postgres: stores.postgres.process_id().expect("it runs"),
            redis: stores.redis.process_id().expect("it runs"),
        }
    }

    /// Ends it. Every vote has been answered by now, so nothing is lost by killing.
    /// Tally's counts are then written behind and audited; says what was wrong.
    pub async fn stop(mut self, stores: &Stores, database: &Database) -> Result<(), String> {
        for child in self.servers.iter_mut().chain(&mut self.worker) {
            child.kill().await.expect("it runs");
        }
        if self.system != System::Tally {
            return Ok(());
        }
        let output = Command::new(env!("CARGO_BIN_EXE_sync-worker"))
            .arg("--once")
            .envs(stores.environment(&database.url))
            .env("RUST_LOG", "warn")
            .output()
            .await
            .expect("it runs");
        if output.status.success() {
            Ok(())
        } else {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
            Err(format!(
                "the audit says: {} {}",
                text(&output.stdout),
                text(&output.stderr)
            ))
        }
    }
}

fn spawn(command: &mut Command) -> Child {
    command
        .env("RUST_LOG", "error")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("it starts")
}

async fn wait_until_ready(address: SocketAddr, system: System) {
    let deadline = Instant::now() + START_LIMIT;
    loop {
        assert!(Instant::now() < deadline, "{} does not answer", system.name());
        if TcpStream::connect(address).await.is_ok() {
            break;
        }
        sleep(START_EVERY).await;
    }
    if system == System::Tally {
        // Only once it has reached Redis does it count there.
        let url = format!("http://{address}/health/ready");
        loop {
            let answer = reqwest::get(&url).await.expect("an answer");
            let text = answer.text().await.expect("an answer");
            if text.contains("\"ready\"") {
                break;
            }
            assert!(
                Instant::now() < deadline,
                "{} is not ready: {text}",
                system.name()
            );
            sleep(START_EVERY).await;
        }
    }
}

/// Runs a program with the stores' addresses to its end; returns what it printed.
pub async fn run_with(stores: &Stores, database: &Database, command: &mut Command) -> String {
    run(command
        .envs(stores.environment(&database.url))
        .env("RUST_LOG", "error"))
    .await
}
