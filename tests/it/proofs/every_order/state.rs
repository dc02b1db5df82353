//! A state of the model: one item in Redis and Postgres, and who works on it.

use std::sync::Arc;

use crate::proofs::one_vote_batch::Batch;

/// Votes as a set of bits.
pub(super) type Votes = u8;

/// What a worker does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Worker {
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

/// An exact count, and what was read before it and with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Rebuilt {
    pub epoch: u8,
    pub count: i8,
    pub counted_at: u8,
}

/// What a roll-up does next, once it has passed some votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum RollUp {
    /// Passes votes, and reads the epoch's number.
    Pass,
    /// Saves without a look at Redis. A count that was saved before `since` has no vote that was not passed then.
    SaveQuickly {
        votes: Votes,
        since: Option<u8>,
        /// Redis' time before the roll-up.
        time: u8,
    },
    ReadCounter {
        votes: Votes,
        epoch: u8,
    },
    ReadExact {
        votes: Votes,
        epoch: u8,
    },
    ReadCounterAgain {
        votes: Votes,
        rebuilt: Rebuilt,
    },
    WriteExact {
        votes: Votes,
        rebuilt: Rebuilt,
        revision: u8,
    },
    Invalidate {
        votes: Votes,
    },
}

/// What the worker that enters another epoch after a wipe does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Entry {
    Done,
    RaiseNumber,
    InvalidateCounter,
    Compare,
}

/// The live count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Live {
    pub count: i8,
    pub revision: u8,
    pub saved: u8,
    /// The votes that the seed has seen.
    pub snapshot: Votes,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub committed: Votes,
    pub live: Option<Live>,
    /// The revision that `rev` keeps without a live count; 0: none.
    pub floor: u8,
    pub lease: u8,
    pub rebuild: u8,
    /// The saved count, and its counted_at.
    pub saved_count: i8,
    pub counted_at: u8,
    /// Redis' time. Every step that draws a revision moves it.
    pub now: u8,
    /// The last lease or request that was drawn.
    pub drawn: u8,
    pub epoch: u8,
    pub entry: Entry,
    pub batches: Vec<Arc<Batch>>,
    pub workers: Vec<Worker>,
    /// The roll-up of the worker that has its lease.
    pub roll_up: RollUp,
    /// The roll-up of a worker that has lost its lease, and does not know it yet.
    pub stale_roll_up: RollUp,
    /// The votes that the token stands for.
    pub cold: Votes,
    /// The votes that a roll-up has passed, and that are noted as saved: they are in a live count or in the saved count.
    pub noted: Votes,
    /// The votes that roll-ups have passed, if there are quick saves. They come in the order of their drawing.
    pub passed: Votes,
    /// Of roll-ups, if there are quick saves: Redis' time before it, and the votes that were drawn then.
    pub roll_ups: Vec<(u8, Votes)>,
    /// The votes that the saved count must have: a reader may have been sent to it.
    pub promised: Votes,
    pub left: Left,
}

/// What may still happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Left {
    pub invalidations: u8,
    pub wipes: u8,
    pub time_outs: u8,
    pub clock_steps: u8,
    /// Replies that an item is cold.
    pub cold: u8,
    /// Workers that take a roll-up over.
    pub take_overs: u8,
    /// Votes that a roll-up passes while they are in flight.
    pub stalls: u8,
    /// How roll-ups save without a look at Redis.
    pub quick: Quick,
}

/// How roll-ups save without a look at Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Quick {
    /// They always look.
    No,
    /// As the worker does: over the audited count, if nobody has written the item's row since an earlier roll-up,
    /// and only in the epoch of that one. No time is compared.
    Unwritten,
    /// A mutant: over the audited count, if its revision is a time before that roll-up.
    ByTime,
    /// The same, with Redis' time before the roll-up for a revision.
    RevisionNow,
    /// A mutant: over a count that was saved at any time.
    AnyTime,
    /// A mutant: over any count, not only over the audited one.
    AnyCount,
}

impl Left {
    /// The same, with votes on cold items.
    pub const fn cold(self) -> Self {
        Self {
            cold: u8::MAX,
            ..self
        }
    }

    /// The same, with a worker that takes a roll-up over.
    pub const fn take_over(self) -> Self {
        Self {
            take_overs: 1,
            ..self
        }
    }

    /// The same, with votes on cold items and quick saves.
    pub const fn quick(self, quick: Quick) -> Self {
        Self { quick, ..self.cold() }
    }

    /// The same, with a vote that a roll-up passes in flight.
    pub const fn stall(self) -> Self {
        Self { stalls: 1, ..self }
    }
}

/// Nothing but batches and workers.
pub(super) const NOTHING: Left = Left {
    invalidations: 0,
    wipes: 0,
    time_outs: 0,
    clock_steps: 0,
    cold: 0,
    take_overs: 0,
    stalls: 0,
    quick: Quick::No,
};

impl State {
    pub fn draw(&mut self) -> u8 {
        self.drawn += 1;
        self.drawn
    }

    /// Whether a reader takes the saved count for the current one.
    pub fn is_saved_count_read(&self) -> bool {
        self.live.is_none() && self.rebuild == 0 && self.cold == 0 && self.entry == Entry::Done
    }

    /// Notes a roll-up that begins now.
    pub fn note_roll_up(&mut self) {
        // After a step back, the times before say nothing.
        let time = if self.left.quick == Quick::Unwritten {
            0
        } else {
            self.now
        };
        if self.roll_ups.last().is_some_and(|(last, _)| *last > time) {
            self.roll_ups.clear();
        }
        self.roll_ups.retain(|(_, drawn)| *drawn != self.committed);
        self.roll_ups.push((time, self.committed));
    }

    /// The last noted time before which no vote was drawn that is not passed. Forgets earlier ones.
    pub fn without_later_votes(&mut self) -> Option<u8> {
        let at = self
            .roll_ups
            .iter()
            .rposition(|(_, drawn)| drawn & !self.passed == 0)?;
        self.roll_ups.drain(..at);
        Some(self.roll_ups[0].0)
    }

    /// Saves a count.
    pub fn save(&mut self, count: i8, counted_at: u8) {
        (self.saved_count, self.counted_at) = (count, counted_at);
        if self.left.quick == Quick::Unwritten {
            self.forget_roll_ups();
        }
    }

    /// Earlier roll-ups say nothing about the saved count from now on.
    pub fn forget_roll_ups(&mut self) {
        self.roll_ups.clear();
        for roll_up in [&mut self.roll_up, &mut self.stale_roll_up] {
            if let RollUp::SaveQuickly { since, .. } = roll_up {
                *since = None;
            }
        }
    }

    /// Drops the entries of the count in Redis, but not the rebuild request.
    pub fn drop_count(&mut self) {
        self.live = None;
        self.floor = 0;
    }
}
