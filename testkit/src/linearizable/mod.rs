//! Whether a history is linearizable: whether what concurrent clients were answered could have
//! come from one request after the other, each taking effect at one moment between its call and
//! its return.
//!
//! Nobody searches for the order: the ledger has it. Under a rule requests are decided one after
//! the other, so the ids of an item's rows are in the order of the decisions; a voter's rows on an
//! item without a rule are in the order of their change numbers. The rows say which requests took
//! effect, and when, between two others. What is left is to see that each answer fits this order.
//!
//! - On an item each answer that stored something names its row, so each request has its place. A
//!   request that stored nothing, such as a read, gets the first place at which its answer is
//!   right, not before what had returned when it was called. All this is sorting: n log n
//!   (`items::check`).
//! - An answer of a selection in a poll names no row. One voter's requests are looked at alone, and
//!   only those that were under way at once can change places: of n requests by w clients the check
//!   visits at most n · 2^w places for each of the voter's changes (`polls::check`).
//!
//! So each check ends, with a verdict. It asks for more than that some order exists: the ledger's
//! must be one.
//!
//! A request without an answer may take effect at any time after its call, or never. One that
//! certainly had no effect is left out of a history: a read without an answer, or a 503 that says
//! that nothing is stored.
//!
//! What is independent is checked by itself: a history for each item, or for each voter and item
//! where places and numbers do not tie voters together.

pub mod items;
mod places;
pub mod polls;
pub mod rows;

use std::fmt::{self, Debug, Display, Formatter};
use std::time::Instant;

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

    /// Of a request without an answer: a read has had no effect, and nothing is known of another.
    fn unanswered(is_read: bool) -> Self {
        if is_read { Self::NoEffect } else { Self::Unknown }
    }
}

/// Why a history is not linearizable in the ledger's order.
#[derive(Debug)]
pub struct Violation(String);

impl Display for Violation {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "not linearizable: {}", self.0)
    }
}

impl std::error::Error for Violation {}

/// The request, its answer and its times since the first call, in words.
fn words<R: Debug, A: Debug>(operation: &Operation<R, A>, first: Option<Instant>) -> String {
    let since = |moment: Instant| moment.saturating_duration_since(first.unwrap_or(moment));
    format!(
        "{:?}, called at {:.1?}, answered {:?} at {:.1?}",
        operation.request,
        since(operation.called),
        operation.answer,
        since(operation.returned)
    )
}

/// The first call of a history.
fn first_call<R, A>(history: &[Operation<R, A>]) -> Option<Instant> {
    history.iter().map(|operation| operation.called).min()
}
