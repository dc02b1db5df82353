//! Visiting every state of a model.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

/// A violation, and the states that lead to it, from the first one on.
pub type Found<State, Violation> = (Violation, Vec<Arc<State>>);

/// Visits every state that can be reached from the first one, or stops at the first violation. `next` has the states that
/// one step leads to, or what is wrong with this one. Returns how many states there are, and the violation with the
/// shortest way to it.
pub fn visit<State: Eq + Hash, Violation>(
    first: State,
    next: impl Fn(&State) -> Result<Vec<State>, Violation>,
) -> (usize, Option<Found<State, Violation>>) {
    let first = Arc::new(first);
    let mut seen = HashSet::from([Arc::clone(&first)]);
    // Each state, and the state from which it was reached first.
    let mut all = vec![(first, 0_usize)];
    let mut number = 0;
    while number < all.len() {
        let state = Arc::clone(&all[number].0);
        let steps = match next(&state) {
            Ok(steps) => steps,
            Err(violation) => return (all.len(), Some((violation, way(&all, number)))),
        };
        for step in steps.into_iter().map(Arc::new) {
            if seen.insert(Arc::clone(&step)) {
                all.push((step, number));
            }
        }
        number += 1;
    }
    (all.len(), None)
}

/// The states that lead to this one, from the first one on.
fn way<State>(all: &[(Arc<State>, usize)], number: usize) -> Vec<Arc<State>> {
    let mut at = number;
    let mut way = vec![Arc::clone(&all[at].0)];
    while at > 0 {
        at = all[at].1;
        way.push(Arc::clone(&all[at].0));
    }
    way.reverse();
    way
}
