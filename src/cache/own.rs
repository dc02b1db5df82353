//! A cache of one owner, for what each vote reads.

use quick_cache::unsync::Cache as Entries;
use tokio::time::Instant;

use super::Remembers;

/// The cache of one owner. It has no lock. It uses quick_cache's quick hash, since outsiders do not
/// choose these keys. All entries have one age, which keeps them small. The owner clears it when
/// the connection that it was read over ends.
pub struct OwnCache<R: Remembers> {
    entries: Entries<R::Key, R::Value>,
    /// When the cache was last empty.
    since: Instant,
}

impl<R: Remembers> Default for OwnCache<R> {
    /// An empty cache.
    fn default() -> Self {
        Self {
            entries: Entries::new(R::LIMIT),
            since: Instant::now(),
        }
    }
}

impl<R: Remembers> OwnCache<R> {
    /// Forgets everything.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.since = Instant::now();
    }

    /// The values of these keys, in their order; `None`: a key is not remembered.
    pub fn of(&mut self, keys: impl Iterator<Item = R::Key>) -> Vec<Option<&R::Value>> {
        if R::LIMIT_AGE.is_some_and(|limit| self.since.elapsed() >= limit) {
            self.clear();
        }
        keys.map(|key| self.entries.get(&key)).collect()
    }

    /// Adds what was just read.
    pub fn add(&mut self, read: impl Iterator<Item = (R::Key, R::Value)>) {
        for (key, value) in read {
            self.entries.insert(key, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LIMIT_ITEMS: usize = 1000;
    const LIMIT_AGE: Duration = Duration::from_secs(60);

    struct Items;

    impl Remembers for Items {
        type Key = i64;
        type Value = ();
        const LIMIT: usize = LIMIT_ITEMS;
        const LIMIT_AGE: Option<Duration> = Some(LIMIT_AGE);
    }

    fn add(cache: &mut OwnCache<Items>, items: &[i64]) {
        cache.add(items.iter().map(|id| (*id, ())));
    }

    #[test]
    fn an_item_is_unknown_until_it_is_added() {
        let mut cache = OwnCache::default();
        assert_eq!(cache.of([3, 1].into_iter()), [None, None]);
        add(&mut cache, &[1, 3]);
        assert_eq!(cache.of([2, 3].into_iter()), [None, Some(&())]);
    }

    #[test]
    fn an_old_cache_forgets_its_items() {
        let mut cache = OwnCache::default();
        let long_ago = || Instant::now().checked_sub(LIMIT_AGE).expect("an uptime");
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
        let mut cache = OwnCache::default();
        for id in 0..LIMIT_ITEMS as i64 {
            add(&mut cache, &[id]);
        }
        assert!(cache.of(0..LIMIT_ITEMS as i64).iter().all(Option::is_some));
    }

    #[test]
    fn a_full_cache_stays_within_its_limit() {
        let mut cache = OwnCache::default();
        for id in 0..3 * LIMIT_ITEMS as i64 {
            add(&mut cache, &[id]);
            assert!(cache.entries.len() <= LIMIT_ITEMS);
            assert_eq!(cache.of([id].into_iter()), [Some(&())]);
        }
    }
}
