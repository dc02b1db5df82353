//! Types and rules that every module shares. No I/O.

mod count;
mod id;
mod item;
mod moment;
mod owner;
mod poll;
mod revision;
mod rule;
mod snapshot;
mod vote;

pub use count::{Count, CountDelta, CountToSave, ExactCount};
pub use item::{InvalidItemName, Item, ItemId, ItemName};
pub use moment::{InvalidMoment, Moment};
pub use owner::Owner;
pub use poll::{CHOICES_LIMIT_ITEMS, NewPoll, Poll, PollState};
pub use revision::{RedisTime, Revision};
pub use rule::{ItemRules, NewItem, PollId, Refusal};
pub use snapshot::{InvalidSnapshot, RUNNING_LIMIT_TRANSACTIONS, Snapshot, TransactionId};
pub use vote::{
    InvalidValue, InvalidVoterId, NewVote, StoredVote, Value, VoteId, VoteOutcome, VoteRequest, VoterId,
};
