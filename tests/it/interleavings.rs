//! The protocol's steps, on the real scripts and the real SQL, in orders drawn from
//! a seed: 2 to 4 votes (+1 and −1), two workers, invalidations and wipes, while the
//! audit moves the watermark underneath. At each
//! rest the invariants are checked. And with a piece of the protocol taken away
//! (in a copy of its script or statement) a violation must be found: a search that
//! cannot fail shows nothing.
//!
//! `TALLY_TEST_INTERLEAVINGS=20000 cargo nextest run --profile long interleavings_of` is
//! the long run;
//! `TALLY_TEST_SEED` begins it elsewhere.

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
use tally::domain::Snapshot;
use tally::ledger::ROLL_UP_LIMIT_IDS;

use crate::helpers::stores::Stores;
use crate::helpers::tally::ledger;

/// How many interleavings an ordinary test run takes.
const INTERLEAVINGS: u64 = 600;
/// How many a mutant may survive before the search counts as blind to it.
const MUTANT_LIMIT: u64 = 6000;
/// Interleavings under way at once, each on an item of its own.
const PARALLEL: usize = 8;
/// How often one worker may read in an interleaving.
const READS_LIMIT: usize = 4;
/// How many steps it may take to come to rest after the last one was drawn.
const QUIESCENT_LIMIT: usize = 20;
/// After how many interleavings the audit moves the watermark, under the others.
const ROLL_UP_EVERY: u64 = 25;
const LEASE_LIMIT_MS: i64 = 10_000;

/// A piece of the protocol that can be taken away (ARCHITECTURE, "What always holds").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    Nothing,
    VisibilitySnapshot,
    Lease,
    CountedAtGuard,
    Revision,
}

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
            Without::Nothing => {}
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

/// What a handler does next.
#[derive(Clone, Debug)]
enum Handler {
    Commit,
    Count { xid: i64 },
    ReadExact { xid: i64, lease: String },
    Seed { xid: i64, lease: String, exact: Exact },
    Done,
}

#[derive(Clone, Debug)]
struct Exact {
    count: i64,
    counted_at: i64,
    snapshot: String,
}

/// What a worker does next.
#[derive(Clone, Debug)]
enum Worker {
    Read,
    /// The time comes after the fields, and others may come in between.
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
    id: i64,
    key: String,
    pieces: Arc<Pieces>,
    redis: MultiplexedConnection,
    postgres: PgPool,
    tokens: u64,
}

impl Item {
    async fn new(pieces: Arc<Pieces>, redis: MultiplexedConnection, postgres: PgPool) -> Self {
        let id = sqlx::query_scalar("insert into item (name) values ('x') returning id")
            .fetch_one(&postgres)
            .await
            .expect("an item");
        Self {
            id,
            key: format!("tally:{{{id}}}"),
            pieces,
            redis,
            postgres,
            tokens: 0,
        }
    }

    /// Its reply for the item's key.
    async fn script(&mut self, script: fn(&Pieces) -> &Script, arguments: &[String]) -> Value {
        let pieces = Arc::clone(&self.pieces);
        let mut call = script(&pieces).key(&self.key);
        for argument in arguments {
            call.arg(argument);
        }
        let [reply]: [Value; 1] = call.invoke_async(&mut self.redis).await.expect("the script runs");
        reply
    }

    /// A handler's next step; returns the one after it.
    async fn handle(&mut self, handler: Handler, delta: i64) -> Handler {
        match handler {
            Handler::Commit => {
                let row = sqlx::query(self.pieces.insert_votes)
                    .bind(vec![self.id])
                    .bind(vec![i16::try_from(delta).expect("1 or -1")])
                    .bind(vec![self.id])
                    .fetch_one(&self.postgres)
                    .await
                    .expect("an insert");
                Handler::Count { xid: row.get(0) }
            }
            Handler::Count { xid } => {
                self.tokens += 1;
                let nonce = self.tokens.to_string();
                let arguments = [
                    xid.to_string(),
                    nonce,
                    LEASE_LIMIT_MS.to_string(),
                    delta.to_string(),
                ];
                match self.script(|pieces| &pieces.count, &arguments).await {
                    Value::Int(_) => Handler::Done,
                    miss => {
                        let (_, lease): (String, String) = redis::from_redis_value(miss).expect("a miss");
                        Handler::ReadExact { xid, lease }
                    }
                }
            }
            Handler::ReadExact { xid, lease } => Handler::Seed {
                xid,
                lease,
                exact: self.exact().await,
            },
            Handler::Seed { xid, lease, exact } => {
                let arguments = [
                    exact.count.to_string(),
                    Snapshot::parse(&exact.snapshot)
                        .expect("a snapshot")
                        .compact()
                        .to_owned(),
                    lease,
                    exact.counted_at.to_string(),
                ];
                let word: String =
                    redis::from_redis_value(self.script(|pieces| &pieces.seed, &arguments).await)
                        .expect("a word");
                if word == "SEEDED" {
                    Handler::Done
                } else {
                    Handler::Count { xid }
                }
            }
            Handler::Done => Handler::Done,
        }
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

    async fn exact(&self) -> Exact {
        let row = sqlx::query(self.pieces.exact_counts)
            .bind(vec![self.id])
            .fetch_one(&self.postgres)
            .await
            .expect("an exact count");
        Exact {
            count: row.get(1),
            counted_at: row.get::<Option<i64>, _>(2).unwrap_or(0),
            snapshot: row.get(3),
        }
    }

    async fn save(&self, count: i64, revision: i64) -> bool {
        let query = |text| {
            sqlx::query(text)
                .bind(vec![self.id])
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
        .bind(self.id)
        .fetch_one(&self.postgres)
        .await
        .expect("the item")
    }
}

/// Plays one interleaving; returns what is wrong with it, and its steps.
async fn play(seed: u64, mut item: Item) -> Result<(), String> {
    let mut random = StdRng::seed_from_u64(seed);
    let deltas: Vec<i64> = (0..random.random_range(2..=4))
        .map(|_| if random.random_bool(0.65) { 1 } else { -1 })
        .collect();
    let mut handlers: Vec<Handler> = vec![Handler::Commit; deltas.len()];
    let mut workers = [Worker::Read, Worker::Read];
    let mut reads_left = [READS_LIMIT; 2];
    let mut invalidations = random.random_range(0..=2);
    let mut wipes = u32::from(random.random_bool(0.2));
    let has_wipes = wipes > 0;
    let mut trace = Vec::new();

    loop {
        // Who can take a step? 0..: handlers; 10, 11: workers; 20: an invalidation; 21: a wipe.
        let mut who: Vec<usize> = (0..handlers.len())
            .filter(|at| !matches!(handlers[*at], Handler::Done))
            .collect();
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
                trace.push(format!("vote {at} ({:+}): {:?}", deltas[at], handlers[at]));
                handlers[at] = item.handle(handlers[at].clone(), deltas[at]).await;
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
    // A worker brings it to rest.
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
    Err(format!(
        "seed {seed}: never came to rest\n  {}",
        trace.join("\n  ")
    ))
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
                    if let Err(failure) = play(first + number, item).await {
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
async fn interleavings_without_the_fence_are_found_wrong() {
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
async fn interleavings_without_the_rev_are_found_wrong() {
    assert_found(Without::Revision).await;
}
