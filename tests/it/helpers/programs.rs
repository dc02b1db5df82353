//! Tally's real programs as real processes.

use std::path::Path;
use std::process::{Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};

use super::eventually;
use super::stores::Stores;
use tally::ledger::Role;

pub const TALLY: &str = env!("CARGO_BIN_EXE_tally");
pub const SYNC_WORKER: &str = env!("CARGO_BIN_EXE_sync-worker");

/// A running program; killed when the test ends.
pub struct Program {
    child: Child,
    log: std::path::PathBuf,
}

/// A command in an environment of its own, with the stores in it. Both programs log
/// in to Postgres with the role that they have in production: the server's where
/// `tally serve` is meant, the worker's for all else that works on the stores.
pub fn command(program: &str, stores: Option<&Stores>) -> Command {
    command_as(program, stores.map(|stores| (stores, Role::Worker)))
}

/// A command with the stores in its environment, and a role.
pub fn command_as(program: &str, stores: Option<(&Stores, Role)>) -> Command {
    let mut command = Command::new(program);
    command.env_clear().kill_on_drop(true).stdin(Stdio::null());
    for kept in ["PATH", "HOME"] {
        if let Some(value) = std::env::var_os(kept) {
            command.env(kept, value);
        }
    }
    if let Some((stores, role)) = stores {
        command
            .env("DATABASE_URL", stores.login_url(role))
            .env("REDIS_URL", stores.redis_url());
    }
    command
}

/// Runs a program to its end.
pub async fn run(mut command: Command) -> Output {
    command.output().await.expect("the program runs")
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Program {
    /// Starts a program, its output in a file of this name in `folder`.
    pub fn start(mut command: Command, folder: &Path, name: &str) -> Self {
        let log = folder.join(name);
        let file = std::fs::File::create(&log).expect("a log");
        let child = command
            .stdout(file.try_clone().expect("a log"))
            .stderr(file)
            .spawn()
            .expect("the program starts");
        Self { child, log }
    }

    /// A server on a free port; returns its base URL as well.
    pub async fn server(stores: &Stores, name: &str) -> (Self, String) {
        let mut command = command_as(TALLY, Some((stores, Role::Server)));
        command.arg("serve").env("TALLY_LISTEN", "127.0.0.1:0");
        let program = Self::start(command, stores.folder(), name);
        let line = program.wait_for_line("address=").await;
        let address = line
            .split("address=")
            .nth(1)
            .expect("an address")
            .trim()
            .to_owned();
        let base = format!("http://{address}");
        eventually("the server is ready", async || {
            let answer = reqwest::get(format!("{base}/health/ready")).await.ok()?;
            let body: serde_json::Value = answer.json().await.ok()?;
            (body["status"] == "ready").then_some(())
        })
        .await;
        (program, base)
    }

    /// A worker with these settings.
    pub fn worker(stores: &Stores, name: &str, settings: &[(&str, &str)]) -> Self {
        let mut command = command(SYNC_WORKER, Some(stores));
        command.envs(settings.iter().copied());
        Self::start(command, stores.folder(), name)
    }

    pub fn output(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub async fn wait_for_line(&self, part: &str) -> String {
        eventually(&format!("the output has {part:?}"), async || {
            self.output()
                .lines()
                .find(|line| line.contains(part))
                .map(str::to_owned)
        })
        .await
    }

    pub fn id(&self) -> Pid {
        Pid::from_raw(
            self.child
                .id()
                .expect("it runs")
                .try_into()
                .expect("a process id"),
        )
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.id(), signal).expect("it runs");
    }

    /// Stops it where it is, and waits until each of its threads stands still: until then
    /// some go on.
    pub async fn freeze(&self) {
        self.signal(Signal::SIGSTOP);
        let tasks = format!("/proc/{}/task", self.id());
        let stands_still = |task: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(task.path().join("stat")).expect("a thread");
            // The state comes after the name, which ends with the last parenthesis.
            stat.rsplit_once(") ")
                .is_some_and(|(_, rest)| rest.starts_with('T'))
        };
        eventually("every thread stands still", async || {
            let mut threads = std::fs::read_dir(&tasks).expect("it runs");
            threads
                .all(|task| stands_still(task.expect("a thread")))
                .then_some(())
        })
        .await;
    }

    /// Waits for the end; returns the exit code, `None` after a signal.
    pub async fn wait(mut self) -> Option<i32> {
        self.child.wait().await.expect("an end").code()
    }

    pub async fn kill(mut self) {
        self.child.kill().await.expect("it runs");
    }
}
