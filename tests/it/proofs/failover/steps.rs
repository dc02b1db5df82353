//! The steps of the model: votes, calls, the server's notes and its repair task, the worker.

use super::state::{Breaker, Entry, Note, Place, Primary, Repair, State, VOTES, Vote, Votes, Worker};
use super::{Ways, Without};

/// So many looks in a row: `tally::live::ELSEWHERE_LOOKS`.
const ELSEWHERE_LOOKS: u8 = 2;

/// The guard with servers of one kind, perhaps without a piece.
pub(super) struct Model {
    pub ways: Ways,
    /// How many votes there are, up to [`VOTES`].
    pub votes: usize,
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
            repair: Repair::Look,
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
        if state.is_dead {
            return true;
        }
        let mut after = state.clone();
        while let Some(next) = self.note(&after).pop() {
            if next.note == Note::Begin {
                return next == *state;
            }
            after = next;
        }
        false
    }

    /// The steps that are taken sooner or later.
    fn steps(&self, state: &State) -> Vec<State> {
        let mut all = failover(state);
        all.extend(self.work(state));
        all.extend(self.recover(state));
        for at in 0..VOTES {
            all.extend(call_step(state, at));
            if !state.is_dead && at < self.votes {
                all.extend(begin(state, at));
            }
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

    /// The next step of the server's repair task.
    fn repair(&self, state: &State) -> Option<State> {
        let mut next = state.clone();
        let is_elsewhere = state.elsewhere_looks >= ELSEWHERE_LOOKS && self.without != Without::StayOpen;
        // Which primary a connection leads to, nobody says behind an address.
        let is_other = |primary: Primary| self.ways != Ways::Address && state.closed_at != primary;
        match (state.repair, state.breaker) {
            (Repair::Look, Breaker::Closed(_)) if self.has_moved(state) => next.breaker = Breaker::Open,
            (Repair::Look, Breaker::Closed(_)) if state.is_suspect => {
                *next.count(state.leads()) = None;
                next.is_suspect = false;
            }
            (Repair::Look, Breaker::Closed(_)) => return None,
            (Repair::Look, Breaker::Open) if is_elsewhere && !self.has_moved(state) => return None,
            (Repair::Look, Breaker::Open) => next.repair = Repair::Tell(state.leads()),
            (Repair::Tell(primary), _) => {
                if is_other(primary) {
                    match self.without {
                        Without::Moved => {}
                        Without::MovedAsToken => next.entered = None,
                        _ => next.moved += 1,
                    }
                }
                next.repair = Repair::Close(primary);
            }
            (Repair::Close(primary), _) if state.is_suspect => {
                *next.count(primary) = None;
                next.is_suspect = false;
            }
            (Repair::Close(primary), _) => {
                if !is_elsewhere || is_other(primary) {
                    if is_other(primary) {
                        next.elsewhere_looks = 0;
                    }
                    next.closed_at = primary;
                    next.breaker = Breaker::Closed(primary);
                }
                next.repair = Repair::Look;
            }
        }
        Some(next)
    }

    /// The next steps towards a note of how far votes are counted.
    fn note(&self, state: &State) -> Vec<State> {
        let mut next = state.clone();
        // While batches are under way, perhaps without an id yet, it looks now and then.
        let meanwhile = match state.note {
            Note::Wait(votes) if !state.is_same_look(self.look(state, state.known)) => Some(State {
                note: Note::Meanwhile(votes, self.look(state, state.known)),
                ..state.clone()
            }),
            _ => None,
        };
        next.note = match state.note {
            // Also without a new vote: what is shown must be the workers'.
            Note::Begin if self.without == Without::LookAfterBatches => Note::Read(state.stored),
            Note::Begin => Note::Wait(state.stored),
            Note::Wait(votes) if state.have_ended(votes) => match self.without {
                Without::LookAfterBatches => Note::Store(votes),
                _ => Note::Read(votes),
            },
            Note::Wait(_) => return meanwhile.into_iter().collect(),
            Note::Meanwhile(votes, place) => {
                self.note_place(&mut next, place);
                Note::Wait(votes)
            }
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
                self.note_place(&mut next, place);
                self.act(&mut next, votes, place)
            }
            Note::Store(votes) => {
                next.noted |= votes;
                Note::Begin
            }
        };
        meanwhile.into_iter().chain([next]).collect()
    }

    /// What a look has found is remembered, and may take the counts out of use.
    fn note_place(&self, next: &mut State, place: Place) {
        let is_elsewhere = next.elsewhere_looks >= ELSEWHERE_LOOKS;
        next.were_elsewhere |= matches!(place, Place::Elsewhere | Place::EnteringElsewhere | Place::Behind);
        let is_to_open = match place {
            Place::Here => {
                next.elsewhere_looks = 0;
                false
            }
            Place::Elsewhere => {
                next.elsewhere_looks = (next.elsewhere_looks + 1).min(ELSEWHERE_LOOKS);
                next.elsewhere_looks >= ELSEWHERE_LOOKS
            }
            Place::Behind => {
                next.elsewhere_looks = 0;
                true
            }
            Place::EnteringElsewhere | Place::Unknown if is_elsewhere => false,
            Place::EnteringElsewhere | Place::Unknown => {
                next.elsewhere_looks = 0;
                false
            }
        };
        if is_to_open && self.without != Without::OpenBreaker {
            next.breaker = Breaker::Open;
        }
    }

    fn is_without_oldest(&self) -> bool {
        matches!(self.without, Without::OldestConnection | Without::OwnPrimary)
    }

    /// Where the counts are, seen from the server's Redis.
    fn look(&self, state: &State, entry: Entry) -> Place {
        let at = match (state.breaker, self.ways) {
            // Another connection than those that votes are counted over.
            (Breaker::Closed(_), Ways::Cluster) | (Breaker::Open, _) => state.leads(),
            (Breaker::Closed(_), _) if self.is_without_oldest() => state.leads(),
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
        let sees_moves = !matches!(self.without, Without::NumberAfterAnswer | Without::OwnPrimary);
        if self.has_moved(state) && sees_moves {
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
        let is_noted = votes & !next.noted == 0;
        let is_to_note = match place {
            _ if self.without == Without::Look => true,
            // No vote came since, also none whose batch had begun.
            Place::Here if is_noted => {
                let is_asked_again = self.without != Without::LastIdAfterLook;
                next.were_elsewhere &= is_asked_again && next.stored != votes;
                false
            }
            _ if is_noted => false,
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
            true => Note::Store(votes),
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

/// The server stores vote `at`, or calls Redis to count it. A connection that was made since the circuit breaker closed may
/// lead to another primary already.
fn begin(state: &State, at: usize) -> Vec<State> {
    let with = |vote: Vote| {
        let mut next = state.clone();
        next.votes[at] = vote;
        next
    };
    match (state.votes[at], state.breaker) {
        (Vote::Before, _) if state.stored + 1 == 1 << at => {
            let mut next = with(Vote::Stored);
            next.stored |= 1 << at;
            vec![next]
        }
        (Vote::Stored, Breaker::Closed(primary)) => {
            let mut leads = vec![primary, state.leads()];
            leads.dedup();
            leads
                .into_iter()
                .map(|primary| with(Vote::Called(primary)))
                .collect()
        }
        (Vote::Stored, Breaker::Open) => {
            let mut next = with(Vote::Done);
            next.is_suspect = true;
            vec![next]
        }
        _ => Vec::new(),
    }
}

/// A call under way: `lua/count.lua`, and perhaps a seed.
fn call_step(state: &State, at: usize) -> Option<State> {
    let mut next = state.clone();
    match state.votes[at] {
        Vote::Called(primary) => {
            let stored = state.stored;
            let count = next.count(primary);
            *count = Some(count.map_or(stored, |votes| votes | 1 << at));
        }
        // Nobody is left who would seed a missing count.
        Vote::Late(primary) => {
            let count = next.count(primary);
            *count = count.map(|votes| votes | 1 << at);
        }
        _ => return None,
    }
    next.votes[at] = Vote::Done;
    Some(next)
}

/// The server's connections end, or a call gets no answer in time. Nobody knows whether the calls over them were run; they
/// may also be run later.
fn cut(state: &State) -> Vec<State> {
    if state.cuts == 0 || state.breaker == Breaker::Open {
        return Vec::new();
    }
    let mut lost = state.clone();
    lost.cuts -= 1;
    lost.breaker = Breaker::Open;
    let (mut run, mut late) = (lost.clone(), lost.clone());
    for at in 0..VOTES {
        if let Vote::Called(primary) = state.votes[at] {
            run = call_step(&run, at).unwrap_or(run);
            lost.votes[at] = Vote::Done;
            late.votes[at] = Vote::Late(primary);
            (lost.is_suspect, run.is_suspect, late.is_suspect) = (true, true, true);
        }
    }
    vec![lost, run, late]
}
