//! Counts on their way between the ledger, the live counts and the items.

use super::{ItemId, Rev, Snapshot};

/// An item's exact count, and the snapshot that it was read under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExactCount {
    pub item_id: ItemId,
    pub count: i64,
    /// When the item's saved count last changed; 0 µs if it was never saved.
    pub counted_at: Rev,
    pub snapshot: Snapshot,
}

/// A count to write behind to its item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountToSave {
    pub item_id: ItemId,
    pub count: i64,
    pub rev: Rev,
}

/// What a batch adds to one item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountDelta {
    pub item_id: ItemId,
    /// The sum of the batch's accepted votes; 0 only reads, and leases a missing count.
    pub delta: i64,
}
