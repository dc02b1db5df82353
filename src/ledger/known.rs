//! Items that are known to exist, so that Postgres need not look for them again with
//! each vote.

use std::collections::HashSet;

/// How many items a connection remembers, at the most: 16 bytes each and room to
/// spare, some 4 MiB for each lane of a server.
const KNOWN_LIMIT_ITEMS: usize = 100_000;

/// Items that were seen over one connection. They are never deleted (`0001_item.sql`
/// holds that), so what was seen once is there as long as this is the same database;
/// and none that is restored, or takes over from it, keeps a connection open. It must
/// therefore never outlive its connection.
#[derive(Debug, Default)]
pub(super) struct KnownItems {
    ids: HashSet<i64>,
}

impl KnownItems {
    /// Those of these items that are not known, each once, in order.
    pub fn unknown_among(&self, items: impl Iterator<Item = i64>) -> Vec<i64> {
        let mut unknown: Vec<i64> = items.filter(|id| !self.ids.contains(id)).collect();
        unknown.sort_unstable();
        unknown.dedup();
        unknown
    }

    /// Notes items that Postgres has just said to exist. Begins afresh when it is
    /// full: what is voted on is soon back.
    pub fn add(&mut self, items: &[i64]) {
        if self.ids.len() + items.len() > KNOWN_LIMIT_ITEMS {
            self.ids.clear();
        }
        self.ids.extend(items);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_asked_for_until_it_is_known() {
        let mut known = KnownItems::default();
        assert_eq!(known.unknown_among([3, 1, 3, 2].into_iter()), [1, 2, 3]);
        known.add(&[1, 3]);
        assert_eq!(known.unknown_among([3, 1, 3, 2].into_iter()), [2]);
    }

    #[test]
    fn what_is_remembered_has_a_limit() {
        let mut known = KnownItems::default();
        for id in 0..3 * KNOWN_LIMIT_ITEMS as i64 {
            known.add(&[id]);
            assert!(known.ids.len() <= KNOWN_LIMIT_ITEMS);
            assert!(known.unknown_among([id].into_iter()).is_empty());
        }
    }
}
