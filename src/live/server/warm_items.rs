//! Warm items: those that were used lately without a live count. A vote on an item that is neither live nor
//! warm is *cold*: it makes no live count, which nobody might ask for again. As long as few are made, all items are
//! as good as warm.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::seed_allowance::SeedAllowance;
use crate::domain::ItemId;

/// How long an item stays warm, at least; twice as long at most. A live count is worth its seed, its saves
/// and its expiry for an item that is used about once a second. A cold one is saved with the next
/// roll-up, together with all its other votes of that second.
const WARM_LEAST: Duration = Duration::from_secs(1);
/// The most items that become warm in that time. Votes on others stay cold.
const WARM_LIMIT_ITEMS: usize = 100_000;

/// Which votes make a live count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seeding {
    /// Those on warm items.
    Warm,
    /// Those on warm items, and as long as few are made all others too.
    WarmOrFew,
    /// All.
    All,
}

/// The warm items of a server.
#[derive(Debug)]
pub(super) struct WarmItems {
    seeding: Seeding,
    /// Of [`Seeding::WarmOrFew`].
    allowance: SeedAllowance,
    used: Mutex<Used>,
}

#[derive(Debug)]
struct Used {
    /// When `latest` began.
    since: Instant,
    latest: HashSet<ItemId>,
    before: HashSet<ItemId>,
}

/// What a batch must know of its items.
pub(super) enum Warm {
    All,
    These(HashSet<ItemId>),
}

impl Warm {
    pub fn is_all(&self) -> bool {
        matches!(self, Self::All)
    }

    pub fn contains(&self, item: ItemId) -> bool {
        match self {
            Self::All => true,
            Self::These(items) => !items.is_empty() && items.contains(&item),
        }
    }
}

impl WarmItems {
    pub fn new(seeding: Seeding) -> Self {
        let used = Used {
            since: Instant::now(),
            latest: HashSet::new(),
            before: HashSet::new(),
        };
        Self {
            seeding,
            allowance: SeedAllowance::new(used.since),
            used: Mutex::new(used),
        }
    }

    /// Which of these items are warm.
    pub fn among(&self, items: impl Iterator<Item = ItemId>, now: Instant) -> Warm {
        let is_all = match self.seeding {
            Seeding::All => true,
            Seeding::WarmOrFew => self.allowance.has_some(now),
            Seeding::Warm => false,
        };
        if is_all {
            return Warm::All;
        }
        let used = self.used(now);
        if used.latest.is_empty() && used.before.is_empty() {
            return Warm::These(HashSet::new());
        }
        let is_warm = |item: &ItemId| used.latest.contains(item) || used.before.contains(item);
        Warm::These(items.filter(is_warm).collect())
    }

    /// Notes that so many live counts were leased to be seeded, by votes or by reads.
    pub fn note_seeds(&self, seeds: usize, now: Instant) {
        self.allowance.spend(seeds, now);
    }

    /// Notes that these items were used without a live count. Returns those that were warm already.
    pub fn note(&self, items: impl Iterator<Item = ItemId>, now: Instant) -> Vec<ItemId> {
        let mut items = items.peekable();
        if self.seeding == Seeding::All || items.peek().is_none() {
            return Vec::new();
        }
        let mut used = self.used(now);
        let mut warm = Vec::new();
        for item in items {
            let is_new = !used.latest.contains(&item);
            if !is_new || used.before.contains(&item) {
                warm.push(item);
            }
            if is_new && used.latest.len() < WARM_LIMIT_ITEMS {
                used.latest.insert(item);
            }
        }
        warm
    }

    fn used(&self, now: Instant) -> MutexGuard<'_, Used> {
        // No panic leaves the sets half changed, so the poison means nothing.
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let age = now.saturating_duration_since(used.since);
        if age >= WARM_LEAST {
            used.since = now;
            used.before = std::mem::take(&mut used.latest);
            if age >= WARM_LEAST * 2 {
                used.before = HashSet::new();
            }
        }
        used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(ids: std::ops::RangeInclusive<i64>) -> impl Iterator<Item = ItemId> {
        ids.filter_map(ItemId::new)
    }

    fn is_warm(warm: &WarmItems, id: i64, now: Instant) -> bool {
        let item = ItemId::new(id).expect("positive");
        warm.among([item].into_iter(), now).contains(item)
    }

    #[test]
    fn an_item_stays_warm_for_a_second_or_two_after_its_last_use() {
        let warm = WarmItems::new(Seeding::Warm);
        let mut now = Instant::now();
        assert!(!is_warm(&warm, 1, now));
        now += WARM_LEAST / 2;
        warm.note(items(1..=1), now);
        for _ in 0..2 {
            now += WARM_LEAST - Duration::from_millis(1);
            assert!(is_warm(&warm, 1, now) && !is_warm(&warm, 2, now));
            warm.note(items(1..=1), now);
        }
        now += WARM_LEAST;
        assert!(is_warm(&warm, 1, now));
        now += WARM_LEAST;
        assert!(!is_warm(&warm, 1, now));
        warm.note(items(1..=1), now);
        now += WARM_LEAST * 5;
        assert!(!is_warm(&warm, 1, now));
    }

    #[test]
    fn all_items_are_as_good_as_warm_until_more_than_a_few_live_counts_were_seeded() {
        let now = Instant::now();
        for (seeding, before, after) in [
            (Seeding::Warm, false, false),
            (Seeding::WarmOrFew, true, false),
            (Seeding::All, true, true),
        ] {
            let warm = WarmItems::new(seeding);
            assert_eq!(is_warm(&warm, 1, now), before, "{seeding:?}");
            warm.note_seeds(usize::MAX, now);
            assert_eq!(is_warm(&warm, 1, now), after, "{seeding:?}");
            warm.note(items(1..=1), now);
            assert!(is_warm(&warm, 1, now), "{seeding:?}");
        }
    }

    #[test]
    fn who_notes_a_use_hears_which_items_were_warm_before_it() {
        let (warm, mut now) = (WarmItems::new(Seeding::Warm), Instant::now());
        let ids = |noted: Vec<ItemId>| noted.into_iter().map(ItemId::get).collect::<Vec<_>>();
        assert!(warm.note(items(1..=2), now).is_empty());
        assert_eq!(ids(warm.note(items(2..=3), now)), [2]);
        now += WARM_LEAST;
        assert_eq!(ids(warm.note(items(1..=4), now)), [1, 2, 3]);
        now += WARM_LEAST * 2;
        assert!(warm.note(items(1..=4), now).is_empty());
        assert!(WarmItems::new(Seeding::All).note(items(1..=4), now).is_empty());
    }

    #[test]
    fn no_more_items_become_warm_than_the_limit() {
        let (warm, now) = (WarmItems::new(Seeding::Warm), Instant::now());
        let limit = i64::try_from(WARM_LIMIT_ITEMS).expect("a few");
        warm.note(items(1..=limit + 1), now);
        assert!(is_warm(&warm, limit, now) && !is_warm(&warm, limit + 1, now));
        let all = WarmItems::new(Seeding::All);
        assert!(is_warm(&all, 1, now));
    }
}
