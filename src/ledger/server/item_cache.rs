//! What a connection has told of items, so that Postgres need not be asked for it again
//! with each vote or read.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// For how long it is remembered, at the most. An item that goes away behind our back,
/// with a dump that is restored under a running server, say, takes no votes for longer
/// than that; one that is renamed has its old name for no longer.
const ITEM_CACHE_LIMIT: Duration = Duration::from_secs(60);

/// Items that were seen over one connection, with what else of them is remembered. They
/// are never deleted (`0001_item.sql` holds that), so what was seen once is there as long
/// as this is the same database; and after a failover or a restart of Postgres it is
/// another connection. It must therefore never outlive its connection.
#[derive(Debug)]
pub(super) struct ItemCache<Value = ()> {
    items: HashMap<i64, Value>,
    limit_items: usize,
    since: Instant,
}

impl<Value> ItemCache<Value> {
    /// Of at most `limit_items` items.
    pub fn new(limit_items: usize) -> Self {
        Self {
            items: HashMap::new(),
            limit_items,
            since: Instant::now(),
        }
    }

    /// Forgets all of it.
    pub fn clear(&mut self) {
        self.items.clear();
        self.since = Instant::now();
    }

    /// Begins anew when the time is over.
    fn refresh(&mut self) {
        if self.since.elapsed() >= ITEM_CACHE_LIMIT {
            self.clear();
        }
    }

    /// What is remembered of these items, in their order.
    pub fn of(&mut self, items: impl Iterator<Item = i64>) -> Vec<Option<&Value>> {
        self.refresh();
        items.map(|id| self.items.get(&id)).collect()
    }

    /// Those of these items that are not known, each once, in order.
    pub fn unknown_among(&mut self, items: impl Iterator<Item = i64>) -> Vec<i64> {
        self.refresh();
        let mut unknown: Vec<i64> = items.filter(|id| !self.items.contains_key(id)).collect();
        unknown.sort_unstable();
        unknown.dedup();
        unknown
    }

    /// Notes items that Postgres has just said to exist. Begins anew when it is
    /// full: what is asked for often is soon back.
    pub fn add(&mut self, items: impl ExactSizeIterator<Item = (i64, Value)>) {
        if self.items.len() + items.len() > self.limit_items {
            self.items.clear();
        }
        self.items.extend(items);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT_ITEMS: usize = 1000;

    fn add(known: &mut ItemCache, items: &[i64]) {
        known.add(items.iter().map(|id| (*id, ())));
    }

    #[test]
    fn an_item_is_asked_for_until_it_is_known() {
        let mut known = ItemCache::new(LIMIT_ITEMS);
        assert_eq!(known.unknown_among([3, 1, 3, 2].into_iter()), [1, 2, 3]);
        add(&mut known, &[1, 3]);
        assert_eq!(known.unknown_among([3, 1, 3, 2].into_iter()), [2]);
        assert_eq!(known.of([2, 3].into_iter()), [None, Some(&())]);
    }

    #[test]
    fn what_was_known_for_long_is_asked_for_again() {
        let mut known = ItemCache::new(LIMIT_ITEMS);
        let long_ago = || Instant::now().checked_sub(ITEM_CACHE_LIMIT).expect("an uptime");
        add(&mut known, &[1]);
        assert!(known.unknown_among([1].into_iter()).is_empty());
        known.since = long_ago();
        assert_eq!(known.unknown_among([1].into_iter()), [1]);
        add(&mut known, &[1]);
        assert!(known.unknown_among([1].into_iter()).is_empty());
        known.since = long_ago();
        assert_eq!(known.of([1].into_iter()), [None]);
    }

    #[test]
    fn what_is_remembered_has_a_limit() {
        let mut known = ItemCache::new(LIMIT_ITEMS);
        for id in 0..3 * LIMIT_ITEMS as i64 {
            add(&mut known, &[id]);
            assert!(known.items.len() <= LIMIT_ITEMS);
            assert!(known.unknown_among([id].into_iter()).is_empty());
        }
    }
}
