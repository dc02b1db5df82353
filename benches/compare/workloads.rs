//! The workloads. They vary one base: 256 connections, anonymous votes, one server, an empty
//! ledger.

use std::num::NonZero;
use std::time::Duration;

use testkit::benchmark::Topology;
use testkit::load::{Mix, Spread};

use crate::settings::Settings;
use crate::stores::{Rules, Template};
use crate::systems;
use crate::systems::System::{
    self, BatchedTransaction, LockingTransaction, Nginx, NoOp, Recipe, Tally, Transaction,
};

pub const ITEMS: i64 = 10_000;
/// Votes in a full ledger.
const LEDGER_VOTES: i64 = 10_000_000;
const QUICK_LEDGER_VOTES: i64 = 1_000_000;
pub const CONNECTIONS: usize = 256;
/// Choices of the poll in which votes are moved, and voters on each at the start. There are enough
/// voters that each one's move is answered before its next.
const CHOICES: i64 = 10;
const VOTERS_OF_A_CHOICE: i64 = 1000;
/// Votes of one request to the batch API.
const BATCH_VOTES: usize = 100;
/// Connections that send such requests. Their votes fit into the queue of one of two threads, so
/// none is refused.
const BATCH_CONNECTIONS: usize = 16;
/// Votes per second on an item that many clients poll.
const VOTES_BESIDE_READS: f64 = 100.0;
/// How much longer a slow sync takes. On one machine, Postgres' own `commit_delay` has the
/// effect of a slower disk or a synchronous standby.
const SLOW_SYNC: Duration = Duration::from_millis(2);

/// A load on one system.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub system: System,
    pub spread: Spread,
    pub mix: Mix,
    pub voter_ids: bool,
    pub connections: usize,
    pub servers: usize,
    pub template: Template,
    /// How Redis is set up.
    pub topology: Topology,
    /// How much longer each sync of Postgres' write-ahead log takes.
    pub sync_delay: Duration,
    /// Votes per second on the same items beside the requests.
    pub votes_beside: f64,
    /// Whether latency is also measured at half of the system's own maximum.
    pub open_loop: bool,
    /// Whether the server may refuse votes with 503, because more come than it can queue.
    pub may_refuse: bool,
}

impl Case {
    /// What one request casts.
    pub fn votes_per_request(&self) -> usize {
        match self.mix {
            Mix::Batches { votes } => votes,
            _ => 1,
        }
    }
}

/// Cases that take turns.
pub struct Workload {
    pub name: &'static str,
    pub about: &'static str,
    /// Whether it runs under `QUICK=1`.
    pub in_quick: bool,
    pub cases: Vec<Case>,
}

/// Items without votes.
pub const EMPTY: Template = Template {
    name: "empty_ledger",
    items: ITEMS,
    count: 0,
    in_ledger: true,
    audited: true,
    saved: true,
    rules: Rules::Default,
    in_ranges: false,
};

/// A million items without votes: nearly every vote is the first on its item for a long time.
pub const COLD: Template = Template {
    name: "cold_items",
    items: 1_000_000,
    ..EMPTY
};

/// The same with a limit for each item.
const LIMITED: Template = Template {
    name: "limited_items",
    rules: Rules::Limited,
    ..EMPTY
};

/// The same with one place on each item.
const ONE_PLACE: Template = Template {
    name: "one_place",
    rules: Rules::OnePlace,
    ..EMPTY
};

/// A poll in which each voter holds one choice.
const POLL: Template = Template {
    name: "poll",
    items: CHOICES,
    count: VOTERS_OF_A_CHOICE,
    rules: Rules::Poll,
    ..EMPTY
};

/// Items with many votes each, all of them audited and saved.
pub fn full(settings: &Settings) -> Template {
    let usual = if settings.quick {
        QUICK_LEDGER_VOTES
    } else {
        LEDGER_VOTES
    };
    Template {
        name: "full_ledger",
        count: settings.ledger_votes.unwrap_or(usual) / ITEMS,
        ..EMPTY
    }
}

/// The base: votes on one item.
const HOT: Case = Case {
    system: Tally,
    spread: Spread::Hot,
    mix: Mix::Votes,
    voter_ids: false,
    connections: CONNECTIONS,
    servers: 1,
    template: EMPTY,
    topology: Topology::Single,
    sync_delay: Duration::ZERO,
    votes_beside: 0.0,
    open_loop: false,
    may_refuse: false,
};

/// Votes on all items.
pub const UNIFORM: Case = Case {
    spread: Spread::Uniform,
    ..HOT
};

impl Case {
    /// The same load on each of these systems.
    fn on(self, systems: &[System]) -> Vec<Self> {
        let case = |system: &System| Self {
            system: *system,
            ..self
        };
        systems.iter().map(case).collect()
    }
}

impl Workload {
    fn new(name: &'static str, about: &'static str, cases: Vec<Case>) -> Self {
        Self {
            name,
            about,
            in_quick: false,
            cases,
        }
    }

    fn quick(self) -> Self {
        Self {
            in_quick: true,
            ..self
        }
    }
}

/// Every workload of votes, in the order in which they run. With `QUICK=1` a workload has only
/// the systems that a target compares.
pub fn all(settings: &Settings) -> Vec<Workload> {
    let mut all = distributions();
    all.extend(several_servers(settings));
    all.extend(fewer_connections());
    all.extend(topologies());
    all.extend(voter_ids());
    all.extend(reads(settings));
    all.push(full_ledger(settings));
    all.extend(ranges(settings));
    all.extend(decisions());
    all.push(batch_api());
    all.extend(beside_nginx());
    all
}

/// The workloads for which a system of one transaction per vote needs locks.
fn decisions() -> [Workload; 2] {
    let compared = [LockingTransaction, Tally];
    let moves = Case {
        mix: Mix::PollMoves {
            voters: POLL.votes() as u64,
        },
        template: POLL,
        ..HOT
    };
    let changes = Case {
        mix: Mix::Changes,
        voter_ids: true,
        ..UNIFORM
    };
    [
        Workload::new(
            "poll_moves",
            "a poll with one choice a voter: 10,000 voters move their votes among 10 choices",
            moves.on(&compared),
        ),
        Workload::new(
            "changes",
            "10,000 items, each vote with a voter id; one request in five changes an earlier vote",
            changes.on(&compared),
        ),
    ]
}

/// The same votes in single requests and in batches, in turns.
fn batch_api() -> Workload {
    let batches = Case {
        mix: Mix::Batches { votes: BATCH_VOTES },
        connections: BATCH_CONNECTIONS,
        ..HOT
    };
    let about = "one hot item, 100 votes a request over 16 connections, against single requests";
    let mut cases = HOT.on(&[Tally]);
    cases.extend(batches.on(&[Tally]));
    Workload::new("batch_api", about, cases)
}

/// What a request costs beside one that nginx gives a fixed answer. Left out where it is not installed.
fn beside_nginx() -> Vec<Workload> {
    if systems::nginx::find().is_none() {
        return Vec::new();
    }
    let live = Case {
        mix: Mix::Live,
        ..HOT
    };
    // One of its processes has one thread.
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let compared = |case: Case| {
        let nginx = Case {
            system: Nginx,
            servers: cores,
            ..case
        };
        vec![nginx, case]
    };
    vec![
        Workload::new("live", "`GET /health/live`, which does nothing", compared(live)),
        Workload::new(
            "hot_nginx",
            "one hot item, against nginx that gives a fixed answer",
            compared(HOT),
        ),
    ]
}

/// How the votes are spread over the items.
fn distributions() -> Vec<Workload> {
    let measured = |case: Case| Case {
        open_loop: true,
        ..case
    };
    let zipf = Case {
        spread: Spread::Zipf,
        ..HOT
    };
    let limited = |case: Case| Case {
        template: LIMITED,
        ..case
    };
    vec![
        Workload::new("hot", "one hot item", measured(HOT).on(&System::ADDING)).quick(),
        Workload::new(
            "uniform",
            "10,000 items, all alike",
            measured(UNIFORM).on(&System::ADDING),
        )
        .quick(),
        Workload::new(
            "cold_items",
            "a million items, all alike",
            measured(Case {
                template: COLD,
                ..UNIFORM
            })
            .on(&System::ADDING),
        ),
        Workload::new("zipf", "10,000 items by Zipf's law", zipf.on(&System::ADDING)),
        // One transaction per vote always locks the item's row.
        Workload::new(
            "hot_limited",
            "one hot item with a limit of votes",
            measured(limited(HOT)).on(&[Transaction, Tally]),
        ),
        Workload::new(
            "hot_full",
            "one hot item that is full: each vote is refused",
            measured(Case {
                template: ONE_PLACE,
                ..HOT
            })
            .on(&[Tally]),
        ),
        Workload::new(
            "limited_items",
            "10,000 items, each with a limit of votes",
            limited(UNIFORM).on(&[Transaction, Tally]),
        ),
    ]
}

/// Several servers, and slow syncs.
fn several_servers(settings: &Settings) -> Vec<Workload> {
    let three = |case: Case| Case { servers: 3, ..case };
    let slow = |case: Case| Case {
        sync_delay: SLOW_SYNC,
        ..case
    };
    let compared: &[System] = if settings.quick {
        &[BatchedTransaction, Tally]
    } else {
        &[NoOp, BatchedTransaction, Recipe, Tally]
    };
    vec![
        Workload::new(
            "hot_three_servers",
            "one hot item, three servers",
            three(HOT).on(compared),
        )
        .quick(),
        Workload::new(
            "uniform_three_servers",
            "10,000 items, three servers",
            three(UNIFORM).on(&[NoOp, BatchedTransaction, Tally]),
        ),
        Workload::new(
            "hot_slow_sync",
            "one hot item, syncs take 2 ms longer",
            slow(HOT).on(&[Transaction, BatchedTransaction, Recipe, Tally]),
        ),
        Workload::new(
            "hot_three_servers_slow_sync",
            "one hot item, three servers, syncs take 2 ms longer",
            slow(three(HOT)).on(&[BatchedTransaction, Recipe, Tally]),
        ),
    ]
}

/// The same votes with one Redis, with Sentinels, and with a Redis Cluster, in turns.
fn topologies() -> [Workload; 3] {
    let compared = |name, about, case: Case, topology| {
        let mut cases = case.on(&[Tally]);
        cases.extend(Case { topology, ..case }.on(&[Tally]));
        Workload::new(name, about, cases)
    };
    [
        compared(
            "hot_cluster",
            "one hot item in a Redis Cluster, against one Redis",
            HOT,
            Topology::Cluster,
        ),
        compared(
            "uniform_cluster",
            "10,000 items in a Redis Cluster, against one Redis",
            UNIFORM,
            Topology::Cluster,
        ),
        compared(
            "uniform_sentinel",
            "10,000 items in a Redis that Sentinels name, against one Redis",
            UNIFORM,
            Topology::Sentinel,
        ),
    ]
}

fn fewer_connections() -> [Workload; 2] {
    let few = |case: Case| Case {
        connections: 64,
        ..case
    };
    [
        Workload::new(
            "hot_64",
            "one hot item, 64 connections",
            few(HOT).on(&System::ADDING),
        ),
        Workload::new(
            "uniform_64",
            "10,000 items, 64 connections",
            few(UNIFORM).on(&System::ADDING),
        ),
    ]
}

fn voter_ids() -> [Workload; 2] {
    let named = |case: Case| Case {
        voter_ids: true,
        ..case
    };
    [
        Workload::new(
            "hot_voters",
            "one hot item, each vote with a voter id",
            named(HOT).on(&System::ADDING),
        ),
        Workload::new(
            "uniform_voters",
            "10,000 items, each vote with a voter id",
            named(UNIFORM).on(&System::ADDING),
        ),
    ]
}

fn reads(settings: &Settings) -> [Workload; 5] {
    let with = |mix| Case { mix, ..UNIFORM };
    let readers = [NoOp, Transaction, Recipe, Tally];
    let compared: &[System] = if settings.quick { &[NoOp, Tally] } else { &readers };
    let again = Case {
        mix: Mix::ReadsAgain,
        ..HOT
    };
    [
        Workload::new(
            "nine_reads",
            "10,000 items, nine reads to a vote",
            with(Mix::NineReadsToAVote).on(&readers),
        ),
        Workload::new(
            "reads",
            "10,000 items, reads alone",
            with(Mix::Reads).on(compared),
        )
        .quick(),
        Workload::new(
            "reads_hot",
            "one hot item, reads alone",
            Case {
                mix: Mix::Reads,
                ..HOT
            }
            .on(&[Tally]),
        ),
        Workload::new(
            "reads_again",
            "the same, every second one with the tag of the answer before: 304",
            again.on(&[Tally]),
        ),
        Workload::new(
            "reads_again_voted",
            "the same, while the item gets 100 votes a second",
            Case {
                votes_beside: VOTES_BESIDE_READS,
                ..again
            }
            .on(&[Tally]),
        ),
    ]
}

/// A full ledger in one table and in ranges.
fn ranges(settings: &Settings) -> [Workload; 2] {
    let one = Case {
        template: full(settings),
        ..UNIFORM
    };
    let split = Case {
        template: Template {
            name: "ledger_in_ranges",
            in_ranges: true,
            ..full(settings)
        },
        ..UNIFORM
    };
    let compared = |name, about, voter_ids| {
        let cases = [one, split].map(|case| Case { voter_ids, ..case });
        Workload::new(name, about, cases.to_vec())
    };
    [
        compared(
            "ranges",
            "10,000 items, a full ledger in one table, against one in ranges",
            false,
        ),
        compared("ranges_voters", "the same, each vote with a voter id", true),
    ]
}

/// An empty and a full ledger within one workload, so that they take turns.
fn full_ledger(settings: &Settings) -> Workload {
    let full = Case {
        template: full(settings),
        ..UNIFORM
    };
    let compared: &[System] = if settings.quick {
        &[Tally]
    } else {
        &[Transaction, BatchedTransaction, Tally]
    };
    let mut cases = UNIFORM.on(&[Tally]);
    cases.extend(full.on(compared));
    let about = "10,000 items, millions of votes in the ledger, against none";
    Workload::new("full_ledger", about, cases).quick()
}
