//! What faults do to Tally's programs. A supervisor starts each one again.

use std::time::Duration;

use nix::sys::signal::Signal;
use testkit::programs::Program;
use tokio::time::sleep;

pub const TALLY: &str = env!("CARGO_BIN_EXE_tally");
pub const SYNC_WORKER: &str = env!("CARGO_BIN_EXE_sync-worker");

/// The setting for how long a program may take to stop. It waits as long for requests, for
/// votes and for suspects; the worker, for its last flush.
pub const SHUTDOWN_LIMIT: &str = "3s";
/// When a stop in order has taken too long: three times [`SHUTDOWN_LIMIT`], what the calls
/// under way may take (6 s), and time for a busy machine.
const STOP_LIMIT: Duration = Duration::from_secs(30);

/// Ends a program as a power cut would, and starts it again.
pub async fn kill(program: &mut Program, lasting: Duration) -> anyhow::Result<()> {
    program.expect_running()?;
    program.kill().await?;
    sleep(lasting).await;
    program.start_again()
}

/// Asks a program to stop, as a deployment does, and starts it again.
pub async fn restart(program: &mut Program, lasting: Duration) -> anyhow::Result<()> {
    program.expect_running()?;
    let stopped = program.stop(Signal::SIGTERM, STOP_LIMIT).await;
    sleep(lasting).await;
    program.start_again()?;
    stopped.map(|_| ())
}

/// Stops a program where it is, for a while.
pub async fn freeze(program: &Program, lasting: Duration) -> anyhow::Result<()> {
    program.freeze().await?;
    sleep(lasting).await;
    program.signal(Signal::SIGCONT)
}
