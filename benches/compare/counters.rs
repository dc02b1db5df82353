//! The bench of what many counters cost: to write when all change, to scan when none does, when a
//! few among them change, and when a worker has nothing to do.

use std::time::Duration;

use tally::domain::{CountDelta, ItemId, TransactionId};
use tally::ledger::{ServerLedger, WorkerLedger};
use tally::live::{self, KeyPrefix, LiveCounts, Redis};
use tally::votes::Counting;
use testkit::until;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::measure::{Cpu, Processes};
use crate::servers::start_worker;
use crate::settings::Settings;
use crate::stores::{Database, Rules, Stores, Template};
use crate::worker::{step, step_alone};
use testkit::benchmark::WorkerRow;

/// The workloads that [`all`] runs, one after the other.
pub const WORKLOADS: [&str; 4] = ["flush", "sweep", "sparse_changes", "idle_counters"];

const COUNTERS: i64 = 1_000_000;
const QUICK_COUNTERS: i64 = 100_000;
/// How many counters are seeded at once when Redis is filled, and how many such
/// pages are under way.
const FILL_PAGE: i64 = 1000;
const FILL_PAGES_UNDER_WAY: i64 = 4;
/// How often the bench checks whether all counters are there.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How many counters change among all of them.
const SPARSE_CHANGES: i64 = 1000;
/// How long it may take until they are saved.
const SAVED_LIMIT: Duration = Duration::from_secs(60);
/// How long an idle worker is watched.
const IDLE_FOR: Duration = Duration::from_secs(30);
const QUICK_IDLE_FOR: Duration = Duration::from_secs(10);
/// How long a worker has to start.
const STARTING: Duration = Duration::from_secs(3);
/// The votes that change counters come from this transaction, which no snapshot has seen.
const LATER: TransactionId = TransactionId(1 << 40);

/// All workloads of one set of counters, a row for each.
pub async fn all(stores: &Stores, round: usize, settings: &Settings) -> Vec<WorkerRow> {
    let template = Template {
        name: "counters",
        items: if settings.quick { QUICK_COUNTERS } else { COUNTERS },
        count: 7,
        in_ledger: false,
        audited: true,
        saved: true,
        rules: Rules::Default,
        in_ranges: false,
    };
    let database = stores.database(&template).await;
    // A worker that starts later would invalidate them otherwise. It looks for saved counts
    // that are not exact, so these are exact. A flush still writes them.
    step(stores, &database, "epoch").await;
    let bytes_before = stores.redis_bytes().await;
    let live_counts = connect(stores, &database).await;
    fill(&live_counts, &database, template.items).await;

    let mut rows = Vec::new();
    for workload in ["flush", "sweep"] {
        let cost = step_alone(stores, &database, workload).await;
        let step = &cost.step;
        let done = if workload == "flush" {
            step.flushed
        } else {
            step.counters
        } as u64;
        let expected = u64::try_from(template.items).expect("a number");
        let unsaved: i64 = sqlx::query_scalar("select count(*) from item where vote_count <> $1")
            .bind(template.count)
            .fetch_one(&database.pool)
            .await
            .expect("a count");
        // SCAN may return a counter twice.
        let is_whole = match workload {
            "flush" => done == expected,
            _ => done >= expected && step.is_quiescent,
        };
        let fault = (!is_whole || unsaved > 0)
            .then(|| format!("{done} of {expected} counters, {unsaved} items without their count"));
        let row = cost.add_to(WorkerRow::new(workload, round, done, step.seconds, fault));
        // After the flush each counter has all of its fields.
        let bytes = (stores.redis_bytes().await - bytes_before) as f64 / template.items as f64;
        rows.push(WorkerRow {
            redis_bytes_per_counter: Some(bytes),
            ..row
        });
    }
    let mut worker = start_worker(stores, &database);
    sleep(STARTING).await;
    let processes = Processes {
        worker: Some(worker.id().expect("it runs")),
        ..stores.processes()
    };
    rows.push(sparse_changes(&live_counts, &database, &template, round).await);
    rows.push(idle_counters(&processes, &template, round, settings).await);
    worker.kill().await.expect("it runs");
    stores.drop(database).await;
    rows
}

/// Changes a few counters among all of them, and measures how long until these are saved.
async fn sparse_changes(
    live_counts: &LiveCounts,
    database: &Database,
    template: &Template,
    round: usize,
) -> WorkerRow {
    let every = template.items / SPARSE_CHANGES;
    let items: Vec<i64> = (0..SPARSE_CHANGES).map(|number| 1 + number * every).collect();
    let deltas: Vec<CountDelta> = items
        .iter()
        .filter_map(|item| ItemId::new(*item))
        .map(|item_id| CountDelta {
            item_id,
            delta: 1.into(),
        })
        .collect();
    let started = Instant::now();
    live_counts.count(&deltas, LATER).await.expect("live counts");
    let saved = until("the changes are saved", SAVED_LIMIT, async || {
        let saved: i64 =
            sqlx::query_scalar("select count(*) from item where id = any($1) and vote_count = $2")
                .bind(&items)
                .bind(template.count + 1)
                .fetch_one(&database.pool)
                .await
                .ok()?;
        (saved == SPARSE_CHANGES).then_some(())
    });
    let fault = saved.await.err().map(|error| error.to_string());
    let count = u64::try_from(SPARSE_CHANGES).expect("a number");
    WorkerRow::new(
        "sparse_changes",
        round,
        count,
        started.elapsed().as_secs_f64(),
        fault,
    )
}

/// What a worker and Redis cost while nothing changes.
async fn idle_counters(
    processes: &Processes,
    template: &Template,
    round: usize,
    settings: &Settings,
) -> WorkerRow {
    let (started, before) = (Instant::now(), processes.cpu());
    sleep(if settings.quick { QUICK_IDLE_FOR } else { IDLE_FOR }).await;
    let seconds = started.elapsed().as_secs_f64();
    let Cpu { worker, redis, .. } = processes.cpu().since(before);
    let count = u64::try_from(template.items).expect("a number");
    WorkerRow {
        cores: Some((worker + redis).as_secs_f64() / seconds),
        ..WorkerRow::new("idle_counters", round, count, seconds, None)
    }
}

async fn connect(stores: &Stores, database: &Database) -> LiveCounts {
    let redis = Redis::new(
        stores.redis.url(),
        &KeyPrefix::default(),
        live::WORKER_ANSWER_LIMIT,
    )
    .expect("a URL");
    // The epoch step has claimed these keys for it.
    let ledger = ServerLedger::new(&database.url, "tally bench").expect("a URL");
    let owner = ledger.owner().await.expect("Postgres answers");
    let owner = watch::channel(Some(owner)).1;
    let live_counts = LiveCounts::open(owner, redis, live::SUSPECTS_LIMIT_ITEMS, live::Seeding::All);
    while !live_counts.answers() {
        sleep(LOOK_EVERY).await;
    }
    live_counts
}

/// Seeds a counter for every item, as the server does: lease, exact count, seed.
async fn fill(live_counts: &LiveCounts, database: &Database, items: i64) {
    let ledger = WorkerLedger::new(&database.url, "tally bench").expect("a URL");
    let mut tasks = JoinSet::new();
    for task in 0..FILL_PAGES_UNDER_WAY {
        let (live_counts, ledger) = (live_counts.clone(), ledger.clone());
        tasks.spawn(async move {
            let mut first = 1 + task * FILL_PAGE;
            while first <= items {
                let page: Vec<ItemId> = (first..=items.min(first + FILL_PAGE - 1))
                    .filter_map(ItemId::new)
                    .collect();
                fill_page(&live_counts, &ledger, &page).await;
                first += FILL_PAGES_UNDER_WAY * FILL_PAGE;
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("all are seeded");
    }
    ledger.close().await;
}

async fn fill_page(live_counts: &LiveCounts, ledger: &WorkerLedger, page: &[ItemId]) {
    let deltas: Vec<CountDelta> = page
        .iter()
        .map(|item| CountDelta {
            item_id: *item,
            delta: 0.into(),
        })
        .collect();
    // A delta of 0 only reads, so the transaction does not matter.
    let mut counting = Counting::new(TransactionId(3), deltas.clone());
    let replies = live_counts.count(&deltas, counting.transaction()).await;
    counting.counted(replies.expect("leases"));
    let seeds = counting.seeds(ledger.exact_counts(page).await.expect("exact counts"));
    let seeded = live_counts.seed(&seeds).await.expect("seeds");
    assert_eq!(
        seeded.iter().filter(|seeded| **seeded).count(),
        page.len(),
        "all are seeded"
    );
}
