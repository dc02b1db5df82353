//! Counts that Tally moves between the ledger, Redis and the items.

use super::{ItemId, Revision, Snapshot};

/// An item's exact count, and the snapshot that it was read under.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ExactCount {
    pub item_id: ItemId,
    pub count: i64,
    /// The revision of the item's saved count; `None` if it was never saved.
    pub counted_at: Option<Revision>,
    pub snapshot: Snapshot,
}

/// A live count or an exact count that is to be saved to its item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountToSave {
    pub item_id: ItemId,
    pub count: i64,
    pub revision: Revision,
}

/// What a batch adds to one item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CountDelta {
    pub item_id: ItemId,
    /// The sum of the batch's accepted votes. 0 only reads the live count, but leases a missing
    /// one.
    pub delta: i64,
}
