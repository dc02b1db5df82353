//! Tally's real programs, started again by a supervisor when a fault ends them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use nix::sys::signal::Signal;
use tally::dev::Process;
use tokio::time::{Instant, sleep};

pub const TALLY: &str = env!("CARGO_BIN_EXE_tally");
pub const SYNC_WORKER: &str = env!("CARGO_BIN_EXE_sync-worker");

/// What a program is told of how long it may take to stop, and how often it waits
/// for that (requests, votes, suspects); for the worker, its last flush.
pub const SHUTDOWN_LIMIT: &str = "3s";
/// When a stop in order has taken too long: three times the above, what the calls
/// under way may take (6 s), and time for a busy machine.
const STOP_LIMIT: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(10);

pub struct Program {
    name: String,
    binary: &'static str,
    arguments: Vec<String>,
    log: PathBuf,
    process: Option<Process>,
}

impl Program {
    /// Starts a program with these variables and no others.
    pub fn start(
        name: &str,
        binary: &'static str,
        subcommand: Option<&str>,
        variables: &[(&str, String)],
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let mut arguments = vec!["-i".to_owned()];
        for kept in ["PATH", "HOME"] {
            if let Ok(value) = std::env::var(kept) {
                arguments.push(format!("{kept}={value}"));
            }
        }
        arguments.extend(variables.iter().map(|(name, value)| format!("{name}={value}")));
        arguments.push(binary.to_owned());
        arguments.extend(subcommand.map(str::to_owned));
        let mut program = Self {
            name: name.to_owned(),
            binary,
            arguments,
            log: folder.join(format!("{name}.log")),
            process: None,
        };
        program.begin()?;
        Ok(program)
    }

    fn begin(&mut self) -> anyhow::Result<()> {
        debug_assert!(!self.binary.is_empty());
        self.process = Some(Process::start(
            &self.name,
            "env",
            &self.arguments,
            &self.log,
            false,
        )?);
        Ok(())
    }

    /// Ends it as a power cut would, and starts it again.
    pub async fn killed(&mut self, lasting: Duration) -> anyhow::Result<()> {
        self.expect_running()?;
        if let Some(process) = self.process.take() {
            process.kill().await;
        }
        sleep(lasting).await;
        self.begin()
    }

    /// Asks it to stop, as a deployment does, and starts it again.
    pub async fn restarted(&mut self, lasting: Duration) -> anyhow::Result<()> {
        self.expect_running()?;
        let mut stopped = Ok(());
        if let Some(mut process) = self.process.take() {
            process.signal(Signal::SIGTERM)?;
            let deadline = Instant::now() + STOP_LIMIT;
            while !process.has_ended() && stopped.is_ok() {
                if Instant::now() > deadline {
                    stopped = Err(anyhow!(
                        "{} did not stop within {STOP_LIMIT:?} of SIGTERM",
                        self.name
                    ));
                }
                sleep(LOOK_EVERY).await;
            }
        }
        sleep(lasting).await;
        self.begin()?;
        stopped
    }

    /// Holds it where it is.
    pub async fn stopped(&mut self, lasting: Duration) -> anyhow::Result<()> {
        self.signal(Signal::SIGSTOP)?;
        sleep(lasting).await;
        self.signal(Signal::SIGCONT)
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        match &self.process {
            Some(process) => process.signal(signal),
            None => bail!("{} does not run", self.name),
        }
    }

    /// No program may end but by a fault.
    pub fn expect_running(&mut self) -> anyhow::Result<()> {
        if self.process.as_mut().is_none_or(Process::has_ended) {
            bail!("{} ended by itself", self.name);
        }
        Ok(())
    }

    /// The most memory that it has ever held, in MiB (VmHWM), and what it holds (VmRSS).
    ///
    /// # Errors
    /// When it does not run, or the system does not tell.
    pub fn memory_mib(&self) -> anyhow::Result<(u64, u64)> {
        let id = self.process.as_ref().and_then(Process::id).context("it runs")?;
        let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
        let kib = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name))?;
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        };
        Ok((
            kib("VmHWM:").context("VmHWM")? / 1024,
            kib("VmRSS:").context("VmRSS")? / 1024,
        ))
    }

    pub async fn kill(&mut self) {
        if let Some(process) = self.process.take() {
            process.kill().await;
        }
    }
}
