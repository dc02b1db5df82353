//! The check that a history is linearizable (`testkit::linearizable`) can fail.

mod all_orders;
mod histories;
mod long;
mod random;

use std::time::{Duration, Instant};

use testkit::linearizable::Operation;
use testkit::linearizable::items::{self, Answer, Effect, ItemOperation, Request, Stored, Vote, Wants};
use testkit::linearizable::polls::{self, Poll, PollOperation};

/// An answered request, with its call and return in milliseconds.
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
        id,
        value,
        number: None,
    }
}
