//! What requests for one item ask, are answered, and store.

use serde_json::Value;

use crate::linearizable::{Operation, Outcome};

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
    pub(super) fn is_wanted(self, wants: Wants) -> bool {
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
