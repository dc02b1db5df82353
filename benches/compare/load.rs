//! The load: many connections, each with at most one request under way, driven by
//! one thread over epoll. The answers are read no further than needed, since the
//! generator shares the machine with what it measures.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId as TimerClock, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::time::{ClockId, clock_gettime};

use crate::requests::Requests;

/// How often an open loop looks whether a request is due.
const DUE_EVERY: Duration = Duration::from_micros(100);
/// How often a generator that waits for answers looks whether it should stop.
const PHASE_EVERY_MS: u16 = 10;
/// How long the requests under way at the end may take.
const DRAIN_LIMIT: Duration = Duration::from_secs(20);
/// The slowest request that is reported from slower ones.
const LATENCY_LIMIT_US: u64 = 60_000_000;
const TIMER: u64 = u64::MAX;

/// When requests are sent.
#[derive(Clone, Copy, Debug)]
pub enum Pace {
    /// On each connection, as soon as the one before is answered.
    Closed,
    /// At this rate, whether or not earlier ones are answered; a request for which
    /// no connection is free waits, and its latency counts from when it was due.
    Open { per_second: f64 },
}

const WARM_UP: u8 = 0;
const MEASURE: u8 = 1;
const STOP: u8 = 2;

#[derive(Default)]
struct Control {
    phase: AtomicU8,
    acknowledged_votes: AtomicU64,
}

/// A load under way.
pub struct Load {
    control: Arc<Control>,
    thread: JoinHandle<Outcome>,
}

/// What a load has seen.
pub struct Outcome {
    /// Votes acknowledged in all, the warm-up's too.
    pub acknowledged_votes: u64,
    /// Of what follows: how long was measured.
    pub measured: Duration,
    pub votes: u64,
    pub requests: u64,
    pub latency_us: Histogram<u64>,
    /// The generator's own CPU time.
    pub cpu: Duration,
    pub failures: u64,
    /// What the first failure was.
    pub first_failure: Option<String>,
}

impl Load {
    /// Connects, in turn to each of the addresses, and begins with the warm-up.
    /// `run` makes the voter ids of this load unlike any other's.
    pub fn start(
        addresses: &[SocketAddr],
        connections: usize,
        requests: Arc<Requests>,
        pace: Pace,
        run: u32,
    ) -> Self {
        let connections: Vec<Connection> = (0..connections)
            .map(|at| Connection::open(addresses[at % addresses.len()]))
            .collect();
        let control = Arc::new(Control::default());
        let shared = Arc::clone(&control);
        let thread = std::thread::Builder::new()
            .name("generator".to_owned())
            .spawn(move || Generator::new(connections, requests, pace, run, shared).run())
            .expect("a thread");
        Self { control, thread }
    }

    /// Ends the warm-up.
    pub fn measure(&self) {
        self.control.phase.store(MEASURE, Ordering::Release);
    }

    /// How many votes were acknowledged so far.
    pub fn acknowledged_votes(&self) -> u64 {
        self.control.acknowledged_votes.load(Ordering::Relaxed)
    }

    /// Ends what is measured, waits for the requests under way, and closes the
    /// connections.
    pub async fn stop(self) -> Outcome {
        self.control.phase.store(STOP, Ordering::Release);
        let thread = self.thread;
        tokio::task::spawn_blocking(move || thread.join().expect("the generator's end"))
            .await
            .expect("the generator's end")
    }
}

struct Connection {
    stream: TcpStream,
    /// What has come of an answer that is not whole yet.
    partial: Vec<u8>,
    /// When the request under way was due.
    due: Instant,
    is_vote: bool,
    is_busy: bool,
}

impl Connection {
    fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_nodelay(true).expect("a socket");
        stream.set_nonblocking(true).expect("a socket");
        Self {
            stream,
            partial: Vec::new(),
            due: Instant::now(),
            is_vote: false,
            is_busy: false,
        }
    }
}

struct Generator {
    connections: Vec<Connection>,
    requests: Arc<Requests>,
    pace: Pace,
    control: Arc<Control>,
    /// Sent so far.
    sent: u64,
    /// The first voter's number.
    first_voter: u64,
    scratch: Vec<u8>,
    under_way: usize,
    /// Whoever has been idle for longest sends next, so that all connections are used.
    idle: VecDeque<usize>,
    outcome: Outcome,
}

impl Generator {
    fn new(
        connections: Vec<Connection>,
        requests: Arc<Requests>,
        pace: Pace,
        run: u32,
        control: Arc<Control>,
    ) -> Self {
        let latency_us = Histogram::new_with_bounds(1, LATENCY_LIMIT_US, 3).expect("a histogram");
        Self {
            idle: (0..connections.len()).collect(),
            connections,
            requests,
            pace,
            control,
            sent: 0,
            first_voter: u64::from(run) << 40,
            scratch: Vec::with_capacity(512),
            under_way: 0,
            outcome: Outcome {
                acknowledged_votes: 0,
                measured: Duration::ZERO,
                votes: 0,
                requests: 0,
                latency_us,
                cpu: Duration::ZERO,
                failures: 0,
                first_failure: None,
            },
        }
    }

    fn run(mut self) -> Outcome {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).expect("epoll");
        for (at, connection) in self.connections.iter().enumerate() {
            epoll
                .add(
                    &connection.stream,
                    EpollEvent::new(EpollFlags::EPOLLIN, at as u64),
                )
                .expect("epoll");
        }
        let timer = TimerFd::new(TimerClock::CLOCK_MONOTONIC, TimerFlags::TFD_NONBLOCK).expect("a timer");
        let between = match self.pace {
            Pace::Closed => None,
            Pace::Open { per_second } => {
                timer
                    .set(
                        Expiration::Interval(TimeSpec::from_duration(DUE_EVERY)),
                        TimerSetTimeFlags::empty(),
                    )
                    .expect("a timer");
                // Edge-triggered, so that it need not be read.
                let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLET;
                epoll.add(&timer, EpollEvent::new(flags, TIMER)).expect("epoll");
                Some(Duration::from_secs_f64(1.0 / per_second))
            }
        };
        let mut next_due = Instant::now();
        let mut phase = WARM_UP;
        // When measuring began, and the CPU time spent until then.
        let mut began: Option<(Instant, Duration)> = None;
        let mut ended: Option<Instant> = None;
        let mut events = vec![EpollEvent::empty(); self.connections.len() + 1];
        let mut buffer = vec![0_u8; 64 * 1024];
        if between.is_none() {
            let now = Instant::now();
            while let Some(at) = self.idle.pop_front() {
                self.send(at, now);
            }
        }
        loop {
            let wanted = self.control.phase.load(Ordering::Acquire);
            if wanted != phase {
                let now = Instant::now();
                phase = wanted;
                match (phase, began) {
                    (MEASURE, _) => began = Some((now, cpu())),
                    (_, Some((since, before))) => {
                        self.outcome.measured = now - since;
                        self.outcome.cpu = cpu().saturating_sub(before);
                        ended = Some(now);
                    }
                    (_, None) => ended = Some(now),
                }
            }
            let is_rest = ended.is_some_and(|ended| {
                // An open loop's requests that were due in time are all sent yet.
                let all_sent = between.is_none() || next_due >= ended;
                (self.under_way == 0 && all_sent) || ended.elapsed() > DRAIN_LIMIT
            });
            if is_rest || (self.under_way == 0 && self.idle.is_empty()) {
                break;
            }
            let ready = match epoll.wait(&mut events, EpollTimeout::from(PHASE_EVERY_MS)) {
                Ok(ready) => ready,
                Err(nix::errno::Errno::EINTR) => 0,
                Err(error) => panic!("epoll: {error}"),
            };
            for event in &events[..ready] {
                if event.data() == TIMER {
                    continue;
                }
                let at = usize::try_from(event.data()).expect("a connection");
                let Some(now) = self.receive(at, &mut buffer, began, ended, between.is_some()) else {
                    continue;
                };
                if between.is_none() && ended.is_none() {
                    self.send(at, now);
                } else {
                    self.idle.push_back(at);
                }
            }
            if let Some(between) = between {
                let now = ended.unwrap_or_else(Instant::now);
                while next_due <= now {
                    let Some(at) = self.idle.pop_front() else { break };
                    self.send(at, next_due);
                    next_due += between;
                }
            }
        }
        if self.under_way > 0 {
            self.fail(format!("{} requests had no answer in time", self.under_way));
        }
        self.outcome
    }

    fn send(&mut self, at: usize, due: Instant) {
        let voter = self.first_voter + self.sent;
        let request = self.requests.nth(self.sent, voter, &mut self.scratch);
        let connection = &mut self.connections[at];
        let written = connection.stream.write(request.text);
        connection.due = due;
        connection.is_vote = request.is_vote;
        connection.is_busy = true;
        self.sent += 1;
        self.under_way += 1;
        if let Err(error) = written {
            self.lose(at, format!("a request could not be sent: {error}"));
        }
    }

    /// Reads what has come. Returns the time when the answer is whole.
    fn receive(
        &mut self,
        at: usize,
        buffer: &mut [u8],
        began: Option<(Instant, Duration)>,
        ended: Option<Instant>,
        is_open: bool,
    ) -> Option<Instant> {
        let connection = &mut self.connections[at];
        let read = match connection.stream.read(buffer) {
            Ok(0) => {
                self.lose(at, "a connection was closed".to_owned());
                return None;
            }
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
            Err(error) => {
                self.lose(at, format!("an answer could not be read: {error}"));
                return None;
            }
        };
        let answer = if connection.partial.is_empty() {
            &buffer[..read]
        } else {
            connection.partial.extend_from_slice(&buffer[..read]);
            &connection.partial
        };
        let Some(status) = whole(answer) else {
            if connection.partial.is_empty() {
                connection.partial.extend_from_slice(&buffer[..read]);
            }
            return None;
        };
        let now = Instant::now();
        let failure = if status == *b"201" || status == *b"200" {
            None
        } else {
            Some(String::from_utf8_lossy(answer).into_owned())
        };
        connection.partial.clear();
        connection.is_busy = false;
        self.under_way -= 1;
        let (is_vote, due) = (connection.is_vote, connection.due);
        if let Some(failure) = failure {
            self.fail(failure);
            return Some(now);
        }
        if is_vote {
            self.outcome.acknowledged_votes += 1;
            self.control
                .acknowledged_votes
                .store(self.outcome.acknowledged_votes, Ordering::Relaxed);
        }
        // A closed loop measures what is answered between beginning and end, an open
        // one what was due between them, however late its answer.
        let counts = match (began, ended) {
            (Some((began, _)), ended) if is_open => due >= began && ended.is_none_or(|ended| due < ended),
            (Some(_), None) => true,
            _ => false,
        };
        if counts {
            self.outcome.requests += 1;
            self.outcome.votes += u64::from(is_vote);
            let micros = u64::try_from(now.saturating_duration_since(due).as_micros()).unwrap_or(u64::MAX);
            self.outcome.latency_us.saturating_record(micros);
        }
        Some(now)
    }

    /// Gives a connection up.
    fn lose(&mut self, at: usize, why: String) {
        let connection = &mut self.connections[at];
        let _ = connection.stream.shutdown(std::net::Shutdown::Both);
        if std::mem::take(&mut connection.is_busy) {
            self.under_way -= 1;
        }
        self.idle.retain(|idle| *idle != at);
        self.fail(why);
    }

    fn fail(&mut self, why: String) {
        self.outcome.failures += 1;
        self.outcome.first_failure.get_or_insert(why);
    }
}

/// The status of an answer that has come whole.
fn whole(answer: &[u8]) -> Option<[u8; 3]> {
    const LENGTH: &[u8] = b"content-length: ";
    let head = answer.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let at = answer[..head]
        .windows(LENGTH.len())
        .position(|text| text == LENGTH)
        .expect("a content-length");
    let length = answer[at + LENGTH.len()..head]
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .fold(0, |length, digit| length * 10 + usize::from(digit - b'0'));
    if answer.len() < head + length {
        return None;
    }
    answer[9..12].try_into().ok()
}

/// The CPU time of the calling thread.
fn cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .map(Duration::from)
        .unwrap_or_default()
}
