//! Tally's real programs on a test's stores.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;
use tally::ledger::Role;
use testkit::programs::until_ready;
use tokio::process::Command;

use super::stores::Stores;

pub use testkit::programs::{Program, run, text};

pub const TALLY: &str = env!("CARGO_BIN_EXE_tally");
pub const SYNC_WORKER: &str = env!("CARGO_BIN_EXE_sync-worker");

/// How long a program may take to stop.
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// A command with the stores in its environment.
/// Both programs log in with the role that they have in production. This is the worker's role;
/// `tally serve` has the server's ([`command_as`]).
pub fn command(program: &str, stores: Option<&Stores>) -> Command {
    command_as(program, stores.map(|stores| (stores, Role::Worker)))
}

/// A command with the stores, and a role, in its environment.
pub fn command_as(program: &str, stores: Option<(&Stores, Role)>) -> Command {
    let mut command = testkit::programs::command(program);
    if let Some((stores, role)) = stores {
        command.envs(stores.environment(role));
    }
    command
}

/// Runs `tally` with these arguments as an operator, with JSON. Returns whether it succeeded, its results, and what
/// it complains of.
pub async fn operator(stores: &Stores, arguments: &[&str]) -> (bool, Vec<Value>, String) {
    let mut command = command_as(TALLY, Some((stores, Role::Operator)));
    command.args(arguments).arg("--json");
    let output = run(command).await;
    let lines = text(&output.stdout);
    let lines = lines.lines().filter_map(|line| serde_json::from_str(line).ok());
    (output.status.success(), lines.collect(), text(&output.stderr))
}

/// Starts a program. Its output goes to the file `<name>.log` beside the stores.
pub fn start(command: Command, stores: &Stores, name: &str) -> Program {
    Program::start(command, stores.folder(), name).expect("the program starts")
}

/// Starts a server on a free port, and waits until it is ready.
/// Returns its base URL, too.
pub async fn start_server(stores: &Stores, name: &str) -> (Program, String) {
    start_server_with(stores, name, &[]).await
}

/// The same with these settings.
pub async fn start_server_with(stores: &Stores, name: &str, settings: &[(&str, &str)]) -> (Program, String) {
    let mut command = command_as(TALLY, Some((stores, Role::Server)));
    command.arg("serve").env("TALLY_LISTEN", "127.0.0.1:0");
    command.envs(settings.iter().copied());
    start_server_of(command, stores, name).await
}

/// The same with this command.
pub async fn start_server_of(command: Command, stores: &Stores, name: &str) -> (Program, String) {
    let program = start(command, stores, name);
    let line = program.wait_for_line("address=").await;
    let address = line.split("address=").nth(1).expect("an address").trim();
    let base = format!("http://{address}");
    until_ready(&base).await.expect("a server that is ready");
    (program, base)
}

/// Sends a signal and waits for the program's end, which must be a success.
pub async fn stop(mut program: Program, signal: Signal) {
    let code = program.stop(signal, STOP_LIMIT).await.expect("it stops");
    assert_eq!(code, Some(0), "{}", program.output());
}

/// Starts a worker with these settings.
pub fn start_worker(stores: &Stores, name: &str, settings: &[(&str, &str)]) -> Program {
    let mut command = command(SYNC_WORKER, Some(stores));
    command.envs(settings.iter().copied());
    start(command, stores, name)
}
