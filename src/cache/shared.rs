//! A cache that tasks and threads share.

use std::collections::hash_map::RandomState;
use std::hash::Hash;
use std::marker::PhantomData;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use quick_cache::unsync::{Cache as Entries, DefaultLifecycle};
use quick_cache::{Equivalent, Weighter};
use tokio::time::Instant;

use super::{Ends, Forgets, Remembers};

/// A shared cache of one kind. Reading takes a lock that readers share.
pub struct Cache<R: Remembers> {
    state: RwLock<State<R>>,
    limit_age: Option<Duration>,
    /// What ends all entries from outside.
    ends: Ends,
}

struct State<R: Remembers> {
    // The hash of std, and not quick_cache's quicker one: outsiders choose some of these keys.
    entries: Entries<R::Key, Entry<R::Value>, Weights<R>, RandomState>,
    /// How often everything was forgotten.
    forgotten: u64,
    /// [`Ends::count`] when the entries were asked for.
    ended: u64,
}

struct Entry<Value> {
    value: Value,
    asked_at: Instant,
}

/// When a question was asked whose answer will be remembered. If all entries end between the
/// question and its answer, the answer ends, too.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    at: Instant,
    forgotten: u64,
    ended: u64,
}

/// A look at a cache that does not change meanwhile.
pub struct Look<'c, R: Remembers> {
    /// `None`: all entries have ended.
    state: Option<&'c State<R>>,
    limit_age: Option<Duration>,
    now: Instant,
    forgotten: u64,
    ended: u64,
}

impl<'c, R: Remembers> Look<'c, R> {
    /// Whether nothing was forgotten, or ended, since this question.
    pub fn is_since(&self, asked: Asked) -> bool {
        self.forgotten == asked.forgotten && self.ended == asked.ended
    }

    /// The value that is remembered for this key.
    pub fn get<Q>(&self, key: &Q) -> Option<&'c R::Value>
    where
        Q: Hash + Equivalent<R::Key> + ?Sized,
    {
        self.entry(key).map(|(value, _)| value)
    }

    /// A value, and its age.
    fn entry<Q>(&self, key: &Q) -> Option<(&'c R::Value, Duration)>
    where
        Q: Hash + Equivalent<R::Key> + ?Sized,
    {
        let entry = self.state?.entries.get(key)?;
        let age = self.now.saturating_duration_since(entry.asked_at);
        let is_over = self.limit_age.is_some_and(|limit| age >= limit) || R::is_over(&entry.value);
        (!is_over).then_some((&entry.value, age))
    }
}

struct Weights<R>(PhantomData<fn() -> R>);

impl<R: Remembers> Weighter<R::Key, Entry<R::Value>> for Weights<R> {
    fn weight(&self, _: &R::Key, entry: &Entry<R::Value>) -> u64 {
        R::weight(&entry.value)
    }
}

impl<R: Remembers> Default for Cache<R> {
    /// An empty cache of what nothing ends from outside.
    fn default() -> Self {
        Self::ended_by(Ends::default())
    }
}

impl<R: Remembers> Cache<R> {
    /// An empty cache whose entries end, all together, when `ends` says so.
    pub fn ended_by(ends: Ends) -> Self {
        Self {
            state: RwLock::new(State {
                entries: Entries::with(
                    R::LIMIT,
                    R::LIMIT as u64,
                    Weights(PhantomData),
                    RandomState::new(),
                    DefaultLifecycle::default(),
                ),
                forgotten: 0,
                ended: ends.count(),
            }),
            limit_age: R::LIMIT_AGE,
            ends,
        }
    }

    /// The same with another limit of age.
    #[must_use]
    pub fn with_limit_age(self, limit_age: Duration) -> Self {
        Self {
            limit_age: Some(limit_age),
            ..self
        }
    }

    /// The value that is remembered for this key.
    pub fn get<Q>(&self, key: &Q) -> Option<R::Value>
    where
        Q: Hash + Equivalent<R::Key> + ?Sized,
        R::Value: Clone,
    {
        self.look(key, |value, _| value.clone())
    }

    /// Looks at this key's value, and at its age.
    pub fn look<Q, Seen>(&self, key: &Q, see: impl FnOnce(&R::Value, Duration) -> Seen) -> Option<Seen>
    where
        Q: Hash + Equivalent<R::Key> + ?Sized,
    {
        self.reading(|look| look.entry(key).map(|(value, age)| see(value, age)))
    }

    /// Looks at many keys under one lock.
    pub fn reading<Seen>(&self, see: impl FnOnce(&Look<'_, R>) -> Seen) -> Seen {
        let state = self.read();
        let ended = self.ends.count();
        see(&Look {
            state: (state.ended == ended).then_some(&*state),
            limit_age: self.limit_age,
            now: Instant::now(),
            forgotten: state.forgotten,
            ended,
        })
    }

    /// Call this before asking a question whose answer will be remembered.
    pub fn asking(&self) -> Asked {
        Asked {
            at: Instant::now(),
            forgotten: self.read().forgotten,
            ended: self.ends.count(),
        }
    }

    /// Remembers an answer, unless everything was forgotten, or ended, since its question.
    pub fn add(&self, key: R::Key, value: R::Value, asked: Asked) {
        let mut state = self.write();
        let ended = self.ends.count();
        if state.ended != ended {
            state.entries.clear();
            state.ended = ended;
        }
        if state.forgotten == asked.forgotten && ended == asked.ended {
            let asked_at = asked.at;
            state.entries.insert(key, Entry { value, asked_at });
        }
    }

    /// Ends the entry of this key.
    pub fn end<Q>(&self, key: &Q)
    where
        Q: Hash + Equivalent<R::Key> + ?Sized,
    {
        self.write().entries.remove(key);
    }

    fn read(&self) -> RwLockReadGuard<'_, State<R>> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State<R>> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R: Forgets> Cache<R> {
    /// Ends all entries, and those that are being asked for.
    pub fn forget(&self) {
        let mut state = self.write();
        state.forgotten += 1;
        state.entries.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Numbers;

    const LIMIT: usize = 100;
    const LIMIT_AGE: Duration = Duration::from_secs(60);

    impl Remembers for Numbers {
        type Key = i64;
        type Value = Vec<i64>;
        const LIMIT: usize = LIMIT;
        const LIMIT_AGE: Option<Duration> = Some(LIMIT_AGE);

        fn weight(value: &Vec<i64>) -> u64 {
            value.len() as u64
        }

        fn is_over(value: &Vec<i64>) -> bool {
            value.contains(&-1)
        }
    }

    impl Forgets for Numbers {}

    #[test]
    fn an_entry_is_there_until_it_is_ended_by_its_key_or_by_itself() {
        let cache = Cache::<Numbers>::default();
        assert_eq!(cache.get(&1), None);
        cache.add(1, vec![2], cache.asking());
        assert_eq!(cache.get(&1), Some(vec![2]));
        cache.end(&1);
        assert_eq!(cache.get(&1), None);
        cache.add(1, vec![-1], cache.asking());
        assert_eq!(cache.get(&1), None);
    }

    #[test]
    fn an_entry_is_as_old_as_its_question() {
        let cache = Cache::<Numbers>::default();
        let asked = |age: Duration| Asked {
            at: Instant::now().checked_sub(age).expect("an uptime"),
            forgotten: 0,
            ended: 0,
        };
        cache.add(1, vec![2], asked(LIMIT_AGE));
        assert_eq!(cache.get(&1), None);
        cache.add(1, vec![3], asked(LIMIT_AGE / 2));
        assert!(cache.look(&1, |_, age| age >= LIMIT_AGE / 2) == Some(true));
    }

    #[test]
    fn an_answer_is_not_remembered_if_all_was_forgotten_since_its_question() {
        let cache = Cache::<Numbers>::default();
        cache.add(1, vec![2], cache.asking());
        let asked = cache.asking();
        cache.forget();
        assert_eq!(cache.get(&1), None);
        cache.add(1, vec![2], asked);
        assert_eq!(cache.get(&1), None);
        cache.add(1, vec![3], cache.asking());
        assert_eq!(cache.get(&1), Some(vec![3]));
    }

    #[test]
    fn all_entries_end_from_outside_and_so_do_answers_to_questions_from_before() {
        let ends = Ends::default();
        let cache = Cache::<Numbers>::ended_by(ends.clone());
        cache.add(1, vec![2], cache.asking());
        let asked = cache.asking();
        ends.end_all();
        assert_eq!(cache.get(&1), None);
        cache.add(2, vec![2], asked);
        assert_eq!(cache.get(&2), None);
        cache.add(3, vec![3], cache.asking());
        assert_eq!(cache.get(&3), Some(vec![3]));
        assert_eq!(cache.get(&1), None, "an entry from before does not come back");
    }

    #[test]
    fn what_is_remembered_weighs_no_more_than_the_limit() {
        let cache = Cache::<Numbers>::default();
        for key in 0..3 * LIMIT as i64 {
            cache.add(key, vec![key; 10], cache.asking());
            let state = cache.read();
            assert!(state.entries.weight() <= LIMIT as u64);
            assert!(state.entries.get(&key).is_some());
        }
        assert_eq!(cache.read().entries.len(), LIMIT / 10);
    }
}
