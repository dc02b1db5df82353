//! The steps of a statement that stores votes: lock, look, decide, write.
//! `commit.rs` has the last step.

use std::sync::Arc;

use tally::domain::{Count, ItemId, TransactionId};

use super::deciding::first_votes;
use super::state::{Batch, Decided, Doing, Look, Outcome, Row, SERVERS, Server, State};
use super::{Model, Without};

/// The id of the first transaction. The others follow.
const FIRST_XID: i64 = 10;

pub(super) fn item_id(item: usize) -> ItemId {
    let id = i64::try_from(item + 1).expect("a few items");
    ItemId::new(id).expect("positive")
}

pub(super) fn item_of(id: ItemId) -> usize {
    usize::try_from(id.get() - 1).expect("an item of the model")
}

/// The transaction with this bit in a set.
pub(super) fn transaction(bit: usize) -> TransactionId {
    TransactionId(FIRST_XID + i64::try_from(bit).expect("a few transactions"))
}

pub(super) fn bit_of(TransactionId(xid): TransactionId) -> usize {
    usize::try_from(xid - FIRST_XID).expect("a transaction of the model")
}

/// What a row adds to the count of its item: Tally's own rule.
pub(super) fn count_of(row: Row) -> Count {
    Count::of_row(row.value.into(), row.change.into())
}

impl Model {
    /// The states in which a server has begun its next batch.
    pub(super) fn begin(&self, state: &State, at: usize) -> Vec<State> {
        let server = &state.servers[at];
        if server.is_dead {
            return Vec::new();
        }
        let next = self.program.batches[at].get(server.next);
        // Requests to send again head a batch. Waiting requests may be in it, too.
        let mut batches = Vec::new();
        if !server.again.is_empty() {
            batches.push((Batch::Decide(server.again.clone()), 0));
        }
        match next {
            Some(Batch::Decide(requests)) => {
                let all = server.again.iter().chain(requests).copied().collect();
                batches.push((Batch::Decide(all), 1));
            }
            Some(Batch::Insert(_)) if !server.again.is_empty() => {}
            Some(batch) => batches.push((batch.clone(), 1)),
            None => {}
        }
        let begun = batches.into_iter().filter_map(|(batch, taken)| {
            let mut state = state.clone();
            let server = Arc::make_mut(&mut state.servers[at]);
            server.next += taken;
            server.again.clear();
            let doing = match batch {
                Batch::Insert(ref requests) => {
                    let order = self.program.order(requests, self.without);
                    Doing::Write {
                        decided: first_votes(requests, order),
                        batch,
                        row: 0,
                        stored: 0,
                    }
                }
                Batch::Decide(_) if self.without == Without::LookBehindTheLock => {
                    let look = self.look(&state);
                    return Some(self.doing(state, at, self.lock_next(batch, 0, Some(look))));
                }
                Batch::Decide(_) => self.lock_next(batch, 0, None),
            };
            let state = self.doing(state, at, doing);
            // The first lock is part of this step: before it, the statement does nothing.
            self.lock(&state, at)
        });
        begun.collect()
    }

    /// The same state, in which this server does something else.
    pub(super) fn doing(&self, mut state: State, at: usize, doing: Doing) -> State {
        Arc::make_mut(&mut state.servers[at]).doing = doing;
        state
    }

    fn look(&self, state: &State) -> Look {
        Look {
            rows: state.rows.len(),
            places: state.places,
        }
    }

    /// What a statement does next that has locked this many of its rules.
    fn lock_next(&self, batch: Batch, locked: usize, look: Option<Look>) -> Doing {
        let is_locked = locked == self.program.rules(batch.requests(), self.without).len();
        match look {
            _ if !is_locked => Doing::Lock { batch, locked, look },
            Some(look) => Doing::Decide { batch, look },
            None => Doing::Look { batch },
        }
    }

    /// Locks the next rule, if nobody else holds it. A batch without rules goes on.
    fn lock(&self, state: &State, at: usize) -> Option<State> {
        let Doing::Lock { batch, locked, look } = &state.servers[at].doing else {
            return Some(state.clone());
        };
        let mut next = state.clone();
        if self.without != Without::RuleLock {
            let rule = self.program.rules(batch.requests(), self.without)[*locked];
            if state.locks[rule].is_some() {
                return None;
            }
            next.locks[rule] = Some(at);
        }
        let doing = self.lock_next(batch.clone(), locked + 1, *look);
        Some(self.doing(next, at, doing))
    }

    /// The next step of the statement that a server has under way.
    pub(super) fn statement_step(&self, state: &State, at: usize) -> Option<State> {
        match &state.servers[at].doing {
            Doing::Lock { .. } => self.lock(state, at),
            Doing::Look { batch } => {
                let look = self.look(state);
                let batch = batch.clone();
                Some(self.doing(state.clone(), at, Doing::Decide { batch, look }))
            }
            Doing::Decide { batch, look } => Some(self.decide(state, at, batch, *look)),
            Doing::Write {
                batch,
                decided,
                row,
                stored,
            } => self.write(state, at, batch, decided, *row, *stored),
            Doing::Commit {
                batch,
                decided,
                stored,
            } => Some(self.commit(state, at, batch, decided, *stored)),
            Doing::Resolve {
                repeats,
                transaction,
                deltas,
            } => Some(self.resolve(state, at, repeats, *transaction, deltas)),
            Doing::Take | Doing::Count(_) | Doing::Seed(..) => None,
        }
    }

    fn decide(&self, state: &State, at: usize, batch: &Batch, look: Look) -> State {
        let mut next = state.clone();
        let mut last_numbers = look.places.map(|place| place.last_number);
        let numbers = if self.without == Without::NumbersInPostgres {
            &mut next.redis_numbers
        } else {
            &mut last_numbers
        };
        let decided = self
            .program
            .decide(&state.rows, look, numbers, batch.requests(), self.without);
        let batch = batch.clone();
        let doing = if decided.rows.is_empty() {
            Doing::Commit {
                batch,
                decided,
                stored: 0,
            }
        } else {
            Doing::Write {
                batch,
                decided,
                row: 0,
                stored: 0,
            }
        };
        self.doing(next, at, doing)
    }

    /// Writes the next row, unless the index `vote_once` has its entry.
    /// If the entry belongs to another statement, which may still fail, this one waits.
    fn write(
        &self,
        state: &State,
        at: usize,
        batch: &Batch,
        decided: &Decided,
        row: usize,
        mut stored: u16,
    ) -> Option<State> {
        let entry = decided.rows[row].1.entry();
        let mut is_there = false;
        if self.without != Without::VoteOnce {
            let others = (0..SERVERS).filter(|other| *other != at);
            let mut written = others.flat_map(|other| state.servers[other].doing.written());
            if written.any(|one| one.entry() == entry) {
                return None;
            }
            let mut own = state.servers[at].doing.written();
            is_there =
                state.rows.iter().any(|one| one.entry() == entry) || own.any(|one| one.entry() == entry);
        }
        let mut decided = decided.clone();
        if is_there {
            let request = decided.rows[row].0;
            if self.without != Without::AskingAgain {
                decided.outcomes[request] = Outcome::Again;
            }
        } else {
            stored |= 1 << row;
        }
        let batch = batch.clone();
        let mut next = state.clone();
        let doing = if row + 1 < decided.rows.len() {
            Doing::Write {
                batch,
                decided,
                row: row + 1,
                stored,
            }
        } else {
            if self.without == Without::LockUntilTheCommit {
                next.unlock(at);
            }
            Doing::Commit {
                batch,
                decided,
                stored,
            }
        };
        Some(self.doing(next, at, doing))
    }
}

impl Server {
    /// Whether it has nothing under way, and nobody has anything to repair for it.
    pub(super) fn is_quiescent(&self) -> bool {
        self.doing == Doing::Take && self.suspects == 0 && self.left == 0
    }
}
