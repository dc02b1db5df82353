//! What an item allows: which answers each request may have in which state.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::Value;

use crate::linearizable::{Operation, Outcome, Specification};

/// What a request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wants {
    /// `POST`: to hold a vote. One that is held stays.
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
    /// `None`: an anonymous vote.
    pub voter: Option<u32>,
    pub wants: Wants,
}

/// A vote, as an answer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Vote {
    /// `None`: it does not matter, since no other answer names it.
    pub id: Option<i64>,
    pub value: i64,
    pub number: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// 201
    New(Vote),
    /// 200, with another vote.
    Changed(Vote),
    /// 200, with the vote that was held.
    Repeated(Vote),
    /// 200, for what was held.
    TakenBack,
    /// 200, and nothing was held; 404 for a read.
    NothingHeld,
    /// 200 to a read.
    Holds(Vote),
    /// 409
    Full,
}

impl Answer {
    /// The vote that was stored for this answer.
    pub fn stored(self) -> Option<Vote> {
        match self {
            Self::New(vote) | Self::Changed(vote) => Some(vote),
            _ => None,
        }
    }

    /// The vote that was held already.
    pub fn found(self) -> Option<Vote> {
        match self {
            Self::Repeated(vote) | Self::Holds(vote) => Some(vote),
            _ => None,
        }
    }
}

pub type ItemOperation = Operation<Request, Answer>;

/// An item, with its places and numbers.
#[derive(Clone, Debug)]
pub struct Item {
    max_votes: Option<usize>,
    is_numbered: bool,
    /// Votes whose requests were answered: they are not those of other requests.
    answered: HashSet<i64>,
    /// Of each number that was found later: whose vote it was. A request without an answer that
    /// would get another one's number cannot take effect now. `None`: it was the number of an
    /// answer.
    owners: HashMap<i64, Option<(u32, Vote)>>,
    /// Only one voter is looked at: whether there is a place, and which number is next, is not
    /// known.
    is_alone: bool,
}

/// What is held of an item.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    held: BTreeMap<u32, Held>,
    anonymous: usize,
    last_number: i64,
}

/// A vote that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Held {
    id: Id,
    value: i64,
    number: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Id {
    Known(i64),
    /// No other answer names it.
    Any,
    /// Its request was not answered, and nobody has found it yet.
    Unknown,
}

impl Item {
    pub fn new(max_votes: Option<usize>, is_numbered: bool, history: &[ItemOperation]) -> Self {
        let answers = history.iter().filter_map(|operation| operation.answer);
        let ids = answers.filter_map(|answer| answer.stored()?.id);
        Self {
            max_votes,
            is_numbered,
            answered: ids.collect(),
            owners: HashMap::new(),
            is_alone: false,
        }
    }

    /// Knows whose each number is from what was found later. This changes nothing of what may be,
    /// and spares the search many ways.
    pub(super) fn with_owners(mut self, history: &[ItemOperation]) -> Self {
        let answers = history
            .iter()
            .filter_map(|operation| Some((operation.request.voter, operation.answer?)));
        for (voter, answer) in answers {
            if let Some(number) = answer.stored().and_then(|vote| vote.number) {
                self.owners.insert(number, None);
            } else if let Some((voter, vote)) = voter.zip(answer.found())
                && let Some(number) = vote.number
            {
                self.owners.entry(number).or_insert(Some((voter, vote)));
            }
        }
        self
    }

    /// Whether a request may have this answer in a state in which its voter holds this vote.
    pub(super) fn finds(request: Request, answer: Answer, vote: Vote) -> bool {
        let Some((voter, id)) = request.voter.zip(vote.id) else {
            return false;
        };
        let held = Held {
            id: Id::Known(id),
            value: vote.value,
            number: vote.number,
        };
        let state = State {
            held: BTreeMap::from([(voter, held)]),
            ..State::default()
        };
        Self::new(None, false, &[])
            .step(&state, &request, Some(&answer))
            .is_some()
    }

    fn is_full(&self, state: &State) -> bool {
        self.max_votes
            .is_some_and(|most| state.held.len() + state.anonymous >= most)
    }

    /// The state with a further vote, if it may be this one. `None`: any one.
    fn with<'s>(&self, state: &State, request: Request, vote: Option<Vote>) -> Option<Cow<'s, State>> {
        let (Wants::Cast(value) | Wants::Set(value)) = request.wants else {
            return None;
        };
        let last_number = state.last_number + i64::from(self.is_numbered);
        let number = if self.is_alone {
            vote.and_then(|vote| vote.number)
        } else {
            self.is_numbered.then_some(last_number)
        };
        if vote.is_some_and(|vote| (vote.value, vote.number) != (value, number)) {
            return None;
        }
        let mut id = vote.map_or(Id::Unknown, |vote| vote.id.map_or(Id::Any, Id::Known));
        let owner = number.and_then(|number| self.owners.get(&number));
        if let Some(owner) = owner.filter(|_| vote.is_none()) {
            let (voter, found) = (*owner)?;
            if (Some(voter), value) != (request.voter, found.value) {
                return None;
            }
            id = found.id.map_or(Id::Unknown, Id::Known);
        }
        let mut after = State {
            last_number,
            ..state.clone()
        };
        match request.voter {
            Some(voter) => {
                after.held.insert(voter, Held { id, value, number });
            }
            None => after.anonymous += 1,
        }
        Some(Cow::Owned(after))
    }

    /// The state in which a voter holds this vote, as far as it is known.
    fn found<'s>(&self, state: &'s State, voter: Option<u32>, vote: Vote) -> Option<Cow<'s, State>> {
        let voter = voter?;
        let held = *state.held.get(&voter)?;
        let id = vote.id?;
        let is_of_answer = self.answered.contains(&id);
        if held.value != vote.value {
            return None;
        }
        match held.id {
            Id::Known(held_id) if (held_id, held.number) == (id, vote.number) => Some(Cow::Borrowed(state)),
            Id::Unknown if is_of_answer => None,
            Id::Unknown if self.is_alone => Some(Cow::Borrowed(state)),
            Id::Unknown if held.number == vote.number => {
                let mut after = state.clone();
                let id = Id::Known(id);
                after.held.insert(voter, Held { id, ..held });
                Some(Cow::Owned(after))
            }
            _ => None,
        }
    }

    fn taken_back<'s>(state: &State, voter: Option<u32>) -> Option<Cow<'s, State>> {
        let mut after = state.clone();
        after.held.remove(&voter?);
        Some(Cow::Owned(after))
    }
}

impl Specification for Item {
    type State = State;
    type Request = Request;
    type Answer = Answer;

    fn initial(&self) -> State {
        State::default()
    }

    fn step<'s>(
        &self,
        state: &'s State,
        request: &Request,
        answer: Option<&Answer>,
    ) -> Option<Cow<'s, State>> {
        let Request { voter, wants } = *request;
        let held = voter.and_then(|voter| state.held.get(&voter));
        let same = Some(Cow::Borrowed(state));
        // What a request leads to, whatever it is answered.
        let stays = match wants {
            Wants::Read => true,
            Wants::TakeBack => held.is_none(),
            Wants::Cast(_) => held.is_some() || self.is_full(state),
            Wants::Set(value) => held.map_or(self.is_full(state), |held| held.value == value),
        };
        match (wants, held, answer) {
            (_, _, None) if stays => same,
            (Wants::TakeBack, _, None) => Self::taken_back(state, voter),
            (_, _, None) => self.with(state, *request, None),
            (Wants::Read | Wants::TakeBack, None, Some(Answer::NothingHeld)) => same,
            (Wants::TakeBack, Some(_), Some(Answer::TakenBack)) => Self::taken_back(state, voter),
            (Wants::Read, Some(_), Some(Answer::Holds(vote))) => self.found(state, voter, *vote),
            (Wants::Cast(_) | Wants::Set(_), Some(_), Some(Answer::Repeated(vote))) if stays => {
                self.found(state, voter, *vote)
            }
            (Wants::Cast(_) | Wants::Set(_), None, Some(Answer::Full)) if stays || self.is_alone => same,
            (Wants::Cast(_) | Wants::Set(_), None, Some(Answer::New(vote))) if !stays => {
                self.with(state, *request, Some(*vote))
            }
            (Wants::Set(_), Some(_), Some(Answer::Changed(vote))) if !stays => {
                self.with(state, *request, Some(*vote))
            }
            _ => None,
        }
    }

    fn is_read(&self, _: &Request, answer: &Answer) -> bool {
        answer.found().is_some() || matches!(answer, Answer::NothingHeld | Answer::Full)
    }

    fn needs(&self, answer: &Answer) -> Option<i64> {
        answer.found()?.id
    }

    fn ends(&self, state: &State, request: &Request) -> Option<i64> {
        let held = state.held.get(&request.voter?)?;
        let ends = match request.wants {
            Wants::Cast(_) | Wants::Read => false,
            Wants::Set(value) => value != held.value,
            Wants::TakeBack => true,
        };
        match held.id {
            Id::Known(id) if ends => Some(id),
            _ => None,
        }
    }

    /// Without a limit voters meet in the numbers alone, and the next number is no one else's.
    fn is_apart(&self, state: &State, _: &Request, answer: &Answer) -> bool {
        let is_next = |vote: Vote| vote.number == Some(state.last_number + 1);
        self.max_votes.is_none() && (!self.is_numbered || answer.stored().is_none_or(is_next))
    }

    fn part(&self, request: &Request) -> Option<u32> {
        request.voter
    }

    fn alone(&self) -> Option<Self> {
        Some(Self {
            max_votes: None,
            is_numbered: false,
            answered: self.answered.clone(),
            owners: HashMap::new(),
            is_alone: true,
        })
    }

    fn project(&self, state: &State, part: u32) -> State {
        // Of a request without an answer, no id and no number.
        let held = state.held.get(&part).map(|held| match held.id {
            Id::Known(id) if !self.answered.contains(&id) => Held {
                id: Id::Unknown,
                number: None,
                ..*held
            },
            Id::Unknown => Held {
                number: None,
                ..*held
            },
            Id::Known(_) | Id::Any => *held,
        });
        State {
            held: held.map(|held| (part, held)).into_iter().collect(),
            ..State::default()
        }
    }
}

/// What a client knows from an answer: its status and body, or `None` if none came.
///
/// # Errors
/// The answer, if no request of this kind may have it.
pub fn outcome(wants: Wants, answer: Option<(u16, &Value)>) -> Result<Outcome<Answer>, String> {
    let Some((status, body)) = answer else {
        return Ok(Outcome::unanswered(wants == Wants::Read));
    };
    let vote = || {
        let id = body["vote_id"].as_i64()?;
        Some(Vote {
            id: Some(id),
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
        (Wants::TakeBack, 200) => (body["value"] == 0).then_some(Answer::TakenBack),
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
