//! Notices of programs to a supervisor such as systemd, over the socket that it names.

use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;
use tally::ledger::Role;
use tokio::net::UnixDatagram;
use tokio::time::timeout;

use crate::helpers::programs::{SYNC_WORKER, TALLY, command_as, start, stop};
use crate::helpers::stores::Stores;

/// Longer than any program takes to say something.
const SAY_LIMIT: Duration = Duration::from_secs(60);

/// Reads what a program says until it says this. Fails when it says anything else than one of `others` before.
async fn until(socket: &UnixDatagram, words: &str, others: &[&str]) {
    let mut buffer = [0; 256];
    loop {
        let said = timeout(SAY_LIMIT, socket.recv(&mut buffer)).await;
        let length = said
            .unwrap_or_else(|_| panic!("it never says {words}"))
            .expect("a message");
        let said = std::str::from_utf8(&buffer[..length]).expect("a text").trim();
        if said == words {
            return;
        }
        assert!(others.contains(&said), "{said} before {words}");
    }
}

fn socket(folder: &Path, name: &str) -> (UnixDatagram, String) {
    let path = folder.join(name);
    let socket = UnixDatagram::bind(&path).expect("a socket");
    (socket, path.to_str().expect("a plain path").to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_and_a_worker_say_when_they_are_ready_that_they_go_on_and_when_they_stop() {
    let stores = Stores::start().await;
    for (program, arguments, role) in [
        (TALLY, &["serve"][..], Role::Server),
        (SYNC_WORKER, &[], Role::Worker),
    ] {
        let (socket, path) = socket(stores.folder(), &format!("{role:?}"));
        let mut command = command_as(program, Some((&stores, role)));
        command
            .args(arguments)
            .env("TALLY_LISTEN", "127.0.0.1:0")
            .env("NOTIFY_SOCKET", path)
            .env("WATCHDOG_USEC", "300000");
        let started = start(command, &stores, &format!("{role:?} program"));
        until(&socket, "READY=1", &[]).await;
        for _ in 0..3 {
            until(&socket, "WATCHDOG=1", &[]).await;
        }
        stop(started, Signal::SIGTERM).await;
        until(&socket, "STOPPING=1", &["WATCHDOG=1"]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_watchdog_a_program_says_only_that_it_is_ready_and_stops() {
    let stores = Stores::start().await;
    let (socket, path) = socket(stores.folder(), "notify");
    let mut command = command_as(SYNC_WORKER, Some((&stores, Role::Worker)));
    command.env("NOTIFY_SOCKET", path);
    let worker = start(command, &stores, "worker");
    until(&socket, "READY=1", &[]).await;
    stop(worker, Signal::SIGTERM).await;
    until(&socket, "STOPPING=1", &[]).await;
}

/// A supervisor that has gone stops nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_whose_supervisor_does_not_listen_works_all_the_same() {
    let stores = Stores::start().await;
    let mut command = command_as(SYNC_WORKER, Some((&stores, Role::Worker)));
    command
        .env("NOTIFY_SOCKET", stores.folder().join("nobody"))
        .env("WATCHDOG_USEC", "300000");
    let worker = start(command, &stores, "worker");
    worker
        .wait_for_line("a notice does not reach the supervisor")
        .await;
    stop(worker, Signal::SIGTERM).await;
}
