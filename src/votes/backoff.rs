//! Items whose exact count could not be read in time: Postgres was slow, or much lay beyond the
//! watermark. Each stays without a live count for a while, and is then read alone. So such items hold
//! up the votes on other items only now and then, by one read at most.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::domain::ItemId;

/// How long an item waits after a read of its exact count was too slow. The first wait, and the
/// longest: each wait is twice the one before.
const WAIT_FIRST: Duration = Duration::from_secs(1);
const WAIT_LAST: Duration = Duration::from_secs(30);
/// The most items that wait. A further one is retried with each of its batches.
pub(crate) const WAITING_LIMIT_ITEMS: usize = 10_000;
/// The most items that a batch reads alone. The others wait for a later batch.
const ALONE_LIMIT_ITEMS: usize = 16;

/// The items that wait, shared by all batch writers of a server. Cheap to clone. If each thread had
/// its own, a thread in which an item still waits would make it suspect again and again, and take
/// the lease from the thread that could read it by now.
#[derive(Clone, Debug, Default)]
pub struct SeedBackoff(Arc<Mutex<HashMap<ItemId, Wait>>>);

#[derive(Debug)]
struct Wait {
    until: Instant,
    next: Duration,
}

/// What to do with items that have no live count.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// Read their exact counts with one statement.
    together: Vec<ItemId>,
    /// Read each with a statement of its own: the item has failed before.
    alone: Vec<ItemId>,
    /// Leave them for now.
    waiting: Vec<ItemId>,
}

impl Due {
    /// The items to leave for now.
    pub fn waiting(&self) -> &[ItemId] {
        &self.waiting
    }

    /// The statements to send: the items of each.
    pub fn reads(self) -> impl Iterator<Item = Vec<ItemId>> {
        let together = (!self.together.is_empty()).then_some(self.together);
        let alone = self.alone.into_iter().map(|item| vec![item]);
        together.into_iter().chain(alone)
    }
}

impl SeedBackoff {
    /// Which of these items to read now. An item that has waited long enough goes to one caller.
    pub fn due(&self, missing: &[ItemId], now: Instant) -> Due {
        let mut waiting = self.lock();
        if waiting.is_empty() {
            return Due {
                together: missing.to_vec(),
                ..Due::default()
            };
        }
        let mut due = Due::default();
        for item in missing {
            match waiting.get_mut(item) {
                None => due.together.push(*item),
                Some(wait) if wait.until <= now && due.alone.len() < ALONE_LIMIT_ITEMS => {
                    wait.until = now + wait.next;
                    due.alone.push(*item);
                }
                Some(_) => due.waiting.push(*item),
            }
        }
        due
    }

    /// Notes that these items' exact counts were not read in time.
    pub fn failed(&self, items: &[ItemId], now: Instant) {
        let mut waiting = self.lock();
        for item in items {
            if waiting.len() >= WAITING_LIMIT_ITEMS {
                // Forgets items on which nobody has voted since.
                waiting.retain(|_, wait| wait.until + WAIT_LAST > now);
            }
            let is_full = waiting.len() >= WAITING_LIMIT_ITEMS;
            match waiting.get_mut(item) {
                Some(wait) => {
                    wait.until = now + wait.next;
                    wait.next = (wait.next * 2).min(WAIT_LAST);
                }
                None if is_full => {}
                None => {
                    let wait = Wait {
                        until: now + WAIT_FIRST,
                        next: WAIT_FIRST * 2,
                    };
                    waiting.insert(*item, wait);
                }
            }
        }
    }

    /// Notes that these items' exact counts were read.
    pub fn succeeded(&self, items: &[ItemId]) {
        let mut waiting = self.lock();
        if !waiting.is_empty() {
            for item in items {
                waiting.remove(item);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ItemId, Wait>> {
        // No panic leaves the map half changed, so the poison means nothing.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(ids: &[i64]) -> Vec<ItemId> {
        ids.iter().filter_map(|id| ItemId::new(*id)).collect()
    }

    fn reads(due: Due) -> Vec<Vec<ItemId>> {
        due.reads().collect()
    }

    #[test]
    fn an_item_that_failed_waits_twice_as_long_each_time_and_is_then_read_alone_by_one_caller() {
        let backoff = SeedBackoff::default();
        let mut now = Instant::now();
        backoff.failed(&items(&[1]), now);
        for wait in [1, 2, 4, 8, 16, 30, 30] {
            let early = backoff.due(&items(&[1, 2, 3]), now + Duration::from_secs(wait) / 2);
            assert_eq!(early.waiting(), items(&[1]));
            assert_eq!(reads(early), [items(&[2, 3])]);
            now += Duration::from_secs(wait);
            let due = backoff.due(&items(&[1, 2, 3]), now);
            assert_eq!(due.waiting(), []);
            assert_eq!(reads(due), [items(&[2, 3]), items(&[1])]);
            assert_eq!(
                backoff.due(&items(&[1]), now).waiting(),
                items(&[1]),
                "one caller has it"
            );
            backoff.failed(&items(&[1]), now);
        }
        backoff.succeeded(&items(&[1]));
        assert_eq!(reads(backoff.due(&items(&[1, 2]), now)), [items(&[1, 2])]);
    }

    #[test]
    fn an_item_waits_from_when_its_read_has_failed() {
        let backoff = SeedBackoff::default();
        let started = Instant::now();
        backoff.failed(&items(&[1]), started);
        let read = started + WAIT_FIRST;
        assert_eq!(reads(backoff.due(&items(&[1]), read)), [items(&[1])]);
        // The second wait is twice the first, and the read took as long.
        let failed = read + WAIT_FIRST * 2;
        backoff.failed(&items(&[1]), failed);
        let early = failed + WAIT_FIRST;
        assert_eq!(backoff.due(&items(&[1]), early).waiting(), items(&[1]));
    }

    #[test]
    fn no_more_items_wait_than_the_limit() {
        let backoff = SeedBackoff::default();
        let now = Instant::now();
        let ids: Vec<i64> = (1..=i64::try_from(WAITING_LIMIT_ITEMS).expect("a few") + 1).collect();
        backoff.failed(&items(&ids), now);
        let due = backoff.due(&items(&ids), now);
        assert_eq!(due.waiting().len(), WAITING_LIMIT_ITEMS);
        assert_eq!(reads(due).len(), 1);
        // Nobody has voted on them for a long time.
        let later = now + WAIT_FIRST + WAIT_LAST;
        backoff.failed(
            &ids.last()
                .and_then(|id| ItemId::new(*id))
                .into_iter()
                .collect::<Vec<_>>(),
            later,
        );
        assert_eq!(
            reads(backoff.due(&items(&ids), later)),
            [items(&ids[..WAITING_LIMIT_ITEMS])]
        );
    }
}
