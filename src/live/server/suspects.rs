//! The suspects: items whose live count may be wrong.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use crate::domain::ItemId;
use crate::telemetry::name;

/// The most suspects. A further one is dropped. Crashed-writer recovery then rebuilds the counts of
/// this server's votes since its last note of progress.
pub const SUSPECTS_LIMIT_ITEMS: usize = 1_000_000;
/// The most suspects that the repair task invalidates with one pipeline.
pub(crate) const REPAIR_LIMIT_ITEMS: usize = 1000;

/// Items whose live count may be wrong. Each has a due time: a seed before it could still be wrong,
/// so invalidating earlier would not help.
#[derive(Debug)]
pub struct Suspects {
    due: Mutex<HashMap<ItemId, Instant>>,
    limit_items: usize,
    has_dropped: AtomicBool,
}

/// What can be repaired now.
#[derive(Debug)]
pub enum DueSuspects {
    /// Items that are due, with their due times. Only some of them if there are many.
    Items(Vec<(ItemId, Instant)>),
    /// None is due. `next`: when the next one is due.
    None { next: Option<Instant> },
}

impl Suspects {
    /// Without suspects, and for at most this many.
    pub fn new(limit_items: usize) -> Self {
        Self {
            due: Mutex::default(),
            limit_items,
            has_dropped: AtomicBool::new(false),
        }
    }

    /// Adds these items, due at `from`. An item that is already suspect keeps the later time.
    pub fn add(&self, items: impl IntoIterator<Item = ItemId>, from: Instant) {
        let mut due = self.lock();
        for item in items {
            if due.len() >= self.limit_items && !due.contains_key(&item) {
                metrics::counter!(name::SUSPECTS_DROPPED).increment(1);
                if !self.has_dropped.swap(true, Ordering::SeqCst) {
                    tracing::error!(
                        limit = self.limit_items,
                        "too many suspects: the latest votes are left to crashed-writer recovery"
                    );
                }
                continue;
            }
            let entry = due.entry(item).or_insert(from);
            *entry = (*entry).max(from);
        }
    }

    /// What can be repaired now. If there is nothing, `or_else` runs while no suspect can be added.
    pub fn ready(&self, or_else: impl FnOnce()) -> DueSuspects {
        let due = self.lock();
        let now = Instant::now();
        let ready: Vec<_> = due
            .iter()
            .filter(|(_, due)| **due <= now)
            .map(|(item, due)| (*item, *due))
            .take(REPAIR_LIMIT_ITEMS)
            .collect();
        if !ready.is_empty() {
            return DueSuspects::Items(ready);
        }
        or_else();
        DueSuspects::None {
            next: due.values().min().copied(),
        }
    }

    /// Removes repaired suspects. One that was added again with a later time stays.
    pub fn forget(&self, repaired: &[(ItemId, Instant)]) {
        let mut due = self.lock();
        for (item, since) in repaired {
            if due.get(item) == Some(since) {
                due.remove(item);
            }
        }
    }

    /// Whether a suspect was dropped since the last call.
    pub fn take_dropped(&self) -> bool {
        self.has_dropped.swap(false, Ordering::SeqCst)
    }

    /// How many items are suspect.
    pub fn total(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ItemId, Instant>> {
        // No panic leaves the map half changed, so the poison means nothing.
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn item() -> ItemId {
        ItemId::new(1).expect("positive")
    }

    #[test]
    fn a_suspect_is_ready_when_it_is_due_and_not_before() {
        let suspects = Suspects::new(1);
        let later = Instant::now() + Duration::from_secs(3600);
        suspects.add([item()], later);
        let mut asked = false;
        let ready = suspects.ready(|| asked = true);
        assert!(
            asked && matches!(ready, DueSuspects::None { next: Some(next) } if next == later),
            "{ready:?}"
        );
        // An earlier time for the same item does not bring it forward.
        suspects.add([item()], Instant::now());
        assert!(matches!(suspects.ready(|| {}), DueSuspects::None { .. }));
    }

    #[test]
    fn a_suspect_that_is_added_again_while_it_is_repaired_stays() {
        let suspects = Suspects::new(1);
        suspects.add([item()], Instant::now());
        let DueSuspects::Items(ready) = suspects.ready(|| panic!("something is ready")) else {
            panic!("nothing is ready");
        };
        suspects.add([item()], Instant::now() + Duration::from_secs(1));
        suspects.forget(&ready);
        assert_eq!(suspects.total(), 1);
    }

    #[test]
    fn a_suspect_too_many_is_noted_once_and_one_that_is_there_already_is_not_too_many() {
        let suspects = Suspects::new(1);
        suspects.add([item(), item()], Instant::now());
        assert!(!suspects.take_dropped());
        suspects.add(ItemId::new(2), Instant::now());
        assert!(suspects.take_dropped() && !suspects.take_dropped());
        assert_eq!(suspects.total(), 1);
    }
}
