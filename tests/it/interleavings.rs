//! The protocol's steps in orders that are drawn from a seed: 2 to 4 batches of one vote
//! (+1, −1, or a repeat, which adds 0), two workers, invalidations and wipes, while the audit
//! moves the watermark. Each interleaving ends quiescent, and the invariants are then checked.
//! With a piece of the protocol taken away, in a copy of its script or statement or in
//! `batch.rs`, a violation must be found: a search that cannot fail shows nothing.
//!
//! Tally's own code here: the scripts, the SQL, and `tally::votes::Counting`, which orders the
//! steps of a batch. Written down a second time: the worker's order of steps (`src/sync`),
//! since the worker takes each of them for many items at once.
//!
//! The long run: `TALLY_TEST_INTERLEAVINGS=20000 cargo nextest run --profile long
//! interleavings_of`. `TALLY_TEST_SEED` is the first seed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use redis::aio::MultiplexedConnection;
use redis::{Script, Value};
use sqlx::Row;
use sqlx::postgres::{PgPool, PgPoolOptions};
use tally::domain::{CountDelta, ExactCount, ItemId, Revision, Snapshot, TransactionId};
use tally::ledger::ROLL_UP_LIMIT_IDS;
use tally::live::Counted;

use crate::batch::{Batch, Call, Reply, Without};
use crate::helpers::stores::Stores;
use crate::helpers::tally::ledger;

/// How many interleavings an ordinary test run takes.
const INTERLEAVINGS: u64 = 600;
/// How many a mutant may survive before the search counts as blind to it.
const MUTANT_LIMIT: u64 = 6000;
/// Interleavings that are played at once, each on an item of its own.
const PARALLEL: usize = 8;
/// Reads of one worker in an interleaving, at the most.
const READS_LIMIT: usize = 4;
/// Steps from the last drawn one until all is quiescent, at the most.
const QUIESCENT_LIMIT: usize = 20;
/// After so many interleavings the audit moves the watermark, while others are played.
const ROLL_UP_EVERY: u64 = 25;
const LEASE_LIMIT_MS: i64 = 10_000;
/// Rounds of a batch, at the most: fewer than the server's, so that some batches give up.
const ROUNDS_LIMIT: usize = 3;

/// The scripts and statements under test.
struct Pieces {
    count: Script,
    seed: Script,
    mark_saved: Script,
    expire: Script,
    invalidate: Script,
    clear_rebuild: Script,
    insert_votes: &'static str,
    exact_counts: &'static str,
    save_counts: String,
    marks_by_value: bool,
}

/// A text without a part of it, which must be there.
fn cut(text: &str, part: &str, instead: &str) -> String {
    assert!(text.contains(part), "{part:?} is gone: the mutant would be none");
    text.replace(part, instead)
}

impl Pieces {
    fn without(piece: Without) -> Self {
        let mut count = include_str!("../../lua/count.lua").to_owned();
        let mut seed = include_str!("../../lua/seed.lua").to_owned();
        let mut mark_saved = include_str!("../../lua/mark_saved.lua").to_owned();
        let mut save_counts = include_str!("../../src/ledger/sql/save_counts.sql").to_owned();
        match piece {
            Without::Nothing
            | Without::ExactCountAfterLease
            | Without::ExactCountOfItsRound
            | Without::Suspects => {}
            Without::CommitFirst => panic!("only the model takes this away"),
            Without::VisibilitySnapshot => {
                count = cut(&count, "delta ~= 0 and not visible(held[3])", "delta ~= 0")
            }
            Without::Lease => seed = cut(&seed, "held[1] or held[2] ~= lease", "held[1]"),
            Without::CountedAtGuard => {
                save_counts = cut(
                    &save_counts,
                    "and (item.counted_at is null or item.counted_at <= given.counted_at)",
                    "",
                );
            }
            // Compares the count that was written, not its revision.
            Without::Revision => {
                mark_saved = cut(&mark_saved, "'rev') == ARGV[k]", "'count') == ARGV[k]");
                mark_saved = cut(
                    &mark_saved,
                    "call('HSET', key, 'saved', ARGV[k])",
                    "call('HSET', key, 'saved', call('HGET', key, 'rev'))",
                );
            }
        }
        Self {
            count: Script::new(&count),
            seed: Script::new(&seed),
            mark_saved: Script::new(&mark_saved),
            expire: Script::new(include_str!("../../lua/expire.lua")),
            invalidate: Script::new(include_str!("../../lua/invalidate.lua")),
            clear_rebuild: Script::new(include_str!("../../lua/clear_rebuild.lua")),
            insert_votes: include_str!("../../src/ledger/sql/insert_anonymous_votes.sql"),
            exact_counts: include_str!("../../src/ledger/sql/exact_counts.sql"),
            save_counts,
            marks_by_value: piece == Without::Revision,
        }
    }
}

/// What a worker does next.
#[derive(Clone, Debug)]
enum Worker {
    Read,
    /// Reads the time after the fields: others may take steps in between.
    ReadTime(Fields),
    Write {
        count: i64,
        revision: i64,
    },
    Mark {
        count: i64,
        revision: i64,
    },
    Expire {
        revision: i64,
    },
    ReadExact {
        token: String,
        now: i64,
    },
    WriteExact {
        token: String,
        now: i64,
        count: i64,
    },
    ClearRequest {
        token: String,
    },
}

#[derive(Clone, Debug)]
struct Fields {
    count: Option<(i64, i64)>,
    saved: Option<i64>,
    rebuild: Option<String>,
}

impl Fields {
    fn is_saved(&self) -> bool {
        self.count
            .is_none_or(|(_, revision)| self.saved == Some(revision))
    }
}

/// One item, and everyone who works on it.
struct Item {
    id: ItemId,
    key: String,
    pieces: Arc<Pieces>,
    redis: MultiplexedConnection,
    postgres: PgPool,
    tokens: i64,
}

impl Item {
    async fn new(pieces: Arc<Pieces>, redis: MultiplexedConnection, postgres: PgPool) -> Self {
        let id: i64 = sqlx::query_scalar("insert into item (name) values ('x') returning id")
            .fetch_one(&postgres)
            .await
            .expect("an item");
        Self {
            id: ItemId::new(id).expect("positive"),
            key: format!("tally:{{{id}}}"),
            pieces,
            redis,
            postgres,
            tokens: 0,
        }
    }

    /// A script's reply for the item's key.
    async fn script(&mut self, script: fn(&Pieces) -> &Script, arguments: &[String]) -> Value {
        let pieces = Arc::clone(&self.pieces);
        let mut call = script(&pieces).key(&self.key);
        for argument in arguments {
            call.arg(argument);
        }
        let [reply]: [Value; 1] = call.invoke_async(&mut self.redis).await.expect("the script runs");
        reply
    }

    /// A batch's next step; returns the batch after it.
    async fn batch_step(&mut self, batch: &Batch) -> Batch {
        let Some(call) = batch.call() else {
            return batch.clone();
        };
        let reply = match call {
            Call::Commit => Reply::Committed(self.commit(batch.delta()).await),
            Call::Count(transaction, deltas) => {
                let mut replies = Vec::new();
                for delta in deltas {
                    replies.push(self.count(transaction, delta).await);
                }
                Reply::Counted(replies)
            }
            Call::ReadExactCounts(items) => {
                assert_eq!(items, [self.id]);
                Reply::ExactCounts(vec![self.exact().await])
            }
            Call::Seed(seeds) => {
                let mut replies = Vec::new();
                for seed in seeds {
                    replies.push(self.seed(&seed.exact, seed.lease).await);
                }
                Reply::Seeded(replies)
            }
            Call::Invalidate(items) => {
                assert_eq!(items, [self.id]);
                self.invalidate().await;
                Reply::Invalidated
            }
        };
        batch.after(reply)
    }

    /// A delta of 0 is a repeat: its transaction stores nothing.
    async fn commit(&self, delta: i64) -> TransactionId {
        let values: Vec<i16> = match i16::try_from(delta).expect("-1, 0 or 1") {
            0 => Vec::new(),
            value => vec![value],
        };
        let row = sqlx::query(self.pieces.insert_votes)
            .bind(vec![self.id.get(); values.len()])
            .bind(values)
            .bind(vec![self.id.get()])
            .fetch_one(&self.postgres)
            .await
            .expect("an insert");
        TransactionId(row.get(0))
    }

    async fn count(&mut self, TransactionId(xid): TransactionId, delta: CountDelta) -> Counted {
        self.tokens += 1;
        let arguments = [xid, self.tokens, LEASE_LIMIT_MS, delta.delta].map(|one| one.to_string());
        match self.script(|pieces| &pieces.count, &arguments).await {
            Value::Int(count) => Counted::Count(count),
            miss => {
                let (_, lease): (String, String) = redis::from_redis_value(miss).expect("a miss");
                Counted::Miss { lease }
            }
        }
    }

    async fn seed(&mut self, exact: &ExactCount, lease: String) -> bool {
        let arguments = [
            exact.count.to_string(),
            exact.snapshot.compact().to_owned(),
            lease,
            exact.counted_at.map_or(0, Revision::micros).to_string(),
        ];
        let reply = self.script(|pieces| &pieces.seed, &arguments).await;
        let word: String = redis::from_redis_value(reply).expect("a word");
        word == "SEEDED"
    }

    /// A worker's next step; returns the one after it.
    async fn work(&mut self, worker: Worker) -> Worker {
        match worker {
            Worker::Read => Worker::ReadTime(self.read().await),
            Worker::ReadTime(fields) => {
                let now = self.now().await;
                match (fields.rebuild, fields.count) {
                    (Some(token), _) => Worker::ReadExact { token, now },
                    (None, Some((_, revision))) if fields.saved == Some(revision) => {
                        Worker::Expire { revision }
                    }
                    (None, Some((count, revision))) => Worker::Write { count, revision },
                    (None, None) => Worker::Read,
                }
            }
            Worker::Write { count, revision } => {
                if self.save(count, revision).await {
                    Worker::Mark { count, revision }
                } else {
                    Worker::Read
                }
            }
            Worker::Mark { count, revision } => {
                let by = if self.pieces.marks_by_value {
                    count
                } else {
                    revision
                };
                self.script(|pieces| &pieces.mark_saved, &[by.to_string()]).await;
                Worker::Read
            }
            Worker::Expire { revision } => {
                self.script(|pieces| &pieces.expire, &["0".to_owned(), revision.to_string()])
                    .await;
                Worker::Read
            }
            Worker::ReadExact { token, now } => Worker::WriteExact {
                token,
                now,
                count: self.exact().await.count,
            },
            Worker::WriteExact { token, now, count } => {
                if self.save(count, now).await {
                    Worker::ClearRequest { token }
                } else {
                    Worker::Read
                }
            }
            Worker::ClearRequest { token } => {
                self.script(
                    |pieces| &pieces.clear_rebuild,
                    &[LEASE_LIMIT_MS.to_string(), token],
                )
                .await;
                Worker::Read
            }
        }
    }

    async fn read(&mut self) -> Fields {
        let (count, revision, saved, rebuild): (Option<i64>, Option<i64>, Option<i64>, Option<String>) =
            redis::cmd("HMGET")
                .arg(&self.key)
                .arg(&["count", "rev", "saved", "rebuild"])
                .query_async(&mut self.redis)
                .await
                .expect("Redis answers");
        Fields {
            count: count.zip(revision),
            saved,
            rebuild,
        }
    }

    async fn now(&mut self) -> i64 {
        let (seconds, micros): (i64, i64) = redis::cmd("TIME")
            .query_async(&mut self.redis)
            .await
            .expect("Redis answers");
        seconds * 1_000_000 + micros
    }

    async fn exact(&self) -> ExactCount {
        let row = sqlx::query(self.pieces.exact_counts)
            .bind(vec![self.id.get()])
            .fetch_one(&self.postgres)
            .await
            .expect("an exact count");
        ExactCount {
            item_id: self.id,
            count: row.get(1),
            counted_at: row.get::<Option<i64>, _>(2).map(Revision::from_micros),
            snapshot: Snapshot::parse(row.get(3)).expect("a snapshot"),
        }
    }

    async fn save(&self, count: i64, revision: i64) -> bool {
        let query = |text| {
            sqlx::query(text)
                .bind(vec![self.id.get()])
                .bind(vec![count])
                .bind(vec![revision])
        };
        let written = query(&self.pieces.save_counts).execute(&self.postgres).await;
        if written.expect("a save").rows_affected() > 0 {
            return true;
        }
        let held = include_str!("../../src/ledger/sql/held_counts.sql");
        !query(held)
            .fetch_all(&self.postgres)
            .await
            .expect("a look")
            .is_empty()
    }

    async fn invalidate(&mut self) {
        self.tokens += 1;
        let token = format!("token {}", self.tokens);
        self.script(|pieces| &pieces.invalidate, &[token]).await;
    }

    async fn wipe(&mut self) {
        redis::cmd("DEL")
            .arg(&self.key)
            .exec_async(&mut self.redis)
            .await
            .expect("Redis answers");
    }

    /// Saved count and the ledger's sum.
    async fn truth(&self) -> (i64, i64) {
        sqlx::query_as(
            "select vote_count, (select coalesce(sum(value), 0)::bigint from vote where item_id = item.id)
             from item where id = $1",
        )
        .bind(self.id.get())
        .fetch_one(&self.postgres)
        .await
        .expect("the item")
    }
}

/// Plays one interleaving; returns what is wrong with it, and its steps.
async fn play(seed: u64, mut item: Item, without: Without) -> Result<(), String> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut batches: Vec<Batch> = (0..random.random_range(2..=4))
        .map(|_| {
            let delta = CountDelta {
                item_id: item.id,
                delta: *[1, 1, 1, 1, 1, 1, -1, -1, -1, 0]
                    .choose(&mut random)
                    .expect("a delta"),
            };
            Batch::new(delta, random.random_range(1..=ROUNDS_LIMIT), without)
        })
        .collect();
    let mut workers = [Worker::Read, Worker::Read];
    let mut reads_left = [READS_LIMIT; 2];
    let mut invalidations = random.random_range(0..=2);
    let mut wipes = u32::from(random.random_bool(0.2));
    let has_wipes = wipes > 0;
    let mut trace = Vec::new();

    loop {
        // Who can take a step? 0..: batches; 10, 11: workers; 20: an invalidation; 21: a wipe.
        let mut who: Vec<usize> = (0..batches.len()).filter(|at| !batches[*at].is_done()).collect();
        let voting = !who.is_empty();
        for at in 0..workers.len() {
            let idle = matches!(workers[at], Worker::Read);
            if !idle || (voting && reads_left[at] > 0) {
                who.push(10 + at);
            }
        }
        if voting {
            who.extend((invalidations > 0).then_some(20));
            who.extend((wipes > 0).then_some(21));
        }
        let Some(one) = who.choose(&mut random).copied() else {
            break;
        };
        match one {
            20 => {
                trace.push("invalidate".to_owned());
                invalidations -= 1;
                item.invalidate().await;
            }
            21 => {
                trace.push("wipe".to_owned());
                wipes -= 1;
                item.wipe().await;
            }
            10 | 11 => {
                let at = one - 10;
                trace.push(format!("worker {at}: {:?}", workers[at]));
                if matches!(workers[at], Worker::Read) {
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
    }

    // Nobody is in the middle of anything: a live count must be right.
    let wrong = |what: &str, got: i64, truth: i64| {
        Err(format!(
            "seed {seed}: {what} {got}, truth {truth}\n  {}",
            trace.join("\n  ")
        ))
    };
    let (_, truth) = item.truth().await;
    if let Some((count, _)) = item.read().await.count
        && count != truth
    {
        return wrong("live count", count, truth);
    }
    if has_wipes && item.read().await.count.is_none() {
        // What the epoch check does for a count that was lost.
        item.invalidate().await;
    }
    // A worker saves what is left.
    let mut worker = Worker::Read;
    for _ in 0..QUIESCENT_LIMIT {
        let read = item.read().await;
        if matches!(worker, Worker::Read) && read.is_saved() && read.rebuild.is_none() {
            let (saved, truth) = item.truth().await;
            if saved != truth {
                return wrong("saved count", saved, truth);
            }
            return match read.count {
                Some((count, _)) if count != truth => wrong("live count when quiescent", count, truth),
                _ => Ok(()),
            };
        }
        worker = item.work(worker).await;
    }
    Err(format!("seed {seed}: never quiescent\n  {}", trace.join("\n  ")))
}

/// Plays interleavings until one fails; returns how many were played, and the failure.
async fn search(without: Without, limit: u64) -> (u64, Option<String>) {
    let stores = Stores::start().await;
    let pieces = Arc::new(Pieces::without(without));
    let postgres = PgPoolOptions::new()
        .max_connections(u32::try_from(PARALLEL).expect("a number"))
        .connect(&stores.database_url)
        .await
        .expect("Postgres answers");
    let redis = stores.redis_connection().await;
    let ledger = ledger(&stores.database_url);
    let first: u64 = std::env::var("TALLY_TEST_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(1);
    let next = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..PARALLEL)
        .map(|_| {
            let ledger = ledger.clone();
            let (pieces, postgres, redis, next) = (
                Arc::clone(&pieces),
                postgres.clone(),
                redis.clone(),
                Arc::clone(&next),
            );
            tokio::spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= limit {
                        return None;
                    }
                    if number % ROLL_UP_EVERY == 0 {
                        let safe = ledger.safe_vote_id().await.expect("a safe id");
                        ledger
                            .roll_up_votes(safe, Duration::ZERO, ROLL_UP_LIMIT_IDS)
                            .await
                            .expect("a roll-up");
                    }
                    let item = Item::new(Arc::clone(&pieces), redis.clone(), postgres.clone()).await;
                    if let Err(failure) = play(first + number, item, without).await {
                        next.store(limit, Ordering::Relaxed);
                        return Some((number + 1, failure));
                    }
                }
            })
        })
        .collect();
    let mut found = None;
    for task in tasks {
        found = task.await.expect("no panic").or(found);
    }
    match found {
        Some((played, failure)) => (played, Some(failure)),
        None => (limit, None),
    }
}

fn limit() -> u64 {
    std::env::var("TALLY_TEST_INTERLEAVINGS")
        .ok()
        .map_or(INTERLEAVINGS, |number| {
            number.parse().expect("TALLY_TEST_INTERLEAVINGS takes a number")
        })
}

#[tokio::test(flavor = "multi_thread")]
async fn interleavings_of_the_real_scripts_and_statements_are_exact() {
    let (played, failure) = search(Without::Nothing, limit()).await;
    println!("{played} interleavings");
    assert_eq!(failure, None);
}

async fn assert_found(without: Without) {
    let (played, failure) = search(without, MUTANT_LIMIT).await;
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
