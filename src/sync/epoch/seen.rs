//! What a worker knows of epochs: the entries that it has seen, and the buckets whose counts it may save.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::live::Bucket;

/// The most epochs that a worker remembers: some 200 bytes each.
const SEEN_LIMIT_EPOCHS: usize = 1000;

/// The epochs that this worker has seen in Redis, of each bucket.
///
/// Each entry has a name of its own, so an entry that was gone and is back shows that Redis went
/// back to earlier data, though it was not restarted: with SWAPDB, say, once before a worker entered
/// an epoch and once after.
#[derive(Debug, Default)]
pub struct SeenEpochs(Mutex<HashMap<Bucket, Seen>>);

#[derive(Debug, Default)]
struct Seen {
    last: Option<String>,
    gone: VecDeque<String>,
}

impl SeenEpochs {
    /// Whether the epoch of a bucket in Redis is an entry of the current one, and not one that was gone.
    pub fn is_entered(&self, bucket: Bucket, known: Option<&str>, current: &str) -> bool {
        let mut all = self.lock();
        let seen = all.entry(bucket).or_default();
        seen.see(known);
        known.is_some_and(|known| {
            known.split_once(':').is_some_and(|(_, epoch)| epoch == current)
                && !seen.gone.iter().any(|gone| gone == known)
        })
    }

    /// Notes what this worker has put there.
    pub fn enter(&self, bucket: Bucket, entry: &str) {
        self.lock().entry(bucket).or_default().see(Some(entry));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Bucket, Seen>> {
        // No panic leaves it half changed, so the poison means nothing.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    /// Notes what is in Redis now. What was there before is gone.
    fn see(&mut self, known: Option<&str>) {
        if self.last.as_deref() != known {
            let last = std::mem::replace(&mut self.last, known.map(str::to_owned));
            self.gone.extend(last);
            if self.gone.len() > SEEN_LIMIT_EPOCHS {
                self.gone.pop_front();
            }
        }
    }
}

/// The buckets whose counters are of the current epoch, or were all invalidated in it. Shared by a worker's clones.
#[derive(Debug, Default)]
pub struct EnteredBuckets(Mutex<Option<Vec<Bucket>>>);

impl EnteredBuckets {
    pub fn set(&self, buckets: &[Bucket]) {
        *self.lock() = Some(buckets.to_vec());
    }

    /// Whether a flush saves counts of this bucket. Whoever has not looked at epochs saves all.
    pub fn has(&self, bucket: Bucket) -> bool {
        self.lock()
            .as_ref()
            .is_none_or(|buckets| buckets.contains(&bucket))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.lock().as_ref().is_some_and(Vec::is_empty)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<Bucket>>> {
        // No panic leaves it half changed, so the poison means nothing.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_was_gone_and_is_back_is_no_entry() {
        let seen = SeenEpochs::default();
        assert!(!seen.is_entered(Bucket::FIRST, None, "1:x"));
        assert!(
            seen.is_entered(Bucket::FIRST, Some("a:1:x"), "1:x")
                && seen.is_entered(Bucket::FIRST, Some("a:1:x"), "1:x")
        );
        assert!(
            !seen.is_entered(Bucket::FIRST, Some("a:1:x"), "1:y"),
            "another epoch"
        );
        // Another worker's entry, and then the earlier one.
        assert!(seen.is_entered(Bucket::FIRST, Some("b:1:x"), "1:x"));
        assert!(!seen.is_entered(Bucket::FIRST, Some("a:1:x"), "1:x"));
        assert!(!seen.is_entered(Bucket::FIRST, Some("a:1:x"), "1:x"), "and again");
        assert!(seen.is_entered(Bucket::FIRST, Some("c:1:x"), "1:x"));
        assert!(!seen.is_entered(Bucket::FIRST, None, "1:x"));
        assert!(
            !seen.is_entered(Bucket::FIRST, Some("c:1:x"), "1:x"),
            "gone and back"
        );
    }
}
