//! The protocol's steps in orders that are drawn from a seed.
//!
//! There are 2 to 4 batches of one vote (+1, −1, or a repeat, which adds 0), two workers,
//! invalidations, wipes with the entry into another epoch, and leases that Redis removes. Meanwhile
//! the audit moves the watermark. Redis' clock is drawn, too: see [`Clock`]. (No statement here
//! reads Postgres' clock.) Each interleaving ends quiescent. Then saved count, live count and
//! ledger must agree, and nothing may stay unsaved.
//!
//! The search must find a violation when a piece of the protocol is taken away, in a copy of its
//! script or statement, in the worker's steps or in `one_vote_batch.rs`. A search that cannot fail
//! shows nothing. (Floors of revisions, claims, compare-and-set and the epoch's number are taken
//! away in `every_order/` only: they need an order of steps that is rarely drawn.)
//!
//! Tally's own code here: the scripts, the SQL, and `tally::votes::Counting`, which orders the
//! steps of a batch. Only the clock differs: the copies of the scripts read the time from a key
//! that the search moves. The worker's order of steps (`src/sync`) is written a second time,
//! because the worker takes each step for many items at once.
//!
//! The long run: `TALLY_TEST_INTERLEAVINGS=20000 cargo nextest run --profile long
//! interleavings_of`. `TALLY_TEST_SEED` is the first seed.

mod calls;
mod decisions;
mod ending;
mod item;
mod pieces;
mod search;

use std::sync::Arc;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use redis::aio::MultiplexedConnection;
use sqlx::postgres::PgPool;
use tally::domain::{Count, CountDelta};
use tokio::sync::RwLock;

use self::item::{Entry, Item, Worker};
use self::pieces::{Clock, Pieces};
use self::search::{PARALLEL, Player, limit, search, with_its_own_epoch};
use crate::helpers::stores::Stores;
use crate::helpers::tally::ledger;
use crate::proofs::one_vote_batch::{Batch, Without};

/// How many interleavings an ordinary run plays.
const INTERLEAVINGS: u64 = 600;
/// How many a mutant may survive before the search counts as blind to it.
const MUTANT_LIMIT: u64 = 6000;
/// The most reads of one worker in an interleaving.
const READS_LIMIT: usize = 4;
const LEASE_LIMIT_MS: i64 = 10_000;
/// Redis' time when an interleaving begins, µs since 1970.
const BEGIN_US: i64 = 1_700_000_000_000_000;
/// The most rounds of a batch: fewer than the server's, so some batches give up.
const ROUNDS_LIMIT: usize = 3;

/// What a batch adds: up-votes and down-votes, one of each, or nothing (a repeat).
const DELTAS: [Count; 10] = {
    let up = Count { net: 1, downs: 0 };
    let down = Count { net: -1, downs: 1 };
    let both = Count { net: 0, downs: 1 };
    [up, up, up, up, up, down, down, both, both, Count::ZERO]
};

/// Plays one interleaving. Returns what is wrong with it, and its steps.
async fn play(seed: u64, mut item: Item, without: Without, roll_ups: &RwLock<()>) -> Result<(), String> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut batches: Vec<Batch> = (0..random.random_range(2..=4))
        .map(|_| {
            let delta = CountDelta {
                item_id: item.id,
                delta: *DELTAS.choose(&mut random).expect("a delta"),
            };
            Batch::new(delta, random.random_range(1..=ROUNDS_LIMIT), without)
        })
        .collect();
    let clock = *[Clock::Steady, Clock::Stepping, Clock::Trembling, Clock::Stopped]
        .choose(&mut random)
        .expect("a clock");
    let mut workers = [Worker::ReadEpoch, Worker::ReadEpoch];
    let mut entry = Entry::Done;
    let mut reads_left = [READS_LIMIT; 2];
    let mut invalidations = random.random_range(0..=2);
    let mut wipes = u32::from(random.random_bool(0.2));
    let mut time_outs = u32::from(random.random_bool(0.2));
    // Some take steps seldom: a worker, for example, stalls with what it has read.
    let mut speeds = [1.0; 23];
    for speed in &mut speeds[..20] {
        *speed = *[1.0, 1.0, 0.2, 0.03].choose(&mut random).expect("a speed");
    }
    let mut trace = vec![format!("the clock: {clock:?}")];

    loop {
        let is_busy = |worker: &Worker| !matches!(worker, Worker::ReadEpoch);
        // Who can take a step? 0..: batches; 10, 11: workers; 12: the entry into another epoch; 20:
        // an invalidation; 21: a wipe; 22: a lease times out.
        let mut who: Vec<usize> = (0..batches.len()).filter(|at| !batches[*at].is_done()).collect();
        let active = !who.is_empty() || workers.iter().any(is_busy);
        for at in 0..workers.len() {
            if is_busy(&workers[at]) || (active && reads_left[at] > 0) {
                who.push(10 + at);
            }
        }
        if active {
            who.extend((invalidations > 0).then_some(20));
            who.extend((wipes > 0).then_some(21));
            who.extend((time_outs > 0).then_some(22));
        }
        who.extend((entry != Entry::Done).then_some(12));
        let Ok(one) = who.choose_weighted(&mut random, |one| speeds[*one]).copied() else {
            break;
        };
        item.set_clock(clock.after(item.now, &mut random)).await;
        trace.push(format!("{:+} µs:", item.now - BEGIN_US));
        match one {
            12 => {
                trace.push(format!("epoch: {entry:?}"));
                entry = item.enter(entry).await;
            }
            22 => {
                trace.push("time out".to_owned());
                time_outs -= 1;
                item.time_out().await;
            }
            20 => {
                trace.push("invalidate".to_owned());
                invalidations -= 1;
                item.invalidate().await;
            }
            21 => {
                trace.push("wipe".to_owned());
                wipes -= 1;
                item.wipe().await;
                entry = Entry::RaiseNumber;
            }
            10 | 11 => {
                let at = one - 10;
                trace.push(format!("worker {at}: {:?}", workers[at]));
                if matches!(workers[at], Worker::ReadEpoch) {
                    reads_left[at] -= 1;
                }
                workers[at] = item.work(workers[at].clone()).await;
            }
            at => {
                trace.push(format!(
                    "batch {at} ({:+}): {:?}",
                    batches[at].delta(),
                    batches[at].call()
                ));
                batches[at] = item.batch_step(&batches[at]).await;
            }
        }
        if !item.is_found().await {
            let trace = trace.join("\n  ");
            return Err(format!("seed {seed}: unsaved, but not in the index\n  {trace}"));
        }
    }

    let ended = item.end(roll_ups, &mut trace).await;
    ended.map_err(|wrong| format!("seed {seed}: {wrong}\n  {}", trace.join("\n  ")))
}

/// Plays votes on one item.
struct Votes {
    pieces: Arc<Pieces>,
    redis: MultiplexedConnection,
    postgres: PgPool,
    without: Without,
}

impl Player for Votes {
    async fn play(&mut self, seed: u64, roll_ups: &RwLock<()>) -> Result<(), String> {
        let pieces = Arc::clone(&self.pieces);
        let item = Item::new(pieces, self.redis.clone(), self.postgres.clone()).await;
        play(seed, item, self.without, roll_ups).await
    }
}

async fn search_votes(without: Without, limit: u64) -> (u64, Option<String>) {
    let stores = Stores::start().await;
    let pieces = Arc::new(Pieces::without(without));
    let redis = stores.redis_connection().await;
    let mut players = Vec::new();
    for number in 0..PARALLEL {
        players.push(Votes {
            pieces: Arc::clone(&pieces),
            redis: redis.clone(),
            postgres: with_its_own_epoch(&stores.database_url, number).await,
            without,
        });
    }
    search(&ledger(&stores.database_url), players, limit).await
}

#[tokio::test(flavor = "multi_thread")]
async fn interleavings_of_the_real_scripts_and_statements_are_exact() {
    let (played, failure) = search_votes(Without::Nothing, limit(INTERLEAVINGS)).await;
    println!("{played} interleavings");
    assert_eq!(failure, None);
}

async fn assert_found(without: Without) {
    let (played, failure) = search_votes(without, MUTANT_LIMIT).await;
    let failure =
        failure.unwrap_or_else(|| panic!("{played} interleavings without {without:?} were all exact"));
    println!("without {without:?}, after {played} interleavings: {failure}");
}

#[tokio::test(flavor = "multi_thread")]
async fn interleavings_without_the_visibility_snapshot_are_found_wrong() {
    assert_found(Without::VisibilitySnapshot).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn interleavings_without_the_lease_are_found_wrong() {
    assert_found(Without::Lease).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn interleavings_without_the_counted_at_guard_are_found_wrong() {
    assert_found(Without::CountedAtGuard).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn interleavings_without_the_revision_are_found_wrong() {
    assert_found(Without::Revision).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn interleavings_without_a_lease_before_the_exact_count_are_found_wrong() {
    assert_found(Without::ExactCountAfterLease).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn interleavings_without_an_exact_count_for_each_round_are_found_wrong() {
    assert_found(Without::ExactCountOfItsRound).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn interleavings_without_suspects_are_found_wrong() {
    assert_found(Without::Suspects).await;
}
