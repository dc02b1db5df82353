//! What the operator voids, why, and whether it is undone.

use std::time::Instant;

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use serde_json::Value;

use super::{RESTORED_VOTER, Targets, VOIDED_VOTER, voter_id};

/// Which votes are voided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    Item(i64),
    Voter(u32),
    /// Those on an item, from the first time until before the second.
    Span {
        item: i64,
        from: String,
        until: String,
    },
}

impl Scope {
    /// As `tally void` takes it.
    pub fn arguments(&self) -> Vec<String> {
        let of_item = |item: &i64| vec!["--item".to_owned(), item.to_string()];
        match self {
            Self::Item(item) => of_item(item),
            Self::Voter(voter) => vec!["--voter".to_owned(), voter_id(*voter)],
            Self::Span { item, from, until } => {
                let mut arguments = of_item(item);
                arguments.extend(["--from", from, "--until", until].map(str::to_owned));
                arguments
            }
        }
    }
}

/// From the call of a program until something was certainly done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub called: Instant,
    /// `None`: it is not done yet.
    pub returned: Option<Instant>,
}

/// A voiding that the operator wants. If the program is killed before it says which one it has
/// created, there may be several for one plan. Each of them must be done.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub scope: Scope,
    /// Unique among the plans.
    pub reason: String,
    pub is_undone: bool,
    pub voiding: Option<Work>,
    pub undoing: Option<Work>,
    /// What the program said about this plan's voidings, each time that one was done.
    pub reports: Vec<Value>,
    /// Whether the last program was killed or failed, so that its work must be looked up.
    pub is_unclear: bool,
}

impl Plan {
    pub fn is_done(&self) -> bool {
        let is_done = |work: Option<Work>| work.is_some_and(|work| work.returned.is_some());
        is_done(self.voiding) && (!self.is_undone || is_done(self.undoing))
    }

    /// Whether `tally void --list` names a voiding of this plan at the end. A program that was killed may
    /// have created none.
    pub fn is_there(&self, listed: &[Value]) -> bool {
        let is_of_plan = |voiding: &Value| voiding["reason"] == self.reason.as_str();
        !self.reports.is_empty() || listed.iter().any(is_of_plan)
    }

    /// Whether something that was begun is not done. An undoing that was not begun need not be done.
    pub fn is_left(&mut self, listed: &[Value]) -> bool {
        self.is_undone &= self.undoing.is_some();
        let of_plan = || {
            listed
                .iter()
                .filter(|voiding| voiding["reason"] == self.reason.as_str())
        };
        let (is_voided, is_restored) = (
            of_plan().all(|voiding| voiding["done"] == true),
            of_plan().all(|voiding| !voiding["restored_votes"].is_null()),
        );
        if let Some(work) = self.voiding.as_mut().filter(|_| !is_voided) {
            work.returned = None;
        }
        if let Some(work) = self.undoing.as_mut().filter(|_| self.is_undone && !is_restored) {
            work.returned = None;
        }
        !self.is_done()
    }
}

/// Draws plans, of each kind in turn.
pub(super) struct Plans {
    kinds: Vec<Kind>,
    drawn: usize,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Item,
    Many,
    Numbered,
    Limited,
    ByBallot,
    Choice,
    Span,
    VoidedVoter,
    RestoredVoter,
}

impl Plans {
    pub fn new(random: &mut StdRng) -> Self {
        let mut kinds = vec![
            Kind::Item,
            Kind::Many,
            Kind::Numbered,
            Kind::Limited,
            Kind::ByBallot,
            Kind::Choice,
            Kind::Span,
            Kind::VoidedVoter,
            Kind::RestoredVoter,
        ];
        kinds.shuffle(random);
        Self { kinds, drawn: 0 }
    }

    /// The next plan. `span` has two times with votes on the item between them, if there are any.
    pub fn next(&mut self, targets: &Targets, span: Option<(String, String)>, random: &mut StdRng) -> Plan {
        let kind = self.kinds[self.drawn % self.kinds.len()];
        self.drawn += 1;
        let scope = match (kind, span) {
            (Kind::Span, Some((from, until))) => Scope::Span {
                item: targets.span,
                from,
                until,
            },
            (Kind::Item | Kind::Span, _) => Scope::Item(targets.plain),
            (Kind::Many, _) => Scope::Item(targets.many),
            (Kind::Numbered, _) => Scope::Item(targets.numbered),
            (Kind::Limited, _) => Scope::Item(targets.limited),
            (Kind::ByBallot, _) => Scope::Item(targets.by_ballot),
            (Kind::Choice, _) => Scope::Item(targets.choices.choose(random).copied().unwrap_or_default()),
            (Kind::VoidedVoter, _) => Scope::Voter(VOIDED_VOTER),
            (Kind::RestoredVoter, _) => Scope::Voter(RESTORED_VOTER),
        };
        let is_undone = match kind {
            Kind::Numbered | Kind::VoidedVoter => false,
            Kind::Many | Kind::RestoredVoter => true,
            _ => random.random_bool(0.5),
        };
        Plan {
            scope,
            reason: format!("plan {}", self.drawn),
            is_undone,
            voiding: None,
            undoing: None,
            reports: Vec::new(),
            is_unclear: false,
        }
    }
}
