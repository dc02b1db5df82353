//! The systems' processes.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tally::dev::free_port;
use testkit::programs::{Program, command, run_well, until_ready};
use testkit::until;
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::measure::Processes;
use crate::stores::{Database, Stores};
use crate::systems::{self, System};

const TALLY: &str = env!("CARGO_BIN_EXE_tally");
const SYNC_WORKER: &str = env!("CARGO_BIN_EXE_sync-worker");
/// How long a server may take to answer.
const START_LIMIT: Duration = Duration::from_secs(30);
/// How long the worker may take to enter the first epoch: it looks at all items once, 10 million in some 24 s.
const ENTER_LIMIT: Duration = Duration::from_secs(120);
/// What it then logs: the one or the other.
const ENTERED: [&str; 2] = ["the first epoch of this Redis", "are rebuilt"];
/// When the worker audits by itself: on a 29th of February. An audit every minute, the default,
/// would slow some short runs and not others. A workload of its own measures what an audit
/// costs the voters.
const AUDIT_CRON: &str = "0 0 0 29 2 *";

/// A system that runs: its servers, and Tally's worker.
pub struct Servers {
    system: System,
    servers: Vec<Program>,
    worker: Option<Program>,
    pub addresses: Vec<SocketAddr>,
}

/// A command for a program on a run's stores.
fn command_on(stores: &Stores, database: &Database, program: &str) -> Command {
    let mut command = command(program);
    command
        .envs(stores.environment(database))
        .env("RUST_LOG", "error");
    command
}

/// A command for this program, which does what `variable` asks instead of a bench.
pub fn this_program(stores: &Stores, database: &Database, variable: &str, value: &str) -> Command {
    let program = std::env::current_exe().expect("this program");
    let mut command = command_on(stores, database, program.to_str().expect("a path"));
    command.env(variable, value);
    command
}

/// Waits until the worker has entered the epoch of an empty Redis. Until then it looks at all items, which would be
/// measured as if votes caused it.
async fn until_entered(worker: &Program) {
    let entered = async || {
        let output = worker.output();
        ENTERED.iter().any(|line| output.contains(line)).then_some(())
    };
    if let Err(error) = until("the worker has entered the epoch", ENTER_LIMIT, entered).await {
        panic!("{error}: {}", worker.output());
    }
}

/// Starts Tally's worker with its default settings; it does not audit.
pub fn start_worker(stores: &Stores, database: &Database) -> Program {
    let mut command = command_on(stores, database, SYNC_WORKER);
    command.env("TALLY_AUDIT_CRON", AUDIT_CRON);
    command.env("RUST_LOG", "info");
    Program::start(command, stores.folder(), "worker").expect("it starts")
}

impl Servers {
    /// Starts so many servers of a system, all with these settings, and waits until they answer.
    pub async fn start(
        stores: &Stores,
        database: &Database,
        system: System,
        servers: usize,
        settings: &[(&str, String)],
    ) -> Self {
        Self::start_each(stores, database, system, &vec![settings; servers]).await
    }

    /// The same, each server with settings of its own.
    pub async fn start_each(
        stores: &Stores,
        database: &Database,
        system: System,
        servers: &[&[(&str, String)]],
    ) -> Self {
        let mut started = Self {
            system,
            servers: Vec::new(),
            worker: None,
            addresses: Vec::new(),
        };
        for (number, settings) in servers.iter().enumerate() {
            let port = free_port().expect("a port");
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            let mut command = match system {
                System::Tally => {
                    let mut command = command_on(stores, database, TALLY);
                    command.arg("serve");
                    command
                }
                System::Nginx => {
                    let folder = stores.folder().join(format!("nginx-{number}"));
                    systems::nginx::server(address, &folder)
                }
                _ => {
                    let mut command = this_program(stores, database, systems::VARIABLE, system.name());
                    command.env(systems::SERVERS, servers.len().to_string());
                    command
                }
            };
            command.env(systems::LISTEN, address.to_string());
            command.envs(settings.iter().map(|(name, value)| (name, value)));
            let server = Program::start(command, stores.folder(), &format!("server-{number}"));
            started.servers.push(server.expect("it starts"));
            started.addresses.push(address);
        }
        if system == System::Tally {
            started.worker = Some(start_worker(stores, database));
        }
        for (address, server) in started.addresses.iter().zip(&started.servers) {
            if let Err(error) = until_answers(*address, system).await {
                panic!("{}: {error}: {}", system.name(), server.output());
            }
        }
        if let Some(worker) = &started.worker {
            until_entered(worker).await;
        }
        started
    }

    /// The processes whose CPU time the run measures.
    pub fn processes(&self, stores: &Stores) -> Processes {
        let id = |program: &Program| program.id().expect("it runs");
        Processes {
            servers: self.servers.iter().map(id).collect(),
            worker: self.worker.as_ref().map(id),
            ..stores.processes()
        }
    }

    /// Kills the system: it has answered every vote, so nothing is lost. Then flushes and audits
    /// Tally's counts.
    ///
    /// # Errors
    /// What the audit found wrong.
    pub async fn stop(mut self, stores: &Stores, database: &Database) -> Result<(), String> {
        for program in self.servers.iter_mut().chain(&mut self.worker) {
            program.kill().await.expect("it runs");
        }
        if self.system == System::Tally {
            let mut once = command_on(stores, database, SYNC_WORKER);
            once.arg("--once").env("RUST_LOG", "warn");
            run_well(once)
                .await
                .map_err(|error| format!("the audit found: {error}"))?;
        }
        Ok(())
    }
}

/// Waits until a server answers; Tally counts in Redis only once it is ready.
async fn until_answers(address: SocketAddr, system: System) -> anyhow::Result<()> {
    until("it takes connections", START_LIMIT, async || {
        TcpStream::connect(address).await.ok().map(drop)
    })
    .await?;
    if system == System::Tally {
        until_ready(&format!("http://{address}")).await?;
    }
    Ok(())
}
