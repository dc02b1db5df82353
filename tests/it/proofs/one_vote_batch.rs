//! A batch of one vote, step by step, for `drawn_orders/` and `every_order/`.
//!
//! `tally::votes::Counting` orders its steps, which the server drives in `votes/batch_counting.rs`. A
//! search makes each call, on the real stores or on a model of them, and passes the reply on. Some
//! mutants break a rule of `Counting` here.

use tally::domain::{Count, CountDelta, ExactCount, ItemId, TransactionId};
use tally::live::{CountReply, Seed};
use tally::votes::{Counting, Step};

/// A piece of the protocol that can be taken away.
/// Without any one of them, both searches must find a violation. Only the model has `CommitFirst` and the pieces
/// of cold votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Without {
    Nothing,
    /// Every batch is added to the live count, also a batch that the seed has seen.
    VisibilitySnapshot,
    /// A seed needs no lease.
    Lease,
    /// A count is saved even below the item's `counted_at`.
    CountedAtGuard,
    /// A live count is marked as saved by its value, not by its revision.
    Revision,
    /// The exact count is read before the first lease is taken.
    ExactCountAfterLease,
    /// A later round seeds the exact count of the first round, under its own lease.
    ExactCountOfItsRound,
    /// A batch that gives up leaves no suspects.
    Suspects,
    /// An invalidation forgets the revision of the dropped count.
    InvalidationFloor,
    /// A seed may reuse a revision of a dropped count.
    SeedFloor,
    /// A rebuild may claim a revision of a dropped count.
    ClaimAboveFloor,
    /// The claimed revision is not kept in Redis. And a flush writes over another count with its revision:
    /// either piece alone suffices.
    ClaimFloor,
    /// A rebuild writes over any count of its item with a lower revision.
    CompareAndSet,
    /// To clear a request removes the floor, also beside a lease. And a flush writes over another count with its
    /// revision: either piece alone suffices.
    FloorBesideLease,
    /// A new epoch does not raise the number.
    EpochNumber,
    /// The batch is counted before it is committed.
    CommitFirst,
    /// No roll-up saves cold items.
    ColdSaves,
    /// A vote may be cold although someone has a lease.
    LeaseIsWarm,
    /// A vote may be cold although a rebuild is requested.
    RequestIsWarm,
    /// A save of a cold item writes over any count with a lower revision.
    ColdCompareAndSet,
    /// A save of a cold item does not look for a live count again, after it has read the exact count. And a
    /// flush writes over another count with its revision: either piece alone suffices.
    ColdSecondRead,
    /// A save of a cold item that finds another saved count requests no rebuild.
    ColdRebuild,
    /// A vote that a roll-up has passed before it was counted leaves no suspect if its item is cold.
    LateSuspects,
}

/// A batch of one vote.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Batch {
    delta: CountDelta,
    rounds: usize,
    without: Without,
    /// An exact count that a mutant keeps and seeds with.
    kept: Option<Vec<ExactCount>>,
    /// A roll-up has passed its vote, while it was in flight.
    is_late: bool,
    state: State,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State {
    Uncommitted,
    Counting(Counting),
    BatchCounting(Counting, Vec<Seed>),
    /// The batch gave up: the repair task must invalidate these items.
    GivenUp(Vec<ItemId>),
    Done,
}

/// What a batch writer, or its repair task, does next.
#[derive(Clone, Debug)]
pub enum Call {
    Commit,
    Count(TransactionId, Vec<CountDelta>),
    ReadExactCounts(Vec<ItemId>),
    Seed(Vec<Seed>),
    Invalidate(Vec<ItemId>),
}

/// The reply to a call of the same kind.
#[derive(Debug)]
pub enum Reply {
    Committed(TransactionId),
    Counted(Vec<CountReply>),
    ExactCounts(Vec<ExactCount>),
    Seeded(Vec<bool>),
    Invalidated,
}

impl Batch {
    /// A batch that is not stored yet, and makes this many rounds.
    pub fn new(delta: CountDelta, rounds: usize, without: Without) -> Self {
        Self {
            delta,
            rounds,
            without,
            kept: None,
            is_late: false,
            state: State::Uncommitted,
        }
    }

    /// A batch that is counted before its commit: the mutant [`Without::CommitFirst`].
    pub fn counted_first(delta: CountDelta, rounds: usize, transaction: TransactionId) -> Self {
        let counting = Counting::with_rounds(transaction, vec![delta], rounds);
        Self {
            state: State::Counting(counting),
            ..Self::new(delta, rounds, Without::CommitFirst)
        }
    }

    /// What the batch adds to its item.
    pub fn delta(&self) -> Count {
        self.delta.delta
    }

    /// Whether nothing is left to do.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// The batch after a roll-up has passed its vote. The server knows it by the time that it took.
    #[must_use]
    pub fn passed(&self) -> Self {
        Self {
            is_late: !self.is_done(),
            ..self.clone()
        }
    }

    /// The next call; `None` when nothing is left to do.
    pub fn call(&self) -> Option<Call> {
        match &self.state {
            State::Uncommitted => Some(Call::Commit),
            State::Counting(counting) => match counting.step() {
                Step::Count(_) if self.reads_early() => Some(Call::ReadExactCounts(vec![self.delta.item_id])),
                Step::Count(deltas) => Some(Call::Count(counting.transaction(), deltas)),
                Step::Seed(missing) => Some(Call::ReadExactCounts(missing)),
                Step::Done | Step::GiveUp => unreachable!("another state stands for it"),
            },
            State::BatchCounting(_, seeds) => Some(Call::Seed(seeds.clone())),
            State::GivenUp(items) => Some(Call::Invalidate(items.clone())),
            State::Done => None,
        }
    }

    /// The batch after its call got this reply.
    #[must_use]
    pub fn after(&self, reply: Reply) -> Self {
        let mut next = self.clone();
        next.state = match (self.state.clone(), reply) {
            (State::Uncommitted, Reply::Committed(_)) if self.without == Without::CommitFirst => State::Done,
            (State::Uncommitted, Reply::Committed(transaction)) => {
                State::Counting(Counting::with_rounds(transaction, vec![self.delta], self.rounds))
            }
            (State::Counting(mut counting), Reply::Counted(replies)) => {
                let is_suspect = self.is_late && self.without != Without::LateSuspects;
                if is_suspect && replies.contains(&CountReply::Cold) {
                    State::GivenUp(vec![self.delta.item_id])
                } else {
                    counting.counted(replies);
                    self.state_of(counting)
                }
            }
            (State::Counting(counting), Reply::ExactCounts(exact)) if self.reads_early() => {
                next.kept = Some(exact);
                State::Counting(counting)
            }
            (State::Counting(mut counting), Reply::ExactCounts(exact)) => {
                if self.without == Without::ExactCountOfItsRound {
                    next.kept = Some(exact.clone());
                }
                counting.cold_counts(&exact);
                let seeds = counting.seeds(exact);
                if seeds.is_empty() {
                    self.state_of(counting)
                } else {
                    State::BatchCounting(counting, seeds)
                }
            }
            (State::BatchCounting(mut counting, seeds), Reply::Seeded(replies)) => {
                counting.seeded(&seeds, &replies);
                self.state_of(counting)
            }
            (State::GivenUp(_), Reply::Invalidated) => self.last_state(),
            (state, reply) => panic!("{reply:?} is no reply to the call of {state:?}"),
        };
        next
    }

    fn reads_early(&self) -> bool {
        self.without == Without::ExactCountAfterLease && self.kept.is_none()
    }

    fn state_of(&self, mut counting: Counting) -> State {
        match (counting.step(), &self.kept) {
            (Step::Seed(_), Some(kept)) => {
                let seeds = counting.seeds(kept.clone());
                State::BatchCounting(counting, seeds)
            }
            (Step::Count(_) | Step::Seed(_), _) => State::Counting(counting),
            (Step::Done, _) => self.last_state(),
            (Step::GiveUp, _) => {
                let suspects = counting.give_up();
                if suspects.is_empty() || self.without == Without::Suspects {
                    self.last_state()
                } else {
                    State::GivenUp(suspects)
                }
            }
        }
    }

    fn last_state(&self) -> State {
        if self.without == Without::CommitFirst {
            State::Uncommitted
        } else {
            State::Done
        }
    }
}
