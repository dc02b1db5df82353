//! Buckets: how items are spread over a Redis Cluster. A bucket is a 12th of the items, and all keys of a bucket are in
//! one hash slot, so that one call of a script takes all items of a batch that share a bucket. A Redis that is no Cluster
//! has one bucket with all items.

use std::fmt;

use crate::domain::ItemId;

/// How many buckets a Redis Cluster has. It never changes once there is a release: an item's key
/// holds its bucket's tag. The fewer there are, the
/// less a batch costs, and the more nodes are without one. 12 are as many for each of 2, 3, 4, 6 or 12 primaries:
/// docs/decisions/redis/buckets-in-a-cluster.md.
pub const BUCKETS: u8 = 12;
/// The hash slots of a Redis Cluster.
#[cfg(test)]
const SLOTS: u16 = 16_384;

/// The hash tag of each bucket. Of all tags with two letters or digits, it is the one whose slot is nearest to the middle
/// of the bucket's 12th of all slots, so that primaries with equally many slots have equally many buckets.
const TAGS: [&str; BUCKETS as usize] = [
    "aR", "7X", "Zd", "4X", "bR", "Kf", "mz", "QT", "1X", "8p", "U7", "ib",
];

/// A bucket: 0 to 11.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bucket(u8);

impl Bucket {
    /// The first one; the only one of a Redis that is no Cluster.
    pub const FIRST: Self = Self(0);

    /// An item's bucket in a Redis Cluster.
    pub(super) fn of(item: ItemId) -> Self {
        Self(item.get().rem_euclid(i64::from(BUCKETS)) as u8)
    }

    /// The first so many buckets, in order.
    pub(super) fn first(number: u8) -> impl ExactSizeIterator<Item = Self> {
        (0..number.min(BUCKETS)).map(Self)
    }

    /// Two ids of this bucket that no item has.
    pub(super) fn no_items(self) -> impl Iterator<Item = ItemId> {
        let buckets = i64::from(BUCKETS);
        let last = i64::MAX - i64::MAX % buckets - buckets + i64::from(self.0);
        [last - buckets, last].into_iter().filter_map(ItemId::new)
    }

    /// Its place among all, as Postgres notes it.
    pub fn place(self) -> i16 {
        i16::from(self.0)
    }

    /// Its place among all.
    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// The hash tag of its keys.
    pub(super) fn tag(self) -> &'static str {
        TAGS[self.index()]
    }

    /// The hash slot of its keys.
    pub(super) fn slot(self) -> u16 {
        slot(self.tag())
    }
}

impl fmt::Display for Bucket {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// The hash slot of a key with this tag: its CRC16 (XMODEM) in 14 bits, as the Redis Cluster specification says.
fn slot(tag: &str) -> u16 {
    let crc = tag.bytes().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 }
        })
    });
    crc & 0x3fff
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        // The example of the specification: 123456789 has the CRC 0x31C3.
        assert_eq!(slot("123456789"), 0x31C3);
        assert_eq!(slot("foo"), 12_182);
    }

    #[test]
    fn each_bucket_has_a_slot_in_its_own_12th() {
        let slots: Vec<u16> = Bucket::first(BUCKETS).map(Bucket::slot).collect();
        for (number, slot) in slots.iter().enumerate() {
            let part = u32::from(*slot) * u32::from(BUCKETS) / u32::from(SLOTS);
            assert_eq!(part as usize, number);
        }
        assert_eq!(TAGS.iter().collect::<HashSet<_>>().len(), TAGS.len());
    }

    #[test]
    fn each_bucket_has_ids_that_no_item_has() {
        for bucket in Bucket::first(BUCKETS) {
            assert!(bucket.no_items().all(|item| Bucket::of(item) == bucket));
            assert_eq!(bucket.no_items().count(), 2);
        }
    }
}
