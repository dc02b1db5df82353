//! The doubts: items whose live count may be wrong.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use crate::domain::ItemId;
use crate::telemetry::name;

/// How many doubts are kept. Beyond it they are dropped, said so in the log, and
/// left for the epoch check or the audit to find.
pub const DOUBTS_LIMIT_ITEMS: usize = 1_000_000;
/// How many of them are healed at once, with one pipeline.
const HEAL_LIMIT_ITEMS: usize = 1000;

/// Items whose live count may be wrong, each with the time from when on
/// invalidating it helps.
#[derive(Debug, Default)]
pub struct Doubts {
    due: Mutex<HashMap<ItemId, Instant>>,
}

/// What there is to heal.
#[derive(Debug)]
pub enum Ready {
    /// Items that are due, some of them if there are many, and since when.
    Items(Vec<(ItemId, Instant)>),
    /// None yet: when the next one will be.
    None { next: Option<Instant> },
}

impl Doubts {
    /// Doubts these items from a time on, or from a later one that they have already.
    pub fn add(&self, items: impl IntoIterator<Item = ItemId>, from: Instant) {
        let mut due = self.lock();
        for item in items {
            if due.len() >= DOUBTS_LIMIT_ITEMS && !due.contains_key(&item) {
                tracing::error!(
                    limit = DOUBTS_LIMIT_ITEMS,
                    "too many doubtful items: left for the audit"
                );
                metrics::counter!(name::DOUBTS_DROPPED).increment(1);
                continue;
            }
            let entry = due.entry(item).or_insert(from);
            *entry = (*entry).max(from);
        }
    }

    /// What can be healed now. When nothing can, `or_else` runs first, while no doubt
    /// can be added.
    pub fn ready(&self, or_else: impl FnOnce()) -> Ready {
        let due = self.lock();
        let now = Instant::now();
        let ready: Vec<_> = due
            .iter()
            .filter(|(_, due)| **due <= now)
            .map(|(item, due)| (*item, *due))
            .take(HEAL_LIMIT_ITEMS)
            .collect();
        if !ready.is_empty() {
            return Ready::Items(ready);
        }
        or_else();
        Ready::None {
            next: due.values().min().copied(),
        }
    }

    /// Forgets what was healed. A doubt that was renewed in the meantime stays.
    pub fn forget(&self, healed: &[(ItemId, Instant)]) {
        let mut due = self.lock();
        for (item, since) in healed {
            if due.get(item) == Some(since) {
                due.remove(item);
            }
        }
    }

    /// How many items are doubted.
    pub fn total(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ItemId, Instant>> {
        // A panic while it was held cannot leave it half changed, so the poison
        // carries no news.
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
    fn a_doubt_is_ready_when_it_is_due_and_not_before() {
        let doubts = Doubts::default();
        let later = Instant::now() + Duration::from_secs(3600);
        doubts.add([item()], later);
        let mut asked = false;
        let ready = doubts.ready(|| asked = true);
        assert!(
            asked && matches!(ready, Ready::None { next: Some(next) } if next == later),
            "{ready:?}"
        );
        // An earlier doubt of the same item does not bring it forward.
        doubts.add([item()], Instant::now());
        assert!(matches!(doubts.ready(|| {}), Ready::None { .. }));
    }

    #[test]
    fn a_doubt_renewed_while_it_was_healed_stays() {
        let doubts = Doubts::default();
        doubts.add([item()], Instant::now());
        let Ready::Items(ready) = doubts.ready(|| panic!("something is ready")) else {
            panic!("nothing is ready");
        };
        doubts.add([item()], Instant::now() + Duration::from_secs(1));
        doubts.forget(&ready);
        assert_eq!(doubts.total(), 1);
    }
}
