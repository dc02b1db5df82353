//! What faults do to Tally's programs. A supervisor starts each one again.

use std::time::Duration;

use anyhow::bail;
use nix::sys::signal::Signal;
use testkit::programs::Program;
use tokio::time::{Instant, sleep};

pub const TALLY: &str = env!("CARGO_BIN_EXE_tally");
pub const SYNC_WORKER: &str = env!("CARGO_BIN_EXE_sync-worker");

/// The setting for how long a program may take to stop. A server waits this long for requests,
/// then for votes, then for suspects; a worker, for its last flush.
pub const SHUTDOWN_LIMIT: &str = "3s";
/// The longest that a stop in order may take: three times [`SHUTDOWN_LIMIT`], the limit of the
/// calls under way (6 s), and time for a busy machine.
const STOP_LIMIT: Duration = Duration::from_secs(30);

/// What a server and a worker print when they have started, and how long that may take. It
/// takes longer while Postgres is unavailable.
const STARTED: [&str; 2] = ["listening", "syncing"];
const START_LIMIT: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// What they print when they end because Postgres takes no writes.
const READ_ONLY: &str = "is read-only";

/// Ends a program as a power cut would, and starts it again.
pub async fn kill(program: &mut Program, lasting: Duration) -> anyhow::Result<()> {
    program.expect_running()?;
    program.kill().await?;
    sleep(lasting).await;
    start_again(program).await
}

/// Asks a program to stop, as a deployment does, and starts it again.
pub async fn restart(program: &mut Program, lasting: Duration) -> anyhow::Result<()> {
    program.expect_running()?;
    let stopped = program.stop(Signal::SIGTERM, STOP_LIMIT).await;
    sleep(lasting).await;
    start_again(program).await?;
    stopped.map(|_| ())
}

/// Waits until a program has started for the first time. Until then it has no supervisor.
///
/// # Errors
/// When it ends, or takes too long.
pub async fn until_started(program: &mut Program) -> anyhow::Result<()> {
    let started = Instant::now();
    while !STARTED.iter().any(|line| program.output().contains(line)) {
        program.expect_running()?;
        if started.elapsed() > START_LIMIT {
            bail!("a program did not start within {START_LIMIT:?}");
        }
        sleep(LOOK_EVERY).await;
    }
    Ok(())
}

/// Starts a program as a supervisor does. A program that finds a read-only Postgres says so and
/// ends; it is started again until it stays.
async fn start_again(program: &mut Program) -> anyhow::Result<()> {
    loop {
        let before = program.output().len();
        program.start_again()?;
        let is_up = |program: &Program| {
            let output = program.output();
            let since = output.get(before..).unwrap_or_default();
            STARTED.iter().any(|line| since.contains(line))
        };
        let started = Instant::now();
        while !is_up(program) && started.elapsed() < START_LIMIT {
            sleep(LOOK_EVERY).await;
            if let Err(ended) = program.expect_running() {
                if !ended.to_string().contains(READ_ONLY) {
                    return Err(ended);
                }
                break;
            }
        }
        if program.expect_running().is_ok() {
            return Ok(());
        }
    }
}

/// Stops a program where it is, for a while.
pub async fn freeze(program: &Program, lasting: Duration) -> anyhow::Result<()> {
    program.freeze().await?;
    sleep(lasting).await;
    program.signal(Signal::SIGCONT)
}
