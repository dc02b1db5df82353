//! The steps of the model: votes, calls, the server's notes and its repair task, the worker.

use super::state::{Breaker, Entry, Note, Place, Primary, State, VOTES, Vote, Votes, Worker};
use super::{Ways, Without};

/// So many looks in a row: `tally::live::ELSEWHERE_LOOKS`.
const ELSEWHERE_LOOKS: u8 = 2;

/// The guard with servers of one kind, perhaps without a piece.
pub(super) struct Model {
    pub ways: Ways,
    pub cuts: u8,
    pub without: Without,
}

impl Model {
    pub fn first(&self) -> State {
        State {
            stored: 0,
            votes: [Vote::Before; VOTES],
            old: None,
            new: None,
            is_promoted: false,
            entered: None,
            moved: 0,
            known: Entry::Old,
            worker: Worker::Compare,
            breaker: Breaker::Closed(Primary::Old),
            has_heard: false,
            closed_at: Primary::Old,
            is_suspect: false,
            note: Note::Begin,
            elsewhere_looks: 0,
            were_elsewhere: false,
            noted: 0,
            left: 0,
            is_dead: false,
            cuts: self.cuts,
            late_looks: 0,
        }
    }

    /// All states that one step leads to.
    pub fn next(&self, state: &State) -> Vec<State> {
        let mut all = self.steps(state);
        if !state.is_dead {
            all.extend(self.note(state));
            all.extend(cut(state));
            all.push(State {
                is_dead: true,
                ..state.clone()
            });
        }
        all
    }

    /// Whether nothing goes on from here but looks that find the same again.
    pub fn is_end(&self, state: &State) -> bool {
        if !self.steps(state).is_empty() {
            return false;
        }
        let mut after = state.clone();
        while !state.is_dead {
            match self.note(&after) {
                Some(next) if next.note == Note::Begin => return next == *state,
                Some(next) => after = next,
                None => return false,
            }
        }
        true
    }

    /// The steps that are taken sooner or later.
    fn steps(&self, state: &State) -> Vec<State> {
        let mut all = failover(state);
        all.extend(self.work(state));
        all.extend(self.recover(state));
        for at in 0..VOTES {
            all.extend(call_step(state, at));
            all.extend(begin(state, at).filter(|_| !state.is_dead));
        }
        if !state.is_dead {
            all.extend(self.repair(state));
            if state.is_promoted && !state.has_heard {
                all.push(State {
                    has_heard: true,
                    ..state.clone()
                });
            }
        }
        all
    }

    /// Whether the server knows that its connections lead to another primary than the one that it has heard of.
    fn has_moved(&self, state: &State) -> bool {
        self.ways != Ways::Address && state.closed_at != state.leads()
    }

    /// The worker's next step. It follows the failover at once, or later.
    fn work(&self, state: &State) -> Option<State> {
        let mut next = state.clone();
        next.worker = match state.worker {
            Worker::Compare if !state.is_promoted || state.entered == Some(Entry::New(state.moved)) => {
                return None;
            }
            // Sets the mark in the new primary, which loses nothing here.
            Worker::Compare if self.without == Without::MarkInPostgres => Worker::Invalidate(state.moved),
            Worker::Compare => Worker::NoteMark(state.moved),
            Worker::NoteMark(moved) => {
                next.known = Entry::Mark;
                Worker::Invalidate(moved)
            }
            Worker::Invalidate(moved) => {
                next.new = None;
                Worker::Enter(moved)
            }
            Worker::Enter(moved) => {
                next.entered = Some(Entry::New(moved));
                Worker::Commit(moved)
            }
            Worker::Commit(moved) => {
                next.known = Entry::New(moved);
                Worker::Compare
            }
        };
        Some(next)
    }

    /// Crashed-writer recovery: the worker invalidates what connections that are gone have left.
    fn recover(&self, state: &State) -> Option<State> {
        let left = state.left
            | if state.is_dead {
                state.stored & !state.noted
            } else {
                0
            };
        let is_in_new = state.worker == Worker::Compare && state.known == Entry::New(state.moved);
        if left == 0 || !is_in_new || self.without == Without::CrashedWriterRecovery {
            return None;
        }
        let mut next = state.clone();
        next.new = None;
        next.left = 0;
        if state.is_dead {
            next.noted |= left;
        }
        Some(next)
    }

    /// The server's repair task.
    fn repair(&self, state: &State) -> Option<State> {
        let mut next = state.clone();
        let is_elsewhere = state.elsewhere_looks >= ELSEWHERE_LOOKS;
        match state.breaker {
            Breaker::Closed(_) if self.has_moved(state) => next.breaker = Breaker::Open,
            Breaker::Closed(_) if state.is_suspect => {
                *next.count(state.leads()) = None;
                next.is_suspect = false;
            }
            Breaker::Closed(_) => return None,
            Breaker::Open
                if is_elsewhere && !self.has_moved(state) && self.without != Without::OpenBreaker =>
            {
                return None;
            }
            Breaker::Open => {
                if self.has_moved(state) {
                    match self.without {
                        Without::Moved => {}
                        Without::MovedAsToken => next.entered = None,
                        _ => next.moved += 1,
                    }
                    next.elsewhere_looks = 0;
                }
                let primary = state.leads();
                if state.is_suspect {
                    *next.count(primary) = None;
                    next.is_suspect = false;
                }
                next.closed_at = primary;
                next.breaker = Breaker::Closed(primary);
            }
        }
        Some(next)
    }

    /// The next step towards a note of how far votes are counted.
    fn note(&self, state: &State) -> Option<State> {
        let mut next = state.clone();
        let is_elsewhere = state.elsewhere_looks >= ELSEWHERE_LOOKS;
        next.note = match state.note {
            // Also without a new vote: what is shown must be the workers'.
            Note::Begin if self.without == Without::LookAfterBatches => Note::Read(state.stored),
            Note::Begin => Note::Wait(state.stored),
            Note::Wait(votes) if state.have_ended(votes) => match self.without {
                Without::LookAfterBatches => Note::Note(votes),
                _ => Note::Read(votes),
            },
            Note::Wait(_) => return None,
            Note::Read(votes) => Note::Look(votes, state.known),
            Note::Look(votes, entry) => {
                let is_late =
                    matches!(entry, Entry::New(_)) && state.breaker == Breaker::Closed(Primary::Old);
                if is_late && !state.has_heard {
                    next.late_looks = (state.late_looks + 1).min(2);
                }
                Note::Act(votes, self.look(state, entry))
            }
            Note::Act(votes, place) => {
                next.were_elsewhere |= matches!(place, Place::Elsewhere | Place::EnteringElsewhere);
                next.were_elsewhere |= place == Place::Behind;
                match place {
                    Place::Here => next.elsewhere_looks = 0,
                    Place::Elsewhere => {
                        next.elsewhere_looks = (state.elsewhere_looks + 1).min(ELSEWHERE_LOOKS);
                        if next.elsewhere_looks >= ELSEWHERE_LOOKS && self.without != Without::OpenBreaker {
                            next.breaker = Breaker::Open;
                        }
                    }
                    Place::Behind => {
                        next.elsewhere_looks = 0;
                        if self.without != Without::OpenBreaker {
                            next.breaker = Breaker::Open;
                        }
                    }
                    Place::EnteringElsewhere | Place::Unknown if is_elsewhere => {}
                    Place::EnteringElsewhere | Place::Unknown => next.elsewhere_looks = 0,
                }
                self.act(&mut next, votes, place)
            }
            Note::Note(votes) => {
                next.noted |= votes;
                Note::Begin
            }
        };
        Some(next)
    }

    /// Where the counts are, seen from the server's Redis.
    fn look(&self, state: &State, entry: Entry) -> Place {
        let at = match (state.breaker, self.ways) {
            // Another connection than those that votes are counted over.
            (Breaker::Closed(_), Ways::Cluster) | (Breaker::Open, _) => state.leads(),
            (Breaker::Closed(_), _) if self.without == Without::LookAtOwnPrimary => state.leads(),
            (Breaker::Closed(primary), _) => primary,
        };
        let seen = |at: Primary| {
            let has = match at {
                Primary::Old => entry == Entry::Old,
                Primary::New => match entry {
                    // The mark is there until the worker has entered the epoch.
                    Entry::Mark => matches!(state.worker, Worker::Invalidate(_) | Worker::Enter(_)),
                    _ => state.entered == Some(entry),
                },
            };
            if has { Place::Here } else { Place::Elsewhere }
        };
        if self.has_moved(state) && self.without != Without::LookAtOwnPrimary {
            return Place::Unknown;
        }
        match seen(at) {
            Place::Elsewhere if entry == Entry::Mark => Place::EnteringElsewhere,
            Place::Elsewhere if self.ways == Ways::Address && seen(state.leads()) == Place::Here => {
                Place::Behind
            }
            place => place,
        }
    }

    /// What the server does about these votes.
    fn act(&self, next: &mut State, votes: Votes, place: Place) -> Note {
        let leave = |next: &mut State| {
            next.left |= next.stored & !next.noted;
            next.were_elsewhere = false;
        };
        let is_to_note = match place {
            _ if self.without == Without::Look => true,
            Place::Here if next.is_suspect && self.without != Without::SuspectsFirst => false,
            Place::Here if next.were_elsewhere && self.without != Without::WereElsewhere => {
                if next.have_ended(next.stored) {
                    leave(next);
                }
                false
            }
            Place::Here => true,
            _ => false,
        };
        match is_to_note {
            true if self.without == Without::LookAfterBatches => Note::Wait(votes),
            true => Note::Note(votes),
            false => Note::Begin,
        }
    }
}

/// The new primary is promoted, with what it has copied so far.
fn failover(state: &State) -> Vec<State> {
    if state.is_promoted {
        // Another server seeds the count.
        let seeded = state.new.is_none().then(|| State {
            new: Some(state.stored),
            ..state.clone()
        });
        return seeded.into_iter().collect();
    }
    let with = |new| State {
        is_promoted: true,
        entered: Some(Entry::Old),
        new,
        ..state.clone()
    };
    vec![with(state.old), with(None)]
}

/// The server stores vote `at`, or calls Redis to count it.
fn begin(state: &State, at: usize) -> Option<State> {
    let mut next = state.clone();
    match (state.votes[at], state.breaker) {
        (Vote::Before, _) if state.stored + 1 == 1 << at => {
            next.stored |= 1 << at;
            next.votes[at] = Vote::Stored;
        }
        (Vote::Stored, Breaker::Closed(primary)) => next.votes[at] = Vote::Called(primary),
        (Vote::Stored, Breaker::Open) => {
            next.is_suspect = true;
            next.votes[at] = Vote::Done;
        }
        _ => return None,
    }
    Some(next)
}

/// A call under way: `lua/count.lua`, and perhaps a seed.
fn call_step(state: &State, at: usize) -> Option<State> {
    let Vote::Called(primary) = state.votes[at] else {
        return None;
    };
    let mut next = state.clone();
    let stored = state.stored;
    let count = next.count(primary);
    *count = Some(count.map_or(stored, |votes| votes | 1 << at));
    next.votes[at] = Vote::Done;
    Some(next)
}

/// The server's connections end. Nobody knows whether the calls over them were run.
fn cut(state: &State) -> Vec<State> {
    if state.cuts == 0 || state.breaker == Breaker::Open {
        return Vec::new();
    }
    let mut lost = state.clone();
    lost.cuts -= 1;
    lost.breaker = Breaker::Open;
    let mut run = lost.clone();
    for at in 0..VOTES {
        if matches!(state.votes[at], Vote::Called(_)) {
            run = call_step(&run, at).unwrap_or(run);
            (lost.votes[at], run.votes[at]) = (Vote::Done, Vote::Done);
            (lost.is_suspect, run.is_suspect) = (true, true);
        }
    }
    vec![lost, run]
}
