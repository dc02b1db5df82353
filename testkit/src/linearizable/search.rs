//! The search for an order: depth first, one operation after the other, and back where none fits.
//!
//! An operation may be next if no other one that is not placed yet had returned before it was
//! called. Seven things keep the search small, and none changes what it finds:
//!
//! - What was tried is remembered: the set of placed operations with the state they led to.
//! - A read that may be next, and is answered what is, comes at once: if there is any order from
//!   here, there is one that begins with it.
//! - If all that may be the next of one part of the state could as well come before all that other
//!   parts do until then, one of them is next: where other parts' operations go between is then the
//!   same.
//! - A request without an answer comes as late as it can: not before an operation that it could
//!   follow as well with the same result.
//! - Of equal operations the first to return is the first placed; without answers, the first
//!   called.
//! - What an answer needs is not ended while that answer is not placed.
//! - What leads nowhere in one part of the state by itself is not tried (`parts.rs`).

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Instant;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::links::{END, Links};
use super::parts::Parts;
use super::{NoOrder, OperationOf, Specification, stuck};

/// The most states that are remembered, 16 bytes each and as much again for the set.
const STATES_LIMIT: usize = 1_000_000;

pub(super) struct Search<'a, S: Specification> {
    specification: &'a S,
    /// In the order of their returns: most took effect in about this order.
    answered: Vec<&'a OperationOf<S>>,
    /// The earliest call of this operation and those behind it.
    earliest_calls: Vec<Instant>,
    /// The answered ones that are not placed.
    open: Links,
    /// In the order of their calls.
    unanswered: Vec<&'a OperationOf<S>>,
    /// Of the answered ones, and then of the others: whether it is placed, and the one before it
    /// among equal ones.
    is_placed: Vec<bool>,
    twins: Vec<Option<usize>>,
    /// The operations of each part of the state.
    of_part: HashMap<u32, Vec<usize>>,
    parts: Parts<S::State>,
    /// How many answers that are not placed need this.
    needed: HashMap<i64, usize>,
    /// A random number for each operation: a set of them is known by the exclusive or of theirs.
    names: Vec<u128>,
    placed: u128,
    placed_answers: usize,
    /// Hashes of 128 bits, since two equal ones of different states would hide an order.
    seen: HashSet<u128>,
    nodes: Vec<Node<S::State>>,
}

/// Which operation.
#[derive(Clone, Copy)]
enum Which {
    Answered(usize),
    Unanswered(usize),
}

/// When an operation must have been called to be next; `None`: at any time. The first one that is
/// not placed may return before it is called, if it was merged.
#[derive(Clone, Copy)]
struct Limits {
    first: usize,
    of_first: Option<Instant>,
    /// Of those without an answer, too.
    of_others: Option<Instant>,
}

/// What to try next.
enum Next {
    Reads,
    /// These alone, the last one first.
    Among(Vec<usize>),
    Answered(usize),
    Unanswered(usize),
    Nothing,
}

/// A state of the search.
struct Node<T> {
    state: T,
    /// What led here.
    by: Option<Which>,
    /// If that had no answer: it, and the state before.
    late: Option<(usize, T)>,
    next: Next,
}

impl<'a, S: Specification> Search<'a, S> {
    pub fn new(specification: &'a S, history: &'a [OperationOf<S>]) -> Self {
        let (mut answered, mut unanswered): (Vec<_>, Vec<_>) =
            history.iter().partition(|operation| operation.answer.is_some());
        answered.sort_by_key(|operation| operation.returned);
        unanswered.sort_by_key(|operation| operation.called);
        let mut earliest_calls: Vec<Instant> = answered.iter().map(|operation| operation.called).collect();
        for at in (1..earliest_calls.len()).rev() {
            earliest_calls[at - 1] = earliest_calls[at - 1].min(earliest_calls[at]);
        }
        let all: Vec<_> = answered.iter().chain(&unanswered).copied().collect();
        let mut last = HashMap::new();
        let numbered = all.iter().enumerate();
        let twins = numbered.map(|(at, operation)| last.insert((&operation.request, &operation.answer), at));
        let twins: Vec<Option<usize>> = twins.collect();
        let mut of_part: HashMap<u32, Vec<usize>> = HashMap::new();
        for (place, operation) in all.iter().enumerate() {
            if let Some(part) = specification.part(&operation.request) {
                of_part.entry(part).or_default().push(place);
            }
        }
        let mut needed: HashMap<i64, usize> = HashMap::new();
        let answers = answered.iter().filter_map(|operation| operation.answer.as_ref());
        for need in answers.filter_map(|answer| specification.needs(answer)) {
            *needed.entry(need).or_default() += 1;
        }
        let mut random = StdRng::seed_from_u64(0);
        Self {
            specification,
            earliest_calls,
            open: Links::new(answered.len()),
            is_placed: vec![false; history.len()],
            parts: Parts::new(specification, &all, &twins),
            twins,
            of_part,
            needed,
            names: history.iter().map(|_| random.random()).collect(),
            placed: 0,
            placed_answers: 0,
            seen: HashSet::new(),
            nodes: Vec::new(),
            answered,
            unanswered,
        }
    }

    pub fn run(mut self) -> Result<(), NoOrder> {
        self.nodes.push(Node {
            state: self.specification.initial(),
            by: None,
            late: None,
            next: Next::Reads,
        });
        let mut furthest = 0;
        let mut why = String::new();
        loop {
            if self.open.first() == END {
                return Ok(());
            }
            let states = self.seen.len();
            if states > STATES_LIMIT {
                return Err(NoOrder::GivenUp { states, why });
            }
            if let Some(node) = self.next() {
                self.place(node);
                continue;
            }
            let Some(node) = self.nodes.pop() else {
                return Err(NoOrder::Impossible(why));
            };
            if self.placed_answers > furthest || why.is_empty() {
                (furthest, why) = (self.placed_answers, self.report(&node.state));
            }
            self.take_back(node.by);
        }
    }

    fn report(&self, state: &S::State) -> String {
        let first = self.unanswered.iter().map(|operation| operation.called);
        let first = first.chain(self.earliest_calls.first().copied()).min();
        let next = self.candidates(self.open.first());
        let next = next.map(|at| self.answered[at]);
        format!(
            "{} of {} operations can be put in order; {}",
            self.placed_answers,
            self.answered.len(),
            stuck::<S>(state, next, first.unwrap_or_else(Instant::now))
        )
    }

    /// When what may be next must have been called.
    fn limits(&self) -> Limits {
        let returned = |at: usize| self.answered.get(at).map(|operation| operation.returned);
        let first = self.open.first();
        Limits {
            first,
            of_first: returned(self.open.next(first)),
            of_others: returned(first),
        }
    }

    /// Whether no other operation that is not placed had returned before this one was called.
    fn may_be_next(&self, at: usize, limits: &Limits) -> bool {
        let called = self.answered[at].called;
        if at == limits.first {
            limits.of_first.is_none_or(|limit| called <= limit)
        } else {
            limits.of_others.is_none_or(|limit| called <= limit)
        }
    }

    /// The operations from `at` on that may be next.
    fn candidates(&self, at: usize) -> impl Iterator<Item = usize> {
        let limits = self.limits();
        let from = std::iter::successors(Some(at), |at| Some(self.open.next(*at)));
        let some_may_be = move |at: usize| {
            let earliest = |limit| self.earliest_calls[at] <= limit;
            at != END && (at == limits.first || limits.of_others.is_none_or(earliest))
        };
        from.take_while(move |at| some_may_be(*at))
            .filter(move |at| self.may_be_next(*at, &limits))
    }

    /// The next node below the last one that was not seen before.
    fn next(&mut self) -> Option<Node<S::State>> {
        let limit = self.limits().of_others;
        let mut node = self.nodes.pop()?;
        let mut found = None;
        while found.is_none() {
            (node.next, found) = match std::mem::replace(&mut node.next, Next::Nothing) {
                Next::Reads => match self.read(&node.state) {
                    Some(read) => (Next::Nothing, self.answer(&node, read)),
                    None => match self.apart(&node.state) {
                        Some(some) => (Next::Among(some), None),
                        None => (Next::Answered(self.open.first()), None),
                    },
                },
                Next::Among(mut some) => match some.pop() {
                    Some(at) => {
                        let found = self.answer(&node, at);
                        (Next::Among(some), found)
                    }
                    None => break,
                },
                Next::Answered(at) => {
                    let candidate = self.candidates(at).next();
                    match candidate {
                        Some(at) => (Next::Answered(self.open.next(at)), self.answer(&node, at)),
                        None => (Next::Unanswered(0), None),
                    }
                }
                Next::Unanswered(at) if at < self.unanswered.len() => {
                    (Next::Unanswered(at + 1), self.late(&node, at, limit))
                }
                Next::Unanswered(_) | Next::Nothing => break,
            };
        }
        self.nodes.push(node);
        found
    }

    /// A read that may be next and leaves the state as it is.
    fn read(&self, state: &S::State) -> Option<usize> {
        let mut candidates = self.candidates(self.open.first());
        candidates.find(|at| {
            let operation = self.answered[*at];
            let (request, answer) = (&operation.request, operation.answer.as_ref());
            answer.is_some_and(|answer| self.specification.is_read(request, answer))
                && is_same(self.specification.step(state, request, answer).as_ref())
        })
    }

    /// All that may be the next of some part, if one of them may be next of all: each may come before
    /// whatever other parts do until then.
    fn apart(&self, state: &S::State) -> Option<Vec<usize>> {
        let limits = self.limits();
        let is_apart = |at: usize| {
            let operation = self.answered[at];
            let answer = operation.answer.as_ref();
            answer.is_some_and(|answer| self.specification.is_apart(state, &operation.request, answer))
        };
        let mut looked_at = HashSet::new();
        self.candidates(self.open.first()).find_map(|at| {
            if !is_apart(at) {
                return None;
            }
            let Some(part) = self.specification.part(&self.answered[at].request) else {
                return Some(vec![at]);
            };
            if !looked_at.insert(part) {
                return None;
            }
            let mut open = self.of_part[&part]
                .iter()
                .copied()
                .filter(|place| !self.is_placed[*place]);
            // They stand in the order of their returns, those without an answer last.
            let first = open.next()?;
            let returned = self.answered.get(first)?.returned;
            let mut firsts: Vec<usize> = open.filter(|place| self.called(*place) <= returned).collect();
            firsts.push(first);
            let is_answered = |place: &usize| *place < self.answered.len();
            let all = firsts
                .iter()
                .all(|place| is_answered(place) && self.may_be_next(*place, &limits) && is_apart(*place));
            all.then_some(firsts)
        })
    }

    /// The node that an answered operation leads to.
    fn answer(&mut self, node: &Node<S::State>, at: usize) -> Option<Node<S::State>> {
        let operation = self.answered[at];
        let (request, answer) = (&operation.request, operation.answer.as_ref());
        if self.comes_behind_a_twin(at) {
            return None;
        }
        let state = self.specification.step(&node.state, request, answer)?;
        let needs = answer.and_then(|answer| self.specification.needs(answer));
        if self.is_needed(node, request, needs)
            || self.could_be_first(node, at, &state)
            || !self.parts.allow(self.specification, at, &state)
        {
            return None;
        }
        self.unless_seen(Node {
            state: state.into_owned(),
            by: Some(Which::Answered(at)),
            late: None,
            next: Next::Reads,
        })
    }

    /// The node that an operation without an answer leads to.
    fn late(&mut self, node: &Node<S::State>, at: usize, limit: Option<Instant>) -> Option<Node<S::State>> {
        let operation = self.unanswered[at];
        let place = self.answered.len() + at;
        let is_early = limit.is_some_and(|limit| operation.called > limit);
        // The one before among equal ones was called before, so it could be next as well.
        let has_twin = self.twins[place].is_some_and(|twin| !self.is_placed[twin]);
        if self.is_placed[place] || is_early || has_twin {
            return None;
        }
        let state = self.specification.step(&node.state, &operation.request, None)?;
        if is_same(Some(&state))
            || self.is_needed(node, &operation.request, None)
            || !self.parts.allow(self.specification, place, &state)
        {
            return None;
        }
        if let Some((other, before)) = &node.late
            && at < *other
            && self.swapped(before, &operation.request, None, *other).as_ref() == Some(&state)
        {
            return None;
        }
        self.unless_seen(Node {
            state: state.into_owned(),
            by: Some(Which::Unanswered(at)),
            late: Some((at, node.state.clone())),
            next: Next::Reads,
        })
    }

    /// Whether an equal operation that is not placed could be next as well, and returned earlier.
    fn comes_behind_a_twin(&self, at: usize) -> bool {
        let limits = self.limits();
        // All that returned before the first open one are placed.
        let earlier = std::iter::successors(self.twins[at], |twin| self.twins[*twin]);
        let mut earlier = earlier.take_while(|twin| *twin >= limits.first);
        earlier.any(|twin| !self.is_placed[twin] && self.may_be_next(twin, &limits))
    }

    /// Whether this request would end what answers need, other than its own.
    fn is_needed(&self, node: &Node<S::State>, request: &S::Request, own: Option<i64>) -> bool {
        let ends = self.specification.ends(&node.state, request);
        ends.is_some_and(|ends| {
            let needed = self.needed.get(&ends).copied().unwrap_or_default();
            needed > usize::from(own == Some(ends))
        })
    }

    /// Whether the operation without an answer that led to this node could come behind this one
    /// as well, and both would lead to this state.
    fn could_be_first(&self, node: &Node<S::State>, at: usize, state: &S::State) -> bool {
        node.late.as_ref().is_some_and(|(late, before)| {
            let operation = self.answered[at];
            let swapped = self.swapped(before, &operation.request, operation.answer.as_ref(), *late);
            swapped.as_deref() == Some(state)
        })
    }

    /// The state after this request and then that without an answer.
    fn swapped<'s>(
        &self,
        before: &'s S::State,
        request: &S::Request,
        answer: Option<&S::Answer>,
        late: usize,
    ) -> Option<Cow<'s, S::State>> {
        let late = &self.unanswered[late].request;
        match self.specification.step(before, request, answer)? {
            Cow::Borrowed(state) => self.specification.step(state, late, None),
            Cow::Owned(state) => {
                let after = self.specification.step(&state, late, None)?;
                Some(Cow::Owned(after.into_owned()))
            }
        }
    }

    fn unless_seen(&mut self, node: Node<S::State>) -> Option<Node<S::State>> {
        let placed = self.placed ^ node.by.map_or(0, |by| self.names[self.place_of(by)]);
        // What may follow depends on what came last, if that had no answer.
        let seen = (placed, &node.state, &node.late);
        let [high, low] = [0_u8, 1].map(|salt| {
            let mut hasher = DefaultHasher::new();
            (salt, &seen).hash(&mut hasher);
            u128::from(hasher.finish())
        });
        self.seen.insert(high << 64 | low).then_some(node)
    }

    fn called(&self, place: usize) -> Instant {
        let unanswered = || self.unanswered[place - self.answered.len()].called;
        self.answered
            .get(place)
            .map_or_else(unanswered, |operation| operation.called)
    }

    /// Where the operation stands in `is_placed`, `twins` and `names`.
    fn place_of(&self, which: Which) -> usize {
        match which {
            Which::Answered(at) => at,
            Which::Unanswered(at) => self.answered.len() + at,
        }
    }

    fn place(&mut self, node: Node<S::State>) {
        if let Some(by) = node.by {
            self.mark(by, true);
            if let Which::Answered(at) = by {
                self.open.take(at);
                self.placed_answers += 1;
            }
        }
        self.nodes.push(node);
    }

    fn take_back(&mut self, by: Option<Which>) {
        if let Some(by) = by {
            self.mark(by, false);
            if let Which::Answered(at) = by {
                self.open.put_back(at);
                self.placed_answers -= 1;
            }
        }
    }

    fn mark(&mut self, which: Which, is_placed: bool) {
        let place = self.place_of(which);
        self.is_placed[place] = is_placed;
        self.parts.mark(place);
        self.placed ^= self.names[place];
        self.set_needed(which, !is_placed);
    }

    /// Counts what an answer needs, while it is not placed.
    fn set_needed(&mut self, which: Which, is_open: bool) {
        let Which::Answered(at) = which else {
            return;
        };
        let answer = self.answered[at].answer.as_ref();
        if let Some(need) = answer.and_then(|answer| self.specification.needs(answer)) {
            let needed = self.needed.entry(need).or_default();
            *needed = if is_open {
                *needed + 1
            } else {
                needed.saturating_sub(1)
            };
        }
    }
}

fn is_same<T: Clone>(step: Option<&Cow<'_, T>>) -> bool {
    matches!(step, Some(Cow::Borrowed(_)))
}
