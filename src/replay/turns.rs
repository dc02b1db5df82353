//! Turns: which line is cast next, and which earlier line it waits for.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};

use tokio::sync::oneshot;

/// How many places there are for the last line of a key. Lines of two keys that share a place wait
/// for each other too, which is rare: fewer lines are under way than there are places.
const PLACES: usize = 1 << 16;

/// Gives out lines in order. Each line has a key, and waits until the previous line with that key
/// is done.
pub struct Turns(Mutex<State>);

struct State {
    next: usize,
    /// By the key's place: the end of the last line that was given out.
    last: Vec<Option<oneshot::Receiver<()>>>,
}

/// The turn of one line, until it is dropped.
pub struct Turn {
    pub at: usize,
    before: Option<oneshot::Receiver<()>>,
    _done: Option<oneshot::Sender<()>>,
}

impl Default for Turns {
    fn default() -> Self {
        Self(Mutex::new(State {
            next: 0,
            last: std::iter::repeat_with(|| None).take(PLACES).collect(),
        }))
    }
}

impl Turns {
    /// The next line. `key` returns its key; `None`: the line waits for no other one.
    pub fn next<K: Hash>(&self, key: impl FnOnce(usize) -> Option<K>) -> Turn {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = state.next;
        state.next += 1;
        let Some(key) = key(at) else {
            return Turn {
                at,
                before: None,
                _done: None,
            };
        };
        let (done, is_done) = oneshot::channel();
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let place = hasher.finish() as usize % PLACES;
        Turn {
            at,
            before: state.last[place].replace(is_done),
            _done: Some(done),
        }
    }
}

impl Turn {
    /// Waits for the previous line of its key. That line was given out earlier, so no two wait for
    /// each other.
    pub async fn wait(&mut self) {
        if let Some(before) = self.before.take() {
            // The previous turn ends when it is dropped.
            let _ = before.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn a_line_waits_for_the_one_before_it_of_the_same_key_and_for_no_other() {
        let turns = Turns::default();
        let keys = ["ada", "bob", "ada", "ada"];
        let next = || turns.next(|at| keys.get(at));
        let (mut ada, mut bob, mut again, mut last) = (next(), next(), next(), next());
        assert_eq!([ada.at, bob.at, again.at, last.at], [0, 1, 2, 3]);
        assert!(ada.wait().now_or_never().is_some() && bob.wait().now_or_never().is_some());
        assert!(again.wait().now_or_never().is_none() && last.wait().now_or_never().is_none());
    }

    #[tokio::test]
    async fn a_line_goes_on_when_the_one_before_it_is_dropped() {
        let turns = Turns::default();
        let (first, mut second) = (turns.next(|_| Some(1)), turns.next(|_| Some(1)));
        let waiting = tokio::spawn(async move {
            second.wait().await;
            second.at
        });
        drop(first);
        assert_eq!(waiting.await.expect("it goes on"), 1);
    }
}
