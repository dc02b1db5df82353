//! The item cache: what one connection has read of items, so that not every vote or read asks
//! Postgres again.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How old the cache may get. An item may vanish, for example when a dump is restored under a
/// running server: it takes votes for no longer than this. A renamed item keeps its old name
/// for no longer.
const ITEM_CACHE_LIMIT: Duration = Duration::from_secs(60);

/// Items that were read over one connection, each with a value. Items are never deleted
/// (migrations/0001_items.sql forbids it), so an item that was read once exists for as long as
/// this is the same database. After a failover or a restart of Postgres the connection is
/// another one: a cache must never outlive its connection.
#[derive(Debug)]
pub(super) struct ItemCache<Value> {
    items: HashMap<i64, Value>,
    limit_items: usize,
    since: Instant,
}

impl<Value> ItemCache<Value> {
    /// An empty cache, for at most `limit_items` items.
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

    /// Forgets all of it when the cache is too old.
    fn refresh(&mut self) {
        if self.since.elapsed() >= ITEM_CACHE_LIMIT {
            self.clear();
        }
    }

    /// The values of these items, in their order; `None` for an item that is not cached.
    pub fn of(&mut self, items: impl Iterator<Item = i64>) -> Vec<Option<&Value>> {
        self.refresh();
        items.map(|id| self.items.get(&id)).collect()
    }

    /// Adds items that were just read. A full cache forgets all of it first: what is asked for
    /// often is soon back.
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

    fn add(cache: &mut ItemCache<()>, items: &[i64]) {
        cache.add(items.iter().map(|id| (*id, ())));
    }

    #[test]
    fn an_item_is_unknown_until_it_is_added() {
        let mut cache = ItemCache::new(LIMIT_ITEMS);
        assert_eq!(cache.of([3, 1].into_iter()), [None, None]);
        add(&mut cache, &[1, 3]);
        assert_eq!(cache.of([2, 3].into_iter()), [None, Some(&())]);
    }

    #[test]
    fn an_old_cache_forgets_its_items() {
        let mut cache = ItemCache::new(LIMIT_ITEMS);
        let long_ago = || Instant::now().checked_sub(ITEM_CACHE_LIMIT).expect("an uptime");
        add(&mut cache, &[1]);
        assert_eq!(cache.of([1].into_iter()), [Some(&())]);
        cache.since = long_ago();
        assert_eq!(cache.of([1].into_iter()), [None]);
        add(&mut cache, &[1]);
        assert_eq!(cache.of([1].into_iter()), [Some(&())]);
        cache.since = long_ago();
        assert_eq!(cache.of([1].into_iter()), [None]);
    }

    #[test]
    fn items_stay_in_the_cache_while_others_are_added_up_to_its_limit() {
        let mut cache = ItemCache::new(LIMIT_ITEMS);
        for id in 0..LIMIT_ITEMS as i64 {
            add(&mut cache, &[id]);
        }
        assert!(cache.of(0..LIMIT_ITEMS as i64).iter().all(Option::is_some));
    }

    #[test]
    fn a_full_cache_stays_within_its_limit() {
        let mut cache = ItemCache::new(LIMIT_ITEMS);
        for id in 0..3 * LIMIT_ITEMS as i64 {
            add(&mut cache, &[id]);
            assert!(cache.items.len() <= LIMIT_ITEMS);
            assert_eq!(cache.of([id].into_iter()), [Some(&())]);
        }
    }
}
