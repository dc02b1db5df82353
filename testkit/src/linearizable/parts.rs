//! What each part of a state allows by itself, such as what one voter holds.
//!
//! If a request without an answer takes effect at the wrong moment, or the wrong one of several
//! does, only a later answer about the same part may show it. So all ways through each part's own
//! operations are found beforehand, and the search goes none that ends in a part where no way goes
//! on.

use std::collections::{HashMap, HashSet};

use super::{OperationOf, Specification};

/// Operations of a part, at the most: a set of them is a number.
const OPERATIONS_LIMIT: usize = u128::BITS as usize;
/// States of a part that are looked at. One that has more holds up nothing.
const STATES_LIMIT: usize = 20_000;

pub(super) struct Parts<T> {
    /// Of each operation: its part and its bit in the part's sets.
    of: Vec<Option<(usize, u128)>>,
    parts: Vec<Part<T>>,
}

struct Part<T> {
    number: u32,
    placed: u128,
    /// From where all answered operations can be placed: those that are, and the state.
    open: HashSet<(u128, T)>,
}

impl<T: Clone + Eq + std::hash::Hash> Parts<T> {
    /// `operations` and `twins` are those of the search.
    pub fn new<S: Specification<State = T>>(
        specification: &S,
        operations: &[&OperationOf<S>],
        twins: &[Option<usize>],
    ) -> Self {
        let mut found = Self {
            of: vec![None; operations.len()],
            parts: Vec::new(),
        };
        let Some(alone) = specification.alone() else {
            return found;
        };
        let mut by_part: HashMap<u32, Vec<usize>> = HashMap::new();
        for (at, operation) in operations.iter().enumerate() {
            if let Some(part) = specification.part(&operation.request) {
                by_part.entry(part).or_default().push(at);
            }
        }
        for (number, places) in by_part {
            // Where all is answered, the search soon goes the right way.
            let is_plain = places.iter().all(|at| operations[*at].answer.is_some());
            if is_plain || places.len() > OPERATIONS_LIMIT {
                continue;
            }
            let ways = Ways::new(&alone, &places, operations, twins);
            let Some(open) = ways.open() else {
                continue;
            };
            for (bit, at) in places.iter().enumerate() {
                found.of[*at] = Some((found.parts.len(), 1 << bit));
            }
            found.parts.push(Part {
                number,
                placed: 0,
                open,
            });
        }
        found
    }

    /// Whether a way goes on in the operation's part, if it is placed and leads to this state.
    pub fn allow<S: Specification<State = T>>(&self, specification: &S, place: usize, state: &T) -> bool {
        self.of[place].is_none_or(|(part, bit)| {
            let part = &self.parts[part];
            let state = specification.project(state, part.number);
            part.open.contains(&(part.placed | bit, state))
        })
    }

    pub fn mark(&mut self, place: usize) {
        if let Some((part, bit)) = self.of[place] {
            self.parts[part].placed ^= bit;
        }
    }
}

/// All ways through a part's operations.
struct Ways<'a, S: Specification> {
    alone: &'a S,
    operations: Vec<&'a OperationOf<S>>,
    /// The bit of the one before among equal ones without an answer.
    twins: Vec<u128>,
    /// The answered ones.
    answered: u128,
}

impl<'a, S: Specification> Ways<'a, S> {
    fn new(
        alone: &'a S,
        places: &[usize],
        operations: &[&'a OperationOf<S>],
        twins: &[Option<usize>],
    ) -> Self {
        let bit = |place: usize| {
            places
                .iter()
                .position(|at| *at == place)
                .map_or(0, |bit| 1 << bit)
        };
        let is_answered = |at: &usize| operations[*at].answer.is_some();
        let twins = places.iter().map(|at| match twins[*at] {
            Some(twin) if !is_answered(at) => bit(twin),
            _ => 0,
        });
        Self {
            alone,
            operations: places.iter().map(|at| operations[*at]).collect(),
            twins: twins.collect(),
            answered: places
                .iter()
                .filter(|at| is_answered(at))
                .map(|at| bit(*at))
                .sum(),
        }
    }

    /// The states from which all answered operations can be placed; `None`: there are too many.
    fn open(&self) -> Option<HashSet<(u128, S::State)>> {
        let start = (0, self.alone.initial());
        let mut numbers = HashMap::from([(start.clone(), 0)]);
        let mut states = vec![start];
        let mut from: Vec<Vec<usize>> = vec![Vec::new()];
        let mut next = 0;
        while next < states.len() {
            let (placed, state) = states[next].clone();
            for after in self.after(placed, &state) {
                let number = *numbers.entry(after).or_insert_with_key(|after| {
                    states.push(after.clone());
                    from.push(Vec::new());
                    states.len() - 1
                });
                from[number].push(next);
            }
            if states.len() > STATES_LIMIT {
                return None;
            }
            next += 1;
        }
        let is_end = |(placed, _): &(u128, S::State)| placed & self.answered == self.answered;
        let mut reached: Vec<usize> = (0..states.len()).filter(|at| is_end(&states[*at])).collect();
        let mut open: HashSet<usize> = reached.iter().copied().collect();
        while let Some(at) = reached.pop() {
            reached.extend(from[at].iter().copied().filter(|before| open.insert(*before)));
        }
        let states = states.into_iter().enumerate();
        Some(
            states
                .filter(|(at, _)| open.contains(at))
                .map(|(_, state)| state)
                .collect(),
        )
    }

    fn after(&self, placed: u128, state: &S::State) -> Vec<(u128, S::State)> {
        let is_open = |at: &usize| placed >> at & 1 == 0;
        let open: Vec<usize> = (0..self.operations.len()).filter(is_open).collect();
        let may_be_next = |at: usize| {
            let called = self.operations[at].called;
            let mut others = open.iter().filter(|other| **other != at);
            others.all(|other| {
                self.operations[*other].answer.is_none() || called <= self.operations[*other].returned
            })
        };
        let candidates = open.iter().copied().filter(|at| may_be_next(*at));
        let after = candidates.filter_map(|at| {
            let operation = self.operations[at];
            let has_twin = self.twins[at] & !placed != 0;
            let answer = operation.answer.as_ref();
            let step = self.alone.step(state, &operation.request, answer)?;
            (!has_twin).then(|| (placed | 1 << at, step.into_owned()))
        });
        after.collect()
    }
}
