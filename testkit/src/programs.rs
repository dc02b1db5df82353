//! Tally's real programs as processes.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

use crate::{LOOK_EVERY, eventually, until};

/// How long a program's threads may take to stop when it is frozen.
const FREEZE_LIMIT: Duration = Duration::from_secs(60);
/// How long a server may take to become ready.
const READY_LIMIT: Duration = Duration::from_secs(60);

/// The variables that a program gets from a test's environment.
/// `tools/mutants/rust` sets the last two: which mutant is alive, and where to write down those
/// that are reached.
const KEPT_VARIABLES: [&str; 4] = ["PATH", "HOME", "MUTANT", "MUTANTS_REACHED"];
/// Names a folder with other builds of the programs, for mutation testing.
const FOLDER_VARIABLE: &str = "TALLY_TEST_PROGRAMS";

/// A command for a program, whose environment has only [`KEPT_VARIABLES`].
/// A server is open to all, as most tests need it. On Linux, the program ends with the thread that
/// starts it, like the private stores: `kill_on_drop` does nothing when a test is killed.
pub fn command(program: &str) -> Command {
    let other = std::env::var_os(FOLDER_VARIABLE).zip(Path::new(program).file_name());
    let other = other.map(|(folder, name)| Path::new(&folder).join(name));
    // Scripts are run in this way, too.
    let program = other
        .filter(|other| other.exists())
        .unwrap_or_else(|| PathBuf::from(program));
    let mut command = if cfg!(target_os = "linux") {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program);
        command
    } else {
        Command::new(program)
    };
    command.env_clear().kill_on_drop(true).stdin(Stdio::null());
    for kept in KEPT_VARIABLES {
        if let Some(value) = std::env::var_os(kept) {
            command.env(kept, value);
        }
    }
    command.env("TALLY_OPEN", "anonymous,voters,visitors,admin,report");
    command
}

/// Runs a program to its end.
pub async fn run(mut command: Command) -> Output {
    command.output().await.expect("the program runs")
}

/// Runs a program to its end. Returns what it printed.
///
/// # Errors
/// When it fails. The error has both of its outputs.
pub async fn run_well(command: Command) -> anyhow::Result<String> {
    let output = run(command).await;
    let printed = text(&output.stdout);
    if !output.status.success() {
        bail!(
            "{}: {} {}",
            output.status,
            printed.trim(),
            text(&output.stderr).trim()
        );
    }
    Ok(printed)
}

/// The output of a program as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Waits until the server at this base URL is ready, live counts included.
///
/// # Errors
/// When that takes too long.
pub async fn until_ready(base: &str) -> anyhow::Result<()> {
    let what = format!("{base}/health/ready says ready");
    until(&what, READY_LIMIT, async || {
        let answer = reqwest::get(format!("{base}/health/ready")).await.ok()?;
        let text = answer.text().await.ok()?;
        text.contains(r#""status":"ready""#).then_some(())
    })
    .await
}

/// A program that runs, or has run and can be started again. Dropping kills it.
pub struct Program {
    name: String,
    command: Command,
    log: PathBuf,
    child: Option<Child>,
}

impl Program {
    /// Starts a program. Its output goes to the file `<name>.log` in `folder`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(command: Command, folder: &Path, name: &str) -> anyhow::Result<Self> {
        let log = folder.join(format!("{name}.log"));
        File::create(&log)?;
        let mut program = Self {
            name: name.to_owned(),
            command,
            log,
            child: None,
        };
        program.start_again()?;
        Ok(program)
    }

    /// Starts a program that has ended, with the same arguments and variables.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_again(&mut self) -> anyhow::Result<()> {
        let log = OpenOptions::new().append(true).open(&self.log)?;
        let child = self
            .command
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("{} could not be started", self.name))?;
        self.child = Some(child);
        Ok(())
    }

    /// What it has printed so far.
    pub fn output(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits for a line of its output with this text. Returns the line.
    pub async fn wait_for_line(&self, part: &str) -> String {
        eventually(&format!("the output has {part:?}"), async || {
            self.output()
                .lines()
                .find(|line| line.contains(part))
                .map(str::to_owned)
        })
        .await
    }

    /// Its process id.
    ///
    /// # Errors
    /// When it does not run.
    pub fn id(&self) -> anyhow::Result<Pid> {
        let id = self.child.as_ref().and_then(Child::id);
        let id = id.with_context(|| format!("{} does not run", self.name))?;
        Ok(Pid::from_raw(i32::try_from(id)?))
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// When it does not run.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        Ok(kill(self.id()?, signal)?)
    }

    /// Freezes it, and waits until each of its threads has stopped.
    /// Some threads run on for a moment after the signal. `SIGCONT` makes it continue.
    ///
    /// # Errors
    /// When it does not run.
    pub async fn freeze(&self) -> anyhow::Result<()> {
        self.signal(Signal::SIGSTOP)?;
        let tasks = format!("/proc/{}/task", self.id()?);
        let has_stopped = |task: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            // The state follows the name, which ends with the last parenthesis.
            stat.rsplit_once(") ")
                .is_some_and(|(_, state)| state.starts_with('T'))
        };
        let deadline = Instant::now() + FREEZE_LIMIT;
        while !std::fs::read_dir(&tasks)?.flatten().all(has_stopped) {
            if Instant::now() >= deadline {
                bail!("{} did not stop where it is within {FREEZE_LIMIT:?}", self.name);
            }
            sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// Kills it, as a power cut would.
    ///
    /// # Errors
    /// When it does not run.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        self.signal(Signal::SIGKILL)?;
        self.end().await.map(|_| ())
    }

    /// Asks it to stop, as a deployment does, and waits for its end.
    /// Returns its exit code; `None`: a signal ended it.
    ///
    /// # Errors
    /// When it does not run, or has not stopped after `limit`. Then it is killed.
    pub async fn stop(&mut self, signal: Signal, limit: Duration) -> anyhow::Result<Option<i32>> {
        self.signal(signal)?;
        if let Ok(ended) = timeout(limit, self.end()).await {
            return Ok(ended?.code());
        }
        self.kill().await?;
        Err(anyhow!("{} did not stop within {limit:?} of {signal}", self.name))
    }

    /// Waits for its end. Returns its exit code; `None`: a signal ended it.
    pub async fn wait(&mut self) -> Option<i32> {
        self.end().await.expect("it runs").code()
    }

    async fn end(&mut self) -> anyhow::Result<ExitStatus> {
        let child = self.child.as_mut();
        let child = child.with_context(|| format!("{} does not run", self.name))?;
        Ok(child.wait().await?)
    }

    /// Expects that it runs.
    ///
    /// # Errors
    /// When it does not run: the error names it and has the end of its output.
    pub fn expect_running(&mut self) -> anyhow::Result<()> {
        let child = self.child.as_mut();
        if child.is_none_or(|child| !matches!(child.try_wait(), Ok(None))) {
            let output = self.output();
            bail!(
                "{} ended by itself: {}",
                self.name,
                output.lines().last().unwrap_or_default()
            );
        }
        Ok(())
    }

    /// The most memory that it has used, in MiB (VmHWM), and what it uses now (VmRSS).
    ///
    /// # Errors
    /// When it does not run, or the system does not say.
    pub fn memory_mib(&self) -> anyhow::Result<(u64, u64)> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id()?))?;
        let kib = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name))?;
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        };
        Ok((
            kib("VmHWM:").context("VmHWM")? / 1024,
            kib("VmRSS:").context("VmRSS")? / 1024,
        ))
    }
}
