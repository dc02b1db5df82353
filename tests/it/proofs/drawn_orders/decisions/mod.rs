//! The same search for statements that decide votes.
//!
//! Two or three writers of two servers each have one or two batches of up to three requests, over
//! `VoteWriter::decide` and `VoteWriter::insert`. The items have no rule, or a limit of one or two
//! votes and numbers, or are the choices of a poll. Three voters cast votes, change them, take them
//! back, move them, and select.
//!
//! A worker for each item writes, expires and rebuilds counts. There are invalidations, wipes with
//! the entry into another epoch, leases that Redis removes, roll-ups, and crashes of writers
//! between two calls, with crashed-writer recovery.
//!
//! A statement is one step here, though `cast_votes` may wait for a lock in the middle.
//! `model/rules` has its steps, and `tests/it/rules/races/` has real races.
//!
//! Each answer must fit those before it. At the end, live count, saved count, ledger and answers
//! must agree, and [`testkit::rules::broken_of`] must find nothing.
//!
//! `TALLY_TEST_INTERLEAVINGS` and `TALLY_TEST_SEED` work as for the other search.

mod answers;
mod drawn;
mod interleaving;
mod items;
mod pieces;
mod writer;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use redis::aio::MultiplexedConnection;
use sqlx::postgres::PgPool;
use tally::ledger::{Role, ServerLedger, VoteWriter, WorkerLedger};
use tokio::sync::RwLock;

use self::answers::Answers;
use self::drawn::Drawn;
use self::interleaving::Interleaving;
use self::items::Items;
use self::pieces::Without;
use self::writer::Writer;
use super::item::Item;
use super::pieces::Pieces;
use super::search::{PARALLEL, Player, limit, search, with_its_own_epoch};
use super::{BEGIN_US, ROUNDS_LIMIT};
use crate::helpers::stores::Stores;
use crate::helpers::tally::{ledger, server_ledger};
use crate::proofs::one_vote_batch;

/// How many interleavings an ordinary run plays.
const INTERLEAVINGS: u64 = 300;
/// How many a mutant may survive before the search counts as blind to it.
const MUTANT_LIMIT: u64 = 3000;
const WRITERS_LIMIT: usize = 3;

/// Steps that an ordinary run must have seen. Otherwise it shows less than it says.
/// These texts are from the trace.
const SEEN: [&str; 14] = [
    "Again(",
    "Crash(",
    "Insert(",
    "Invalidate([",
    "LateCall(",
    "Recovery(",
    "Refused(Full)",
    "Refused(TooManyChoices)",
    "Repeated(",
    "RETRY",
    "Select {",
    "TimeOut(",
    "Wipe",
    "net: 0, downs: 1 }",
];

/// What all interleavings of a test share.
struct Ground {
    _stores: Stores,
    redis: MultiplexedConnection,
    owner: PgPool,
    servers: [ServerLedger; 2],
    worker: WorkerLedger,
    /// Connections for [`with_its_own_epoch`].
    pools: Vec<PgPool>,
    /// Writers for the next interleavings, whose connections stay open.
    writers: Mutex<Vec<VoteWriter>>,
}

/// Plays decisions on the items of one rule.
struct Decisions {
    ground: Arc<Ground>,
    pieces: Arc<Pieces>,
    postgres: PgPool,
    without: Without,
    /// How often each of [`SEEN`] came, in all interleavings.
    seen: Arc<Mutex<BTreeMap<&'static str, usize>>>,
}

impl Player for Decisions {
    async fn play(&mut self, seed: u64, roll_ups: &RwLock<()>) -> Result<(), String> {
        let mut random = StdRng::seed_from_u64(seed);
        let drawn = Drawn::draw(&self.ground.servers[0], &mut random).await;
        let mut items = Vec::new();
        for id in &drawn.ids {
            let (pieces, redis) = (Arc::clone(&self.pieces), self.ground.redis.clone());
            items.push(Item::existing(*id, pieces, redis, self.postgres.clone()).await);
        }
        let items = Items {
            all: items,
            redis: self.ground.redis.clone(),
            now: BEGIN_US,
            answers: Answers::new(drawn.kind, drawn.ids.clone()),
            server: self.ground.servers[0].clone(),
            worker: self.ground.worker.clone(),
            without: self.without,
            tokens: 0,
            trace: vec![format!("{:?}", drawn.kind)],
        };
        let mut writers = Vec::new();
        for at in 0..random.random_range(2..=WRITERS_LIMIT) {
            let votes = self.ground.writer(at);
            let rounds = random.random_range(1..=ROUNDS_LIMIT);
            writers.push(Writer::new(votes, drawn.batches(&mut random), rounds));
        }
        let mut interleaving = Interleaving::draw(items, writers, &mut random);
        let mut played = interleaving.play(&mut random).await;
        if played.is_ok() {
            played = interleaving.end(&self.ground.owner, roll_ups).await;
        }
        let (trace, writers) = interleaving.into_parts();
        self.ground.writers.lock().expect("no panic").extend(writers);
        let mut seen = self.seen.lock().expect("no panic");
        for word in SEEN {
            let times = trace.iter().filter(|step| step.contains(word)).count();
            *seen.entry(word).or_default() += times;
        }
        played.map_err(|wrong| format!("seed {seed}: {wrong}\n  {}", trace.join("\n  ")))
    }
}

impl Ground {
    async fn new() -> Arc<Self> {
        let stores = Stores::start().await;
        let mut pools = Vec::new();
        for number in 0..PARALLEL {
            pools.push(with_its_own_epoch(&stores.database_url, number).await);
        }
        let server = || server_ledger(&stores.login_url(Role::Server));
        Arc::new(Self {
            redis: stores.redis_connection().await,
            owner: stores.pool(),
            servers: [server(), server()],
            worker: ledger(&stores.database_url),
            pools,
            writers: Mutex::new(Vec::new()),
            _stores: stores,
        })
    }

    /// A free writer, or a new one of the server with this number.
    fn writer(&self, server: usize) -> VoteWriter {
        let free = self.writers.lock().expect("no panic").pop();
        free.unwrap_or_else(|| self.servers[server % self.servers.len()].writer())
    }

    /// Searches without a piece.
    /// Returns how many interleavings were played, the failure, and how often each of [`SEEN`]
    /// came.
    async fn search(
        self: &Arc<Self>,
        without: Without,
        limit: u64,
    ) -> (u64, Option<String>, BTreeMap<&'static str, usize>) {
        sqlx::raw_sql(&without.cast_votes())
            .execute(&self.owner)
            .await
            .expect("a function");
        let of_counting = if without == Without::VisibilitySnapshot {
            one_vote_batch::Without::VisibilitySnapshot
        } else {
            one_vote_batch::Without::Nothing
        };
        let pieces = Arc::new(Pieces::without(of_counting));
        let seen = Arc::new(Mutex::new(BTreeMap::new()));
        let players = self.pools.iter().map(|postgres| Decisions {
            ground: Arc::clone(self),
            pieces: Arc::clone(&pieces),
            postgres: postgres.clone(),
            without,
            seen: Arc::clone(&seen),
        });
        let (played, failure) = search(&self.worker, players.collect(), limit).await;
        let seen = seen.lock().expect("no panic").clone();
        (played, failure, seen)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn interleavings_of_decisions_are_exact_and_keep_their_rules() {
    let ground = Ground::new().await;
    let (played, failure, seen) = ground.search(Without::Nothing, limit(INTERLEAVINGS)).await;
    println!("{played} interleavings of decisions; {seen:?}");
    assert_eq!(failure, None);
    if played >= INTERLEAVINGS {
        let missing: Vec<_> = SEEN.iter().filter(|word| seen[**word] == 0).collect();
        assert!(missing.is_empty(), "no {missing:?}: the search has become blind");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn interleavings_of_decisions_without_any_one_piece_are_found_wrong() {
    let ground = Ground::new().await;
    for without in Without::PIECES {
        let (played, failure, _) = ground.search(without, MUTANT_LIMIT).await;
        let failure =
            failure.unwrap_or_else(|| panic!("{played} interleavings without {without:?} were all exact"));
        println!("without {without:?}, after {played} interleavings: {failure}");
    }
}
