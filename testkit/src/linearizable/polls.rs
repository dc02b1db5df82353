//! What requests of one voter in one poll do and are answered. Voters of a poll do not depend on
//! each other, so each one's history is checked by itself.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::Value;

use super::{Operation, Outcome, Specification};

/// The choices that are held, or are to be held.
pub type Choices = BTreeSet<i64>;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// `PUT` of the whole selection; `DELETE` of it if it is empty.
    Select(Choices),
    /// `POST` of a vote on a choice: with one choice a voter, it moves the vote.
    Cast(i64),
    /// `GET` of the selection, or another look at the ledger.
    Read,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// It was not so before.
    Changed,
    /// It was so already.
    Repeated,
    /// To a read.
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
    /// What is held after a request; `None`: it is refused.
    fn after(self, held: &Choices, request: &Request) -> Option<Choices> {
        let after = match request {
            Request::Read => held.clone(),
            Request::Select(choices) => choices.clone(),
            Request::Cast(choice) if self.max_choices == 1 => Choices::from([*choice]),
            Request::Cast(choice) => held.iter().chain([choice]).copied().collect(),
        };
        (after == *held || after.len() <= self.max_choices).then_some(after)
    }
}

impl Specification for Poll {
    type State = Choices;
    type Request = Request;
    type Answer = Answer;

    fn initial(&self) -> Choices {
        Choices::new()
    }

    fn step<'s>(
        &self,
        held: &'s Choices,
        request: &Request,
        answer: Option<&Answer>,
    ) -> Option<Cow<'s, Choices>> {
        let after = self.after(held, request);
        let is_so = match (answer, &after) {
            (None, _) => true,
            (Some(Answer::Changed), Some(after)) => after != held && *request != Request::Read,
            (Some(Answer::Repeated), Some(after)) => after == held && *request != Request::Read,
            (Some(Answer::Holds(choices)), _) => choices == held && *request == Request::Read,
            (Some(Answer::TooManyChoices), None) => true,
            _ => false,
        };
        let changed = after.filter(|after| after != held);
        is_so.then(|| changed.map_or(Cow::Borrowed(held), Cow::Owned))
    }

    fn is_read(&self, _: &Request, answer: &Answer) -> bool {
        *answer != Answer::Changed
    }
}

/// What a client knows from an answer: its status and body, or `None` if none came.
///
/// # Errors
/// The answer, if no request of this kind may have it.
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
