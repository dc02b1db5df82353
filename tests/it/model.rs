//! An exhaustive search over all interleavings of a model of the protocol: one
//! item, votes with deltas, workers, invalidations, wipes. Every state that can be
//! reached is visited. Without any one piece of the protocol it must find the
//! violation that the piece is there against.

use std::collections::{HashSet, VecDeque};

/// A piece that can be taken away (ARCHITECTURE, "What always holds").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    Nothing,
    VisibilitySnapshot,
    Lease,
    CountedAtGuard,
    Revision,
}

/// Votes as a set of bits.
type Votes = u8;

/// What a handler does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Handler {
    Commit,
    Count,
    ReadExact { lease: u8 },
    Seed { lease: u8, seen: Votes },
    Done,
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
    handlers: Vec<Handler>,
    workers: Vec<Worker>,
    invalidations: u8,
    wipes: u8,
}

struct Model {
    deltas: Vec<i8>,
    workers: usize,
    invalidations: u8,
    wipes: u8,
    without: Without,
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

    fn first(&self) -> State {
        State {
            committed: 0,
            live: None,
            lease: 0,
            rebuild: 0,
            saved_count: 0,
            counted_at: 0,
            now: 1,
            handlers: vec![Handler::Commit; self.deltas.len()],
            workers: vec![Worker::Read; self.workers],
            invalidations: self.invalidations,
            wipes: self.wipes,
        }
    }

    /// All states that one step leads to.
    fn next(&self, state: &State) -> Vec<State> {
        let mut all = Vec::new();
        for at in 0..state.handlers.len() {
            all.extend(self.handle(state, at));
        }
        for at in 0..state.workers.len() {
            all.extend(self.work(state, at));
        }
        if state.invalidations > 0 && (state.live.is_some() || state.lease != 0) {
            all.push(State {
                live: None,
                lease: 0,
                rebuild: state.now,
                now: state.now + 1,
                invalidations: state.invalidations - 1,
                ..state.clone()
            });
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

    fn handle(&self, state: &State, at: usize) -> Option<State> {
        let mut next = state.clone();
        let bit = 1 << at;
        next.handlers[at] = match state.handlers[at] {
            Handler::Commit => {
                next.committed |= bit;
                Handler::Count
            }
            Handler::Count => match &mut next.live {
                Some(live) => {
                    if live.snapshot & bit == 0 || self.without == Without::VisibilitySnapshot {
                        live.count += self.deltas[at];
                        live.revision = next.now.max(live.revision + 1);
                        next.now = live.revision + 1;
                    }
                    Handler::Done
                }
                None => {
                    if state.lease == 0 {
                        next.lease = state.now;
                        next.now += 1;
                    }
                    Handler::ReadExact { lease: next.lease }
                }
            },
            Handler::ReadExact { lease } => Handler::Seed {
                lease,
                seen: state.committed,
            },
            Handler::Seed { lease, seen } => {
                if state.live.is_none() && (state.lease == lease || self.without == Without::Lease) {
                    let revision = state.now.max(state.counted_at + 1);
                    next.live = Some(Live {
                        count: self.sum(seen),
                        revision,
                        saved: 0,
                        snapshot: seen,
                    });
                    next.lease = 0;
                    next.now = revision + 1;
                    Handler::Done
                } else {
                    Handler::Count
                }
            }
            Handler::Done => return None,
        };
        Some(next)
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
        let idle = state.handlers.iter().all(|handler| *handler == Handler::Done)
            && state.workers.iter().all(|worker| *worker == Worker::Read);
        if !idle {
            return None;
        }
        let truth = self.sum(state.committed);
        if let Some(live) = state.live.filter(|live| live.count != truth) {
            return Some(format!("live count {}, truth {truth}", live.count));
        }
        let finalized = state.rebuild == 0 && state.live.is_none_or(|live| live.saved == live.revision);
        // A wipe loses what is unsaved; the epoch check writes it, and is not in here.
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
    ] {
        let model = Model {
            deltas,
            workers,
            invalidations,
            wipes,
            without: Without::Nothing,
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
    for (without, deltas, workers) in [
        (Without::VisibilitySnapshot, vec![1, 1], 1),
        (Without::Lease, vec![1, 1], 1),
        (Without::CountedAtGuard, vec![1, 1, -1], 2),
        (Without::Revision, vec![1, 1, -1], 2),
    ] {
        let model = Model {
            deltas,
            workers,
            invalidations: 0,
            wipes: 0,
            without,
        };
        let (states, violation) = model.search();
        let violation =
            violation.unwrap_or_else(|| panic!("without {without:?}, {states} states are all exact"));
        println!("without {without:?}: {violation} ({states} states)");
    }
}
