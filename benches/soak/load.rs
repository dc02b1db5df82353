//! The mixed load: every kind of request at once, each over connections of its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;
use testkit::load::{Load, Mix, Outcome, Pace, Requests, Seen, Spread};
use tokio::time::sleep;

pub const ITEMS: usize = 10_000;
/// How long the load runs in a closed loop before it is measured: until most counters are seeded.
const CARRIED_WARM_UP: Duration = Duration::from_secs(5);
/// How long it is then measured.
const CARRIED_FOR: Duration = Duration::from_secs(5);
/// The part of the measured rate at which the soak then votes.
pub const LOAD_PART: f64 = 0.5;

/// One kind of request.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub name: &'static str,
    spread: Spread,
    mix: Mix,
    voter_ids: bool,
    connections: usize,
}

const KINDS: [Kind; 5] = [
    Kind {
        name: "votes on one hot item",
        spread: Spread::Hot,
        mix: Mix::Votes,
        voter_ids: false,
        connections: 64,
    },
    Kind {
        name: "votes on 10,000 items alike",
        spread: Spread::Uniform,
        mix: Mix::Votes,
        voter_ids: false,
        connections: 64,
    },
    Kind {
        name: "votes on 10,000 items by Zipf's law",
        spread: Spread::Zipf,
        mix: Mix::Votes,
        voter_ids: false,
        connections: 64,
    },
    Kind {
        name: "votes on 10,000 items alike, each with a voter id",
        spread: Spread::Uniform,
        mix: Mix::Votes,
        voter_ids: true,
        connections: 64,
    },
    Kind {
        name: "reads of 10,000 items by Zipf's law",
        spread: Spread::Zipf,
        mix: Mix::Reads,
        voter_ids: false,
        connections: 32,
    },
];

/// A kind of request at its rate.
pub struct Paced {
    pub kind: Kind,
    requests: Arc<Requests>,
    /// Requests per second.
    pub pace: f64,
}

/// Measures the rate that the system carries in a closed loop of all kinds together. Returns the
/// kinds at the soak's part of that rate, and the votes that were acknowledged meanwhile.
pub async fn pace(addresses: &[SocketAddr]) -> anyhow::Result<(Vec<Paced>, u64)> {
    let rendered = KINDS.map(|kind| {
        let requests = Requests::render(ITEMS, kind.spread, kind.mix, kind.voter_ids);
        (kind, Arc::new(requests))
    });
    let mut loads = Vec::new();
    for (number, (kind, requests)) in (0..).zip(&rendered) {
        let requests = Arc::clone(requests);
        loads.push(Load::start(
            addresses,
            kind.connections,
            requests,
            Pace::Closed,
            number,
        ));
    }
    sleep(CARRIED_WARM_UP).await;
    loads.iter().for_each(Load::measure);
    sleep(CARRIED_FOR).await;
    let outcomes = stop(loads).await;
    let acknowledged = acknowledged(&outcomes)?;
    let paced = rendered.into_iter().zip(&outcomes);
    let paced = paced.map(|((kind, requests), outcome)| {
        let carried = outcome.requests as f64 / outcome.measured.as_secs_f64();
        let pace = carried * LOAD_PART;
        println!(
            "{:<52} {carried:>8.0}/s carried, {pace:>8.0}/s from now on",
            kind.name
        );
        Paced { kind, requests, pace }
    });
    Ok((paced.collect(), acknowledged))
}

/// All kinds under way, in an open loop.
pub struct Mixed {
    loads: Vec<(Kind, Load)>,
    before: Window,
    /// Votes that are due per second.
    pub votes_per_second: f64,
    pub reads_per_second: f64,
}

/// The answers within a time.
#[derive(Clone)]
pub struct Window {
    pub votes: u64,
    pub reads: u64,
    pub vote_latency_us: Histogram<u64>,
    pub read_latency_us: Histogram<u64>,
}

impl Mixed {
    pub async fn start(addresses: &[SocketAddr], paced: Vec<Paced>) -> Self {
        let due = |is_read| {
            let some = paced.iter().filter(|one| (one.kind.mix == Mix::Reads) == is_read);
            some.map(|one| one.pace).sum()
        };
        let (votes_per_second, reads_per_second) = (due(false), due(true));
        let mut loads = Vec::new();
        // Other voters than those of `pace`.
        for (number, paced) in (100..).zip(paced) {
            let Paced { kind, requests, pace } = paced;
            let pace = Pace::Open { per_second: pace };
            let load = Load::start(addresses, kind.connections, requests, pace, number);
            load.measure();
            loads.push((kind, load));
        }
        let before = seen(&loads).await;
        Self {
            loads,
            before,
            votes_per_second,
            reads_per_second,
        }
    }

    /// Votes acknowledged so far.
    pub fn acknowledged_votes(&self) -> u64 {
        self.loads.iter().map(|(_, load)| load.acknowledged_votes()).sum()
    }

    /// The answers since the last call.
    pub async fn window(&mut self) -> Window {
        let now = seen(&self.loads).await;
        let mut window = now.clone();
        let before = std::mem::replace(&mut self.before, now);
        window.votes -= before.votes;
        window.reads -= before.reads;
        for (later, earlier) in [
            (&mut window.vote_latency_us, &before.vote_latency_us),
            (&mut window.read_latency_us, &before.read_latency_us),
        ] {
            later.subtract(earlier).expect("what came before is in it");
        }
        window
    }

    /// Ends the load. Returns the votes that were acknowledged.
    ///
    /// # Errors
    /// When a request got an answer other than 200 or 201.
    pub async fn stop(self) -> anyhow::Result<u64> {
        let outcomes = stop(self.loads.into_iter().map(|(_, load)| load).collect()).await;
        acknowledged(&outcomes)
    }
}

/// What all loads have measured so far.
async fn seen(loads: &[(Kind, Load)]) -> Window {
    let mut window: Option<Window> = None;
    for (kind, load) in loads {
        let is_read = kind.mix == Mix::Reads;
        let Seen {
            votes,
            requests,
            latency_us,
        } = load.seen().await;
        let window = window.get_or_insert_with(|| {
            let none = Histogram::new_from(&latency_us);
            Window {
                votes: 0,
                reads: 0,
                vote_latency_us: none.clone(),
                read_latency_us: none,
            }
        });
        window.votes += votes;
        window.reads += requests - votes;
        let sum = if is_read {
            &mut window.read_latency_us
        } else {
            &mut window.vote_latency_us
        };
        sum.add(latency_us).expect("the same bounds");
    }
    window.expect("a load")
}

async fn stop(loads: Vec<Load>) -> Vec<Outcome> {
    futures_util::future::join_all(loads.into_iter().map(Load::stop)).await
}

fn acknowledged(outcomes: &[Outcome]) -> anyhow::Result<u64> {
    for outcome in outcomes {
        outcome.expect_all_answered().map_err(anyhow::Error::msg)?;
    }
    Ok(outcomes.iter().map(|outcome| outcome.acknowledged_votes).sum())
}
