//! Programs: the batches of the model's two servers.

use std::fmt;

use super::state::{Batch, Items, Request, SERVERS, Wants};

const ANN: u8 = 0;
const BOB: u8 = 1;
const CAT: u8 = 2;
/// The two items.
const A: usize = 0;
const B: usize = 1;

/// Rounds of a batch that counts: fewer than the server's, so some give up.
const ROUNDS: usize = 2;

/// What rules the two items have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// No rule.
    Plain,
    /// Each item has a rule of its own: a limit, and numbers.
    Limited,
    /// The items are the choices of a poll. Each has a limit and numbers.
    Poll { max_choices: i8 },
}

/// Batches of two servers.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub name: &'static str,
    pub kind: Kind,
    /// The limit of each item that has a rule.
    pub max_votes: i8,
    /// How many rounds a batch makes to be counted.
    pub rounds: usize,
    pub batches: [Vec<Batch>; SERVERS],
}

impl fmt::Display for Program {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{}, limit {}, rounds {}",
            self.name, self.max_votes, self.rounds
        )
    }
}

impl Program {
    fn new(name: &'static str, kind: Kind, max_votes: i8, batches: [Vec<Batch>; SERVERS]) -> Self {
        Self {
            name,
            kind,
            max_votes,
            rounds: ROUNDS,
            batches,
        }
    }

    /// The same program with another limit.
    pub(super) fn limited_to(self, max_votes: i8) -> Self {
        Self { max_votes, ..self }
    }

    /// The same program with so few rounds that a batch may give up without any fault.
    pub(super) fn with_one_round(self) -> Self {
        Self { rounds: 1, ..self }
    }
}

const fn cast(voter: u8, item: usize) -> Request {
    cast_value(voter, item, 1)
}

const fn cast_value(voter: u8, item: usize, value: i8) -> Request {
    Request {
        voter,
        wants: Wants::Cast { item, value },
    }
}

const fn set(voter: u8, item: usize, value: i8) -> Request {
    Request {
        voter,
        wants: Wants::Set { item, value },
    }
}

const fn take_back(voter: u8, item: usize) -> Request {
    set(voter, item, 0)
}

const fn select(voter: u8, items: Items) -> Request {
    Request {
        voter,
        wants: Wants::Select(items),
    }
}

fn decide(requests: &[Request]) -> Batch {
    Batch::Decide(requests.to_vec())
}

fn insert(requests: &[Request]) -> Batch {
    Batch::Insert(requests.to_vec())
}

const ONE_CHOICE: Kind = Kind::Poll { max_choices: 1 };

/// Ann votes over both servers, once to move her vote.
/// Bob wants one of her places, and Cat wants more than she may have.
pub(super) fn moves() -> Program {
    let batches = [
        vec![decide(&[cast(ANN, A)]), decide(&[cast(ANN, B)])],
        vec![decide(&[select(CAT, 0b11), cast(BOB, A), cast(ANN, A)])],
    ];
    Program::new("moves", ONE_CHOICE, 1, batches)
}

/// A place is taken, given back, and taken again.
pub(super) fn freed() -> Program {
    let batches = [
        vec![decide(&[cast(ANN, A)]), decide(&[take_back(ANN, A)])],
        vec![decide(&[cast(BOB, A)]), decide(&[cast(BOB, B)])],
    ];
    Program::new("a place is freed", ONE_CHOICE, 1, batches)
}

/// One voter has two requests in one batch.
pub(super) fn same_voter() -> Program {
    let batches = [
        vec![decide(&[cast(ANN, A), cast(ANN, B)])],
        vec![decide(&[cast(ANN, B)]), decide(&[take_back(ANN, A)])],
    ];
    Program::new("one voter twice", ONE_CHOICE, 2, batches)
}

/// Three voters, six batches.
pub(super) fn wide() -> Program {
    let batches = [
        vec![
            decide(&[cast(ANN, A), cast(CAT, A)]),
            decide(&[cast(ANN, B)]),
            decide(&[take_back(CAT, A)]),
        ],
        vec![
            decide(&[cast(BOB, A), cast(ANN, A)]),
            decide(&[cast(BOB, B)]),
            decide(&[cast(CAT, B)]),
        ],
    ];
    Program::new("three voters", ONE_CHOICE, 1, batches)
}

/// Whole selections. A voter may hold both choices, and each has one place.
pub(super) fn selections() -> Program {
    let batches = [
        vec![decide(&[select(ANN, 0b11)]), decide(&[select(ANN, 0b10)])],
        vec![
            decide(&[cast(BOB, B)]),
            decide(&[take_back(BOB, B), cast(CAT, A)]),
        ],
    ];
    Program::new("selections", Kind::Poll { max_choices: 2 }, 1, batches)
}

/// Two items with a rule each, in one batch in either order.
/// Values change while an item is full.
pub(super) fn two_rules() -> Program {
    let batches = [
        vec![
            decide(&[set(ANN, A, 1), set(BOB, B, -1)]),
            decide(&[set(ANN, A, -1)]),
        ],
        vec![
            decide(&[set(BOB, B, 1), set(CAT, A, -1)]),
            decide(&[take_back(ANN, A)]),
        ],
    ];
    Program::new("two rules", Kind::Limited, 1, batches)
}

/// One voter, no rule: only the index decides between the servers.
pub(super) fn plain() -> Program {
    let batches = [
        vec![decide(&[set(ANN, A, 1)]), decide(&[set(ANN, A, -1)])],
        vec![decide(&[set(ANN, A, -1)]), decide(&[take_back(ANN, A)])],
    ];
    Program::new("no rule", Kind::Plain, 0, batches)
}

/// First votes by `insert_plain_votes.sql`, beside decisions on the same items.
pub(super) fn first_votes() -> Program {
    let batches = [
        vec![
            insert(&[cast(ANN, A), cast_value(BOB, A, -1)]),
            decide(&[take_back(BOB, A)]),
        ],
        vec![
            decide(&[set(BOB, A, 1), set(ANN, A, -1)]),
            insert(&[cast(ANN, A)]),
        ],
    ];
    Program::new("first votes", Kind::Plain, 0, batches)
}

/// Up-votes and down-votes that add up to 0, and their taking back.
pub(super) fn both_ways() -> Program {
    let batches = [
        vec![insert(&[cast(ANN, A)])],
        vec![
            insert(&[cast(BOB, A), cast_value(CAT, A, -1)]),
            decide(&[take_back(BOB, A), take_back(CAT, A)]),
        ],
    ];
    Program::new("up and down", Kind::Plain, 0, batches)
}
