//! Requests for one item, and their answers: votes, changes, retractions and reads.
//! The item may have places and numbers.

mod places;
mod requests;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Instant;

use super::{Operation, Violation, first_call, words};
use places::Places;
pub use requests::{Answer, Effect, ItemOperation, Request, Stored, Vote, Wants, outcome};

/// Whether an item's history fits what the ledger says, in the ledger's order.
/// The history may also be of one voter on the item.
///
/// # Errors
/// When it does not fit, or the item's rules do not allow what happened.
pub fn check(
    max_votes: Option<usize>,
    is_numbered: bool,
    effects: &[Effect],
    history: &[ItemOperation],
) -> Result<(), Violation> {
    let first = first_call(history);
    let violation = |at: usize, why: &str| Violation(format!("{why}: {}", words(&history[at], first)));
    let places = Places::of(max_votes, is_numbered, effects)?;
    let by_id: HashMap<i64, usize> = effects
        .iter()
        .enumerate()
        .map(|(at, effect)| (effect.stored.id(), at))
        .collect();
    if by_id.len() < effects.len() {
        return Err(Violation("two effects have one row".to_owned()));
    }
    // The request of each effect.
    let mut owners: Vec<Option<usize>> = vec![None; effects.len()];
    let mut answered: Vec<usize> = (0..history.len())
        .filter(|at| history[*at].answer.is_some())
        .collect();
    for at in &answered {
        let Operation { request, answer, .. } = &history[*at];
        let Some(stored) = answer.and_then(Answer::effect) else {
            continue;
        };
        let place = by_id.get(&stored.id()).copied();
        let place = place.filter(|place| {
            effects[*place]
                == Effect {
                    voter: request.voter,
                    stored,
                }
        });
        let place = place.filter(|_| stored.is_wanted(request.wants));
        let place = place.ok_or_else(|| violation(*at, "the ledger has not what this stored"))?;
        if owners[place].replace(*at).is_some() {
            return Err(violation(*at, "another request stored that as well"));
        }
    }
    let behind = behind(history, &mut answered, &by_id, &places, violation)?;
    let until = deadlines(effects.len(), history, &behind);
    for (place, owner) in owners.iter().enumerate() {
        if let Some(at) = owner.filter(|at| until[place].is_some_and(|until| history[*at].called > until)) {
            return Err(violation(at, "this had effect before it was called"));
        }
    }
    let mut unanswered = Unanswered::of(history);
    for (place, effect) in effects
        .iter()
        .enumerate()
        .filter(|(place, _)| owners[*place].is_none())
    {
        if !unanswered.take(effect, until[place], history) {
            let why = format!("no request can have stored this, in the ledger's order: {effect:?}");
            return Err(Violation(why));
        }
    }
    Ok(())
}

/// How many effects came before the end of each answered request, with its own.
/// A request that stored nothing comes as early as its answer allows, but not before any request
/// that had returned when it was called. The later a request comes, the fewer requests can come
/// after it.
fn behind(
    history: &[ItemOperation],
    answered: &mut [usize],
    by_id: &HashMap<i64, usize>,
    places: &Places,
    violation: impl Fn(usize, &str) -> Violation,
) -> Result<BTreeMap<usize, usize>, Violation> {
    let mut returns = answered.to_vec();
    returns.sort_by_key(|at| history[*at].returned);
    let mut returns = returns.into_iter().peekable();
    answered.sort_by_key(|at| history[*at].called);
    let mut behind: BTreeMap<usize, usize> = BTreeMap::new();
    let mut least = 0;
    for at in answered.iter().copied() {
        let Operation {
            request,
            answer: Some(answer),
            called,
            ..
        } = &history[at]
        else {
            continue;
        };
        while let Some(before) = returns.next_if(|before| history[*before].returned < *called) {
            least = least.max(behind.get(&before).copied().unwrap_or_default());
        }
        let place = match answer.effect() {
            Some(stored) => by_id.get(&stored.id()).map(|place| place + 1),
            None => places.first_for(request, answer, least),
        };
        let place = place.ok_or_else(|| violation(at, "at no time was this the right answer"))?;
        behind.insert(at, place);
    }
    Ok(behind)
}

/// The time by which each effect must have happened; `None`: at any time.
/// That is the first return of an answered request at its place or after it.
fn deadlines(
    effects: usize,
    history: &[ItemOperation],
    behind: &BTreeMap<usize, usize>,
) -> Vec<Option<Instant>> {
    let mut until: Vec<Option<Instant>> = vec![None; effects];
    let mut tighten = |place: usize, returned: Instant| {
        let until = &mut until[place];
        *until = Some(until.map_or(returned, |until| until.min(returned)));
    };
    for (at, behind) in behind.iter().filter(|(_, behind)| **behind > 0) {
        tighten(behind - 1, history[*at].returned);
    }
    for place in (1..effects).rev() {
        if let Some(later) = until[place] {
            let until = &mut until[place - 1];
            *until = Some(until.map_or(later, |until| until.min(later)));
        }
    }
    until
}

/// Requests without an answer, by who wanted what, the first called first.
/// They have no return. So any of them that was called in time for an effect will do, and is in
/// time for all later effects.
struct Unanswered(HashMap<Request, VecDeque<usize>>);

impl Unanswered {
    fn of(history: &[ItemOperation]) -> Self {
        let mut open: Vec<usize> = (0..history.len())
            .filter(|at| history[*at].answer.is_none())
            .collect();
        open.sort_by_key(|at| history[*at].called);
        let mut by_request: HashMap<Request, VecDeque<usize>> = HashMap::new();
        for at in open {
            by_request.entry(history[at].request).or_default().push_back(at);
        }
        Self(by_request)
    }

    /// Takes a request that can have had this effect, if there is one.
    fn take(&mut self, effect: &Effect, until: Option<Instant>, history: &[ItemOperation]) -> bool {
        let wanted = match effect.stored {
            // Only a request that sets can change a vote, so the others go first.
            Stored::New(vote) => vec![Wants::Cast(vote.value), Wants::Set(vote.value)],
            Stored::Changed(vote) => vec![Wants::Set(vote.value)],
            Stored::TakenBack(_) => vec![Wants::TakeBack],
        };
        wanted.into_iter().any(|wants| {
            let request = Request {
                voter: effect.voter,
                wants,
            };
            self.0.get_mut(&request).is_some_and(|open| {
                let is_in_time = |at: &usize| until.is_none_or(|until| history[*at].called <= until);
                open.front().is_some_and(is_in_time) && open.pop_front().is_some()
            })
        })
    }
}
