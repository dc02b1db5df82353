//! Load over HTTP: many connections, each with at most one request under way.
//! One thread drives them over epoll. The generator shares the machine with what it measures. So it
//! renders requests beforehand, and reads answers no further than needed.

mod connection;
mod generator;
mod requests;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::sync::oneshot;
use tokio::time::sleep;

pub use requests::{Credentials, Mix, Requests, Spread, choice_of};

use crate::LOOK_EVERY;
use generator::Generator;

/// When requests are sent.
#[derive(Clone, Copy, Debug)]
pub enum Pace {
    /// A closed loop: each connection sends when its last request is answered.
    Closed,
    /// An open loop at this rate, whether or not earlier requests are answered.
    /// A request waits while no connection is free. Its latency counts from the time when it was
    /// due.
    Open { per_second: f64 },
    /// An open loop with more than the server can carry.
    /// Requests that still wait at the end are not sent.
    Overload { per_second: f64 },
}

impl Pace {
    /// The time between two requests of an open loop.
    fn between(self) -> Option<Duration> {
        match self {
            Self::Closed => None,
            Self::Open { per_second } | Self::Overload { per_second } => {
                Some(Duration::from_secs_f64(1.0 / per_second))
            }
        }
    }
}

const WARM_UP: u8 = 0;
const MEASURE: u8 = 1;
const STOP: u8 = 2;

#[derive(Default)]
struct Control {
    phase: AtomicU8,
    /// Whether all connections are made.
    is_connected: AtomicBool,
    acknowledged_votes: AtomicU64,
    without_count: AtomicU64,
    /// Whether someone waits in `asker`.
    is_asked: AtomicBool,
    asker: Mutex<Option<oneshot::Sender<Seen>>>,
}

/// What a load has measured so far.
pub struct Seen {
    pub votes: u64,
    pub requests: u64,
    pub latency_us: Histogram<u64>,
}

/// A load under way.
pub struct Load {
    control: Arc<Control>,
    thread: JoinHandle<Outcome>,
}

/// What a load has seen.
pub struct Outcome {
    /// All acknowledged votes, also in the warm-up.
    pub acknowledged_votes: u64,
    /// How many rows of the ledger these votes are.
    pub acknowledged_rows: u64,
    /// How many requests were refused with 503 and Retry-After.
    pub refused: u64,
    /// How many requests were refused with 429 and Retry-After.
    pub throttled: u64,
    /// How many votes were refused because their items are full.
    pub full: u64,
    /// Requests with other answers or none, and connections that could not be made.
    pub failures: u64,
    /// The first refusal or failure.
    pub first_failure: Option<String>,
    /// Under [`Pace::Overload`]: due requests that never found a free connection.
    pub unsent: u64,
    /// How long the following figures were measured.
    pub measured: Duration,
    pub votes: u64,
    pub requests: u64,
    /// How many of these requests got 304.
    pub unchanged: u64,
    pub latency_us: Histogram<u64>,
    /// The generator's own CPU time.
    pub cpu: Duration,
}

impl Outcome {
    /// Expects that every request was answered.
    ///
    /// # Errors
    /// When an answer was not 200, 201, or 409 for a full item.
    pub fn expect_all_answered(&self) -> Result<(), String> {
        match &self.first_failure {
            None => Ok(()),
            Some(why) => Err(format!(
                "{} requests failed, the first: {why}",
                self.refused + self.failures
            )),
        }
    }

    /// Expects that every request was answered, or refused with 503 and Retry-After.
    ///
    /// # Errors
    /// When there was another answer, or none.
    pub fn expect_no_failure(&self) -> Result<(), String> {
        match self.failures {
            0 => Ok(()),
            failures => Err(format!("{failures} requests failed or had no answer")),
        }
    }
}

impl Load {
    /// Starts with the warm-up. The connections use the addresses in turn.
    /// `run` makes this load's voter ids different from those of other loads.
    pub fn start(
        addresses: &[SocketAddr],
        connections: usize,
        requests: Arc<Requests>,
        pace: Pace,
        run: u32,
    ) -> Self {
        let addresses: Vec<SocketAddr> = addresses.iter().copied().cycle().take(connections).collect();
        let control = Arc::new(Control::default());
        let shared = Arc::clone(&control);
        let thread = std::thread::Builder::new()
            .name("generator".to_owned())
            .spawn(move || Generator::new(&addresses, requests, pace, run, shared).run())
            .expect("a thread");
        Self { control, thread }
    }

    /// Waits until all connections are made: thousands may take seconds.
    pub async fn until_connected(&self) {
        while !self.control.is_connected.load(Ordering::Acquire) && !self.thread.is_finished() {
            sleep(LOOK_EVERY).await;
        }
    }

    /// Ends the warm-up.
    pub fn measure(&self) {
        self.control.phase.store(MEASURE, Ordering::Release);
    }

    /// Votes acknowledged so far.
    pub fn acknowledged_votes(&self) -> u64 {
        self.control.acknowledged_votes.load(Ordering::Relaxed)
    }

    /// Of these, the votes that were acknowledged with `"vote_count": null`.
    pub fn without_count(&self) -> u64 {
        self.control.without_count.load(Ordering::Relaxed)
    }

    /// Acknowledged votes per second, measured for this long from now on.
    pub async fn rate(&self, over: Duration) -> f64 {
        let (before, started) = (self.acknowledged_votes(), Instant::now());
        sleep(over).await;
        (self.acknowledged_votes() - before) as f64 / started.elapsed().as_secs_f64()
    }

    /// What was measured so far. The difference of two is what came between them.
    pub async fn seen(&self) -> Seen {
        let (asker, answer) = oneshot::channel();
        *self.control.asker.lock().expect("nobody panics with the lock") = Some(asker);
        self.control.is_asked.store(true, Ordering::Release);
        answer.await.expect("the generator runs")
    }

    /// Ends the measurement, waits for requests under way, and closes all connections.
    pub async fn stop(self) -> Outcome {
        self.control.phase.store(STOP, Ordering::Release);
        let thread = self.thread;
        tokio::task::spawn_blocking(move || thread.join().expect("the generator's end"))
            .await
            .expect("the generator's end")
    }
}
