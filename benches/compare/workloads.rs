//! What is asked of the systems: named workloads around one base of 256
//! connections, anonymous votes, one server, an empty ledger.

use std::time::Duration;

use crate::requests::{Mix, Spread};
use crate::settings::Settings;
use crate::stores::Template;
use crate::systems::System;

pub const ITEMS: i64 = 10_000;
/// Votes in a full ledger: ten million, and fewer when it must be quick.
const LEDGER_VOTES: i64 = 10_000_000;
const QUICK_LEDGER_VOTES: i64 = 1_000_000;
pub const CONNECTIONS: usize = 256;
/// By how much syncs are longer where they are slow. On one machine, Postgres' own
/// `commit_delay` does what a slower disk or a synchronous standby would.
const SLOW_SYNC: Duration = Duration::from_millis(2);

/// One way of asking one system.
#[derive(Clone, Debug)]
pub struct Case {
    pub system: System,
    pub spread: Spread,
    pub mix: Mix,
    pub voter_ids: bool,
    pub connections: usize,
    pub servers: usize,
    pub template: Template,
    /// How much longer each sync of Postgres' write-ahead log takes.
    pub sync_delay: Duration,
    /// Whether latency is measured at half of the system's own maximum too.
    pub open_loop: bool,
}

/// Cases that take turns.
pub struct Workload {
    pub name: &'static str,
    pub about: &'static str,
    pub in_quick: bool,
    pub cases: Vec<Case>,
}

/// Items without votes.
pub fn empty() -> Template {
    Template {
        name: "empty_ledger",
        items: ITEMS,
        count: 0,
        in_ledger: true,
        audited: true,
        saved: true,
    }
}

/// Items with many votes each, all of them audited and saved.
pub fn full(settings: &Settings) -> Template {
    let votes = if settings.quick {
        QUICK_LEDGER_VOTES
    } else {
        LEDGER_VOTES
    };
    Template {
        name: "full_ledger",
        count: votes / ITEMS,
        ..empty()
    }
}

/// Every workload of votes, in the order in which they run.
pub fn all(settings: &Settings) -> Vec<Workload> {
    let base = Case {
        system: System::Tally,
        spread: Spread::Hot,
        mix: Mix::Votes,
        voter_ids: false,
        connections: CONNECTIONS,
        servers: 1,
        template: empty(),
        sync_delay: Duration::ZERO,
        open_loop: false,
    };
    let each = |case: Case, systems: &[System]| -> Vec<Case> {
        systems
            .iter()
            .map(|system| Case {
                system: *system,
                ..case.clone()
            })
            .collect()
    };
    let everyone = System::ALL;
    // When it must be quick, only those that a target compares.
    let chosen = |in_quick: &[System], in_full: &[System]| {
        if settings.quick {
            in_quick.to_vec()
        } else {
            in_full.to_vec()
        }
    };
    use System::{BatchedTransaction, NoOp, Recipe, Tally, Transaction};
    let hot = base.clone();
    let uniform = Case {
        spread: Spread::Uniform,
        ..base.clone()
    };
    let workload = |name, about, cases| Workload {
        name,
        about,
        in_quick: false,
        cases,
    };
    let quick = |workload: Workload| Workload {
        in_quick: true,
        ..workload
    };
    vec![
        quick(workload(
            "hot",
            "one hot item",
            each(
                Case {
                    open_loop: true,
                    ..hot.clone()
                },
                &everyone,
            ),
        )),
        quick(workload(
            "uniform",
            "10,000 items, all alike",
            each(
                Case {
                    open_loop: true,
                    ..uniform.clone()
                },
                &everyone,
            ),
        )),
        workload(
            "zipf",
            "10,000 items by Zipf's law",
            each(
                Case {
                    spread: Spread::Zipf,
                    ..base.clone()
                },
                &everyone,
            ),
        ),
        quick(workload(
            "hot_three_servers",
            "one hot item, three servers",
            each(
                Case {
                    servers: 3,
                    ..hot.clone()
                },
                &chosen(
                    &[BatchedTransaction, Tally],
                    &[NoOp, BatchedTransaction, Recipe, Tally],
                ),
            ),
        )),
        workload(
            "uniform_three_servers",
            "10,000 items, three servers",
            each(
                Case {
                    servers: 3,
                    ..uniform.clone()
                },
                &[NoOp, BatchedTransaction, Tally],
            ),
        ),
        workload(
            "hot_slow_sync",
            "one hot item, syncs take 2 ms longer",
            each(
                Case {
                    sync_delay: SLOW_SYNC,
                    ..hot.clone()
                },
                &[Transaction, BatchedTransaction, Recipe, Tally],
            ),
        ),
        workload(
            "hot_three_servers_slow_sync",
            "one hot item, three servers, syncs take 2 ms longer",
            each(
                Case {
                    servers: 3,
                    sync_delay: SLOW_SYNC,
                    ..hot.clone()
                },
                &[BatchedTransaction, Recipe, Tally],
            ),
        ),
        workload(
            "hot_64",
            "one hot item, 64 connections",
            each(
                Case {
                    connections: 64,
                    ..hot.clone()
                },
                &everyone,
            ),
        ),
        workload(
            "uniform_64",
            "10,000 items, 64 connections",
            each(
                Case {
                    connections: 64,
                    ..uniform.clone()
                },
                &everyone,
            ),
        ),
        workload(
            "hot_voters",
            "one hot item, each vote with a voter id",
            each(
                Case {
                    voter_ids: true,
                    ..hot.clone()
                },
                &everyone,
            ),
        ),
        workload(
            "uniform_voters",
            "10,000 items, each vote with a voter id",
            each(
                Case {
                    voter_ids: true,
                    ..uniform.clone()
                },
                &everyone,
            ),
        ),
        workload(
            "nine_reads",
            "10,000 items, nine reads to a vote",
            each(
                Case {
                    mix: Mix::NineReadsToAVote,
                    ..uniform.clone()
                },
                &[NoOp, Transaction, Recipe, Tally],
            ),
        ),
        quick(workload(
            "reads",
            "10,000 items, reads alone",
            each(
                Case {
                    mix: Mix::Reads,
                    ..uniform.clone()
                },
                &chosen(&[NoOp, Tally], &[NoOp, Transaction, Recipe, Tally]),
            ),
        )),
        // Both ledgers within one workload, so that they take turns.
        quick(workload(
            "full_ledger",
            "10,000 items, millions of votes in the ledger, against none",
            [
                each(uniform.clone(), &[Tally]),
                each(
                    Case {
                        template: full(settings),
                        ..uniform
                    },
                    &chosen(&[Tally], &[Transaction, BatchedTransaction, Tally]),
                ),
            ]
            .concat(),
        )),
    ]
}
