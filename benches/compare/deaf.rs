//! The bench of greedy and dead clients: 10,000 streams of 100 items each that nobody reads, beside
//! votes on all items.
//!
//! Half of the streams are then cut off in mid-event; the server must end the others by itself. Votes
//! must go on at their speed. Memory must stay bounded, and be free again at the end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use testkit::benchmark::DeafRow;
use testkit::load::{Load, Mix, Outcome, Pace, Requests, Spread};
use testkit::until;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::sleep;

use crate::servers::Servers;
use crate::settings::Settings;
use crate::stores::Stores;
use crate::streams::{LIMITS, RUNS, resident_bytes};
use crate::systems::System;
use crate::voting::{LOADS_LIMIT, check};
use crate::workloads::{CONNECTIONS, EMPTY, ITEMS};

pub const WORKLOAD: &str = "streams_deaf";

const STREAMS: usize = 10_000;
const QUICK_STREAMS: usize = 1000;
/// As many as a stream takes. All streams watch the same items, since another limit bounds what a server
/// may read.
const ITEMS_OF_A_STREAM: i64 = 100;
/// Connections that are made at once.
const ASKED_AT_ONCE: usize = 100;
/// What a client's system buffers: little, so the server has to keep the rest or stop.
const RECEIVE_BUFFER_BYTES: u32 = 4096;
/// How long it may take until all streams are open, and until the server has ended the last one.
const WAIT_LIMIT: Duration = Duration::from_secs(90);

/// The line of a run.
pub fn line(row: &DeafRow) -> String {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    format!(
        "{:<20} {} deaf streams ({} in the end): votes/s {:.0} without, {:.0} with ({:.3}); server {:.0} MiB before, {:.0} at the most ({:.1} KB a stream), {:.0} after; sockets {:.0} MiB before, {:.0} at the most; half cut off: ended after {:.1} s, the others after {:.1} s{}",
        row.workload,
        row.streams,
        row.open_in_the_end,
        row.votes_per_second_without,
        row.votes_per_second_with,
        row.speed_ratio,
        mib(row.memory_bytes[0]),
        mib(row.memory_bytes[1]),
        row.bytes_per_stream() / 1024.0,
        mib(row.memory_bytes[2]),
        mib(row.socket_bytes[0]),
        mib(row.socket_bytes[1]),
        row.cut_off_seconds,
        row.ended_seconds,
        row.fault
            .as_deref()
            .map(|fault| format!("  NOT VERIFIED: {fault}"))
            .unwrap_or_default(),
    )
}

/// Runs the workload. Each run has another `number`.
pub async fn measure(stores: &Stores, round: usize, number: u32, settings: &Settings) -> DeafRow {
    let database = stores.database(&EMPTY).await;
    let limits = LIMITS.map(|(name, value)| (name, value.to_owned()));
    let servers = Servers::start(stores, &database, System::Tally, 1, &limits).await;
    let server = servers.processes(stores).servers[0];
    let address = servers.addresses[0];
    let items = usize::try_from(ITEMS).expect("items");
    let requests = Arc::new(Requests::render(items, Spread::Uniform, Mix::Votes, false));
    let start = |part| {
        let requests = Arc::clone(&requests);
        let run = LOADS_LIMIT * number + part;
        Load::start(&servers.addresses, CONNECTIONS, requests, Pace::Closed, run)
    };
    let run = RUNS * settings.run;
    let speed = |load: &Outcome| load.votes as f64 / load.measured.as_secs_f64();

    let load = start(0);
    sleep(2 * settings.warm_up).await;
    load.measure();
    sleep(run).await;
    let mut loads = vec![load.stop().await];
    let mut most = Most::now(server);
    let before = most;

    let wanted = if settings.quick { QUICK_STREAMS } else { STREAMS };
    let mut clients = Vec::with_capacity(wanted);
    while clients.len() < wanted {
        let some = (0..ASKED_AT_ONCE.min(wanted - clients.len())).map(|_| ask(address));
        clients.extend(futures_util::future::join_all(some).await);
        most.look(server);
    }
    let all_open = until("all streams are open", WAIT_LIMIT, async || {
        (open_streams(address).await? >= wanted).then_some(())
    });
    let mut fault = all_open.await.err().map(|error| error.to_string());

    let load = start(1);
    sleep(settings.warm_up).await;
    load.measure();
    let began = Instant::now();
    while began.elapsed() < run {
        most.look(server);
        sleep(run / 20).await;
    }
    let open_in_the_end = open_streams(address).await.unwrap_or_default();
    loads.push(load.stop().await);

    let began = Instant::now();
    for client in clients.drain(..wanted / 2) {
        // The close becomes a reset, in the middle of an event that the client never read.
        client.set_zero_linger().expect("an open socket");
    }
    let cut_off = until("those cut off have ended", WAIT_LIMIT, async || {
        (open_streams(address).await? <= wanted - wanted / 2).then_some(())
    });
    fault = fault.or(cut_off.await.err().map(|error| error.to_string()));
    let cut_off_seconds = began.elapsed().as_secs_f64();
    // Votes go on: the server notices that nobody reads only when it has something to send.
    let load = start(2);
    let ended = until("the server has ended all others", WAIT_LIMIT, async || {
        most.look(server);
        (open_streams(address).await? == 0).then_some(())
    });
    fault = fault.or(ended.await.err().map(|error| error.to_string()));
    let ended_seconds = began.elapsed().as_secs_f64();
    loads.push(load.stop().await);
    drop(clients);
    let memory_after = resident_bytes(server);

    let answered: Result<(), String> = loads.iter().try_for_each(Outcome::expect_all_answered);
    let acknowledged = loads.iter().map(|load| load.acknowledged_rows).sum::<u64>();
    let checked = match answered.and(servers.stop(stores, &database).await) {
        Ok(()) => check(stores, &database, System::Tally, &EMPTY, acknowledged).await,
        Err(fault) => Err(fault),
    };
    stores.drop(database).await;
    let (without, with) = (speed(&loads[0]), speed(&loads[1]));
    DeafRow {
        workload: WORKLOAD.to_owned(),
        round,
        streams: wanted,
        votes_per_second_without: without,
        votes_per_second_with: with,
        speed_ratio: with / without,
        open_in_the_end,
        memory_bytes: [before.memory_bytes, most.memory_bytes, memory_after],
        socket_bytes: [before.socket_bytes, most.socket_bytes],
        cut_off_seconds,
        ended_seconds,
        fault: fault.or(checked.err()),
    }
}

/// Asks for a stream, and never reads.
async fn ask(address: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES).expect("a size");
    let mut stream = socket.connect(address).await.expect("it listens");
    let ids: Vec<String> = (1..=ITEMS_OF_A_STREAM).map(|id| id.to_string()).collect();
    let request = format!(
        "GET /v1/stream?items={} HTTP/1.1\r\nhost: bench\r\n\r\n",
        ids.join(",")
    );
    stream.write_all(request.as_bytes()).await.expect("it reads");
    stream
}

/// How many streams the server says that it has.
async fn open_streams(address: SocketAddr) -> Option<usize> {
    let answer = reqwest::get(format!("http://{address}/metrics")).await.ok()?;
    let text = answer.text().await.ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix("tally_streams "));
    value?.parse::<f64>().ok().map(|value| value as usize)
}

/// The most memory that was seen.
#[derive(Clone, Copy)]
struct Most {
    memory_bytes: u64,
    socket_bytes: u64,
}

impl Most {
    fn now(server: nix::unistd::Pid) -> Self {
        Self {
            memory_bytes: resident_bytes(server),
            socket_bytes: socket_bytes(),
        }
    }

    fn look(&mut self, server: nix::unistd::Pid) {
        let now = Self::now(server);
        self.memory_bytes = self.memory_bytes.max(now.memory_bytes);
        self.socket_bytes = self.socket_bytes.max(now.socket_bytes);
    }
}

/// The memory of all TCP sockets' buffers. `/proc/net/sockstat` counts pages of 4 KiB.
fn socket_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/net/sockstat").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("TCP:"));
    let pages = line.and_then(|line| line.split_once(" mem ")?.1.trim().parse::<u64>().ok());
    pages.unwrap_or_default() * 4096
}
