//! The check that a history is linearizable (`testkit::linearizable`), and that it can fail.

mod histories;
mod long;
mod random;

use std::time::{Duration, Instant};

use testkit::linearizable::items::{self, Answer, ItemOperation, Request, Vote, Wants};
use testkit::linearizable::polls::{self, Poll, PollOperation};
use testkit::linearizable::{NoOrder, Operation, check};

/// What was answered, called at one millisecond and returned at another.
fn operation<R, A>(first: Instant, request: R, answer: Option<A>, from: u64, to: u64) -> Operation<R, A> {
    Operation {
        request,
        answer,
        called: first + Duration::from_millis(from),
        returned: first + Duration::from_millis(to),
    }
}

fn vote(id: i64, value: i64) -> Vote {
    Vote {
        id: Some(id),
        value,
        number: None,
    }
}
