//! The reference of the check: one request after the other, in all orders.
//! It takes no short cut, and has no other idea than the rules.

use std::collections::BTreeMap;

use testkit::linearizable::polls::Choices;

use super::*;

/// What is held on an item.
#[derive(Clone, Debug, Default)]
pub struct Item {
    pub max_votes: Option<usize>,
    pub is_numbered: bool,
    held: BTreeMap<u32, Vote>,
    anonymous: usize,
    last_number: i64,
}

impl Item {
    pub fn new(max_votes: Option<usize>, is_numbered: bool) -> Self {
        Self {
            max_votes,
            is_numbered,
            ..Self::default()
        }
    }

    /// Answers the next request. A row that it stores gets this id.
    pub fn ask(&mut self, request: Request, id: i64) -> Answer {
        let held = request.voter.and_then(|voter| self.held.get(&voter)).copied();
        let is_full = self
            .max_votes
            .is_some_and(|most| self.held.len() + self.anonymous >= most);
        match (request.wants, held) {
            (Wants::Read | Wants::TakeBack, None) => Answer::NothingHeld,
            (Wants::Read, Some(held)) => Answer::Holds(held),
            (Wants::TakeBack, Some(_)) => {
                self.held.retain(|voter, _| Some(*voter) != request.voter);
                Answer::TakenBack(id)
            }
            (Wants::Cast(_), Some(held)) => Answer::Repeated(held),
            (Wants::Set(value), Some(held)) if held.value == value => Answer::Repeated(held),
            (Wants::Cast(_) | Wants::Set(_), None) if is_full => Answer::Full,
            (Wants::Cast(value) | Wants::Set(value), held) => {
                self.last_number += i64::from(self.is_numbered);
                let vote = Vote {
                    number: self.is_numbered.then_some(self.last_number),
                    ..vote(id, value)
                };
                match request.voter {
                    Some(voter) => _ = self.held.insert(voter, vote),
                    None => self.anonymous += 1,
                }
                if held.is_some() {
                    Answer::Changed(vote)
                } else {
                    Answer::New(vote)
                }
            }
        }
    }
}

/// Whether an order of a history stores exactly this, in this order.
pub fn has_order<S: Clone, R, A>(
    history: &[Operation<R, A>],
    state: &S,
    stored: usize,
    // The next state, and whether the request stored something; `None`: it cannot be next.
    next: &impl Fn(&S, usize, &Operation<R, A>) -> Option<(S, bool)>,
    effects: usize,
    is_placed: &mut Vec<bool>,
) -> bool {
    let open: Vec<usize> = (0..history.len()).filter(|at| !is_placed[*at]).collect();
    let answered = open.iter().filter(|at| history[**at].answer.is_some());
    let until = answered.map(|at| history[*at].returned).min();
    if until.is_none() && stored == effects {
        return true;
    }
    open.into_iter().any(|at| {
        if until.is_some_and(|until| history[at].called > until) {
            return false;
        }
        let Some((after, is_stored)) = next(state, stored, &history[at]) else {
            return false;
        };
        is_placed[at] = true;
        let stored = stored + usize::from(is_stored);
        let found = has_order(history, &after, stored, next, effects, is_placed);
        is_placed[at] = false;
        found
    })
}

/// Whether an item's history has an order with these effects.
pub fn item_has_order(item: &Item, effects: &[Effect], history: &[ItemOperation]) -> bool {
    let next = |item: &Item, stored: usize, operation: &ItemOperation| {
        let mut after = item.clone();
        let effect = effects.get(stored);
        let id = effect.map_or(0, |effect| effect.stored.id());
        let answer = after.ask(operation.request, id);
        let is_so = operation.answer.is_none_or(|said| said == answer);
        let is_stored = answer.effect().is_none_or(|stored| {
            effect
                == Some(&Effect {
                    voter: operation.request.voter,
                    stored,
                })
        });
        (is_so && is_stored).then_some((after, answer.effect().is_some()))
    };
    let mut is_placed = vec![false; history.len()];
    has_order(history, item, 0, &next, effects.len(), &mut is_placed)
}

/// Answers a voter's request in a poll. Returns what is held then, too.
pub fn choose(poll: Poll, held: &Choices, request: &polls::Request) -> (polls::Answer, Choices) {
    let wanted: Choices = match request {
        polls::Request::Read => return (polls::Answer::Holds(held.clone()), held.clone()),
        polls::Request::Select(choices) => choices.clone(),
        polls::Request::Cast(choice) if poll.max_choices == 1 => [*choice].into(),
        polls::Request::Cast(choice) => held.iter().chain([choice]).copied().collect(),
    };
    if wanted == *held {
        (polls::Answer::Repeated, wanted)
    } else if wanted.len() > poll.max_choices {
        (polls::Answer::TooManyChoices, held.clone())
    } else {
        (polls::Answer::Changed, wanted)
    }
}

/// Whether a voter's history in a poll has an order with these changes.
pub fn poll_has_order(poll: Poll, changes: &[Choices], history: &[PollOperation]) -> bool {
    let next = |held: &Choices, stored: usize, operation: &PollOperation| {
        let (answer, after) = choose(poll, held, &operation.request);
        let is_so = operation.answer.as_ref().is_none_or(|said| *said == answer);
        let is_stored = answer == polls::Answer::Changed;
        let is_next = !is_stored || changes.get(stored) == Some(&after);
        (is_so && is_next).then_some((after, is_stored))
    };
    let mut is_placed = vec![false; history.len()];
    has_order(history, &Choices::new(), 0, &next, changes.len(), &mut is_placed)
}
