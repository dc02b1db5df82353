//! The bench of what grows with the votes: the tail beyond the watermark, the disk, and the split into ranges.

use std::sync::Arc;
use std::time::Duration;

use tally::domain::ItemId;
use tally::ledger::{OwnerLedger, Partitioned, WorkerLedger};
use testkit::load::{Load, Mix, Pace, Requests, Spread};
use tokio::time::{Instant, sleep};

use crate::servers::Servers;
use crate::settings::Settings;
use crate::stores::{Database, RANGE_IDS, Stores, Template};
use crate::systems::System;
use crate::voting::check;
use crate::workloads::{CONNECTIONS, EMPTY, ITEMS, full};
use testkit::benchmark::{DiskBytes, SnapshotCost, SplitCost, WorkerRow};

/// Connections that vote on all items, while the others vote on one.
const OTHER_CONNECTIONS: usize = 32;
/// How often the tail is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often the hottest item's exact count is read at the end.
const READS: usize = 20;
/// How many items get votes while a report holds its snapshot, and how often.
const SNAPSHOT_ITEMS: usize = 400;
const SNAPSHOT_VOTES_PER_SECOND: f64 = 2000.0;
const VOTES_ON_DISK: i64 = 1_000_000;

/// Votes on one item and on others, without an audit. Measures how long the tail beyond the
/// watermark becomes, and what a seed of the hottest item costs at the end.
pub async fn long_tail(stores: &Stores, round: usize, number: u32, settings: &Settings) -> WorkerRow {
    let template = EMPTY;
    let database = stores.database(&template).await;
    let servers = Servers::start(stores, &database, System::Tally, 1, &[]).await;
    let load = |spread, connections, number| {
        let items = usize::try_from(ITEMS).expect("items");
        let requests = Arc::new(Requests::render(items, spread, Mix::Votes, false));
        Load::start(&servers.addresses, connections, requests, Pace::Closed, number)
    };
    let hot = load(Spread::Hot, CONNECTIONS - OTHER_CONNECTIONS, number);
    let others = load(Spread::Uniform, OTHER_CONNECTIONS, number + 1);
    sleep(settings.warm_up).await;
    let started = Instant::now();
    let before = hot.acknowledged_votes() + others.acknowledged_votes();
    let mut longest = 0;
    while started.elapsed() < settings.long {
        sleep(LOOK_EVERY).await;
        longest = longest.max(tail(&database).await);
    }
    let seconds = started.elapsed().as_secs_f64();
    let votes = hot.acknowledged_votes() + others.acknowledged_votes() - before;
    let seed_ms = slowest_read(&database).await;
    let (hot, others) = (hot.stop().await, others.stop().await);
    let stopped = servers.stop(stores, &database).await;
    let acknowledged = hot.acknowledged_votes + others.acknowledged_votes;
    let checked = check(stores, &database, System::Tally, &template, acknowledged).await;
    let fault = [
        hot.expect_all_answered(),
        others.expect_all_answered(),
        stopped,
        checked,
    ];
    let fault = fault.into_iter().find_map(Result::err);
    stores.drop(database).await;
    WorkerRow {
        tail_seconds: Some(longest as f64 * seconds / votes as f64),
        seed_ms: Some(seed_ms),
        ..WorkerRow::new("long_tail", round, votes, seconds, fault)
    }
}

/// Votes beyond the watermark.
async fn tail(database: &Database) -> i64 {
    sqlx::query_scalar(
        "select greatest((select last_value from vote_id_seq) - (select vote_id from watermark), 0)",
    )
    .fetch_one(&database.pool)
    .await
    .expect("a number")
}

async fn slowest_read(database: &Database) -> f64 {
    let ledger = WorkerLedger::new(&database.url, "tally bench").expect("a URL");
    let hottest = ItemId::new(1).expect("positive");
    let mut slowest = Duration::ZERO;
    for _ in 0..READS {
        let started = Instant::now();
        ledger.exact_counts(&[hottest]).await.expect("an exact count");
        slowest = slowest.max(started.elapsed());
    }
    ledger.close().await;
    slowest.as_secs_f64() * 1000.0
}

/// Votes on some items while a report holds its snapshot open. Measures how much the items' old
/// versions make their table grow, and what that costs a look-up.
pub async fn open_snapshot(stores: &Stores, round: usize, number: u32, settings: &Settings) -> WorkerRow {
    let template = EMPTY;
    let database = stores.database(&template).await;
    let servers = Servers::start(stores, &database, System::Tally, 1, &[]).await;
    let requests = Arc::new(Requests::render(
        SNAPSHOT_ITEMS,
        Spread::Uniform,
        Mix::Votes,
        false,
    ));
    let load = Load::start(
        &servers.addresses,
        CONNECTIONS,
        requests,
        Pace::Open {
            per_second: SNAPSHOT_VOTES_PER_SECOND,
        },
        number,
    );
    sleep(settings.warm_up).await;
    let bytes_before = item_bytes(&database).await;
    let lookup_ms_before = slowest_lookup(&database).await;
    let mut report = database.pool.begin().await.expect("a transaction");
    for statement in [
        "set transaction isolation level repeatable read",
        "select count(*) from item",
    ] {
        sqlx::query(statement)
            .execute(&mut *report)
            .await
            .expect("a report");
    }
    let (started, before) = (Instant::now(), load.acknowledged_votes());
    sleep(settings.long).await;
    let seconds = started.elapsed().as_secs_f64();
    let votes = load.acknowledged_votes() - before;
    let snapshot = SnapshotCost {
        item_bytes_before: bytes_before,
        item_bytes_after: item_bytes(&database).await,
        lookup_ms_before,
        lookup_ms_after: slowest_lookup(&database).await,
    };
    report.rollback().await.expect("an end");
    let fault = finish(stores, database, &template, servers, load).await;
    WorkerRow {
        snapshot: Some(snapshot),
        ..WorkerRow::new("open_snapshot", round, votes, seconds, fault)
    }
}

/// Ends a run and checks its counts. Returns what was wrong.
async fn finish(
    stores: &Stores,
    database: Database,
    template: &Template,
    servers: Servers,
    load: Load,
) -> Option<String> {
    let load = load.stop().await;
    let stopped = servers.stop(stores, &database).await;
    let acknowledged = load.acknowledged_votes;
    let checked = check(stores, &database, System::Tally, template, acknowledged).await;
    stores.drop(database).await;
    let ended = [load.expect_all_answered(), stopped, checked];
    ended.into_iter().find_map(Result::err)
}

async fn item_bytes(database: &Database) -> i64 {
    sqlx::query_scalar("select pg_relation_size('item')")
        .fetch_one(&database.pool)
        .await
        .expect("a size")
}

/// The slowest of several look-ups of ten items that get votes, in ms.
async fn slowest_lookup(database: &Database) -> f64 {
    let mut slowest = Duration::ZERO;
    for _ in 0..READS {
        let started = Instant::now();
        sqlx::query("select vote_count from item where id between 1 and 10")
            .fetch_all(&database.pool)
            .await
            .expect("items");
        slowest = slowest.max(started.elapsed());
    }
    slowest.as_secs_f64() * 1000.0
}

/// Votes on all items, each with a voter, while a full ledger is split into ranges.
pub async fn split(stores: &Stores, round: usize, number: u32, settings: &Settings) -> WorkerRow {
    let template = full(settings);
    let database = stores.database(&template).await;
    let servers = Servers::start(stores, &database, System::Tally, 1, &[]).await;
    let items = usize::try_from(ITEMS).expect("items");
    let requests = Arc::new(Requests::render(items, Spread::Uniform, Mix::Votes, true));
    let load = Load::start(&servers.addresses, CONNECTIONS, requests, Pace::Closed, number);
    sleep(settings.warm_up * 2).await;
    load.measure();
    sleep(settings.long).await;
    let (before, ledger_bytes_before) = (load.seen().await, ledger_bytes(&database).await);
    let owner = OwnerLedger::new(&database.url, "tally bench").expect("a URL");
    let (started, votes_before) = (Instant::now(), load.acknowledged_votes());
    let done = owner.partition(RANGE_IDS, |_, _| {}).await.expect("a split");
    let seconds = started.elapsed().as_secs_f64();
    let votes = load.acknowledged_votes() - votes_before;
    let mut meanwhile = load.seen().await.latency_us;
    owner.close().await;
    let Partitioned::Done { locked, .. } = done else {
        panic!("the ledger was in ranges");
    };
    meanwhile
        .subtract(&before.latency_us)
        .expect("the same, and more");
    let cost = SplitCost {
        locked_ms: locked.as_secs_f64() * 1000.0,
        slowest_answer_ms_before: before.latency_us.max() as f64 / 1000.0,
        slowest_answer_ms: meanwhile.max() as f64 / 1000.0,
        ledger_bytes_before,
        ledger_bytes_after: ledger_bytes(&database).await,
    };
    let fault = finish(stores, database, &template, servers, load).await;
    let rows = u64::try_from(template.votes()).expect("votes");
    WorkerRow {
        split: Some(cost),
        ..WorkerRow::new("split", round, rows, seconds, fault)
    }
    .under_load(
        CONNECTIONS,
        before.votes as f64 / settings.long.as_secs_f64(),
        votes as f64 / seconds,
    )
}

async fn ledger_bytes(database: &Database) -> i64 {
    sqlx::query_scalar(
        "select sum(pg_total_relation_size(oid))::bigint from pg_class
         where relkind = 'r' and relnamespace = current_schema()::regnamespace
           and (relname in ('vote', 'vote_of_voter') or relname ~ '^vote_range_[0-9]+$')",
    )
    .fetch_one(&database.pool)
    .await
    .expect("a size")
}

/// Measures a vote's size on disk in fresh tables, without and with a voter of 15 bytes.
pub async fn bytes_per_vote(stores: &Stores, round: usize) -> Vec<WorkerRow> {
    let mut rows = Vec::new();
    for voter in ["null", "'voter-' || lpad(number::text, 9, '0')"] {
        let database = stores.database(&EMPTY).await;
        let started = Instant::now();
        sqlx::query(&format!(
            "insert into vote (item_id, voter_id)
             select 1 + number % {ITEMS}, {voter} from generate_series(1, {VOTES_ON_DISK}) as number"
        ))
        .execute(&database.pool)
        .await
        .expect("votes");
        let seconds = started.elapsed().as_secs_f64();
        let bytes = async |relation: &str| {
            let bytes: i64 = sqlx::query_scalar("select pg_relation_size($1::regclass)")
                .bind(relation)
                .fetch_one(&database.pool)
                .await
                .expect("a size");
            bytes as f64 / VOTES_ON_DISK as f64
        };
        let disk = DiskBytes {
            table: bytes("vote").await,
            primary_key: bytes("vote_pkey").await,
            vote_once: bytes("vote_once").await,
        };
        stores.drop(database).await;
        rows.push(WorkerRow {
            disk_bytes_per_vote: Some(disk),
            ..WorkerRow::new(
                "bytes_per_vote",
                round,
                u64::try_from(VOTES_ON_DISK).expect("a number"),
                seconds,
                None,
            )
        });
    }
    rows
}
