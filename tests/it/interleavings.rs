//! The protocol's steps in orders that are drawn from a seed: 2 to 4 batches of one vote
//! (+1, −1, or a repeat, which adds 0), two workers, invalidations, wipes with the entry into
//! another epoch, and leases that Redis removes, while the audit moves the watermark. Redis'
//! clock is drawn too: see [`Clock`]. (Postgres' clock has no part in this: no statement here
//! reads it.) Each interleaving ends quiescent, and the invariants are then checked: saved
//! count, live count and ledger agree, and nothing stays unsaved.
//! With a piece of the protocol taken away, in a copy of its script or statement, in the
//! worker's steps or in `batch.rs`, a violation must be found: a search that cannot fail
//! shows nothing. (Floors of revisions, claims, compare-and-set and the epoch's number are
//! taken away in `model.rs` alone: they need an order of steps that is rarely drawn.)
//!
//! Tally's own code here: the scripts, the SQL, and `tally::votes::Counting`, which orders the
//! steps of a batch. Only the clock is another: the copies of the scripts read the time from a
//! key, which the search moves. Written down a second time: the worker's order of steps
//! (`src/sync`), since the worker takes each of them for many items at once.
//!
//! The long run: `TALLY_TEST_INTERLEAVINGS=20000 cargo nextest run --profile long
//! interleavings_of`. `TALLY_TEST_SEED` is the first seed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use redis::aio::MultiplexedConnection;
use redis::{Script, Value};
use sqlx::Row;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use tally::domain::{CountDelta, ExactCount, ItemId, Revision, Snapshot, TransactionId};
use tally::ledger::ROLL_UP_LIMIT_IDS;
use tally::live::Counted;
use tokio::sync::RwLock;

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
const QUIESCENT_LIMIT: usize = 40;
/// After so many interleavings the audit moves the watermark, while others are played.
const ROLL_UP_EVERY: u64 = 25;
const LEASE_LIMIT_MS: i64 = 10_000;
/// Redis' time when an interleaving begins, µs since 1970.
const BEGIN_US: i64 = 1_700_000_000_000_000;
/// Rounds of a batch, at the most: fewer than the server's, so that some batches give up.
const ROUNDS_LIMIT: usize = 3;

/// The scripts and statements under test.
struct Pieces {
    count: Script,
    seed: Script,
    mark_saved: Script,
    expire: Script,
    invalidate: Script,
    claim_rebuild: Script,
    clear_rebuild: Script,
    insert_votes: &'static str,
    exact_counts: &'static str,
    save_counts: String,
    save_rebuilt_counts: &'static str,
    without: Without,
}

/// How Redis' clock goes in an interleaving. Before any step it may step.
#[derive(Clone, Copy, Debug)]
enum Clock {
    /// Goes on by 1 µs with each step.
    Steady,
    /// Steps back or forth by up to 20 s: longer than a lease lasts.
    Stepping,
    /// Steps back or forth by up to 3 µs: revisions come close to each other.
    Trembling,
    /// Stands still, but may step back once.
    Stopped,
}

impl Clock {
    fn after(self, now: i64, random: &mut StdRng) -> i64 {
        match self {
            Self::Steady => now + 1,
            Self::Stepping if random.random_bool(0.2) => now + random.random_range(-20_000_000..=20_000_000),
            Self::Trembling if random.random_bool(0.4) => now + random.random_range(-3..=3),
            Self::Stopped if random.random_bool(0.05) => now - random.random_range(1..=3),
            _ => now,
        }
    }
}

/// A script that takes the time from the key of the item's clock.
fn clocked(text: &str) -> Script {
    let text = text.replace("call('TIME')", "call('HMGET', KEYS[2] .. ':clock', 's', 'us')");
    assert!(!text.contains("'TIME'"), "the script reads the true time: {text}");
    Script::new(&text)
}

/// A text without a part of it, which must be there.
fn cut(text: &str, part: &str, instead: &str) -> String {
    assert!(text.contains(part), "{part:?} is gone: the mutant would be none");
    text.replace(part, instead)
}

/// The index of unsaved counters, of all items.
const INDEX: &str = "tally:unsaved";

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
            Without::CommitFirst
            | Without::InvalidationFloor
            | Without::SeedFloor
            | Without::ClaimAboveFloor
            | Without::ClaimFloor
            | Without::CompareAndSet
            | Without::FloorBesideLease
            | Without::EpochNumber => panic!("only the model takes this away"),
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
                mark_saved = cut(&mark_saved, "held[2] == ARGV[k]", "held[1] == ARGV[k]");
                mark_saved = cut(
                    &mark_saved,
                    "call('HSET', key, 'saved', ARGV[k])",
                    "call('HSET', key, 'saved', call('HGET', key, 'rev'))",
                );
            }
        }
        Self {
            count: clocked(&count),
            seed: clocked(&seed),
            mark_saved: clocked(&mark_saved),
            expire: clocked(include_str!("../../lua/expire.lua")),
            invalidate: clocked(include_str!("../../lua/invalidate.lua")),
            claim_rebuild: clocked(include_str!("../../lua/claim_rebuild.lua")),
            clear_rebuild: clocked(include_str!("../../lua/clear_rebuild.lua")),
            insert_votes: include_str!("../../src/ledger/sql/insert_anonymous_votes.sql"),
            exact_counts: include_str!("../../src/ledger/sql/exact_counts.sql"),
            save_counts,
            save_rebuilt_counts: include_str!("../../src/ledger/sql/save_rebuilt_counts.sql"),
            without: piece,
        }
    }
}

/// What a worker does next. `epoch` is the number of the epoch that it read first.
#[derive(Clone, Debug)]
enum Worker {
    ReadEpoch,
    Read {
        epoch: i64,
    },
    Write {
        epoch: i64,
        count: i64,
        revision: i64,
    },
    Mark {
        count: i64,
        revision: i64,
    },
    /// The item has refused the count of this revision.
    InvalidateUnchanged {
        revision: i64,
    },
    Expire {
        revision: i64,
    },
    ReadExact {
        epoch: i64,
        request: String,
    },
    Claim {
        epoch: i64,
        request: String,
        exact: ExactCount,
    },
    WriteExact {
        epoch: i64,
        request: String,
        exact: ExactCount,
        revision: i64,
    },
    ClearRequest {
        request: String,
    },
}

/// What the worker does next that enters another epoch after a wipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    Done,
    RaiseNumber,
    Scan,
    InvalidateScanned,
    /// Compares saved and exact count.
    Compare,
    ReadCounter,
    InvalidateLost,
}

/// What became of a count that was to be saved.
#[derive(PartialEq)]
enum Saving {
    Saved,
    Refused,
    EpochEnded,
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
    now: i64,
}

impl Item {
    async fn new(pieces: Arc<Pieces>, redis: MultiplexedConnection, postgres: PgPool) -> Self {
        let id: i64 = sqlx::query_scalar("insert into item (name) values ('x') returning id")
            .fetch_one(&postgres)
            .await
            .expect("an item");
        let mut item = Self {
            id: ItemId::new(id).expect("positive"),
            key: format!("tally:{{{id}}}"),
            pieces,
            redis,
            postgres,
            tokens: 0,
            now: 0,
        };
        item.set_clock(BEGIN_US).await;
        item
    }

    async fn set_clock(&mut self, now: i64) {
        if now == self.now {
            return;
        }
        self.now = now;
        redis::cmd("HSET")
            .arg(format!("{}:clock", self.key))
            .arg(&[("s", now / 1_000_000), ("us", now % 1_000_000)])
            .exec_async(&mut self.redis)
            .await
            .expect("Redis answers");
    }

    /// Whether the index has the item, if anything of its counter is to be written: the worker
    /// finds no other counters.
    async fn is_found(&mut self) -> bool {
        let read = self.read().await;
        let is_in_index: bool = redis::cmd("SISMEMBER")
            .arg(INDEX)
            .arg(&self.key)
            .query_async(&mut self.redis)
            .await
            .expect("Redis answers");
        is_in_index || (read.is_saved() && read.rebuild.is_none())
    }

    /// A script's reply for the item's key.
    async fn script(&mut self, script: fn(&Pieces) -> &Script, arguments: &[String]) -> Value {
        let pieces = Arc::clone(&self.pieces);
        let mut call = script(&pieces).key(INDEX);
        call.key(&self.key);
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
            Worker::ReadEpoch => Worker::Read {
                epoch: self.epoch().await,
            },
            Worker::Read { epoch } => {
                let Fields {
                    count,
                    saved,
                    rebuild,
                } = self.read().await;
                match (count, rebuild) {
                    (Some((_, revision)), _) if saved == Some(revision) => Worker::Expire { revision },
                    (Some((count, revision)), _) => Worker::Write {
                        epoch,
                        count,
                        revision,
                    },
                    (None, Some(request)) => Worker::ReadExact { epoch, request },
                    (None, None) => Worker::ReadEpoch,
                }
            }
            Worker::Write {
                epoch,
                count,
                revision,
            } => match self.save(epoch, count, revision).await {
                Saving::Saved => Worker::Mark { count, revision },
                Saving::Refused => Worker::InvalidateUnchanged { revision },
                Saving::EpochEnded => Worker::ReadEpoch,
            },
            Worker::Mark { count, revision } => {
                let by = if self.pieces.without == Without::Revision {
                    count
                } else {
                    revision
                };
                self.script(|pieces| &pieces.mark_saved, &[by.to_string()]).await;
                Worker::ReadEpoch
            }
            Worker::InvalidateUnchanged { revision } => {
                self.invalidate_revision(&revision.to_string()).await;
                Worker::ReadEpoch
            }
            Worker::Expire { revision } => {
                self.script(|pieces| &pieces.expire, &["0".to_owned(), revision.to_string()])
                    .await;
                Worker::ReadEpoch
            }
            Worker::ReadExact { epoch, request } => Worker::Claim {
                epoch,
                request,
                exact: self.exact().await,
            },
            Worker::Claim {
                epoch,
                request,
                exact,
            } => {
                let counted_at = exact.counted_at.map_or(0, Revision::micros);
                let reply = self
                    .script(
                        |pieces| &pieces.claim_rebuild,
                        &[request.clone(), counted_at.to_string()],
                    )
                    .await;
                if !matches!(reply, Value::Array(_)) {
                    return Worker::ReadEpoch;
                }
                let (_, revision): (String, i64) = redis::from_redis_value(reply).expect("a claim");
                Worker::WriteExact {
                    epoch,
                    request,
                    exact,
                    revision,
                }
            }
            Worker::WriteExact {
                epoch,
                request,
                exact,
                revision,
            } => {
                if self.save_rebuilt(epoch, &exact, revision).await {
                    Worker::ClearRequest { request }
                } else {
                    Worker::ReadEpoch
                }
            }
            Worker::ClearRequest { request } => {
                self.script(
                    |pieces| &pieces.clear_rebuild,
                    &[LEASE_LIMIT_MS.to_string(), request],
                )
                .await;
                Worker::ReadEpoch
            }
        }
    }

    /// The next step into another epoch; returns the one after it.
    async fn enter(&mut self, entry: Entry) -> Entry {
        match entry {
            Entry::Done => Entry::Done,
            Entry::RaiseNumber => {
                sqlx::query("update epoch set number = number + 1")
                    .execute(&self.postgres)
                    .await
                    .expect("an epoch");
                Entry::Scan
            }
            Entry::Scan => {
                let is_there: bool = redis::cmd("EXISTS")
                    .arg(&self.key)
                    .query_async(&mut self.redis)
                    .await
                    .expect("Redis answers");
                if is_there {
                    Entry::InvalidateScanned
                } else {
                    Entry::Compare
                }
            }
            Entry::InvalidateScanned => {
                self.invalidate().await;
                Entry::Compare
            }
            Entry::Compare => {
                let (saved, exact) = self.truth().await;
                if saved == exact {
                    Entry::Done
                } else {
                    Entry::ReadCounter
                }
            }
            Entry::ReadCounter => {
                let counter = self.read().await;
                if counter.count.is_none() && counter.rebuild.is_none() {
                    Entry::InvalidateLost
                } else {
                    Entry::Done
                }
            }
            Entry::InvalidateLost => {
                self.invalidate().await;
                Entry::Done
            }
        }
    }

    async fn epoch(&self) -> i64 {
        sqlx::query_scalar("select number from epoch")
            .fetch_one(&self.postgres)
            .await
            .expect("an epoch")
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

    async fn save(&self, epoch: i64, count: i64, revision: i64) -> Saving {
        let row = sqlx::query(&self.pieces.save_counts)
            .bind(vec![self.id.get()])
            .bind(vec![count])
            .bind(vec![revision])
            .bind(epoch)
            .fetch_one(&self.postgres)
            .await
            .expect("a save");
        let refused: Option<Vec<i64>> = row.get(0);
        match (row.get(1), refused) {
            (false, _) => Saving::EpochEnded,
            (true, None) => Saving::Saved,
            (true, Some(_)) => Saving::Refused,
        }
    }

    /// Whether the exact count was written.
    async fn save_rebuilt(&self, epoch: i64, exact: &ExactCount, revision: i64) -> bool {
        let row = sqlx::query(self.pieces.save_rebuilt_counts)
            .bind(vec![self.id.get()])
            .bind(vec![exact.count])
            .bind(vec![revision])
            .bind(vec![exact.counted_at.map(Revision::micros)])
            .bind(epoch)
            .fetch_one(&self.postgres)
            .await
            .expect("a save");
        let written: Vec<i64> = row.get(0);
        !written.is_empty()
    }

    async fn invalidate(&mut self) {
        self.invalidate_revision("").await;
    }

    async fn invalidate_revision(&mut self, revision: &str) {
        self.tokens += 1;
        let token = format!("token {}", self.tokens);
        self.script(|pieces| &pieces.invalidate, &[token, revision.to_owned()])
            .await;
    }

    /// Redis removes the key, if it has a time to live.
    async fn time_out(&mut self) {
        let left_ms: i64 = redis::cmd("PTTL")
            .arg(&self.key)
            .query_async(&mut self.redis)
            .await
            .expect("Redis answers");
        if left_ms > 0 {
            self.wipe().await;
        }
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
async fn play(seed: u64, mut item: Item, without: Without, roll_ups: &RwLock<()>) -> Result<(), String> {
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
    let clock = *[Clock::Steady, Clock::Stepping, Clock::Trembling, Clock::Stopped]
        .choose(&mut random)
        .expect("a clock");
    let mut workers = [Worker::ReadEpoch, Worker::ReadEpoch];
    let mut entry = Entry::Done;
    let mut reads_left = [READS_LIMIT; 2];
    let mut invalidations = random.random_range(0..=2);
    let mut wipes = u32::from(random.random_bool(0.2));
    let mut time_outs = u32::from(random.random_bool(0.2));
    // Some take their steps seldom: a worker stalls with what it has read.
    let mut speeds = [1.0; 23];
    for speed in &mut speeds[..20] {
        *speed = *[1.0, 1.0, 0.2, 0.03].choose(&mut random).expect("a speed");
    }
    let mut trace = vec![format!("the clock: {clock:?}")];

    loop {
        let is_busy = |worker: &Worker| !matches!(worker, Worker::ReadEpoch);
        // Who can take a step? 0..: batches; 10, 11: workers; 12: the entry
        // into another epoch; 20: an invalidation; 21: a wipe; 22: a lease times out.
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

    // Nobody is in the middle of anything: a live count must be right.
    let wrong = |what: &str, got: i64, truth: i64, trace: &[String]| {
        Err(format!(
            "seed {seed}: {what} {got}, truth {truth}\n  {}",
            trace.join("\n  ")
        ))
    };
    let (_, truth) = item.truth().await;
    if let Some((count, _)) = item.read().await.count
        && count != truth
    {
        return wrong("live count", count, truth, &trace);
    }
    // A worker saves what is left. Meanwhile no roll-up has the item's row: the worker would
    // leave it out.
    let _no_roll_up = roll_ups.read().await;
    let mut worker = Worker::ReadEpoch;
    for _ in 0..QUIESCENT_LIMIT {
        let read = item.read().await;
        if matches!(worker, Worker::ReadEpoch) && read.is_saved() && read.rebuild.is_none() {
            let (saved, truth) = item.truth().await;
            if saved != truth {
                return wrong("saved count", saved, truth, &trace);
            }
            return match read.count {
                Some((count, _)) if count != truth => {
                    wrong("live count when quiescent", count, truth, &trace)
                }
                _ => Ok(()),
            };
        }
        trace.push(format!("at last: {worker:?}"));
        worker = item.work(worker).await;
    }
    Err(format!("seed {seed}: never quiescent\n  {}", trace.join("\n  ")))
}

/// A connection with a table `epoch` of its own, since interleavings are played in parallel:
/// the first schema of its search path has one.
async fn with_its_own_epoch(url: &str, number: usize) -> PgPool {
    let schema = format!("epoch_{number}");
    let options: PgConnectOptions = url.parse().expect("a URL");
    let options = options.options([("search_path", format!("{schema},public"))]);
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .connect_with(options)
        .await
        .expect("Postgres answers");
    for statement in [
        format!("create schema {schema}"),
        format!("create table {schema}.epoch (like public.epoch including all)"),
        format!("insert into {schema}.epoch default values"),
    ] {
        sqlx::query(&statement).execute(&pool).await.expect("a table");
    }
    pool
}

/// Plays interleavings until one fails; returns how many were played, and the failure.
async fn search(without: Without, limit: u64) -> (u64, Option<String>) {
    let stores = Stores::start().await;
    let pieces = Arc::new(Pieces::without(without));
    let redis = stores.redis_connection().await;
    let ledger = ledger(&stores.database_url);
    let first: u64 = std::env::var("TALLY_TEST_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(1);
    let next = Arc::new(AtomicU64::new(0));
    let roll_ups = Arc::new(RwLock::new(()));
    let mut pools = Vec::new();
    for number in 0..PARALLEL {
        pools.push(with_its_own_epoch(&stores.database_url, number).await);
    }
    let tasks: Vec<_> = pools
        .into_iter()
        .map(|postgres| {
            let ledger = ledger.clone();
            let (pieces, redis, next) = (Arc::clone(&pieces), redis.clone(), Arc::clone(&next));
            let roll_ups = Arc::clone(&roll_ups);
            tokio::spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= limit {
                        return None;
                    }
                    if number % ROLL_UP_EVERY == 0 {
                        let _alone = roll_ups.write().await;
                        let safe = ledger.safe_vote_id().await.expect("a safe id");
                        ledger
                            .roll_up_votes(safe, ROLL_UP_LIMIT_IDS)
                            .await
                            .expect("a roll-up");
                    }
                    let item = Item::new(Arc::clone(&pieces), redis.clone(), postgres.clone()).await;
                    if let Err(failure) = play(first + number, item, without, &roll_ups).await {
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
