//! Pure rules and types, shared by every room. No I/O.

mod count;
mod item;
mod snapshot;
mod vote;

pub use count::{CountDelta, CountToSave, ExactCount};
pub use item::{InvalidItemName, ItemId, ItemName};
pub use snapshot::{InvalidSnapshot, Rev, Snapshot, TransactionId};
pub use vote::{InvalidValue, InvalidVoterId, NewVote, Outcome, StoredVote, Value, VoterId};
