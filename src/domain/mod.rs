//! Types and rules that every module shares. No I/O.

mod count;
mod item;
mod owner;
mod revision;
mod snapshot;
mod vote;

pub use count::{CountDelta, CountToSave, ExactCount};
pub use item::{InvalidItemName, Item, ItemId, ItemName};
pub use owner::Owner;
pub use revision::{RedisTime, Revision};
pub use snapshot::{InvalidSnapshot, RUNNING_LIMIT_TRANSACTIONS, Snapshot, TransactionId};
pub use vote::{InvalidValue, InvalidVoterId, NewVote, StoredVote, Value, VoteId, VoteOutcome, VoterId};
