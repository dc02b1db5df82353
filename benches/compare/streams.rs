//! The bench of live streams: how fast votes show in them, what an event costs, and how many votes
//! per second remain.
//!
//! One server without watchers takes votes as fast as it can, and then at half that rate; then the
//! same with 5,000 watchers; then once more without them, since a machine's speed drifts. At half
//! the rate, the difference of the CPU times is the cost of the events. Meanwhile a prober votes on
//! a watched item now and then. Each stream of that item measures the time from the vote's answer
//! until the count shows.
//!
//! The watchers share the cores with everything else. The time that they read is measured separately.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use testkit::benchmark::StreamRow;
use testkit::load::{Load, Mix, Outcome, Pace, Requests, Spread};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::LocalSet;
use tokio::time::sleep;

use crate::measure::Cpu;
use crate::servers::Servers;
use crate::settings::Settings;
use crate::stores::Stores;
use crate::systems::System;
use crate::voting::{LOADS_LIMIT, check};
use crate::workloads::{CONNECTIONS, EMPTY, ITEMS};

/// The workloads, and how many items are watched in each.
pub const WORKLOADS: [(&str, i64); 2] = [("streams_one_item", 1), ("streams_1000_items", 1000)];

const WATCHERS: usize = 5000;
const QUICK_WATCHERS: usize = 500;
/// Streams that are opened at once.
const OPENED_AT_ONCE: usize = 100;
/// The pause between two votes of the prober.
const PROBE_EVERY: Duration = Duration::from_millis(50);
/// How long the votes of each part are measured, in runs. Delays are rare, so they need longer.
pub const RUNS: u32 = 3;
/// The part of its own maximum at which delays and costs are measured.
const OPEN_LOOP_PART: f64 = 0.5;
/// What a server must allow for such benches: all streams come from one address.
pub const LIMITS: [(&str, &str); 3] = [
    ("TALLY_CONNECTIONS_LIMIT", "16384"),
    ("TALLY_STREAMS_LIMIT", "12000"),
    ("TALLY_STREAMS_LIMIT_BY_ADDRESS", "12000"),
];

/// The line of a run.
pub fn line(row: &StreamRow) -> String {
    format!(
        "{:<20} {} watchers of {} items: votes/s {:.0} and {:.0} without, {:.0} with ({:.3}), at {:.1} µs and {:.1}, beside {:.0} events/s, read by {:.2} cores; at half of that {:.0} events/s at {:.1} µs (server) and {:.1} (Redis); delay {:.0} ms, p99 {:.0}; {:.1} KB a stream{}",
        row.workload,
        row.watchers,
        row.items,
        row.votes_per_second_without[0],
        row.votes_per_second_without[1],
        row.votes_per_second_with,
        row.speed_ratio,
        row.cpu_us_per_vote[0],
        row.cpu_us_per_vote[1],
        row.events_per_second_at_full_speed,
        row.watchers_cores,
        row.events_per_second,
        row.cpu_us_per_event_of_server,
        row.cpu_us_per_event_of_redis,
        row.delay_ms_p50,
        row.delay_ms_p99,
        row.bytes_per_stream / 1024.0,
        row.fault
            .as_deref()
            .map(|fault| format!("  NOT VERIFIED: {fault}"))
            .unwrap_or_default(),
    )
}

/// Runs one of the workloads. Each run has another `number`.
pub async fn measure(
    stores: &Stores,
    (workload, items): (&'static str, i64),
    round: usize,
    number: u32,
    settings: &Settings,
) -> StreamRow {
    let database = stores.database(&EMPTY).await;
    let limits = LIMITS.map(|(name, value)| (name, value.to_owned()));
    let servers = Servers::start(stores, &database, System::Tally, 1, &limits).await;
    let processes = servers.processes(stores);
    let server = processes.servers[0];
    let address = servers.addresses[0];
    let spread = if items == 1 { Spread::Hot } else { Spread::Uniform };
    let requests = Arc::new(Requests::render(
        usize::try_from(ITEMS).expect("items"),
        spread,
        Mix::Votes,
        false,
    ));
    let start = |pace, part| {
        let requests = Arc::clone(&requests);
        Load::start(
            &servers.addresses,
            CONNECTIONS,
            requests,
            pace,
            LOADS_LIMIT * number + part,
        )
    };
    let run = RUNS * settings.run;
    let speed = |load: &Outcome| load.votes as f64 / load.measured.as_secs_f64();
    let mut loads = Vec::new();

    let load = start(Pace::Closed, 0);
    sleep(2 * settings.warm_up).await;
    let before = processes.cpu();
    load.measure();
    sleep(run).await;
    let full_without = processes.cpu().since(before);
    loads.push(load.stop().await);
    let without = speed(&loads[0]);
    let half = Pace::Open {
        per_second: without * OPEN_LOOP_PART,
    };

    let load = start(half, 1);
    sleep(settings.warm_up).await;
    let before = processes.cpu();
    load.measure();
    sleep(run).await;
    let cpu_without = processes.cpu().since(before);
    loads.push(load.stop().await);

    let memory = resident_bytes(server);
    let count = if settings.quick { QUICK_WATCHERS } else { WATCHERS };
    let watchers = Watchers::open(address, count, items).await;
    let bytes_per_stream = resident_bytes(server).saturating_sub(memory) as f64 / count as f64;

    let load = start(half, 2);
    sleep(settings.warm_up).await;
    watchers.measure().await;
    let before = processes.cpu();
    load.measure();
    sleep(run).await;
    let cpu_with = processes.cpu().since(before);
    let seen = watchers.seen().await;
    loads.push(load.stop().await);

    let load = start(Pace::Closed, 3);
    sleep(settings.warm_up).await;
    watchers.measure().await;
    let before = processes.cpu();
    load.measure();
    sleep(run).await;
    let full_with = processes.cpu().since(before);
    let seen_at_full_speed = watchers.seen().await;
    loads.push(load.stop().await);
    let with = speed(&loads[3]);
    let probes = watchers.close().await;

    let load = start(Pace::Closed, 4);
    sleep(settings.warm_up).await;
    load.measure();
    sleep(run).await;
    loads.push(load.stop().await);
    let without = [without, speed(&loads[4])];

    let answered: Result<(), String> = loads.iter().try_for_each(Outcome::expect_all_answered);
    let acknowledged = loads.iter().map(|load| load.acknowledged_rows).sum::<u64>() + probes;
    let checked = match answered.and(servers.stop(stores, &database).await) {
        Ok(()) => check(stores, &database, System::Tally, &EMPTY, acknowledged).await,
        Err(fault) => Err(fault),
    };
    stores.drop(database).await;
    let of_events = |with: Duration, without: Duration| {
        (with.as_secs_f64() - without.as_secs_f64()) * 1e6 / seen.events.max(1) as f64
    };
    let each = |cpu: Cpu, load: &Outcome| cpu.each(load.cpu, load.votes).sum();
    let ms = |part| seen.delays_us.value_at_quantile(part) as f64 / 1000.0;
    StreamRow {
        workload: workload.to_owned(),
        round,
        watchers: count,
        items,
        votes_per_second_without: without,
        votes_per_second_with: with,
        speed_ratio: 2.0 * with / without.iter().sum::<f64>(),
        cpu_us_per_vote: [each(full_without, &loads[0]), each(full_with, &loads[3])],
        watchers_cores: seen_at_full_speed.cpu.as_secs_f64() / run.as_secs_f64(),
        events_per_second_at_full_speed: seen_at_full_speed.events as f64 / run.as_secs_f64(),
        events_per_second: seen.events as f64 / run.as_secs_f64(),
        cpu_us_per_event_of_server: of_events(cpu_with.server, cpu_without.server),
        cpu_us_per_event_of_redis: of_events(cpu_with.redis, cpu_without.redis),
        delay_ms_p50: ms(0.5),
        delay_ms_p99: ms(0.99),
        delays: seen.delays_us.len(),
        bytes_per_stream,
        fault: checked.err(),
    }
}

/// The CPU time of this thread.
fn thread_cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// A process' resident memory.
pub fn resident_bytes(id: Pid) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{id}/status")).expect("it runs");
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.expect("its memory") * 1024
}

/// What the watchers have seen.
struct Seen {
    events: u64,
    /// The CPU time of the watchers' thread.
    cpu: Duration,
    delays_us: Histogram<u64>,
}

enum Ask {
    /// Forget what was seen.
    Measure(oneshot::Sender<()>),
    Seen(oneshot::Sender<Seen>),
}

/// Streams with a thread of their own that reads them, and its prober.
struct Watchers {
    ask: mpsc::UnboundedSender<Ask>,
    thread: JoinHandle<u64>,
}

impl Watchers {
    /// Opens so many streams, each of one item, and waits until each has its first event.
    async fn open(address: SocketAddr, count: usize, items: i64) -> Self {
        let (ask, asked) = mpsc::unbounded_channel();
        let (tell_opened, opened) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("watchers".to_owned())
            .spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .expect("a runtime");
                LocalSet::new().block_on(&runtime, watch(address, count, items, asked, tell_opened))
            })
            .expect("a thread");
        opened.await.expect("all streams are open");
        Self { ask, thread }
    }

    async fn measure(&self) {
        let (done, answer) = oneshot::channel();
        assert!(
            self.ask.send(Ask::Measure(done)).is_ok(),
            "the watchers are there"
        );
        answer.await.expect("an answer");
    }

    async fn seen(&self) -> Seen {
        let (seen, answer) = oneshot::channel();
        assert!(self.ask.send(Ask::Seen(seen)).is_ok(), "the watchers are there");
        answer.await.expect("an answer")
    }

    /// Closes all streams. Returns how many votes the prober has cast.
    async fn close(self) -> u64 {
        let Self { ask, thread } = self;
        drop(ask);
        let ended = tokio::task::spawn_blocking(move || thread.join()).await;
        ended.expect("its end").expect("its end")
    }
}

/// One stream as its reader sees it.
#[derive(Default)]
struct Watched {
    /// The count that was shown last.
    count: i64,
    /// The counts in answers to the prober's votes that this stream has not shown yet, and when each
    /// answer came. All of them: the first answer after an event waits the longest.
    waiting: VecDeque<(i64, Instant)>,
}

/// What all readers of the thread share.
struct All {
    streams: RefCell<Vec<Watched>>,
    events: Cell<u64>,
    delays_us: RefCell<Histogram<u64>>,
    items: i64,
}

impl All {
    fn shown(&self, stream: usize, count: i64) {
        self.events.set(self.events.get() + 1);
        let watched = &mut self.streams.borrow_mut()[stream];
        watched.count = count;
        while let Some((wanted, since)) = watched.waiting.front().copied()
            && wanted <= count
        {
            watched.waiting.pop_front();
            self.delayed(since.elapsed());
        }
    }

    fn delayed(&self, by: Duration) {
        let by = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
        let recorded = self.delays_us.borrow_mut().record(by.max(1));
        recorded.expect("a histogram that grows");
    }

    /// A vote on this item was answered with this count.
    fn answered(&self, item: i64, count: i64) {
        let now = Instant::now();
        let streams = &mut *self.streams.borrow_mut();
        for (number, watched) in streams.iter_mut().enumerate() {
            if self.item(number) != item {
                continue;
            }
            if watched.count >= count {
                self.delayed(Duration::ZERO);
            } else {
                watched.waiting.push_back((count, now));
            }
        }
    }

    /// The item of this stream.
    fn item(&self, stream: usize) -> i64 {
        1 + i64::try_from(stream).unwrap_or_default() % self.items
    }
}

async fn watch(
    address: SocketAddr,
    count: usize,
    items: i64,
    mut asked: mpsc::UnboundedReceiver<Ask>,
    opened: oneshot::Sender<()>,
) -> u64 {
    let mut streams = Vec::new();
    streams.resize_with(count, Watched::default);
    let all = Rc::new(All {
        streams: RefCell::new(streams),
        events: Cell::new(0),
        delays_us: RefCell::new(Histogram::new(3).expect("a histogram")),
        items,
    });
    for first in (0..count).step_by(OPENED_AT_ONCE) {
        let some =
            (first..count.min(first + OPENED_AT_ONCE)).map(|number| open(address, number, Rc::clone(&all)));
        futures_util::future::join_all(some).await;
    }
    assert!(opened.send(()).is_ok(), "the bench waits");
    let is_ended = Rc::new(Cell::new(false));
    let prober = tokio::task::spawn_local(probe(address, Rc::clone(&all), Rc::clone(&is_ended)));
    let mut measured_from = thread_cpu();
    while let Some(ask) = asked.recv().await {
        match ask {
            Ask::Measure(done) => {
                measured_from = thread_cpu();
                all.events.set(0);
                all.delays_us.borrow_mut().reset();
                let _ = done.send(());
            }
            Ask::Seen(seen) => {
                let _ = seen.send(Seen {
                    events: all.events.get(),
                    cpu: thread_cpu().saturating_sub(measured_from),
                    delays_us: all.delays_us.borrow().clone(),
                });
            }
        }
    }
    // A vote in progress still counts: otherwise there would be a row that nobody acknowledged.
    is_ended.set(true);
    prober.await.expect("the prober's end")
}

/// Opens a stream, waits for its first event, and reads on in a task of its own.
async fn open(address: SocketAddr, number: usize, all: Rc<All>) {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let item = all.item(number);
    let request = format!("GET /v1/items/{item}/stream HTTP/1.1\r\nhost: bench\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("it reads");
    let mut bytes = vec![0; 4096];
    let mut filled = 0;
    let mut is_open = false;
    let (tell_open, first) = oneshot::channel();
    let mut tell_open = Some(tell_open);
    tokio::task::spawn_local(async move {
        loop {
            let read = stream.read(&mut bytes[filled..]).await.unwrap_or_default();
            if read == 0 {
                return;
            }
            filled += read;
            // An event ends with an empty line.
            while let Some(end) = find(&bytes[..filled], b"\n\n") {
                if let Some(count) = count(&bytes[..end]) {
                    all.shown(number, count);
                    is_open = true;
                }
                bytes.copy_within(end + 2..filled, 0);
                filled -= end + 2;
            }
            assert!(filled < bytes.len(), "an event has an end");
            if is_open && let Some(open) = tell_open.take() {
                let _ = open.send(());
            }
        }
    });
    first.await.expect("a first event");
}

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

/// The count of the one item in an event, or in the answer to a vote.
fn count(text: &[u8]) -> Option<i64> {
    const NAME: &[u8] = b"\"vote_count\":";
    let digits = &text[find(text, NAME)? + NAME.len()..];
    let end = digits
        .iter()
        .position(|byte| *byte != b'-' && !byte.is_ascii_digit())?;
    std::str::from_utf8(&digits[..end]).ok()?.parse().ok()
}

/// Votes on a watched item now and then, on one connection. Returns how many votes were
/// answered.
async fn probe(address: SocketAddr, all: Rc<All>, is_ended: Rc<Cell<bool>>) -> u64 {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let mut cast = 0;
    let mut bytes = vec![0; 8192];
    while !is_ended.get() {
        // One item after the other, with a step that reaches all of them.
        let item = 1 + i64::try_from(cast).unwrap_or_default() * 7 % all.items;
        let request =
            format!("POST /v1/items/{item}/votes HTTP/1.1\r\nhost: bench\r\ncontent-length: 0\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("it reads");
        let read = stream.read(&mut bytes).await.expect("an answer");
        let answer = &bytes[..read];
        assert!(
            answer.starts_with(b"HTTP/1.1 201"),
            "{}",
            String::from_utf8_lossy(answer)
        );
        cast += 1;
        if let Some(count) = count(answer) {
            all.answered(item, count);
        }
        sleep(PROBE_EVERY).await;
    }
    cast
}
