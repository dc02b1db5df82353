//! Requests for one item, and their answers: votes, changes, retractions and reads.
//! The item may have places and numbers.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Instant;

use serde_json::Value;

use super::places::Places;
use super::{Operation, Outcome, Violation, first_call, words};

/// What a request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wants {
    /// `POST`: to hold a vote. A held vote stays.
    Cast(i64),
    /// `PUT`: to hold this value.
    Set(i64),
    /// `DELETE`
    TakeBack,
    /// `GET`
    Read,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// `None`: the vote is anonymous.
    pub voter: Option<u32>,
    pub wants: Wants,
}

/// A vote, as an answer shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Vote {
    pub id: i64,
    pub value: i64,
    pub number: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// 201
    New(Vote),
    /// 200, with another vote.
    Changed(Vote),
    /// 200, with the held vote.
    Repeated(Vote),
    /// 200, for a held vote: the row that takes it back.
    TakenBack(i64),
    /// 200 if nothing was held; 404 for a read.
    NothingHeld,
    /// 200 to a read.
    Holds(Vote),
    /// 409
    Full,
}

/// What a request stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stored {
    New(Vote),
    Changed(Vote),
    /// The row that takes a vote back.
    TakenBack(i64),
}

impl Stored {
    /// The id of its last row.
    pub fn id(self) -> i64 {
        match self {
            Self::New(vote) | Self::Changed(vote) => vote.id,
            Self::TakenBack(id) => id,
        }
    }

    /// The vote that is held after it.
    pub fn vote(self) -> Option<Vote> {
        match self {
            Self::New(vote) | Self::Changed(vote) => Some(vote),
            Self::TakenBack(_) => None,
        }
    }

    /// Whether a request may store this.
    fn is_wanted(self, wants: Wants) -> bool {
        match self {
            Self::New(vote) => wants == Wants::Cast(vote.value) || wants == Wants::Set(vote.value),
            Self::Changed(vote) => wants == Wants::Set(vote.value),
            Self::TakenBack(_) => wants == Wants::TakeBack,
        }
    }
}

/// What the ledger says that a request did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effect {
    pub voter: Option<u32>,
    pub stored: Stored,
}

impl Answer {
    /// What was stored for this answer.
    pub fn effect(self) -> Option<Stored> {
        match self {
            Self::New(vote) => Some(Stored::New(vote)),
            Self::Changed(vote) => Some(Stored::Changed(vote)),
            Self::TakenBack(id) => Some(Stored::TakenBack(id)),
            _ => None,
        }
    }

    /// The vote that was stored for this answer.
    pub fn stored(self) -> Option<Vote> {
        self.effect().and_then(Stored::vote)
    }
}

pub type ItemOperation = Operation<Request, Answer>;

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

/// What a client knows from an answer: its status and body, or `None` if none came.
///
/// # Errors
/// The answer, if a request of this kind cannot have it.
pub fn outcome(wants: Wants, answer: Option<(u16, &Value)>) -> Result<Outcome<Answer>, String> {
    let Some((status, body)) = answer else {
        return Ok(Outcome::unanswered(wants == Wants::Read));
    };
    let vote = || {
        Some(Vote {
            id: body["vote_id"].as_i64()?,
            value: body["value"].as_i64()?,
            number: body["number"].as_i64(),
        })
    };
    let is_repeated = body["repeated"] == true;
    let known = match (wants, status) {
        (_, 503) if wants == Wants::Read || body["stored"] == "no" => return Ok(Outcome::NoEffect),
        (_, 503) => return Ok(Outcome::Unknown),
        (Wants::Read, 200) => vote().map(Answer::Holds),
        (Wants::Read, 404) => Some(Answer::NothingHeld),
        (Wants::TakeBack, 200) if is_repeated => Some(Answer::NothingHeld),
        (Wants::TakeBack, 200) => vote()
            .filter(|vote| vote.value == 0)
            .map(|vote| Answer::TakenBack(vote.id)),
        (Wants::Cast(_) | Wants::Set(_), 201) => vote().map(Answer::New),
        (Wants::Cast(_) | Wants::Set(_), 200) if is_repeated => vote().map(Answer::Repeated),
        (Wants::Set(_), 200) => vote().map(Answer::Changed),
        (Wants::Cast(_) | Wants::Set(_), 409) if body["type"] == "/problems/full" => Some(Answer::Full),
        _ => None,
    };
    known
        .map(Outcome::Answered)
        .ok_or_else(|| format!("{wants:?} was answered {status}: {body}"))
}
