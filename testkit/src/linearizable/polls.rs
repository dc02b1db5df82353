//! One voter's requests in one poll, and their answers.
//! Voters of a poll do not depend on each other. So each one's history is checked by itself.

use std::collections::{BTreeSet, HashSet};
use std::time::Instant;

use serde_json::Value;

use super::{Operation, Outcome, Violation, words};

/// Choices that are held, or wanted.
pub type Choices = BTreeSet<i64>;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// `PUT` of a whole selection; `DELETE` of it if it is empty.
    Select(Choices),
    /// `POST` of a vote on a choice. In a one-choice poll, it moves the vote.
    Cast(i64),
    /// `GET` of the selection, or a look at the ledger.
    Read,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// The selection changed.
    Changed,
    /// The selection was already so.
    Repeated,
    /// The answer to a read.
    Holds(Choices),
    TooManyChoices,
}

pub type PollOperation = Operation<Request, Answer>;

/// A poll, as one voter sees it.
#[derive(Clone, Copy, Debug)]
pub struct Poll {
    pub max_choices: usize,
}

impl Poll {
    /// What the voter holds after a request; `None`: it is refused.
    fn after(self, held: &Choices, request: &Request) -> Option<Choices> {
        let after = match request {
            Request::Read => held.clone(),
            Request::Select(choices) => choices.clone(),
            Request::Cast(choice) if self.max_choices == 1 => Choices::from([*choice]),
            Request::Cast(choice) => held.iter().chain([choice]).copied().collect(),
        };
        (after == *held || after.len() <= self.max_choices).then_some(after)
    }

    /// The simplest request that does the same.
    fn plain(self, request: &Request) -> Request {
        match request {
            Request::Cast(choice) if self.max_choices == 1 => Request::Select([*choice].into()),
            other => other.clone(),
        }
    }
}

/// A point on a way through a voter's requests: which of them are already placed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Way {
    /// The first answered request, in the order of returns, that is not placed.
    first: usize,
    /// Later answered requests that are placed.
    /// Each was under way when the first one returned.
    later: BTreeSet<usize>,
    /// How many of the voter's changes are placed.
    changes: usize,
    /// How many requests of each kind without an answer are placed.
    unanswered: Vec<usize>,
}

/// Whether a voter's history fits what the voter held by the ledger.
/// It has what was held change by change.
///
/// # Errors
/// When it does not fit, or the poll does not allow what was held.
pub fn check(poll: &Poll, held: &[Choices], history: &[PollOperation]) -> Result<(), Violation> {
    let mut all = vec![Choices::new()];
    all.extend_from_slice(held);
    if let Some(two) = all
        .windows(2)
        .find(|two| two[0] == two[1] || two[1].len() > poll.max_choices)
    {
        return Err(Violation(format!("{:?} was held after {:?}", two[1], two[0])));
    }
    Ways::new(*poll, &all, history).find()
}

/// All ways through a voter's requests, in the order of the ledger.
/// An answer does not name its rows. But only requests that were under way at once can change
/// places, so there are few ways.
struct Ways<'a> {
    poll: Poll,
    /// What was held before each change, and after the last.
    held: &'a [Choices],
    /// The answered requests, in the order of their returns.
    answered: Vec<&'a PollOperation>,
    /// For each answered request: the earliest call of it and those after it.
    earliest_calls: Vec<Instant>,
    /// For each kind of request without an answer, the calls in order.
    /// Any of them will do, and the earliest is best.
    unanswered: Vec<(Request, Vec<Instant>)>,
}

impl<'a> Ways<'a> {
    fn new(poll: Poll, held: &'a [Choices], history: &'a [PollOperation]) -> Self {
        let (mut answered, open): (Vec<_>, Vec<_>) =
            history.iter().partition(|operation| operation.answer.is_some());
        answered.sort_by_key(|operation| operation.returned);
        let mut earliest_calls: Vec<Instant> = answered.iter().map(|operation| operation.called).collect();
        for at in (1..earliest_calls.len()).rev() {
            earliest_calls[at - 1] = earliest_calls[at - 1].min(earliest_calls[at]);
        }
        let mut unanswered: Vec<(Request, Vec<Instant>)> = Vec::new();
        for operation in open {
            let request = poll.plain(&operation.request);
            match unanswered.iter_mut().find(|(kind, _)| *kind == request) {
                Some((_, calls)) => calls.push(operation.called),
                None => unanswered.push((request, vec![operation.called])),
            }
        }
        for (_, calls) in &mut unanswered {
            calls.sort_unstable();
        }
        Self {
            poll,
            held,
            answered,
            earliest_calls,
            unanswered,
        }
    }

    fn find(&self) -> Result<(), Violation> {
        let start = Way {
            first: 0,
            later: BTreeSet::new(),
            changes: 0,
            unanswered: vec![0; self.unanswered.len()],
        };
        let mut furthest = start.clone();
        let mut seen = HashSet::from([start.clone()]);
        let mut open = vec![start];
        while let Some(way) = open.pop() {
            if way.first == self.answered.len() && way.changes + 1 == self.held.len() {
                return Ok(());
            }
            if (way.first, way.changes) > (furthest.first, furthest.changes) {
                furthest = way.clone();
            }
            let next = self.next(&way);
            open.extend(next.into_iter().filter(|way| seen.insert(way.clone())));
        }
        Err(self.violation(&furthest))
    }

    /// The answered requests that may be next.
    /// No other one left had returned before their call.
    fn candidates(&self, way: &Way) -> Vec<usize> {
        let until = self.answered.get(way.first).map(|first| first.returned);
        (way.first..self.answered.len())
            .take_while(|at| until.is_none_or(|until| self.earliest_calls[*at] <= until))
            .filter(|at| !way.later.contains(at))
            .filter(|at| until.is_none_or(|until| self.answered[*at].called <= until))
            .collect()
    }

    fn next(&self, way: &Way) -> Vec<Way> {
        let (now, then) = (&self.held[way.changes], self.held.get(way.changes + 1));
        let candidates = self.candidates(way);
        let fits = |at: &usize| {
            let operation = self.answered[*at];
            let after = self.poll.after(now, &operation.request);
            match &operation.answer {
                Some(Answer::Holds(choices)) => operation.request == Request::Read && choices == now,
                Some(Answer::Repeated) => operation.request != Request::Read && after.as_ref() == Some(now),
                Some(Answer::TooManyChoices) => after.is_none(),
                Some(Answer::Changed) | None => false,
            }
        };
        // A request that stores nothing, and whose answer is right now, comes at once. If there is
        // any order from here, then also one that begins with it.
        if let Some(at) = candidates.iter().copied().find(fits) {
            return vec![self.with(way, at, way.changes)];
        }
        let Some(then) = then else {
            return Vec::new();
        };
        let leads_there = |request: &Request| {
            *request != Request::Read && self.poll.after(now, request).as_ref() == Some(then)
        };
        let changed = candidates.into_iter().filter(|at| {
            let operation = self.answered[*at];
            operation.answer == Some(Answer::Changed) && leads_there(&operation.request)
        });
        let mut ways: Vec<Way> = changed.map(|at| self.with(way, at, way.changes + 1)).collect();
        let until = self.answered.get(way.first).map(|first| first.returned);
        for (kind, (request, calls)) in self.unanswered.iter().enumerate() {
            let call = calls.get(way.unanswered[kind]);
            let is_in_time = |call: &Instant| until.is_none_or(|until| *call <= until);
            if leads_there(request) && call.is_some_and(is_in_time) {
                let mut next = way.clone();
                next.unanswered[kind] += 1;
                next.changes += 1;
                ways.push(next);
            }
        }
        ways
    }

    /// The way with this answered request placed.
    fn with(&self, way: &Way, at: usize, changes: usize) -> Way {
        let mut next = Way {
            changes,
            ..way.clone()
        };
        next.later.insert(at);
        while next.later.remove(&next.first) {
            next.first += 1;
        }
        next
    }

    fn violation(&self, furthest: &Way) -> Violation {
        let first = self.answered.iter().map(|operation| operation.called).min();
        let next: Vec<String> = self
            .candidates(furthest)
            .into_iter()
            .map(|at| words(self.answered[at], first))
            .collect();
        Violation(format!(
            "{} of {} requests and {} of {} changes are in order; then {:?} is held, and next {:?}, and none of \
             these can be next:\n  {}",
            furthest.first + furthest.later.len(),
            self.answered.len(),
            furthest.changes,
            self.held.len() - 1,
            self.held[furthest.changes],
            self.held.get(furthest.changes + 1),
            next.join("\n  ")
        ))
    }
}

/// What a client knows from an answer: its status and body, or `None` if none came.
///
/// # Errors
/// The answer, if a request of this kind cannot have it.
pub fn outcome(request: &Request, answer: Option<(u16, &Value)>) -> Result<Outcome<Answer>, String> {
    let is_read = *request == Request::Read;
    let Some((status, body)) = answer else {
        return Ok(Outcome::unanswered(is_read));
    };
    let items = || {
        let items = body["items"].as_array()?;
        items.iter().map(Value::as_i64).collect::<Option<Choices>>()
    };
    let of_selection = |choices: &Choices| items().filter(|items| items == choices);
    let changed = if body["repeated"] == true {
        Answer::Repeated
    } else {
        Answer::Changed
    };
    let known = match (request, status) {
        (_, 503) if is_read || body["stored"] == "no" => return Ok(Outcome::NoEffect),
        (_, 503) => return Ok(Outcome::Unknown),
        (Request::Read, 200) => items().map(Answer::Holds),
        (Request::Select(choices), 200) => of_selection(choices).map(|_| changed),
        (Request::Cast(choice), 200 | 201) => (body["item_id"] == *choice).then_some(changed),
        (Request::Select(_) | Request::Cast(_), 409) if body["type"] == "/problems/too-many-choices" => {
            Some(Answer::TooManyChoices)
        }
        _ => None,
    };
    known
        .map(Outcome::Answered)
        .ok_or_else(|| format!("{request:?} was answered {status}: {body}"))
}
