//! Counts that Tally moves between the ledger, Redis and the items.

use std::fmt;
use std::ops::{Add, AddAssign, Neg};

use super::{ItemId, Revision, Snapshot};

/// An item's count, or a part of one. It is a sum of votes, and how many of them are down-votes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Count {
    /// Up-votes less down-votes.
    pub net: i64,
    /// Down-votes.
    pub downs: i64,
}

impl Count {
    /// No votes.
    pub const ZERO: Self = Self { net: 0, downs: 0 };

    /// The count of one row of the ledger. Each even `change_number` casts a vote, and the odd one
    /// after it takes the vote back.
    pub fn of_row(value: i16, change_number: i16) -> Self {
        let net = i64::from(value);
        let downs = match (value < 0, change_number % 2 == 0) {
            (true, true) => 1,
            (false, false) => -1,
            (true, false) | (false, true) => 0,
        };
        Self { net, downs }
    }

    /// Up-votes.
    pub fn ups(self) -> i64 {
        self.net + self.downs
    }

    /// The least number of votes by which two counts differ. Each vote is up or down.
    pub fn distance(self, other: Self) -> u64 {
        self.ups().abs_diff(other.ups()) + self.downs.abs_diff(other.downs)
    }
}

/// A count of this sum, without down-votes.
impl From<i64> for Count {
    fn from(net: i64) -> Self {
        Self { net, downs: 0 }
    }
}

/// `7 (9 up, 2 down)`
impl fmt::Display for Count {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} ({} up, {} down)", self.net, self.ups(), self.downs)
    }
}

impl Add for Count {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            net: self.net + other.net,
            downs: self.downs + other.downs,
        }
    }
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Neg for Count {
    type Output = Self;

    fn neg(self) -> Self {
        Self {
            net: -self.net,
            downs: -self.downs,
        }
    }
}

/// An item's exact count, and the snapshot that it was read under.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ExactCount {
    pub item_id: ItemId,
    pub count: Count,
    /// The revision of the item's saved count; `None` if it was never saved.
    pub counted_at: Option<Revision>,
    pub snapshot: Snapshot,
}

/// A live or exact count that is to be saved to its item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountToSave {
    pub item_id: ItemId,
    pub count: Count,
    pub revision: Revision,
}

/// What a batch adds to one item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CountDelta {
    pub item_id: ItemId,
    /// The sum of the batch's rows. [`Count::ZERO`] only reads the live count, or takes a lease if
    /// it is missing.
    pub delta: Count,
}

impl CountDelta {
    /// Adds up the deltas of the same item, and sorts them by item.
    pub fn merge(deltas: &mut Vec<Self>) {
        deltas.sort_by_key(|one| one.item_id);
        deltas.dedup_by(|later, first| {
            let is_same = later.item_id == first.item_id;
            if is_same {
                first.delta += later.delta;
            }
            is_same
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_of_a_voter_add_up_to_what_the_voter_holds() {
        // Up, taken back, down, taken back, up.
        let rows = [(1, 0), (-1, 1), (-1, 2), (1, 3), (1, 4)];
        let mut count = Count::ZERO;
        let mut held = Vec::new();
        for (value, change_number) in rows {
            count += Count::of_row(value, change_number);
            held.push((count.ups(), count.downs));
        }
        assert_eq!(held, [(1, 0), (0, 0), (0, 1), (0, 0), (1, 0)]);
        assert_eq!(count, 1.into());
    }

    #[test]
    fn an_up_vote_and_a_down_vote_differ_from_none_although_their_sum_is_0() {
        let both = Count { net: 0, downs: 1 };
        assert_ne!(both, Count::ZERO);
        assert_eq!(both.distance(Count::ZERO), 2);
        assert_eq!(Count::from(3).distance(both), 3);
    }
}
