//! An exhaustive search over all interleavings of a model of the protocol: one item, batches of
//! one vote, workers, invalidations, wipes. It visits every state that can be reached. Without
//! any one piece of the protocol it must find the violation that the piece prevents.
//!
//! Tally's own code here: `tally::votes::Counting`, which orders the steps of a batch, and
//! `tally::domain::Snapshot`. Written down a second time, since they are Lua, SQL or I/O: what
//! the scripts and the statements do, and the worker's order of steps. `interleavings.rs` has
//! the real scripts and statements.
//!
//! The model has no roll-up and no time limits. Redis' clock moves by one with each step that
//! reads it. A wipe also loses unsaved counts, which the epoch check would have rebuilt: with a
//! wipe, the saved count is not compared.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::rc::Rc;

use tally::domain::{CountDelta, ExactCount, ItemId, Revision, Snapshot, TransactionId};
use tally::live::{Counted, Seed};

use crate::batch::{Batch, Call, Reply, Without};

/// Rounds of a batch: fewer than the server's, so that some batches give up.
const ROUNDS: usize = 2;
/// The transaction id of the first batch; the others' follow.
const FIRST_XID: i64 = 10;

/// Votes as a set of bits.
type Votes = u8;

/// Stands for a [`Batch`] in a state, which is then small and quick to compare.
type BatchNumber = u32;

/// Every batch, in each of its own states, that the search has met.
#[derive(Default)]
struct NumberedBatches {
    batches: Vec<Rc<Batch>>,
    numbers: HashMap<Rc<Batch>, BatchNumber>,
}

impl NumberedBatches {
    fn number(&mut self, batch: Batch) -> BatchNumber {
        let batch = Rc::new(batch);
        if let Some(number) = self.numbers.get(&batch) {
            return *number;
        }
        let number = BatchNumber::try_from(self.batches.len()).expect("few batches");
        self.batches.push(Rc::clone(&batch));
        self.numbers.insert(batch, number);
        number
    }
}

/// What a worker does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Worker {
    Read,
    Write { count: i8, revision: u8 },
    Mark { count: i8, revision: u8 },
    Expire { revision: u8 },
    ReadExact { token: u8, now: u8 },
    WriteExact { token: u8, now: u8, count: i8 },
    ClearRequest { token: u8 },
}

/// The live count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Live {
    count: i8,
    revision: u8,
    saved: u8,
    /// The votes that the seed has seen.
    snapshot: Votes,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    committed: Votes,
    live: Option<Live>,
    lease: u8,
    rebuild: u8,
    /// The saved count, and its counted_at.
    saved_count: i8,
    counted_at: u8,
    /// Redis' time: every step that reads it moves it.
    now: u8,
    batches: Vec<BatchNumber>,
    workers: Vec<Worker>,
    invalidations: u8,
    wipes: u8,
}

impl State {
    /// `lua/invalidate.lua`
    fn invalidate(&mut self) {
        self.live = None;
        self.lease = 0;
        self.rebuild = self.now;
        self.now += 1;
    }
}

struct Model {
    deltas: Vec<i8>,
    workers: usize,
    invalidations: u8,
    wipes: u8,
    rounds: usize,
    without: Without,
    numbered: RefCell<NumberedBatches>,
}

impl Model {
    fn sum(&self, votes: Votes) -> i8 {
        self.deltas
            .iter()
            .enumerate()
            .filter(|(at, _)| votes & (1 << at) != 0)
            .map(|(_, delta)| delta)
            .sum()
    }

    fn item() -> ItemId {
        ItemId::new(1).expect("positive")
    }

    fn transaction(at: usize) -> TransactionId {
        TransactionId(FIRST_XID + i64::try_from(at).expect("a few votes"))
    }

    fn batch(&self, at: usize) -> Batch {
        let delta = CountDelta {
            item_id: Self::item(),
            delta: self.deltas[at].into(),
        };
        if self.without == Without::CommitFirst {
            Batch::counted_first(delta, self.rounds, Self::transaction(at))
        } else {
            Batch::new(delta, self.rounds, self.without)
        }
    }

    fn number(&self, batch: Batch) -> BatchNumber {
        self.numbered.borrow_mut().number(batch)
    }

    fn numbered(&self, number: BatchNumber) -> Rc<Batch> {
        let at = usize::try_from(number).expect("a few batches");
        Rc::clone(&self.numbered.borrow().batches[at])
    }

    /// A snapshot that sees these votes and no others.
    fn snapshot_of(&self, committed: Votes) -> Snapshot {
        let xid = |at| Self::transaction(at).0;
        let running: Vec<String> = (0..self.deltas.len())
            .filter(|at| committed & (1 << at) == 0)
            .map(|at| xid(at).to_string())
            .collect();
        let text = format!("{}:{}:{}", xid(0), xid(self.deltas.len()), running.join(","));
        Snapshot::parse(&text).expect("a snapshot")
    }

    fn votes_of(&self, snapshot: &Snapshot) -> Votes {
        (0..self.deltas.len())
            .filter(|at| snapshot.sees(Self::transaction(*at)))
            .fold(0, |votes, at| votes | (1 << at))
    }

    fn first(&self) -> State {
        State {
            committed: 0,
            live: None,
            lease: 0,
            rebuild: 0,
            saved_count: 0,
            counted_at: 0,
            now: 1,
            batches: (0..self.deltas.len())
                .map(|at| self.number(self.batch(at)))
                .collect(),
            workers: vec![Worker::Read; self.workers],
            invalidations: self.invalidations,
            wipes: self.wipes,
        }
    }

    /// All states that one step leads to.
    fn next(&self, state: &State) -> Vec<State> {
        let mut all = Vec::new();
        for at in 0..state.batches.len() {
            all.extend(self.batch_step(state, at));
        }
        for at in 0..state.workers.len() {
            all.extend(self.work(state, at));
        }
        if state.invalidations > 0 && (state.live.is_some() || state.lease != 0) {
            let mut next = state.clone();
            next.invalidate();
            next.invalidations -= 1;
            all.push(next);
        }
        if state.wipes > 0 {
            all.push(State {
                live: None,
                lease: 0,
                rebuild: 0,
                wipes: state.wipes - 1,
                ..state.clone()
            });
        }
        all
    }

    fn batch_step(&self, state: &State, at: usize) -> Option<State> {
        let batch = self.numbered(state.batches[at]);
        let call = batch.call()?;
        let mut next = state.clone();
        let reply = match call {
            Call::Commit => {
                next.committed |= 1 << at;
                Reply::Committed(Self::transaction(at))
            }
            Call::Count(_, deltas) => {
                Reply::Counted(deltas.iter().map(|_| self.count(&mut next, at)).collect())
            }
            Call::ReadExactCounts(_) => Reply::ExactCounts(vec![ExactCount {
                item_id: Self::item(),
                count: self.sum(state.committed).into(),
                counted_at: (state.counted_at > 0).then(|| Revision::from_micros(state.counted_at.into())),
                snapshot: self.snapshot_of(state.committed),
            }]),
            Call::Seed(seeds) => Reply::Seeded(seeds.iter().map(|seed| self.seed(&mut next, seed)).collect()),
            Call::Invalidate(_) => {
                next.invalidate();
                Reply::Invalidated
            }
        };
        next.batches[at] = self.number(batch.after(reply));
        Some(next)
    }

    /// `lua/count.lua`, for the batch of vote `at`.
    fn count(&self, state: &mut State, at: usize) -> Counted {
        let Some(live) = &mut state.live else {
            if state.lease == 0 {
                state.lease = state.now;
                state.now += 1;
            }
            return Counted::Miss {
                lease: state.lease.to_string(),
            };
        };
        let is_seen = live.snapshot & (1 << at) != 0 && self.without != Without::VisibilitySnapshot;
        if self.deltas[at] != 0 && !is_seen {
            live.count += self.deltas[at];
            live.revision = state.now.max(live.revision + 1);
            state.now = live.revision + 1;
        }
        Counted::Count(live.count.into())
    }

    /// `lua/seed.lua`
    fn seed(&self, state: &mut State, Seed { exact, lease }: &Seed) -> bool {
        let has_lease = state.lease.to_string() == *lease || self.without == Without::Lease;
        if state.live.is_some() || !has_lease {
            return false;
        }
        let number = |number: i64| u8::try_from(number).expect("a small number");
        let counted_at = number(exact.counted_at.map_or(0, Revision::micros));
        let revision = state.now.max(counted_at + 1);
        state.live = Some(Live {
            count: i8::try_from(exact.count).expect("a small number"),
            revision,
            saved: 0,
            snapshot: self.votes_of(&exact.snapshot),
        });
        state.lease = 0;
        state.now = revision + 1;
        true
    }

    fn work(&self, state: &State, at: usize) -> Vec<State> {
        let to = |worker: Worker| {
            let mut next = state.clone();
            next.workers[at] = worker;
            next
        };
        let save = |count: i8, revision: u8, then: Worker| {
            let ahead = state.counted_at > revision && self.without != Without::CountedAtGuard;
            if ahead {
                // Saved already, if the item holds the same.
                return vec![to(if state.saved_count == count {
                    then
                } else {
                    Worker::Read
                })];
            }
            vec![State {
                saved_count: count,
                counted_at: revision,
                ..to(then)
            }]
        };
        match state.workers[at] {
            Worker::Read => {
                let mut all = Vec::new();
                if let Some(live) = state.live {
                    all.push(to(if live.saved == live.revision {
                        Worker::Expire {
                            revision: live.revision,
                        }
                    } else {
                        Worker::Write {
                            count: live.count,
                            revision: live.revision,
                        }
                    }));
                }
                if state.rebuild != 0 {
                    let reading = Worker::ReadExact {
                        token: state.rebuild,
                        now: state.now,
                    };
                    all.push(State {
                        now: state.now + 1,
                        ..to(reading)
                    });
                }
                all
            }
            Worker::Write { count, revision } => save(count, revision, Worker::Mark { count, revision }),
            Worker::Mark { count, revision } => {
                let mut next = to(Worker::Read);
                if let Some(live) = &mut next.live {
                    let same = if self.without == Without::Revision {
                        live.count == count
                    } else {
                        live.revision == revision
                    };
                    if same {
                        live.saved = live.revision;
                    }
                }
                vec![next]
            }
            Worker::Expire { revision } => {
                let mut next = to(Worker::Read);
                next.live = next
                    .live
                    .filter(|live| live.revision != revision || live.saved != revision);
                vec![next]
            }
            Worker::ReadExact { token, now } => {
                vec![to(Worker::WriteExact {
                    token,
                    now,
                    count: self.sum(state.committed),
                })]
            }
            Worker::WriteExact { token, now, count } => save(count, now, Worker::ClearRequest { token }),
            Worker::ClearRequest { token } => {
                let mut next = to(Worker::Read);
                if next.rebuild == token {
                    next.rebuild = 0;
                }
                vec![next]
            }
        }
    }

    /// What is wrong with a state in which nobody is in the middle of anything.
    fn violation(&self, state: &State) -> Option<String> {
        let idle = state.workers.iter().all(|worker| *worker == Worker::Read)
            && state
                .batches
                .iter()
                .all(|number| self.numbered(*number).is_done());
        if !idle {
            return None;
        }
        let truth = self.sum(state.committed);
        if let Some(live) = state.live.filter(|live| live.count != truth) {
            return Some(format!("live count {}, truth {truth}", live.count));
        }
        let finalized = state.rebuild == 0 && state.live.is_none_or(|live| live.saved == live.revision);
        let wiped = state.wipes != self.wipes;
        (finalized && !wiped && state.saved_count != truth)
            .then(|| format!("saved count {}, truth {truth}", state.saved_count))
    }

    /// Visits every state. Returns how many there are, and the first violation.
    fn search(&self) -> (usize, Option<String>) {
        let mut seen = HashSet::from([self.first()]);
        let mut queue = VecDeque::from([self.first()]);
        let mut found = None;
        while let Some(state) = queue.pop_front() {
            if found.is_none() {
                found = self.violation(&state);
            }
            for next in self.next(&state) {
                if seen.insert(next.clone()) {
                    queue.push_back(next);
                }
            }
        }
        (seen.len(), found)
    }
}

#[test]
fn every_state_of_the_protocol_is_exact_when_quiescent() {
    let mut total = 0;
    for (deltas, workers, invalidations, wipes) in [
        (vec![1, 1], 1, 0, 0),
        (vec![1, 1], 2, 0, 0),
        (vec![1, 1], 1, 1, 1),
        (vec![1, -1], 1, 2, 0),
        (vec![1, 1, -1], 1, 0, 0),
        (vec![1, 1, -1], 1, 1, 0),
        (vec![1, -1], 2, 1, 0),
        (vec![1, 0], 1, 1, 0),
    ] {
        let model = Model {
            deltas,
            workers,
            invalidations,
            wipes,
            rounds: ROUNDS,
            without: Without::Nothing,
            numbered: RefCell::default(),
        };
        let (states, violation) = model.search();
        println!(
            "{:?}, {workers} workers, {invalidations} invalidations, {wipes} wipes: {states} states",
            model.deltas
        );
        assert_eq!(violation, None, "{:?}", model.deltas);
        total += states;
    }
    println!("{total} states in all");
}

#[test]
fn without_any_one_piece_the_search_finds_the_violation() {
    for (without, deltas, workers, rounds) in [
        (Without::VisibilitySnapshot, vec![1, 1], 1, ROUNDS),
        (Without::Lease, vec![1, 1], 1, ROUNDS),
        (Without::CountedAtGuard, vec![1, 1, -1], 2, ROUNDS),
        (Without::Revision, vec![1, 1, -1], 2, ROUNDS),
        (Without::ExactCountAfterLease, vec![1, 1], 1, ROUNDS),
        (Without::ExactCountOfItsRound, vec![1, 1], 1, ROUNDS),
        (Without::Suspects, vec![1, 1], 1, 1),
        (Without::CommitFirst, vec![1], 1, ROUNDS),
    ] {
        let model = Model {
            deltas,
            workers,
            invalidations: 0,
            wipes: 0,
            rounds,
            without,
            numbered: RefCell::default(),
        };
        let (states, violation) = model.search();
        let violation =
            violation.unwrap_or_else(|| panic!("without {without:?}, {states} states are all exact"));
        println!("without {without:?}: {violation} ({states} states)");
    }
}
