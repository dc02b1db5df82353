//! The roll-up in the model: it passes votes, and saves the item if it is cold. `src/sync/cold_items.rs`

use std::sync::Arc;

use super::state::{Quick, Rebuilt, RollUp, State, Votes};
use super::steps::Model;
use crate::proofs::one_vote_batch::Without;

impl Model {
    /// The votes of batches that are done.
    pub fn done(state: &State) -> Votes {
        let batches = state.batches.iter().enumerate();
        batches
            .filter(|(_, batch)| batch.is_done())
            .fold(0, |votes, (at, _)| votes | 1 << at)
            & state.committed
    }

    /// All next steps of roll-ups.
    pub fn roll_up_steps(&self, state: &State) -> Vec<State> {
        // Without cold votes it has nothing to save.
        if self.left.cold == 0 || self.without == Without::ColdSaves {
            return Vec::new();
        }
        let mut all = Vec::new();
        if state.roll_up == RollUp::Pass && self.left.quick != Quick::No {
            all.extend(self.pass_in_order(state));
        } else if state.roll_up == RollUp::Pass {
            let passable = state.committed & !state.noted;
            let in_flight = passable & !Self::done(state);
            for votes in 1..=passable {
                let stalled = votes & in_flight;
                if votes & !passable == 0 && stalled.count_ones() <= state.left.stalls.into() {
                    all.push(self.pass(state, votes, stalled));
                }
            }
        } else {
            let mut next = state.clone();
            next.roll_up = self.save_cold(&mut next, state.roll_up, true);
            all.push(next);
            if state.left.take_overs > 0 {
                let mut next = state.clone();
                next.stale_roll_up = state.roll_up;
                next.roll_up = RollUp::Pass;
                next.left.take_overs -= 1;
                all.push(next);
            }
        }
        if state.stale_roll_up != RollUp::Pass {
            let mut next = state.clone();
            next.stale_roll_up = self.save_cold(&mut next, state.stale_roll_up, false);
            all.push(next);
        }
        all
    }

    /// Passes these votes. Those that are in flight are late from now on.
    fn pass(&self, state: &State, votes: Votes, stalled: Votes) -> State {
        let mut next = state.clone();
        next.stall(stalled);
        next.roll_up = RollUp::ReadCounter {
            votes,
            epoch: state.epoch,
        };
        next
    }

    /// Passes votes in order, for a quick save. Before that, saves passed votes that are not noted as saved.
    fn pass_in_order(&self, state: &State) -> Vec<State> {
        let mut all = Vec::new();
        let mut begun = state.clone();
        begun.note_roll_up();
        let (since, time) = (begun.without_later_votes(), state.now);
        let left = state.passed & !state.noted;
        if left != 0 {
            begun.roll_up = RollUp::ReadCounter {
                votes: left,
                epoch: state.epoch,
            };
            return vec![begun];
        }
        let mut passed = state.passed;
        while passed != state.committed {
            passed = passed << 1 | 1;
            let votes = passed & !state.passed;
            let stalled = votes & !Self::done(state);
            if stalled.count_ones() > state.left.stalls.into() {
                break;
            }
            let mut next = begun.clone();
            next.stall(stalled);
            next.passed = passed;
            next.without_later_votes();
            let is_timed = self.left.quick == Quick::RevisionNow;
            next.roll_up = RollUp::SaveQuickly {
                votes,
                since,
                time: if is_timed { time } else { 0 },
            };
            all.push(next);
        }
        all
    }

    /// A step after votes were passed. Only a worker with the lease may note them as saved.
    fn save_cold(&self, next: &mut State, roll_up: RollUp, has_lease: bool) -> RollUp {
        let note = |next: &mut State, votes: Votes| {
            if has_lease {
                next.noted |= votes;
                next.cold &= !votes;
            }
            RollUp::Pass
        };
        let is_left_alone = next.live.is_some() || next.rebuild != 0;
        match roll_up {
            RollUp::Pass => unreachable!("there is nothing to save"),
            RollUp::SaveQuickly { votes, since, time } => {
                // One statement: it reads the audited counts of now.
                let audited = self.sum(next.passed);
                let is_old = match self.left.quick {
                    Quick::AnyTime => true,
                    Quick::Unwritten => since.is_some(),
                    _ => since.is_some_and(|since| next.counted_at < since),
                };
                let is_audited =
                    next.saved_count == audited - self.sum(votes) || self.left.quick == Quick::AnyCount;
                if is_old && is_audited {
                    next.save(audited, (next.counted_at + 1).max(time));
                    note(next, votes)
                } else {
                    RollUp::ReadCounter {
                        votes,
                        epoch: next.epoch,
                    }
                }
            }
            RollUp::ReadCounter { votes, .. } if is_left_alone => note(next, votes),
            RollUp::ReadCounter { votes, epoch } => RollUp::ReadExact { votes, epoch },
            RollUp::ReadExact { votes, epoch } => RollUp::ReadCounterAgain {
                votes,
                rebuilt: Rebuilt {
                    epoch,
                    count: self.sum(next.committed),
                    counted_at: next.counted_at,
                },
            },
            RollUp::ReadCounterAgain { votes, .. }
                if is_left_alone && self.without != Without::ColdSecondRead =>
            {
                note(next, votes)
            }
            RollUp::ReadCounterAgain { votes, rebuilt } => {
                let revision = next.now.max(rebuilt.counted_at + 1);
                // Only quick saves compare this time with a later one.
                next.now += u8::from(self.left.quick != Quick::No);
                RollUp::WriteExact {
                    votes,
                    rebuilt,
                    revision,
                }
            }
            RollUp::WriteExact { rebuilt, .. } if rebuilt.epoch != next.epoch => RollUp::Pass,
            RollUp::WriteExact {
                votes,
                rebuilt,
                revision,
            } => {
                let is_as_read = if self.without == Without::ColdCompareAndSet {
                    next.counted_at <= revision
                } else {
                    next.counted_at == rebuilt.counted_at
                };
                if is_as_read {
                    next.save(rebuilt.count, revision);
                    note(next, votes)
                } else if self.without == Without::ColdRebuild {
                    note(next, votes)
                } else {
                    RollUp::Invalidate { votes }
                }
            }
            RollUp::Invalidate { votes } => {
                self.invalidate(next);
                note(next, votes)
            }
        }
    }
}

impl State {
    /// These votes in flight were passed: they are late from now on.
    fn stall(&mut self, votes: Votes) {
        for (at, batch) in self.batches.iter_mut().enumerate() {
            if votes & (1 << at) != 0 {
                *batch = Arc::new(batch.passed());
                self.left.stalls -= 1;
            }
        }
    }
}
