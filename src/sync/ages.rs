//! How long counts have been unsaved, by this process' own clock. Redis' clock may step. A count's
//! revision says when it changed last, and not since when it is unsaved.

use std::collections::HashMap;

use std::time::Duration;
use tokio::time::Instant;

use crate::domain::{ItemId, Revision};
use crate::live::Counter;

/// How many unsaved counts are remembered: about 10 MB. If there are more, those found first are
/// remembered, and one of them is the oldest.
const AGES_LIMIT_ITEMS: usize = 100_000;
/// After a scan, at most this many counts that it did not meet are read again. Most likely, another
/// worker met and saved them.
pub(super) const UNMET_LIMIT_ITEMS: usize = 1000;

/// Since when this worker knows that each count is unsaved. A new worker knows of none.
#[derive(Debug, Default)]
pub(super) struct UnsavedAges {
    unsaved: HashMap<ItemId, Unsaved>,
    /// When the last scan over all that is unsaved began, of those that ended well.
    scanned: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Unsaved {
    /// The last saved revision. When it changes, the count was saved meanwhile.
    saved: Option<Revision>,
    since: Instant,
    /// When the counter was last read.
    read: Instant,
}

impl UnsavedAges {
    /// Notes that a scan has ended well.
    pub fn scanned(&mut self, began: Instant) {
        self.scanned = Some(began);
    }

    /// Takes a counter that was read just now. What is unsaved for the first time may have changed at any time since
    /// the last scan began: a report must not seem newer than it is.
    pub fn read(&mut self, counter: &Counter, now: Instant) {
        if counter.unsaved().is_none() {
            self.unsaved.remove(&counter.item_id);
            return;
        }
        let fresh = Unsaved {
            saved: counter.saved,
            since: self.scanned.unwrap_or(now),
            read: now,
        };
        let is_full = self.unsaved.len() >= AGES_LIMIT_ITEMS;
        match self.unsaved.get_mut(&counter.item_id) {
            Some(known) if known.saved == counter.saved => known.read = now,
            Some(known) => *known = fresh,
            None if is_full => {}
            None => {
                self.unsaved.insert(counter.item_id, fresh);
            }
        }
    }

    /// Notes that a count was written to its item as it was last read. If it `is_marked`, there was
    /// no change since. Otherwise, only the changes since then are unsaved.
    pub fn written(&mut self, item: ItemId, is_marked: bool) {
        if is_marked {
            self.unsaved.remove(&item);
        } else if let Some(known) = self.unsaved.get_mut(&item) {
            known.since = known.read;
        }
    }

    /// Counts that were not read since then; only some of them if there are many.
    pub fn not_read_since(&self, then: Instant) -> Vec<ItemId> {
        let unmet = self.unsaved.iter().filter(|(_, known)| known.read < then);
        unmet.map(|(item, _)| *item).take(UNMET_LIMIT_ITEMS).collect()
    }

    /// How long the oldest count has been unsaved; 0 if there is none.
    pub fn oldest(&self, now: Instant) -> Duration {
        let ages = self.unsaved.values().map(|known| now.duration_since(known.since));
        ages.max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::RedisTime;

    fn counter(revision: i64, saved: i64) -> Counter {
        Counter {
            item_id: ItemId::new(1).expect("positive"),
            // Redis' clock stands still.
            now: RedisTime::from_micros(1),
            count: Some((1.into(), Revision::from_micros(revision))),
            saved: Some(Revision::from_micros(saved)),
            seeded: None,
            rebuild: None,
        }
    }

    #[test]
    fn a_count_that_goes_on_changing_is_as_old_as_its_first_change_that_is_not_saved() {
        let mut ages = UnsavedAges::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let item = counter(1, 1).item_id;
        ages.read(&counter(2, 1), at(0));
        ages.read(&counter(3, 1), at(5));
        assert_eq!(ages.oldest(at(9)), Duration::from_secs(9));
        // Written as it was at 5, and changed since.
        ages.written(item, false);
        assert_eq!(ages.oldest(at(9)), Duration::from_secs(4));
        // Another worker has marked it saved, and it has changed since.
        ages.read(&counter(4, 3), at(10));
        assert_eq!(ages.oldest(at(11)), Duration::from_secs(1));
        assert_eq!(ages.not_read_since(at(11)), [item]);
        ages.written(item, true);
        assert_eq!(ages.oldest(at(12)), Duration::ZERO);
        ages.read(&counter(5, 4), at(12));
        ages.read(&counter(5, 5), at(13));
        assert_eq!(ages.oldest(at(14)), Duration::ZERO);
    }

    #[test]
    fn a_count_may_have_been_unsaved_since_the_last_scan_began_and_no_longer() {
        let mut ages = UnsavedAges::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        ages.scanned(at(0));
        ages.read(&counter(2, 1), at(5));
        assert_eq!(ages.oldest(at(6)), Duration::from_secs(6));
        ages.scanned(at(5));
        ages.read(&counter(3, 1), at(8));
        assert_eq!(ages.oldest(at(9)), Duration::from_secs(9), "it is still unsaved");
        ages.written(counter(3, 1).item_id, false);
        assert_eq!(
            ages.oldest(at(9)),
            Duration::from_secs(1),
            "written as it was at 8"
        );
    }
}
