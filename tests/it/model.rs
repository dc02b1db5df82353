//! An exhaustive search over all interleavings of a model of the protocol: one item, batches of
//! one vote, workers, invalidations, wipes with the entry into another epoch, leases that time
//! out, and a clock of Redis that steps at any point. It visits every state that can be
//! reached. Without any one piece of the protocol it must find the violation that the piece
//! prevents. (The invalidation of refused counts has no such piece: no order of these steps
//! needs it. It is there for a counter that nothing here explains.)
//!
//! Tally's own code here: `tally::votes::Counting`, which orders the steps of a batch, and
//! `tally::domain::Snapshot`. Written down a second time, since they are Lua, SQL or I/O: what
//! the scripts and the statements do, and the worker's order of steps. `interleavings/` has
//! the real scripts and statements.
//!
//! The model has no roll-up and no time limits. Redis' clock moves by one with each step that
//! draws a revision. A clock step moves it back or forth. A worker reads the epoch's number
//! and the counter in one step: had it read the number earlier, more writes would be refused.

use std::collections::HashSet;
use std::sync::Arc;

use tally::domain::{CountDelta, ExactCount, ItemId, Revision, Snapshot, TransactionId};
use tally::live::{Counted, Seed};

use crate::batch::{Batch, Call, Reply, Without};

/// Rounds of a batch: fewer than the server's, so that some batches give up.
const ROUNDS: usize = 2;
/// The transaction id of the first batch; the others' follow.
const FIRST_XID: i64 = 10;
/// Redis' time at first: the clock may step back.
const FIRST_TIME: u8 = 4;

/// Votes as a set of bits.
type Votes = u8;

/// What a worker does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Worker {
    Read,
    Write {
        epoch: u8,
        count: i8,
        revision: u8,
    },
    Mark {
        count: i8,
        revision: u8,
    },
    InvalidateUnchanged {
        revision: u8,
    },
    Expire {
        revision: u8,
    },
    ReadExact {
        epoch: u8,
        token: u8,
    },
    Claim {
        token: u8,
        rebuilt: Rebuilt,
    },
    WriteExact {
        token: u8,
        rebuilt: Rebuilt,
        revision: u8,
    },
    ClearRequest {
        token: u8,
    },
}

/// An exact count, and what was read with it and before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Rebuilt {
    epoch: u8,
    count: i8,
    counted_at: u8,
}

/// What the worker does next that enters another epoch after a wipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Entry {
    Done,
    RaiseNumber,
    InvalidateCounter,
    Compare,
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
    /// The revision that `rev` holds without a live count; 0: none.
    floor: u8,
    lease: u8,
    rebuild: u8,
    /// The saved count, and its counted_at.
    saved_count: i8,
    counted_at: u8,
    /// Redis' time: every step that draws a revision from it moves it.
    now: u8,
    /// The last lease or request that was drawn.
    drawn: u8,
    epoch: u8,
    entry: Entry,
    batches: Vec<Arc<Batch>>,
    workers: Vec<Worker>,
    left: Left,
}

/// What may still happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Left {
    invalidations: u8,
    wipes: u8,
    time_outs: u8,
    clock_steps: u8,
}

/// Nothing but batches and workers.
const NOTHING: Left = Left {
    invalidations: 0,
    wipes: 0,
    time_outs: 0,
    clock_steps: 0,
};

impl State {
    fn draw(&mut self) -> u8 {
        self.drawn += 1;
        self.drawn
    }

    /// The entries of the hash in Redis are gone, but not the rebuild request.
    fn drop_count(&mut self) {
        self.live = None;
        self.floor = 0;
    }
}

struct Model {
    deltas: Vec<i8>,
    workers: usize,
    left: Left,
    rounds: usize,
    without: Without,
}

/// Steps from a state in which nobody is in the middle of anything until all is quiescent, at
/// the most.
const QUIESCENT_LIMIT: usize = 40;

impl Model {
    /// `lua/invalidate.lua`
    fn invalidate(&self, state: &mut State) {
        if let Some(live) = state.live.take() {
            state.floor = live.revision;
        }
        if self.without == Without::InvalidationFloor {
            state.floor = 0;
        }
        state.lease = 0;
        state.rebuild = state.draw();
    }

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
            floor: 0,
            lease: 0,
            rebuild: 0,
            saved_count: 0,
            counted_at: 0,
            now: FIRST_TIME,
            drawn: 0,
            epoch: 0,
            entry: Entry::Done,
            batches: (0..self.deltas.len())
                .map(|at| Arc::new(self.batch(at)))
                .collect(),
            workers: vec![Worker::Read; self.workers],
            left: self.left,
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
        all.extend(self.enter(state));
        let has_key = state.live.is_some() || state.lease != 0;
        if state.left.invalidations > 0 && has_key {
            let mut next = state.clone();
            self.invalidate(&mut next);
            next.left.invalidations -= 1;
            all.push(next);
        }
        if state.left.wipes > 0 {
            let mut next = state.clone();
            next.drop_count();
            (next.lease, next.rebuild) = (0, 0);
            next.left.wipes -= 1;
            next.entry = Entry::RaiseNumber;
            all.push(next);
        }
        if state.left.time_outs > 0 && state.lease != 0 && state.rebuild == 0 {
            let mut next = state.clone();
            next.drop_count();
            next.lease = 0;
            next.left.time_outs -= 1;
            all.push(next);
        }
        if state.left.clock_steps > 0 {
            for now in [
                1,
                state.now.saturating_sub(1),
                state.now.saturating_sub(2),
                state.now + 2,
            ] {
                if now == 0 || now == state.now {
                    continue;
                }
                let mut next = state.clone();
                next.now = now;
                next.left.clock_steps -= 1;
                all.push(next);
            }
        }
        all
    }

    /// The next step into another epoch.
    fn enter(&self, state: &State) -> Option<State> {
        let mut next = state.clone();
        next.entry = match state.entry {
            Entry::Done => return None,
            Entry::RaiseNumber => {
                next.epoch += u8::from(self.without != Without::EpochNumber);
                Entry::InvalidateCounter
            }
            Entry::InvalidateCounter => {
                let has_key = state.live.is_some() || (state.floor, state.lease, state.rebuild) != (0, 0, 0);
                if has_key {
                    self.invalidate(&mut next);
                }
                Entry::Compare
            }
            Entry::Compare => {
                let is_exact = state.saved_count == self.sum(state.committed);
                if !is_exact && state.live.is_none() && state.rebuild == 0 {
                    self.invalidate(&mut next);
                }
                Entry::Done
            }
        };
        Some(next)
    }

    fn batch_step(&self, state: &State, at: usize) -> Option<State> {
        let call = state.batches[at].call()?;
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
                self.invalidate(&mut next);
                Reply::Invalidated
            }
        };
        next.batches[at] = Arc::new(state.batches[at].after(reply));
        Some(next)
    }

    /// `lua/count.lua`, for the batch of vote `at`.
    fn count(&self, state: &mut State, at: usize) -> Counted {
        let Some(live) = &mut state.live else {
            if state.lease == 0 {
                state.lease = state.draw();
            }
            return Counted::Miss {
                lease: state.lease.to_string(),
            };
        };
        let is_seen = live.snapshot & (1 << at) != 0 && self.without != Without::VisibilitySnapshot;
        if self.deltas[at] != 0 && !is_seen {
            live.count += self.deltas[at];
            live.revision = state.now.max(live.revision + 1);
            state.now += 1;
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
        let floor = if self.without == Without::SeedFloor {
            0
        } else {
            state.floor
        };
        let revision = state.now.max(counted_at.max(floor) + 1);
        state.live = Some(Live {
            count: i8::try_from(exact.count).expect("a small number"),
            revision,
            saved: 0,
            snapshot: self.votes_of(&exact.snapshot),
        });
        state.floor = 0;
        state.lease = 0;
        state.now += 1;
        true
    }

    /// The next step of worker `at`; `None` when it has nothing to do.
    fn work(&self, state: &State, at: usize) -> Option<State> {
        let mut next = state.clone();
        let epoch = state.epoch;
        next.workers[at] = match state.workers[at] {
            Worker::Read => match state.live {
                Some(live) if live.saved == live.revision => Worker::Expire {
                    revision: live.revision,
                },
                Some(Live { count, revision, .. }) => Worker::Write {
                    epoch,
                    count,
                    revision,
                },
                None if state.rebuild != 0 => Worker::ReadExact {
                    epoch,
                    token: state.rebuild,
                },
                None => return None,
            },
            Worker::Write { epoch, .. } if epoch != state.epoch => Worker::Read,
            Worker::Write { count, revision, .. } => {
                if state.counted_at <= revision || self.without == Without::CountedAtGuard {
                    (next.saved_count, next.counted_at) = (count, revision);
                    Worker::Mark { count, revision }
                } else {
                    Worker::InvalidateUnchanged { revision }
                }
            }
            Worker::Mark { count, revision } => {
                if let Some(live) = &mut next.live {
                    let same = if self.without == Without::Revision {
                        live.count == count
                    } else {
                        live.revision == revision
                    };
                    if same {
                        live.saved = live.revision;
                        next.rebuild = 0;
                    }
                }
                Worker::Read
            }
            Worker::InvalidateUnchanged { revision } => {
                if state.live.is_some_and(|live| live.revision == revision) {
                    self.invalidate(&mut next);
                }
                Worker::Read
            }
            Worker::Expire { revision } => {
                let is_idle =
                    |live: Live| live.revision == revision && live.saved == revision && revision <= state.now;
                if state.live.is_some_and(is_idle) {
                    next.drop_count();
                }
                Worker::Read
            }
            Worker::ReadExact { epoch, token } => Worker::Claim {
                token,
                rebuilt: Rebuilt {
                    epoch,
                    count: self.sum(state.committed),
                    counted_at: state.counted_at,
                },
            },
            Worker::Claim { token, .. } if state.rebuild != token => Worker::Read,
            Worker::Claim { token, rebuilt } => match state.live {
                Some(live) => {
                    if live.saved == live.revision {
                        next.rebuild = 0;
                    }
                    Worker::Read
                }
                None => {
                    let floor = if self.without == Without::ClaimAboveFloor {
                        0
                    } else {
                        state.floor
                    };
                    let revision = state.now.max(rebuilt.counted_at + 1).max(floor + 1);
                    if self.without != Without::ClaimFloor {
                        next.floor = revision;
                    }
                    next.now += 1;
                    Worker::WriteExact {
                        token,
                        rebuilt,
                        revision,
                    }
                }
            },
            Worker::WriteExact {
                token,
                rebuilt,
                revision,
            } => {
                let is_as_read = if self.without == Without::CompareAndSet {
                    state.counted_at <= revision
                } else {
                    state.counted_at == rebuilt.counted_at
                };
                if is_as_read && rebuilt.epoch == state.epoch {
                    (next.saved_count, next.counted_at) = (rebuilt.count, revision);
                    Worker::ClearRequest { token }
                } else {
                    Worker::Read
                }
            }
            Worker::ClearRequest { token } => {
                if state.rebuild == token {
                    next.rebuild = 0;
                    // The holder of a lease may have read the item before it was written.
                    let keeps_floor = state.lease != 0 && self.without != Without::FloorBesideLease;
                    if state.live.is_none() && !keeps_floor {
                        next.floor = 0;
                    }
                }
                Worker::Read
            }
        };
        Some(next)
    }

    /// What is wrong with a state in which nobody is in the middle of anything: a worker that
    /// goes on alone must reach a quiescent state, in which all counts are right.
    fn violation(&self, state: &State) -> Option<String> {
        let idle = state.batches.iter().all(|batch| batch.is_done())
            && state.workers.iter().all(|worker| *worker == Worker::Read)
            && state.entry == Entry::Done;
        if !idle {
            return None;
        }
        let truth = self.sum(state.committed);
        let mut state = state.clone();
        for _ in 0..QUIESCENT_LIMIT {
            if let Some(live) = state.live.filter(|live| live.count != truth) {
                return Some(format!("live count {}, truth {truth}", live.count));
            }
            let is_saved = state.live.is_none_or(|live| live.saved == live.revision);
            if state.workers[0] == Worker::Read && state.rebuild == 0 && is_saved {
                return (state.saved_count != truth)
                    .then(|| format!("saved count {}, truth {truth}", state.saved_count));
            }
            state = self.work(&state, 0)?;
        }
        Some("never quiescent".to_owned())
    }

    /// Visits every state, or all up to the first violation if it is to stop there. Returns
    /// how many there are, and the first violation with the shortest way to it.
    fn search(&self, is_to_stop: bool) -> (usize, Option<String>) {
        let first = Arc::new(self.first());
        let mut seen = HashSet::from([Arc::clone(&first)]);
        // Each state, and from which one it was reached first.
        let mut all = vec![(first, 0_usize)];
        let mut found = None;
        let mut number = 0;
        while number < all.len() && !(is_to_stop && found.is_some()) {
            let state = Arc::clone(&all[number].0);
            if found.is_none() {
                found = self
                    .violation(&state)
                    .map(|what| format!("{what}{}", way(&all, number)));
            }
            for next in self.next(&state) {
                let next = Arc::new(next);
                if seen.insert(Arc::clone(&next)) {
                    all.push((next, number));
                }
            }
            number += 1;
        }
        (all.len(), found)
    }
}

/// The states up to this one.
fn way(all: &[(Arc<State>, usize)], number: usize) -> String {
    let mut at = number;
    let mut way = Vec::new();
    loop {
        let state = &all[at].0;
        let calls: Vec<_> = state.batches.iter().map(|batch| batch.call()).collect();
        way.push(format!(
            "\n  now {} live {:?} floor {} lease {} rebuild {} item ({}, {}) epoch {} {:?} workers {:?} batches {calls:?}",
            state.now,
            state.live,
            state.floor,
            state.lease,
            state.rebuild,
            state.saved_count,
            state.counted_at,
            state.epoch,
            state.entry,
            state.workers,
        ));
        if at == 0 {
            break;
        }
        at = all[at].1;
    }
    way.into_iter().rev().collect()
}

fn assert_exact(searches: &[(&[i8], usize, Left)]) {
    let mut total = 0;
    for (deltas, workers, left) in searches {
        let model = Model {
            deltas: deltas.to_vec(),
            workers: *workers,
            left: *left,
            rounds: ROUNDS,
            without: Without::Nothing,
        };
        let (states, violation) = model.search(false);
        println!("{deltas:?}, {workers} workers, {left:?}: {states} states");
        assert_eq!(violation, None, "{deltas:?}, {workers} workers, {left:?}");
        total += states;
    }
    println!("{total} states in all");
}

fn assert_found(searches: &[(Without, &[i8], usize, usize, Left)]) {
    for (without, deltas, workers, rounds, left) in searches {
        let model = Model {
            deltas: deltas.to_vec(),
            workers: *workers,
            left: *left,
            rounds: *rounds,
            without: *without,
        };
        let (states, violation) = model.search(true);
        let violation =
            violation.unwrap_or_else(|| panic!("without {without:?}, {states} states are all exact"));
        println!("without {without:?}: {violation} ({states} states)");
    }
}

/// What may happen: invalidations, wipes, leases that time out, steps of Redis' clock.
const fn left(invalidations: u8, wipes: u8, time_outs: u8, clock_steps: u8) -> Left {
    Left {
        invalidations,
        wipes,
        time_outs,
        clock_steps,
    }
}

// The searches are four tests, so that they run at the same time.

#[test]
fn every_state_of_the_protocol_is_exact_when_quiescent() {
    assert_exact(&[
        (&[1, 1], 1, NOTHING),
        (&[1, 1], 2, NOTHING),
        (&[1, 1], 1, left(1, 1, 0, 0)),
        (&[1, -1], 1, left(2, 0, 0, 0)),
        (&[1, 1, -1], 1, NOTHING),
        (&[1, 1, -1], 1, left(1, 0, 0, 0)),
    ]);
}

#[test]
fn every_state_of_the_protocol_is_exact_when_the_clock_of_redis_steps() {
    assert_exact(&[
        (&[1, 1], 1, left(1, 0, 1, 1)),
        (&[1, 1], 1, left(0, 1, 0, 1)),
        (&[1, -1], 1, left(1, 0, 0, 2)),
        (&[1, -1], 2, left(1, 0, 0, 1)),
        (&[1, 0], 1, left(1, 0, 0, 1)),
    ]);
}

#[test]
fn without_any_one_piece_the_search_finds_the_violation() {
    assert_found(&[
        (Without::VisibilitySnapshot, &[1, 1], 1, ROUNDS, NOTHING),
        (Without::Lease, &[1, 1], 1, ROUNDS, NOTHING),
        (Without::CountedAtGuard, &[1, 1, -1], 2, ROUNDS, NOTHING),
        (Without::Revision, &[1, 1, -1], 2, ROUNDS, NOTHING),
        (Without::ExactCountAfterLease, &[1, 1], 1, ROUNDS, NOTHING),
        (Without::ExactCountOfItsRound, &[1, 1], 1, ROUNDS, NOTHING),
        (Without::Suspects, &[1, 1], 1, 1, NOTHING),
        (Without::CommitFirst, &[1], 1, ROUNDS, NOTHING),
    ]);
}

#[test]
fn without_any_one_piece_that_clocks_need_the_search_finds_the_violation() {
    let (two, step) = (&[1, 1], left(1, 0, 0, 1));
    assert_found(&[
        (Without::InvalidationFloor, two, 2, ROUNDS, step),
        (Without::SeedFloor, two, 2, ROUNDS, step),
        (Without::ClaimAboveFloor, two, 2, ROUNDS, step),
        (Without::ClaimFloor, two, 2, ROUNDS, step),
        (Without::CompareAndSet, two, 2, ROUNDS, step),
        (Without::FloorBesideLease, two, 2, ROUNDS, step),
        (Without::EpochNumber, two, 2, ROUNDS, left(0, 1, 0, 1)),
    ]);
}
