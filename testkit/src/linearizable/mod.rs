//! Whether a history is linearizable: whether what concurrent clients were answered could have
//! come from one request after the other, each taking effect at one moment between its call and
//! its return.
//!
//! The search (`search.rs`) is that of Wing and Gong with Lowe's memory of what was tried. A
//! request without an answer may take effect at any time after its call, or never. One that
//! certainly had no effect is left out of a history: a read without an answer, or a 503 that says
//! that nothing is stored.
//!
//! Crates that do this were looked at. stateright 0.31 and its copies remember nothing of what
//! was tried, call themselves once for each operation, and bring a web server; todc-utils 0.1
//! takes no operation without an answer, and keeps a copy of all flags for each step. So this is
//! code of our own: small, and compared with all orders of random short histories
//! (`tests/it/linearizability`).
//!
//! What is independent is to be checked by itself: a history for each item, or for each voter and
//! item where places and numbers do not tie voters together.

pub mod items;
mod links;
mod parts;
pub mod polls;
mod search;

use std::borrow::Cow;
use std::fmt::{self, Debug, Display, Formatter};
use std::hash::Hash;
use std::time::{Duration, Instant};

/// Operations that a [`NoOrder`] shows.
const SHOWN_OPERATIONS: usize = 8;

/// What requests do and are answered, one after the other.
pub trait Specification: Sized {
    type State: Clone + Eq + Hash + Debug;
    type Request: Eq + Hash + Debug;
    type Answer: Eq + Hash + Debug;

    fn initial(&self) -> Self::State;

    /// The state after a request, if it may have this answer in this state; borrowed if it is the
    /// same one. Without an answer: the state that it leads to, whatever it would have been
    /// answered.
    fn step<'s>(
        &self,
        state: &'s Self::State,
        request: &Self::Request,
        answer: Option<&Self::Answer>,
    ) -> Option<Cow<'s, Self::State>>;

    /// Whether a request with this answer changes nothing, in whatever state it is answered so.
    fn is_read(&self, request: &Self::Request, answer: &Self::Answer) -> bool;

    /// What must be there for this answer. It has a number, and never comes back once it ended.
    fn needs(&self, _answer: &Self::Answer) -> Option<i64> {
        None
    }

    /// What a request ends if it takes effect in this state.
    fn ends(&self, _state: &Self::State, _request: &Self::Request) -> Option<i64> {
        None
    }

    /// Whether this request, if it may come now with this answer, may as well come before all that
    /// requests of other parts could do until then: each leads to the same in either order.
    fn is_apart(&self, _state: &Self::State, _request: &Self::Request, _answer: &Self::Answer) -> bool {
        false
    }

    /// The part of the state that a request reads and changes.
    fn part(&self, _request: &Self::Request) -> Option<u32> {
        None
    }

    /// What a part does by itself: it allows at least what it does within the whole.
    fn alone(&self) -> Option<Self> {
        None
    }

    /// The state of a part by itself.
    fn project(&self, state: &Self::State, _part: u32) -> Self::State {
        state.clone()
    }
}

/// A request of a history.
#[derive(Clone, Debug)]
pub struct Operation<R, A> {
    pub request: R,
    /// `None`: nobody can say whether it took effect.
    pub answer: Option<A>,
    /// Just before it was sent. It comes behind whatever returned earlier.
    pub called: Instant,
    /// Just after the answer had come. Without one it says nothing.
    pub returned: Instant,
}

/// The operations of a specification.
pub type OperationOf<S> = Operation<<S as Specification>::Request, <S as Specification>::Answer>;

/// What a client knows of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<A> {
    Answered(A),
    /// It had no effect, and never will.
    NoEffect,
    /// It may take effect, or have taken it.
    Unknown,
}

impl<A> Outcome<A> {
    /// Without an answer a read has had no effect, and nothing is known of another request.
    pub(crate) fn unanswered(is_read: bool) -> Self {
        if is_read { Self::NoEffect } else { Self::Unknown }
    }

    /// The operation for the history, if the request belongs there.
    pub fn operation<R>(self, request: R, called: Instant, returned: Instant) -> Option<Operation<R, A>> {
        let answer = match self {
            Self::Answered(answer) => Some(answer),
            Self::Unknown => None,
            Self::NoEffect => return None,
        };
        Some(Operation {
            request,
            answer,
            called,
            returned,
        })
    }
}

/// Why a history was not found to be linearizable.
#[derive(Debug)]
pub enum NoOrder {
    /// There is none, for this reason.
    Impossible(String),
    /// The search was given up: nothing is said of the history.
    GivenUp { states: usize, why: String },
}

impl Display for NoOrder {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Impossible(why) => write!(formatter, "not linearizable: {why}"),
            Self::GivenUp { states, why } => {
                write!(formatter, "no order was found among {states} states: {why}")
            }
        }
    }
}

impl std::error::Error for NoOrder {}

/// Looks for an order of a history that its specification allows.
///
/// # Errors
/// When there is none, or the search was given up.
pub fn check<S: Specification>(specification: &S, history: &[OperationOf<S>]) -> Result<(), NoOrder> {
    search::Search::new(specification, history).run()
}

/// What a search that failed got furthest with, in words. Times are those since the first call.
fn stuck<'a, S: Specification + 'a>(
    state: &S::State,
    next: impl Iterator<Item = &'a OperationOf<S>>,
    first: Instant,
) -> String
where
    S::Request: 'a,
    S::Answer: 'a,
{
    let mut text = format!("then there is {state:?}, and none of these can be next:");
    for operation in next.take(SHOWN_OPERATIONS) {
        let since = |moment: Instant| moment.saturating_duration_since(first);
        let (called, returned): (Duration, Duration) = (since(operation.called), since(operation.returned));
        text += &format!(
            "\n  {:?}, called at {called:.1?}, answered {:?} at {returned:.1?}",
            operation.request, operation.answer
        );
    }
    text
}
