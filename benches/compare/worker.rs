//! The bench of the sync worker: what it writes, scans and audits, and what that costs the
//! voters. Its steps run in a process of their own, with the default settings of
//! `sync-worker`.

use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use tally::app::{self, StoreUrls};
use tally::config;
use tally::sync::Repair;
use testkit::benchmark::WorkerRow;
use testkit::load::{Load, Mix, Pace, Requests, Spread};
use testkit::programs::run_well;
use testkit::until;
use tokio::time::{Instant, sleep};

use crate::measure::Cpu;
use crate::servers::{Servers, this_program};
use crate::settings::Settings;
use crate::stores::{Database, Stores, Template};
use crate::systems::System;
use crate::voting::check;
use crate::workloads::{CONNECTIONS, EMPTY, ITEMS, full};

/// The variable that tells this program, started again, which step of the worker to take.
pub const VARIABLE: &str = "TALLY_BENCH_STEP";

/// How long the bench watches voting after Redis was wiped.
const WATCH: Duration = Duration::from_secs(6);
/// How often it is checked.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The rate is back when it has been at this part of what it was, for this long.
const BACK_PART: f64 = 0.9;
const BACK_FOR: Duration = Duration::from_secs(1);
/// How long the first seeds of a full ledger may take.
const SEED_LIMIT: Duration = Duration::from_secs(60);
/// How long the roll-up of a ledger that was never audited may take under load.
const AUDIT_LIMIT: Duration = Duration::from_secs(120);

/// What is measured, in this order.
pub const WORKLOADS: [(&str, &str); 11] = [
    ("flush", "the worker writes changed counters to their items"),
    ("sweep", "the worker scans saved counters"),
    (
        "sparse_changes",
        "1,000 of these counters change, until they are saved",
    ),
    (
        "idle_counters",
        "the worker runs and none of these counters changes",
    ),
    ("reseed", "Redis is wiped under full voting load, 10,000 items"),
    ("audit_idle", "the worker audits votes while nobody votes"),
    ("audit", "the worker audits votes under full voting load"),
    ("long_tail", "votes on one hot item and on others, with no audit"),
    (
        "open_snapshot",
        "votes on 400 items while a report holds its snapshot open",
    ),
    (
        "bytes_per_vote",
        "what a vote takes on disk, without and with a voter",
    ),
    (
        "split",
        "a full ledger is split into ranges under full voting load",
    ),
];

/// What a step has done, as its process prints it.
#[derive(Deserialize, Serialize)]
pub struct Step {
    pub seconds: f64,
    pub cpu_us: u64,
    pub counters: usize,
    pub flushed: usize,
    pub is_quiescent: bool,
    pub wrong_items: usize,
}

/// Takes one step of the worker and prints what it did.
pub async fn take_step(name: &str) {
    let settings = config::SyncWorker::parse_from(["sync-worker"]);
    let worker = app::worker(
        &StoreUrls::from(&settings.stores),
        (&settings.worker).into(),
        "tally bench",
    )
    .expect("URLs");
    let cpu = || {
        clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)
            .map(Duration::from)
            .expect("a clock")
    };
    let (started, before) = (Instant::now(), cpu());
    let mut step = Step {
        seconds: 0.0,
        cpu_us: 0,
        counters: 0,
        flushed: 0,
        is_quiescent: true,
        wrong_items: 0,
    };
    if name == "audit" {
        step.wrong_items = worker.audit(Repair::No).await.expect("an audit").wrong_items;
    } else if name == "epoch" {
        worker.enter_epoch().await.expect("an epoch");
    } else {
        let report = match name {
            "sweep" => worker.flush().await,
            _ => worker.flush_unsaved().await,
        };
        let report = report.expect("a scan");
        step.counters = report.counters;
        step.flushed = report.flushed;
        step.is_quiescent = report.is_quiescent();
    }
    step.seconds = started.elapsed().as_secs_f64();
    step.cpu_us = u64::try_from((cpu() - before).as_micros()).expect("less");
    println!("{}", serde_json::to_string(&step).expect("JSON"));
}

/// Takes a step in a process of its own.
pub async fn step(stores: &Stores, database: &Database, name: &str) -> Step {
    let printed = run_well(this_program(stores, database, VARIABLE, name)).await;
    serde_json::from_str(&printed.expect("the step succeeds")).expect("what the step prints")
}

/// A step, and what it cost while nobody voted.
pub struct Cost {
    pub step: Step,
    pub cpu: Cpu,
    pub wal_bytes: i64,
}

pub async fn step_alone(stores: &Stores, database: &Database, name: &str) -> Cost {
    let processes = stores.processes();
    let (wal_before, before) = (stores.wal_bytes().await, processes.cpu());
    let step = step(stores, database, name).await;
    Cost {
        cpu: Cpu {
            worker: Duration::from_micros(step.cpu_us),
            ..processes.cpu().since(before)
        },
        wal_bytes: stores.wal_bytes().await - wal_before,
        step,
    }
}

impl Cost {
    /// Adds the step's cost per unit of its work.
    pub fn add_to(&self, row: WorkerRow) -> WorkerRow {
        WorkerRow {
            cpu_us_each: Some(self.cpu.each(Duration::ZERO, row.count)),
            wal_bytes_each: Some(self.wal_bytes as f64 / row.count as f64),
            ..row
        }
    }
}

/// Tally under full voting load over all items.
struct Voting {
    servers: Servers,
    load: Load,
}

impl Voting {
    async fn start(stores: &Stores, database: &Database, number: u32) -> Self {
        let servers = Servers::start(stores, database, System::Tally, 1, &[]).await;
        let items = usize::try_from(ITEMS).expect("items");
        let requests = Arc::new(Requests::render(items, Spread::Uniform, Mix::Votes, false));
        let load = Load::start(&servers.addresses, CONNECTIONS, requests, Pace::Closed, number);
        let voting = Self { servers, load };
        // Waits until nearly every counter is there.
        until("the counters are seeded", SEED_LIMIT, async || {
            let keys: i64 = redis::cmd("DBSIZE")
                .query_async(&mut stores.redis_connection().await)
                .await
                .ok()?;
            (keys >= ITEMS).then_some(())
        })
        .await
        .expect("the counters are seeded");
        voting
    }

    async fn stop(self, stores: &Stores, database: &Database, template: &Template) -> Result<(), String> {
        let outcome = self.load.stop().await;
        self.servers.stop(stores, database).await?;
        outcome.expect_all_answered()?;
        check(
            stores,
            database,
            System::Tally,
            template,
            outcome.acknowledged_votes,
        )
        .await
    }
}

/// Wipes Redis under full load. Measures how long until the rate is back and all is exact.
pub async fn reseed(stores: &Stores, round: usize, number: u32, settings: &Settings) -> WorkerRow {
    let template = EMPTY;
    let database = stores.database(&template).await;
    let voting = Voting::start(stores, &database, number).await;
    sleep(settings.warm_up).await;
    let before = voting.load.rate(settings.run).await;

    stores.flush_redis().await;
    let wiped = Instant::now();
    let mut looks = vec![(Duration::ZERO, voting.load.acknowledged_votes())];
    while wiped.elapsed() < WATCH + BACK_FOR {
        sleep(LOOK_EVERY).await;
        looks.push((wiped.elapsed(), voting.load.acknowledged_votes()));
    }
    let back = looks.iter().enumerate().find_map(|(at, (from, votes))| {
        let (until, then) = looks[at..].iter().find(|(until, _)| *until >= *from + BACK_FOR)?;
        let rate = (then - votes) as f64 / (*until - *from).as_secs_f64();
        (rate >= BACK_PART * before).then_some(*from)
    });
    let (last, votes) = looks.last().copied().expect("a look");
    let during = (votes - looks[0].1) as f64 / last.as_secs_f64();
    let stopped = voting.stop(stores, &database, &template).await;
    stores.drop(database).await;

    let seconds = back.unwrap_or(WATCH).as_secs_f64();
    let fault = stopped.err().or_else(|| {
        back.is_none()
            .then(|| format!("the rate was not back within {WATCH:?}"))
    });
    let count = u64::try_from(ITEMS).expect("a number");
    WorkerRow {
        count_per_second: ITEMS as f64 / seconds.max(LOOK_EVERY.as_secs_f64()),
        ..WorkerRow::new("reseed", round, count, seconds, fault).under_load(CONNECTIONS, before, during)
    }
}

/// Old votes that no audit has seen.
fn unaudited(settings: &Settings) -> Template {
    Template {
        name: "unaudited_ledger",
        audited: false,
        ..full(settings)
    }
}

/// How many votes have been audited, and what is wrong.
async fn audited(database: &Database, template: &Template, step: &Step) -> (u64, Option<String>) {
    let audited = rolled_up(database).await;
    let fault = (step.wrong_items > 0 || audited < template.votes()).then(|| {
        format!(
            "{audited} of {} votes audited, {} items wrong",
            template.votes(),
            step.wrong_items
        )
    });
    (u64::try_from(audited).expect("a number"), fault)
}

/// How many votes have been rolled up.
async fn rolled_up(database: &Database) -> i64 {
    sqlx::query_scalar("select vote_total from watermark")
        .fetch_one(&database.pool)
        .await
        .expect("a watermark")
}

/// Audits a ledger that was never audited, while nobody votes.
pub async fn audit_idle(stores: &Stores, round: usize, settings: &Settings) -> WorkerRow {
    let template = unaudited(settings);
    let database = stores.database(&template).await;
    let cost = step_alone(stores, &database, "audit").await;
    let (audited, fault) = audited(&database, &template, &cost.step).await;
    stores.drop(database).await;
    cost.add_to(WorkerRow::new(
        "audit_idle",
        round,
        audited,
        cost.step.seconds,
        fault,
    ))
}

/// Audits a ledger that was never audited, under full load.
pub async fn audit(stores: &Stores, round: usize, number: u32, settings: &Settings) -> WorkerRow {
    let template = unaudited(settings);
    let database = stores.database(&template).await;
    let voting = Voting::start(stores, &database, number).await;
    sleep(settings.warm_up).await;
    let before = voting.load.rate(settings.run).await;
    let (votes, started) = (voting.load.acknowledged_votes(), Instant::now());
    step(stores, &database, "audit").await;
    // The sync worker beside it may have the roll-up, which an audit does not wait for.
    while rolled_up(&database).await < template.votes() && started.elapsed() < AUDIT_LIMIT {
        sleep(LOOK_EVERY).await;
    }
    let seconds = started.elapsed().as_secs_f64();
    let during = (voting.load.acknowledged_votes() - votes) as f64 / seconds;
    let step = step(stores, &database, "audit").await;
    // The audit pauses to let votes pass, so it takes a while, and the ledger grows meanwhile.
    let before = f64::midpoint(before, voting.load.rate(settings.run).await);
    let (audited, fault) = audited(&database, &template, &step).await;
    let stopped = voting.stop(stores, &database, &template).await;
    stores.drop(database).await;
    WorkerRow::new("audit", round, audited, seconds, stopped.err().or(fault)).under_load(
        CONNECTIONS,
        before,
        during,
    )
}
