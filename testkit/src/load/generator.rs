//! The generator: one thread drives all connections over epoll.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId as TimerClock, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::time::{ClockId, clock_gettime};

use super::connection::{Connection, tag, whole};
use super::{Control, MEASURE, Outcome, Pace, Requests, Seen, WARM_UP};

/// How often an open loop checks whether a request is due.
const DUE_EVERY: Duration = Duration::from_micros(100);
/// How often a generator that waits for answers checks whether it should stop.
const PHASE_EVERY_MS: u16 = 10;
/// How long the last requests may take at the end.
const DRAIN_LIMIT: Duration = Duration::from_secs(20);
/// Slower requests count as this slow.
const LATENCY_LIMIT_US: u64 = 60_000_000;
/// How epoll reports the timer.
const TIMER: u64 = u64::MAX;
/// The end of the answer to a new vote while there is no live count.
const WITHOUT_COUNT: &[u8] = b"\"down_count\":null}";
/// A part of the refusal of a vote on a full item.
const FULL: &str = "/problems/full";

pub(super) struct Generator {
    connections: Vec<Connection>,
    requests: Arc<Requests>,
    pace: Pace,
    control: Arc<Control>,
    epoll: Epoll,
    /// How many requests were sent so far.
    sent: u64,
    /// The first voter's number.
    first_voter: u64,
    scratch: Vec<u8>,
    /// A request with the tag of its connection.
    tagged: Vec<u8>,
    under_way: usize,
    /// Idle connections.
    /// The one that is idle for longest sends next, so that all are used.
    idle: VecDeque<usize>,
    /// Connections to make again.
    lost: Vec<usize>,
    /// When the measurement began, and the CPU time spent before.
    began: Option<(Instant, Duration)>,
    ended: Option<Instant>,
    /// When an open loop's next request is due.
    next_due: Instant,
    outcome: Outcome,
}

impl Generator {
    pub fn new(
        addresses: &[SocketAddr],
        requests: Arc<Requests>,
        pace: Pace,
        run: u32,
        control: Arc<Control>,
    ) -> Self {
        let connections: Vec<Connection> = addresses
            .iter()
            .map(|address| Connection::open(*address).expect("a connection"))
            .collect();
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).expect("epoll");
        for (at, connection) in connections.iter().enumerate() {
            watch(&epoll, connection, at);
        }
        Self {
            idle: (0..connections.len()).collect(),
            connections,
            requests,
            pace,
            control,
            epoll,
            sent: 0,
            first_voter: u64::from(run) << 40,
            scratch: Vec::with_capacity(512),
            tagged: Vec::with_capacity(512),
            under_way: 0,
            lost: Vec::new(),
            began: None,
            ended: None,
            next_due: Instant::now(),
            outcome: Outcome {
                acknowledged_votes: 0,
                acknowledged_rows: 0,
                refused: 0,
                throttled: 0,
                full: 0,
                failures: 0,
                first_failure: None,
                unsent: 0,
                measured: Duration::ZERO,
                votes: 0,
                requests: 0,
                unchanged: 0,
                latency_us: Histogram::new_with_bounds(1, LATENCY_LIMIT_US, 3).expect("a histogram"),
                cpu: Duration::ZERO,
            },
        }
    }

    pub fn run(mut self) -> Outcome {
        self.control.is_connected.store(true, Ordering::Release);
        let between = self.pace.between();
        // The timer of an open loop.
        let _timer = between.map(|_| timer(&self.epoll));
        let mut phase = WARM_UP;
        let mut events = vec![EpollEvent::empty(); self.connections.len() + 1];
        let mut buffer = vec![0_u8; 64 * 1024];
        loop {
            let wanted = self.control.phase.load(Ordering::Acquire);
            if wanted != phase {
                phase = wanted;
                self.enter(phase);
            }
            if self.control.is_asked.load(Ordering::Acquire) {
                self.show();
            }
            self.send_what_is_due(between);
            if self.is_over() {
                break;
            }
            let ready = match self.epoll.wait(&mut events, EpollTimeout::from(PHASE_EVERY_MS)) {
                Ok(ready) => ready,
                Err(nix::errno::Errno::EINTR) => 0,
                Err(error) => panic!("epoll: {error}"),
            };
            for event in events[..ready].iter().filter(|event| event.data() != TIMER) {
                let at = usize::try_from(event.data()).expect("a connection");
                let Some(now) = self.receive(at, &mut buffer) else {
                    continue;
                };
                if between.is_none() && self.ended.is_none() {
                    self.send(at, now);
                } else {
                    self.idle.push_back(at);
                }
            }
            self.connect_again();
        }
        if self.under_way > 0 {
            let unanswered = self.under_way as u64;
            self.fail(format!("{unanswered} requests had no answer in time"));
            self.outcome.failures += unanswered - 1;
        }
        self.outcome
    }

    /// Begins or ends the measurement.
    fn enter(&mut self, phase: u8) {
        let now = Instant::now();
        if phase == MEASURE {
            self.began = Some((now, cpu()));
            return;
        }
        self.ended = Some(now);
        if let Some((began, before)) = self.began {
            self.outcome.measured = now - began;
            self.outcome.cpu = cpu().saturating_sub(before);
        }
        if let Pace::Overload { per_second } = self.pace {
            let waiting = now.saturating_duration_since(self.next_due);
            self.outcome.unsent = (waiting.as_secs_f64() * per_second) as u64;
        }
    }

    /// Sends what it has measured so far to whoever asked.
    fn show(&self) {
        self.control.is_asked.store(false, Ordering::Release);
        let asker = self
            .control
            .asker
            .lock()
            .expect("nobody panics with the lock")
            .take();
        if let Some(asker) = asker {
            let seen = Seen {
                votes: self.outcome.votes,
                requests: self.outcome.requests,
                latency_us: self.outcome.latency_us.clone(),
            };
            // Whoever asked may have gone.
            let _ = asker.send(seen);
        }
    }

    /// A closed loop sends on every idle connection. An open loop sends what is due.
    /// What was due when the open loop ended is sent late.
    fn send_what_is_due(&mut self, between: Option<Duration>) {
        let until = self.ended.unwrap_or_else(Instant::now);
        match (self.pace, between) {
            (Pace::Closed, _) | (_, None) => {
                while self.ended.is_none()
                    && let Some(at) = self.idle.pop_front()
                {
                    self.send(at, until);
                }
            }
            (Pace::Overload { .. }, _) if self.ended.is_some() => {}
            (_, Some(between)) => {
                while self.next_due <= until
                    && let Some(at) = self.idle.pop_front()
                {
                    self.send(at, self.next_due);
                    self.next_due += between;
                }
            }
        }
    }

    /// Whether everything is sent and answered, or takes too long.
    fn is_over(&self) -> bool {
        let Some(ended) = self.ended else {
            return self.under_way == 0 && self.idle.is_empty() && self.lost.is_empty();
        };
        let all_sent = match self.pace {
            Pace::Open { .. } => self.next_due >= ended || self.idle.is_empty(),
            Pace::Closed | Pace::Overload { .. } => true,
        };
        (self.under_way == 0 && all_sent) || ended.elapsed() > DRAIN_LIMIT
    }

    fn send(&mut self, at: usize, due: Instant) {
        let request = self.requests.nth(self.sent, self.first_voter, &mut self.scratch);
        let connection = &mut self.connections[at];
        let text = if request.has_tag && !connection.tag.is_empty() {
            with_tag(request.text, &connection.tag, &mut self.tagged)
        } else {
            request.text
        };
        let written = connection.stream.write(text);
        connection.due = due;
        connection.votes = request.votes;
        connection.rows = request.rows;
        connection.is_busy = true;
        self.sent += 1;
        self.under_way += 1;
        if let Err(error) = written {
            self.lose(at, format!("a request could not be sent: {error}"));
        }
    }

    /// Reads what has arrived. Returns the time if the answer is whole.
    fn receive(&mut self, at: usize, buffer: &mut [u8]) -> Option<Instant> {
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
        if self.requests.use_tags()
            && let Some(tag) = tag(answer)
            && tag != connection.tag
        {
            connection.tag.clear();
            connection.tag.extend_from_slice(tag);
        }
        let now = Instant::now();
        let has_succeeded = [*b"201", *b"200", *b"304"].contains(&status);
        let lacks_count = answer.ends_with(WITHOUT_COUNT);
        let (votes, rows, due) = (connection.votes, connection.rows, connection.due);
        // A batch is answered with 200, whatever happened to its votes.
        let is_whole = votes < 2 || accepted_of_batch(answer) == votes;
        let failure = (!has_succeeded || !is_whole).then(|| String::from_utf8_lossy(answer).into_owned());
        connection.partial.clear();
        connection.is_busy = false;
        self.under_way -= 1;
        if let Some(failure) = failure {
            if status == *b"429" && failure.contains("retry-after: ") {
                self.outcome.throttled += 1;
                if self.is_measured(due) {
                    self.outcome.requests += 1;
                }
                return Some(now);
            }
            if status == *b"409" && failure.contains(FULL) {
                self.outcome.full += 1;
                self.note_request(due, now);
                return Some(now);
            }
            if status == *b"503" && failure.contains("retry-after: ") {
                self.outcome.refused += 1;
                self.outcome.first_failure.get_or_insert(failure);
            } else {
                self.fail(failure);
            }
            return Some(now);
        }
        if votes > 0 {
            self.outcome.acknowledged_votes += votes;
            self.outcome.acknowledged_rows += rows;
            self.control
                .acknowledged_votes
                .store(self.outcome.acknowledged_votes, Ordering::Relaxed);
            if lacks_count {
                self.control.without_count.fetch_add(1, Ordering::Relaxed);
            }
        }
        if self.note_request(due, now) {
            self.outcome.votes += votes;
            self.outcome.unchanged += u64::from(status == *b"304");
        }
        Some(now)
    }

    /// Counts a correctly answered request, if it belongs to the measurement.
    /// Returns whether it does.
    fn note_request(&mut self, due: Instant, answered: Instant) -> bool {
        let is_measured = self.is_measured(due);
        if is_measured {
            self.outcome.requests += 1;
            let micros =
                u64::try_from(answered.saturating_duration_since(due).as_micros()).unwrap_or(u64::MAX);
            self.outcome.latency_us.saturating_record(micros);
        }
        is_measured
    }

    /// A closed loop measures requests that are answered between beginning and end.
    /// An open loop measures requests that were due in that time, however late the answer is.
    fn is_measured(&self, due: Instant) -> bool {
        match (self.began, self.pace) {
            (None, _) => false,
            (Some(_), Pace::Closed) => self.ended.is_none(),
            (Some((began, _)), _) => due >= began && self.ended.is_none_or(|ended| due < ended),
        }
    }

    /// Closes a connection, to make it again. Its request under way has failed.
    fn lose(&mut self, at: usize, why: String) {
        let connection = &mut self.connections[at];
        let _ = connection.stream.shutdown(std::net::Shutdown::Both);
        let _ = self.epoll.delete(&connection.stream);
        if std::mem::take(&mut connection.is_busy) {
            self.under_way -= 1;
            self.fail(why);
        }
        self.idle.retain(|idle| *idle != at);
        self.lost.push(at);
    }

    /// Makes the lost connections again. Gives up one that cannot be made.
    fn connect_again(&mut self) {
        for at in std::mem::take(&mut self.lost) {
            match Connection::open(self.connections[at].address) {
                Ok(connection) => {
                    watch(&self.epoll, &connection, at);
                    self.connections[at] = connection;
                    self.idle.push_back(at);
                }
                Err(error) => self.fail(format!("a connection could not be made: {error}")),
            }
        }
    }

    fn fail(&mut self, why: String) {
        self.outcome.failures += 1;
        self.outcome.first_failure.get_or_insert(why);
    }
}

/// A request without a body, with this tag.
fn with_tag<'a>(request: &[u8], tag: &[u8], into: &'a mut Vec<u8>) -> &'a [u8] {
    into.clear();
    into.extend_from_slice(&request[..request.len() - b"\r\n".len()]);
    into.extend_from_slice(b"if-none-match: ");
    into.extend_from_slice(tag);
    into.extend_from_slice(b"\r\n\r\n");
    into
}

/// How many votes of a batch were accepted, by its answer.
fn accepted_of_batch(answer: &[u8]) -> u64 {
    const ACCEPTED: &[u8] = b"{\"status\":201,";
    let starts = answer.windows(ACCEPTED.len()).filter(|text| *text == ACCEPTED);
    starts.count() as u64
}

/// Makes epoll report what arrives on a connection.
fn watch(epoll: &Epoll, connection: &Connection, at: usize) {
    epoll
        .add(
            &connection.stream,
            EpollEvent::new(EpollFlags::EPOLLIN, at as u64),
        )
        .expect("epoll");
}

/// Makes epoll wake an open loop when requests may be due.
fn timer(epoll: &Epoll) -> TimerFd {
    let timer = TimerFd::new(TimerClock::CLOCK_MONOTONIC, TimerFlags::TFD_NONBLOCK).expect("a timer");
    timer
        .set(
            Expiration::Interval(TimeSpec::from_duration(DUE_EVERY)),
            TimerSetTimeFlags::empty(),
        )
        .expect("a timer");
    // Edge-triggered, so that nobody has to read it.
    let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLET;
    epoll.add(&timer, EpollEvent::new(flags, TIMER)).expect("epoll");
    timer
}

/// The CPU time of the calling thread.
fn cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .map(Duration::from)
        .unwrap_or_default()
}
