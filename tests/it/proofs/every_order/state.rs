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
    pub left: Left,
}

/// What may still happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Left {
    pub invalidations: u8,
    pub wipes: u8,
    pub time_outs: u8,
    pub clock_steps: u8,
}

/// Nothing but batches and workers.
pub(super) const NOTHING: Left = Left {
    invalidations: 0,
    wipes: 0,
    time_outs: 0,
    clock_steps: 0,
};

impl State {
    pub fn draw(&mut self) -> u8 {
        self.drawn += 1;
        self.drawn
    }

    /// Drops the entries of the count in Redis, but not the rebuild request.
    pub fn drop_count(&mut self) {
        self.live = None;
        self.floor = 0;
    }
}
