//! Tally's targets, and what it reached.

use serde::Serialize;

use super::System::{self, BatchedTransaction, LockingTransaction, Nginx, NoOp, Recipe, Tally, Transaction};
use super::results::Results;
use super::rows::{CredentialRow, DeafRow, Row, StreamRow, With, WorkerRow};
use super::system::Topology;
use crate::curve::median;

/// One target.
#[derive(Clone, Debug, Serialize)]
pub struct Target {
    pub what: String,
    /// Whether `bound` is a lower bound. Otherwise it is an upper bound.
    pub at_least: bool,
    pub bound: f64,
    /// The median over the rounds; null if its workload did not run.
    pub measured: Option<f64>,
    pub met: Option<bool>,
}

impl Target {
    fn at_least(bound: f64, what: impl Into<String>, measured: Option<f64>) -> Self {
        Self {
            what: what.into(),
            at_least: true,
            bound,
            measured,
            met: measured.map(|measured| measured >= bound),
        }
    }

    fn at_most(bound: f64, what: impl Into<String>, measured: Option<f64>) -> Self {
        Self {
            what: what.into(),
            at_least: false,
            bound,
            measured,
            met: measured.map(|measured| measured <= bound),
        }
    }
}

/// Every target, measured or not.
pub fn all(results: &Results) -> Vec<Target> {
    let mut targets = against_systems(results);
    targets.push(full_ledger(results));
    targets.extend(batch_api(results));
    targets.extend(topologies(results));
    targets.extend(nginx(results));
    targets.extend(credentials(results));
    targets.extend(reads_again(results));
    targets.extend(streams(results));
    targets.extend(deaf(results));
    targets.extend(of_the_worker(results));
    targets
}

/// Tally's rate divided by another system's: the median over the rounds.
pub fn rate_against(results: &Results, workload: &str, other: System) -> Option<f64> {
    ratio(
        results,
        workload,
        &|row| row.system == Tally,
        &|row| row.system == other,
        &|row| Some(row.rate()),
    )
}

/// Tally's figures compared with the other systems'.
fn against_systems(results: &Results) -> Vec<Target> {
    let cpu = |row: &Row| Some(row.cpu_us_per_vote?.sum());
    let of_tally = |workload, figure: &dyn Fn(&Row) -> Option<f64>| {
        let rows = results
            .voting
            .iter()
            .filter(|row| row.workload == workload && row.system == Tally);
        median(rows.filter_map(figure))
    };
    let p99_at_half = |row: &Row| Some(row.open_loop_ms.as_ref()?.latency.p99);
    let ratio = |workload, other: System, figure: &dyn Fn(&Row) -> Option<f64>| {
        ratio(
            results,
            workload,
            &|row| row.system == Tally,
            &|row| row.system == other,
            figure,
        )
    };
    let rates = [
        ("hot", "hot item", Transaction, 30.0),
        ("hot", "hot item", Recipe, 8.0),
        ("hot", "hot item", NoOp, 0.75),
        ("hot_limited", "hot item with a limit", Transaction, 15.0),
        (
            "poll_moves",
            "moves in a poll with one choice",
            LockingTransaction,
            15.0,
        ),
        (
            "changes",
            "10,000 items, one request in five a change",
            LockingTransaction,
            8.0,
        ),
        (
            "limited_items",
            "10,000 items, each with a limit",
            Transaction,
            8.0,
        ),
        ("uniform", "10,000 items", Transaction, 9.0),
        ("uniform", "10,000 items", Recipe, 6.0),
        ("uniform", "10,000 items", NoOp, 0.60),
        ("uniform", "10,000 items, one server", BatchedTransaction, 1.15),
        (
            "uniform_three_servers",
            "10,000 items, three servers",
            BatchedTransaction,
            1.3,
        ),
        ("cold_items", "a million items", BatchedTransaction, 1.0),
        ("hot", "hot item, one server", BatchedTransaction, 1.2),
        (
            "hot_three_servers",
            "hot item, three servers",
            BatchedTransaction,
            3.0,
        ),
        ("reads", "reads of a live count", NoOp, 0.92),
    ]
    .map(|(workload, about, other, bound)| {
        let what = format!("{about}: rate against {}", other.title());
        Target::at_least(bound, what, rate_against(results, workload, other))
    });
    let cpus =
        [("hot", "hot item", 1.6), ("uniform", "10,000 items", 2.2)].map(|(workload, about, bound)| {
            let what = format!("{about}: CPU a vote against the no-op baseline's");
            Target::at_most(bound, what, ratio(workload, NoOp, &cpu))
        });
    let latencies = [("hot", "hot item"), ("uniform", "10,000 items")].map(|(workload, about)| {
        let what = format!("{about}: open loop p99 at half load against transaction's");
        Target::at_most(1.0, what, ratio(workload, Transaction, &p99_at_half))
    });
    let cold_latency = Target::at_most(
        1.5,
        "a million items: open loop p99 at half load against batched transaction's",
        ratio("cold_items", BatchedTransaction, &p99_at_half),
    );
    let absolute = [
        Target::at_most(
            50.0,
            "a million items: CPU µs a vote",
            of_tally("cold_items", &cpu),
        ),
        Target::at_most(
            2.8,
            "10,000 items: Redis' CPU µs a vote",
            of_tally("uniform", &|row| Some(row.cpu_us_per_vote?.redis)),
        ),
        Target::at_most(
            6.5,
            "10,000 items: Postgres' CPU µs a vote",
            of_tally("uniform", &|row| Some(row.cpu_us_per_vote?.postgres)),
        ),
    ];
    let rest = cpus.into_iter().chain(latencies).chain([cold_latency]);
    rates.into_iter().chain(rest).chain(absolute).collect()
}

/// Tally's rate with a full ledger, divided by its rate with an empty one.
fn full_ledger(results: &Results) -> Target {
    let cases = results.cases("full_ledger");
    let rows = cases
        .into_iter()
        .map(|case| case.ledger_rows)
        .max()
        .filter(|rows| *rows > 0);
    Target::at_least(
        0.85,
        format!(
            "{} million rows in the ledger: rate against an empty one",
            rows.unwrap_or(10_000_000) / 1_000_000
        ),
        ratio(
            results,
            "full_ledger",
            &|row| row.system == Tally && row.ledger_rows > 0,
            &|row| row.system == Tally && row.ledger_rows == 0,
            &|row| Some(row.rate()),
        ),
    )
}

/// Votes in batches, compared with the same votes in single requests.
fn batch_api(results: &Results) -> [Target; 2] {
    let is_batch = |row: &Row| row.votes_per_request > 1;
    let batches = results
        .voting
        .iter()
        .filter(|row| row.workload == "batch_api" && is_batch(row));
    let rate = |row: &Row| Some(row.rate());
    [
        Target::at_least(
            3.0,
            "batch API, hot item: votes against those of single requests",
            ratio(results, "batch_api", &is_batch, &|row| !is_batch(row), &rate),
        ),
        Target::at_most(
            9.0,
            "batch API, hot item: CPU µs a vote",
            median(batches.filter_map(|row| Some(row.cpu_us_per_vote?.sum()))),
        ),
    ]
}

/// Votes with Sentinels or a Redis Cluster, compared with those with one Redis.
fn topologies(results: &Results) -> [Target; 6] {
    let against_one = |workload, figure: &dyn Fn(&Row) -> Option<f64>| {
        let is_one = |row: &Row| row.topology == Topology::Single;
        ratio(results, workload, &|row| !is_one(row), &is_one, figure)
    };
    let rate = |workload, what: &str| {
        Target::at_least(
            0.85,
            format!("{what}: votes against those with one Redis"),
            against_one(workload, &|row| Some(row.rate())),
        )
    };
    let redis = |workload, what: &str| {
        Target::at_most(
            1.5,
            format!("{what}: Redis' CPU a vote against that with one Redis"),
            against_one(workload, &|row| Some(row.cpu_us_per_vote?.redis)),
        )
    };
    [
        rate("hot_cluster", "Redis Cluster, hot item"),
        redis("hot_cluster", "Redis Cluster, hot item"),
        rate("uniform_cluster", "Redis Cluster, 10,000 items"),
        redis("uniform_cluster", "Redis Cluster, 10,000 items"),
        rate("uniform_sentinel", "Sentinels, 10,000 items"),
        redis("uniform_sentinel", "Sentinels, 10,000 items"),
    ]
}

/// Tally beside nginx, which gives a fixed answer.
fn nginx(results: &Results) -> [Target; 3] {
    let against = |workload, figure: &dyn Fn(&Row) -> Option<f64>| {
        let is = |system| move |row: &Row| row.system == system;
        ratio(results, workload, &is(Tally), &is(Nginx), figure)
    };
    let rate = |row: &Row| Some(row.rate());
    [
        Target::at_least(
            0.88,
            "a request that does nothing: rate against nginx with a fixed answer",
            against("live", &rate),
        ),
        Target::at_least(
            0.5,
            "hot item: votes against nginx with a fixed answer",
            against("hot_nginx", &rate),
        ),
        Target::at_most(
            2.5,
            "hot item: CPU a vote against nginx with a fixed answer",
            against("hot_nginx", &|row| Some(row.cpu_us_per_request.sum())),
        ),
    ]
}

/// The CPU time that a credential or throttles add to a vote.
fn credentials(results: &Results) -> Vec<Target> {
    let of = |with: With, figure: fn(&CredentialRow) -> Option<f64>| {
        let rows = results.credentials.iter().filter(|row| row.with == with);
        median(rows.filter_map(figure))
    };
    let throttled = Target::at_most(
        1.0,
        "a vote that a throttle refuses: CPU against that of a vote",
        of(With::FullThrottle, |row| {
            Some(row.cpu_us_per_request / (row.cpu_us_per_request - row.more_us?.median))
        }),
    );
    [
        (With::ApiKey, 1.0),
        (With::Cookie, 1.0),
        (With::Token, 1.5),
        (With::Throttles, 4.0),
    ]
    .map(|(with, bound)| {
        let what = format!("a vote with {}: CPU µs more than with nothing", with.title());
        Target::at_most(bound, what, of(with, |row| Some(row.more_us?.median)))
    })
    .into_iter()
    .chain([throttled])
    .collect()
}

/// The CPU time of a read where half have a tag, compared with reads without tags.
/// Also the CPU time of server and Redis while votes arrive. Reads do not ask Postgres, which stores
/// these votes.
fn reads_again(results: &Results) -> [Target; 2] {
    let rows = |workload| results.voting.iter().filter(move |row| row.workload == workload);
    let all = |row: &Row| row.cpu_us_per_request.sum();
    let of_reads = |row: &Row| row.cpu_us_per_request.server + row.cpu_us_per_request.redis;
    let against = |workload, before, cpu: fn(&Row) -> f64| {
        // A server that never answers 304 meets no target.
        median(
            rows(workload)
                .filter(|row| row.unchanged_part > 0.0)
                .filter_map(|row| {
                    let before = rows(before).find(|before| before.round == row.round)?;
                    Some(cpu(row) / cpu(before))
                }),
        )
    };
    [
        Target::at_most(
            1.0,
            "reads, half of them with a tag: CPU against that of reads without",
            against("reads_again", "reads_hot", all),
        ),
        Target::at_most(
            1.05,
            "the same while the item gets votes: CPU of server and Redis against that without",
            against("reads_again_voted", "reads_again", of_reads),
        ),
    ]
}

/// The delay of live streams, and what they cost.
fn streams(results: &Results) -> Vec<Target> {
    let of = |workload, figure: fn(&StreamRow) -> f64| {
        let rows = results.streams.iter().filter(|row| row.workload == workload);
        median(rows.map(figure))
    };
    let bytes: fn(&StreamRow) -> f64 = |row| row.bytes_per_stream / 1024.0;
    [
        ("streams_one_item", "streams of one item"),
        ("streams_1000_items", "streams of 1,000 items"),
    ]
    .into_iter()
    .flat_map(|(workload, about)| {
        let target = |what: &str| format!("{about}: {what}");
        [
            Target::at_most(
                200.0,
                target("ms from a vote's answer to its event, median"),
                of(workload, |row| row.delay_ms_p50),
            ),
            Target::at_most(
                600.0,
                target("the same, p99"),
                of(workload, |row| row.delay_ms_p99),
            ),
            Target::at_least(
                0.95,
                target("votes against those without watchers"),
                of(workload, |row| row.speed_ratio),
            ),
            Target::at_most(16.0, target("KB of memory a stream"), of(workload, bytes)),
        ]
    })
    .collect()
}

/// What is left of the voting rate beside streams that nobody reads.
fn deaf(results: &Results) -> [Target; 2] {
    let of = |figure: fn(&DeafRow) -> f64| median(results.deaf.iter().map(figure));
    [
        Target::at_least(
            0.95,
            "streams that nobody reads: votes against those without",
            of(|row| row.speed_ratio),
        ),
        Target::at_most(
            // The sum of what is held for one client, of an event that is being sent, and of what a
            // stream takes.
            64.0,
            "streams that nobody reads: KB of the server's memory a stream",
            of(|row| row.bytes_per_stream() / 1024.0),
        ),
    ]
}

fn of_the_worker(results: &Results) -> [Target; 12] {
    let worker = |workload, figure: &dyn Fn(&WorkerRow) -> Option<f64>| {
        let rows = results.worker.iter().filter(|row| row.workload == workload);
        median(rows.filter_map(figure))
    };
    let rate = |row: &WorkerRow| Some(row.count_per_second);
    [
        Target::at_most(
            1.5,
            "Redis wiped under full load: seconds to 90% of the rate, exact",
            worker("reseed", &|row| {
                Some(if row.verified { row.seconds } else { f64::INFINITY })
            }),
        ),
        Target::at_least(
            200_000.0,
            "flush: changed counters a second",
            worker("flush", &rate),
        ),
        Target::at_least(
            1_000_000.0,
            "sweep: saved counters a second",
            worker("sweep", &rate),
        ),
        Target::at_most(
            1.2,
            "1,000 changes among a million counters: seconds until they are saved",
            worker("sparse_changes", &|row| {
                Some(if row.verified { row.seconds } else { f64::INFINITY })
            }),
        ),
        Target::at_most(
            0.03,
            "a million idle counters: cores of worker and Redis together",
            worker("idle_counters", &|row| row.cores),
        ),
        Target::at_most(
            60.0,
            "no audit: seconds of votes beyond the watermark, at the most",
            worker("long_tail", &|row| row.tail_seconds),
        ),
        Target::at_most(
            50.0,
            "no audit: milliseconds to read the hottest item's exact count",
            worker("long_tail", &|row| row.seed_ms),
        ),
        Target::at_most(
            85.0,
            "bytes on disk of a vote without a voter, in fresh tables",
            worker("bytes_per_vote", &|row| {
                let disk = row.disk_bytes_per_vote?;
                (disk.vote_once <= 1.0).then(|| disk.sum())
            }),
        ),
        Target::at_most(
            140.0,
            "bytes on disk of a vote with a voter, in fresh tables",
            worker("bytes_per_vote", &|row| {
                let disk = row.disk_bytes_per_vote?;
                (disk.vote_once > 1.0).then(|| disk.sum())
            }),
        ),
        Target::at_most(
            160.0,
            "Redis: bytes a counter",
            worker("sweep", &|row| row.redis_bytes_per_counter),
        ),
        Target::at_least(
            1_000_000.0,
            "audit: votes a second, while nobody votes (it pauses while votes are cast)",
            worker("audit_idle", &rate),
        ),
        Target::at_least(
            0.9,
            "voting under the audit: rate against before",
            worker("audit", &|row| {
                Some(row.votes_per_second? / row.votes_per_second_before?)
            }),
        ),
    ]
}

/// The median over the rounds of one case's figure divided by another's.
fn ratio(
    results: &Results,
    workload: &str,
    is_one: &dyn Fn(&Row) -> bool,
    is_other: &dyn Fn(&Row) -> bool,
    figure: &dyn Fn(&Row) -> Option<f64>,
) -> Option<f64> {
    let rows = || results.voting.iter().filter(|row| row.workload == workload);
    median(rows().filter(|row| is_one(row)).filter_map(|row| {
        let other = rows().find(|other| is_other(other) && other.round == row.round)?;
        Some(figure(row)? / figure(other)?)
    }))
}
