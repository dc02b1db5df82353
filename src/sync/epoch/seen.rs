//! What a worker knows of entries into epochs: the last ones that it has seen, and the buckets whose counts it may save.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::ledger::{NotedEntries, NotedEntry};
use crate::live::Bucket;
use crate::sync::SyncError;

/// The last entry of each bucket that this worker has seen in Postgres. Shared by a worker's clones.
///
/// Each entry has a name of its own. If Redis has another one than Postgres, its data are from before: of a Redis that was
/// left and comes back, or of one that went back, though it was not restarted (with SWAPDB, say). Then its epoch is entered
/// again. But a worker that was left behind in the old Redis must not take the counts there again: see [`Standing`].
#[derive(Debug, Default)]
pub struct SeenEntries(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    /// The incarnation of Postgres that they are of.
    incarnation: String,
    /// By the bucket's place among all. `None`: there was none.
    entries: HashMap<i16, Option<String>>,
    elsewhere: HashSet<i16>,
    /// Those that could be looked at the last time.
    looked: HashSet<i16>,
    /// Those that another Redis has, as Postgres says, whether this worker may take them or not.
    left: HashSet<i16>,
    /// Whether it takes the counts to its Redis when it starts. A command does not, while workers are at work.
    moves_counts: bool,
}

/// A bucket as Redis has it.
#[derive(Clone, Copy, Debug)]
pub struct InRedis<'a> {
    pub bucket: Bucket,
    /// Which run of which Redis has it.
    pub redis: &'a str,
    /// The entry there.
    pub known: Option<&'a str>,
    /// Whether that is one into the current epoch.
    pub is_current: bool,
}

/// How a bucket stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Its epoch is entered.
    Entered,
    /// Its epoch is to be entered.
    Stale,
    /// Another worker has entered it in another Redis since, and workers are alive.
    Elsewhere,
}

/// Whether workers beside this one may be at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherWorkers {
    MayBeAlive,
    AreGone,
}

impl SeenEntries {
    /// For a worker that begins its work: it may take the counts to its Redis.
    pub fn move_counts(&self) {
        self.lock().moves_counts = true;
    }

    /// How a bucket stands. `noted`: what Postgres says, read before Redis or decided.
    pub fn stand(
        &self,
        noted: &NotedEntries,
        incarnation: &str,
        one: InRedis<'_>,
        others: OtherWorkers,
    ) -> Standing {
        let is_alone = others == OtherWorkers::AreGone;
        let mut seen = self.lock();
        if seen.incarnation != incarnation {
            // A Postgres that failed over may have lost an entry. Who was left behind stays so.
            seen.incarnation = incarnation.to_owned();
            let Seen {
                entries, elsewhere, ..
            } = &mut *seen;
            entries.retain(|bucket, _| elsewhere.contains(bucket));
        }
        let bucket = one.bucket.place();
        let of_bucket = noted.entries.iter().find(|entry| entry.bucket == bucket);
        let entry = of_bucket.map(|noted| noted.entry.as_str());
        let standing = if one.is_current && entry.is_some() && entry == one.known {
            Standing::Entered
        } else {
            let is_here = match of_bucket {
                Some(noted) => noted.redis == one.redis,
                None => !noted.are_of_another,
            };
            let may_take = match seen.entries.get(&bucket) {
                Some(last) => {
                    let is_last = last.as_deref() == entry && !(entry.is_none() && noted.are_of_another);
                    is_last || is_alone && !noted.are_fresh
                }
                None => seen.moves_counts || is_alone,
            };
            if is_here || may_take {
                Standing::Stale
            } else {
                Standing::Elsewhere
            }
        };
        let is_left = standing != Standing::Entered
            && match of_bucket {
                Some(noted) => noted.redis != one.redis,
                None => noted.are_of_another,
            };
        if is_left {
            seen.left.insert(bucket);
        } else {
            seen.left.remove(&bucket);
        }
        if standing == Standing::Elsewhere {
            seen.elsewhere.insert(bucket);
        } else {
            seen.elsewhere.remove(&bucket);
            seen.entries.insert(bucket, entry.map(str::to_owned));
        }
        standing
    }

    /// Notes what this worker has put into Postgres.
    pub fn enter(&self, noted: &[NotedEntry]) {
        let mut seen = self.lock();
        for one in noted {
            seen.entries.insert(one.bucket, Some(one.entry.clone()));
        }
    }

    /// Notes which buckets can be looked at now. How others stood is forgotten: they hold up nobody.
    pub fn look_at(&self, buckets: &[Bucket]) {
        let mut seen = self.lock();
        let Seen {
            elsewhere,
            looked,
            left,
            ..
        } = &mut *seen;
        *looked = buckets.iter().map(|bucket| bucket.place()).collect();
        elsewhere.retain(|bucket| looked.contains(bucket));
        left.retain(|bucket| looked.contains(bucket));
    }

    /// Whether these are the entries that this worker saw last, of the buckets that it could look at; `None`: it has not
    /// looked.
    pub fn are_last(&self, noted: &NotedEntries) -> Option<bool> {
        let seen = self.lock();
        let of = |bucket: i16| noted.entries.iter().find(|entry| entry.bucket == bucket);
        let mut all = seen
            .entries
            .iter()
            .filter(|(bucket, _)| seen.looked.contains(bucket));
        let is_last = |(bucket, last): (&i16, &Option<String>)| {
            of(*bucket).map(|entry| entry.entry.as_str()) == last.as_deref()
        };
        (!seen.entries.is_empty()).then(|| all.all(is_last))
    }

    /// Whether some counts are in another Redis, as Postgres says.
    pub fn are_left(&self) -> bool {
        !self.lock().left.is_empty()
    }

    /// Whether the counts of all buckets are in this worker's Redis.
    ///
    /// # Errors
    /// [`SyncError::Elsewhere`]
    pub fn check_place(&self) -> Result<(), SyncError> {
        if self.lock().elsewhere.is_empty() {
            Ok(())
        } else {
            Err(SyncError::Elsewhere)
        }
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        // No panic leaves it half changed, so the poison means nothing.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The buckets whose counters are of the current epoch, or were all invalidated in it. Shared by a worker's clones.
#[derive(Debug, Default)]
pub struct EnteredBuckets(Mutex<Entered>);

#[derive(Debug, Default)]
enum Entered {
    #[default]
    NeverLooked,
    /// A look at epochs is under way. These were entered at the one before.
    Looking(Vec<Bucket>),
    Known(Vec<Bucket>),
}

impl EnteredBuckets {
    /// Notes that a look at epochs begins.
    pub fn look_begins(&self) {
        let mut entered = self.lock();
        *entered = match std::mem::take(&mut *entered) {
            Entered::NeverLooked => Entered::Looking(Vec::new()),
            Entered::Looking(buckets) | Entered::Known(buckets) => Entered::Looking(buckets),
        };
    }

    pub fn set(&self, buckets: &[Bucket]) {
        *self.lock() = Entered::Known(buckets.to_vec());
    }

    /// Whether a flush saves counts of this bucket. Whoever has not looked at epochs saves all.
    pub fn has(&self, bucket: Bucket) -> bool {
        match &*self.lock() {
            Entered::NeverLooked => true,
            Entered::Looking(_) => false,
            Entered::Known(buckets) => buckets.contains(&bucket),
        }
    }

    /// Leaves out what is of other buckets. While a look at epochs is under way, the one before it decides.
    pub fn retain<One>(&self, all: &mut Vec<One>, bucket: impl Fn(&One) -> Bucket) {
        if let Entered::Looking(buckets) | Entered::Known(buckets) = &*self.lock() {
            all.retain(|one| buckets.contains(&bucket(one)));
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        match &*self.lock() {
            Entered::NeverLooked => false,
            Entered::Looking(_) => true,
            Entered::Known(buckets) => buckets.is_empty(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Entered> {
        // No panic leaves it half changed, so the poison means nothing.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::OtherWorkers::{AreGone, MayBeAlive};
    use super::*;
    use crate::ledger::EpochNumber;

    /// What Postgres says: the entry and its Redis, and whether there are entries of another number of buckets.
    fn noted(entry: Option<(&str, &str)>, are_of_another: bool) -> NotedEntries {
        let entry = entry.map(|(entry, redis)| NotedEntry {
            bucket: 0,
            entry: entry.to_owned(),
            redis: redis.to_owned(),
        });
        NotedEntries {
            number: EpochNumber::default(),
            entries: entry.into_iter().collect(),
            are_of_another,
            are_fresh: false,
        }
    }

    /// What the Redis `redis` says.
    fn in_redis<'a>(redis: &'a str, known: Option<&'a str>) -> InRedis<'a> {
        InRedis {
            bucket: Bucket::FIRST,
            redis,
            known,
            is_current: known.is_some(),
        }
    }

    #[test]
    fn an_entry_is_one_only_if_both_stores_have_it() {
        let seen = SeenEntries::default();
        let stand = |noted: &NotedEntries, one| seen.stand(noted, "p", one, MayBeAlive);
        assert_eq!(stand(&noted(None, false), in_redis("a", None)), Standing::Stale);
        let first = noted(Some(("1", "a")), false);
        assert_eq!(stand(&first, in_redis("a", Some("1"))), Standing::Entered);
        let old = InRedis {
            is_current: false,
            ..in_redis("a", Some("1"))
        };
        assert_eq!(stand(&first, old), Standing::Stale, "another epoch");
        // It went back: once to before an entry, once to nothing.
        let second = noted(Some(("2", "a")), false);
        assert_eq!(stand(&second, in_redis("a", Some("1"))), Standing::Stale);
        assert_eq!(stand(&second, in_redis("a", None)), Standing::Stale);
        assert_eq!(stand(&second, in_redis("a", Some("2"))), Standing::Entered);
        // It restarts, or fails over: this worker has seen the last entry.
        assert_eq!(stand(&second, in_redis("b", Some("1"))), Standing::Stale);
        assert!(seen.check_place().is_ok());
    }

    #[test]
    fn a_worker_that_is_left_behind_enters_nothing_until_no_other_one_is_alive() {
        for (there, is_of_another) in [(noted(Some(("2", "b")), false), false), (noted(None, true), true)] {
            let seen = SeenEntries::default();
            seen.move_counts();
            let first = noted(Some(("1", "a")), false);
            assert_eq!(
                seen.stand(&first, "p", in_redis("a", Some("1")), MayBeAlive),
                Standing::Entered
            );
            for incarnation in ["p", "q"] {
                let standing = seen.stand(&there, incarnation, in_redis("a", Some("1")), MayBeAlive);
                assert_eq!(standing, Standing::Elsewhere, "{is_of_another}");
                assert!(seen.check_place().is_err());
            }
            // One that starts takes the counts back; a command does not.
            for (moves_counts, standing) in [(true, Standing::Stale), (false, Standing::Elsewhere)] {
                let other = SeenEntries::default();
                if moves_counts {
                    other.move_counts();
                }
                assert_eq!(
                    other.stand(&there, "p", in_redis("a", Some("1")), MayBeAlive),
                    standing
                );
            }
            let stand = |are_fresh| {
                let noted = NotedEntries {
                    are_fresh,
                    ..there.clone()
                };
                seen.stand(&noted, "q", in_redis("a", Some("1")), AreGone)
            };
            assert_eq!(stand(true), Standing::Elsewhere, "the other one has just begun");
            assert_eq!(stand(false), Standing::Stale);
            assert!(seen.check_place().is_ok());
        }
    }

    #[test]
    fn a_postgres_that_failed_over_may_have_lost_the_last_entry() {
        let seen = SeenEntries::default();
        seen.move_counts();
        let lost = noted(Some(("2", "b")), false);
        assert_eq!(
            seen.stand(&lost, "p", in_redis("b", Some("2")), MayBeAlive),
            Standing::Entered
        );
        let before = noted(Some(("1", "a")), false);
        assert_eq!(
            seen.stand(&before, "q", in_redis("b", Some("2")), MayBeAlive),
            Standing::Stale
        );
    }
}
