//! Decides whether a history is linearizable.
//!
//! The answers to concurrent clients must be possible with one request after the other, where each
//! takes effect at one moment between its call and its return.
//!
//! Nobody searches for the order: the ledger has it. Under a rule, requests are decided one after
//! the other. So the ids of an item's rows are in the order of the decisions. A voter's rows on an
//! item without a rule are in the order of their change numbers. The rows say which requests took
//! effect, and between which others. It remains to check that each answer fits this order.
//!
//! - On an item, each answer that stored something names its row. So each such request has its
//!   place. A request that stored nothing, such as a read, gets the first place at which its answer
//!   is right, but not before any request that had returned when it was called. All this is sorting:
//!   n log n (`items::check`).
//! - The answer to a selection in a poll names no row. The check looks at each voter's requests
//!   alone. Only requests that were under way at once can change places: of n requests by w clients,
//!   the check visits at most n · 2^w places for each change of the voter (`polls::check`).
//!
//! So each check ends with a verdict. It asks for more than some order: the ledger's order must be
//! right.
//!
//! A request without an answer may take effect at any time after its call, or never. A history
//! leaves out a request that certainly had no effect: a read without an answer, or a 503 that says
//! that nothing is stored.
//!
//! Each independent part is checked by itself: a history for each item, or for each voter and item
//! where places and numbers do not connect voters.

pub mod items;
pub mod polls;
pub mod rows;

use std::fmt::{self, Debug, Display, Formatter};
use std::time::Instant;

/// A request of a history.
#[derive(Clone, Debug)]
pub struct Operation<R, A> {
    pub request: R,
    /// `None`: it may or may not have taken effect.
    pub answer: Option<A>,
    /// Just before it was sent. It comes after every request that returned earlier.
    pub called: Instant,
    /// Just after its answer arrived. Without an answer, it says nothing.
    pub returned: Instant,
}

/// What a client knows of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<A> {
    Answered(A),
    /// It had no effect, and never will have one.
    NoEffect,
    /// It may have taken effect, or may still do so.
    Unknown,
}

impl<A> Outcome<A> {
    /// The operation for the history, if the request belongs into it.
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

    /// A read without an answer had no effect. Nothing is known of other requests.
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

/// The request, its answer, and its times since the first call, in words.
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
