//! Items that are known to exist, so that Postgres need not look for them again with
//! each vote.

use std::collections::HashSet;
use std::time::{Duration, Instant};

/// How many items a connection remembers, at the most: a good megabyte for each lane.
const KNOWN_LIMIT_ITEMS: usize = 100_000;
/// For how long, at the most. An item that goes away behind our back, with a dump that is
/// restored under a running server, say, takes no votes for longer than that.
const KNOWN_LIMIT: Duration = Duration::from_secs(60);

/// Items that were seen over one connection. They are never deleted (`0001_item.sql`
/// holds that), so what was seen once is there as long as this is the same database;
/// and after a failover or a restart of Postgres it is another connection. It must
/// therefore never outlive its connection.
#[derive(Debug)]
pub(super) struct KnownItems {
    ids: HashSet<i64>,
    since: Instant,
}

impl KnownItems {
    pub fn new() -> Self {
        Self {
            ids: HashSet::new(),
            since: Instant::now(),
        }
    }

    /// Those of these items that are not known, each once, in order. Begins afresh when
    /// the time is over.
    pub fn unknown_among(&mut self, items: impl Iterator<Item = i64>) -> Vec<i64> {
        if self.since.elapsed() >= KNOWN_LIMIT {
            *self = Self::new();
        }
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
        let mut known = KnownItems::new();
        assert_eq!(known.unknown_among([3, 1, 3, 2].into_iter()), [1, 2, 3]);
        known.add(&[1, 3]);
        assert_eq!(known.unknown_among([3, 1, 3, 2].into_iter()), [2]);
    }

    #[test]
    fn what_was_known_for_long_is_asked_for_again() {
        let mut known = KnownItems::new();
        known.add(&[1]);
        assert!(known.unknown_among([1].into_iter()).is_empty());
        known.since = Instant::now().checked_sub(KNOWN_LIMIT).expect("an uptime");
        assert_eq!(known.unknown_among([1].into_iter()), [1]);
        known.add(&[1]);
        assert!(known.unknown_among([1].into_iter()).is_empty());
    }

    #[test]
    fn what_is_remembered_has_a_limit() {
        let mut known = KnownItems::new();
        for id in 0..3 * KNOWN_LIMIT_ITEMS as i64 {
            known.add(&[id]);
            assert!(known.ids.len() <= KNOWN_LIMIT_ITEMS);
            assert!(known.unknown_among([id].into_iter()).is_empty());
        }
    }
}
