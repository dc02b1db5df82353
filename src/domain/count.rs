//! Counts on their way between the ledger, the live counts and the items.

use super::{ItemId, Revision, Snapshot};

/// An item's exact count, and the snapshot that it was read under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExactCount {
    pub item_id: ItemId,
    pub count: i64,
    /// The revision of the item's saved count; `None` if it was never saved.
    pub counted_at: Option<Revision>,
    pub snapshot: Snapshot,
}

/// A count to write behind to its item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountToSave {
    pub item_id: ItemId,
    pub count: i64,
    pub revision: Revision,
}

/// What a batch adds to one item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountDelta {
    pub item_id: ItemId,
    /// The sum of the batch's accepted votes; 0 only reads, and leases a missing count.
    pub delta: i64,
}
