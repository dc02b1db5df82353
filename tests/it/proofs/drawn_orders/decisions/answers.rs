//! The answers to voters, and so what voters hold.
//! Statements are decided one after the other, so each answer must fit those before it.

use std::collections::{BTreeMap, BTreeSet};

use tally::domain::{Count, ItemId, NewVote, Refusal, Value, VoteOutcome, VoteRequest, VoterId};
use tally::ledger::Decision;

/// What the items of an interleaving require.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// No rule.
    Plain,
    /// A limit of this many votes, and numbers.
    Limited(i64),
    /// A poll of these items. A voter may hold this many.
    Poll(usize),
}

/// What all answers so far say.
pub(super) struct Answers {
    kind: Kind,
    items: Vec<ItemId>,
    /// What each voter holds; 0: the voter has taken the vote back.
    held: BTreeMap<(VoterId, ItemId), i16>,
    anonymous: BTreeMap<ItemId, Count>,
}

impl Answers {
    pub(super) fn new(kind: Kind, items: Vec<ItemId>) -> Self {
        Self {
            kind,
            items,
            held: BTreeMap::new(),
            anonymous: BTreeMap::new(),
        }
    }

    /// What a voter holds on an item; 0: nothing.
    fn held(&self, voter: &VoterId, item: ItemId) -> i16 {
        let key = (voter.clone(), item);
        self.held.get(&key).copied().unwrap_or_default()
    }

    fn hold(&mut self, voter: &VoterId, item: ItemId, value: i16) {
        self.held.insert((voter.clone(), item), value);
    }

    /// What each voter holds who has ever held something.
    pub(super) fn all_held(&self) -> &BTreeMap<(VoterId, ItemId), i16> {
        &self.held
    }

    /// The item's count by these answers.
    pub(super) fn count(&self, item: ItemId) -> Count {
        let of_voters = self.held.iter().filter(|((_, of), _)| *of == item);
        let anonymous = self.anonymous.get(&item).copied().unwrap_or_default();
        of_voters.fold(anonymous, |sum, (_, value)| sum + Count::of_row(*value, 0))
    }

    /// How many votes are held on an item.
    fn votes(&self, item: ItemId) -> i64 {
        let Count { net, downs } = self.count(item);
        net + 2 * downs
    }

    /// Records the decisions on a batch. Returns the requests to send again.
    pub(super) fn decided(
        &mut self,
        requests: &[VoteRequest],
        decisions: &[Decision],
    ) -> Result<Vec<VoteRequest>, String> {
        let mut again = Vec::new();
        let mut voters = BTreeSet::new();
        for (request, decision) in requests.iter().zip(decisions) {
            let item = request.items().first().filter(|_| self.kind == Kind::Plain);
            let is_first = request
                .voter()
                .is_none_or(|voter| voters.insert((voter.clone(), item.copied())));
            let is_so = match decision {
                Decision::Again(rows) => {
                    again.push(request.clone());
                    !is_first && rows.is_empty()
                }
                Decision::Stored(_) => is_first && self.stored(request),
                Decision::Repeated(rows) => {
                    let held = |row: &tally::ledger::VoteRow| {
                        let voter = request.voter();
                        row.is_cast() && voter.is_some_and(|voter| self.held(voter, row.item_id) == row.value)
                    };
                    is_first && self.is_held(request) && rows.iter().all(held)
                }
                Decision::Refused(Refusal::Full) => is_first && self.is_full(request),
                Decision::Refused(Refusal::TooManyChoices) => is_first && self.has_too_many_choices(request),
                Decision::Refused(_)
                | Decision::UnknownItem
                | Decision::UnknownPoll
                | Decision::Secret(_)
                | Decision::Replayed(_) => false,
            };
            if !is_so {
                return Err(format!("{request:?} was answered {decision:?}"));
            }
        }
        Ok(again)
    }

    /// Records the outcomes of a batch of first votes.
    /// Returns the votes that need a decision.
    pub(super) fn inserted(
        &mut self,
        votes: &[NewVote],
        outcomes: &[VoteOutcome],
    ) -> Result<Vec<VoteRequest>, String> {
        let mut again = Vec::new();
        for (vote, outcome) in votes.iter().zip(outcomes) {
            let NewVote {
                item_id,
                voter_id,
                value,
            } = vote;
            let held = voter_id
                .as_ref()
                .and_then(|voter| self.held.get(&(voter.clone(), *item_id)).copied());
            let is_so = match (outcome, voter_id, held) {
                (VoteOutcome::Accepted(_), _, None) => self.stored(&VoteRequest::Cast(vote.clone())),
                (VoteOutcome::Repeated(stored), Some(_), Some(held)) => held != 0 && stored.value == held,
                (VoteOutcome::NeedsDecision, Some(_), Some(0)) => {
                    again.push(VoteRequest::Cast(vote.clone()));
                    true
                }
                _ => false,
            };
            if !is_so {
                return Err(format!(
                    "{voter_id:?}'s {value:?} was answered {outcome:?}, held {held:?}"
                ));
            }
        }
        Ok(again)
    }

    /// Records a stored request. Returns whether it changed something and had a place.
    fn stored(&mut self, request: &VoteRequest) -> bool {
        if self.is_held(request) || self.is_full(request) || self.has_too_many_choices(request) {
            return false;
        }
        match request {
            VoteRequest::Cast(NewVote {
                item_id,
                voter_id: None,
                value,
            }) => *self.anonymous.entry(*item_id).or_default() += Count::of_row(value.get(), 0),
            VoteRequest::Cast(NewVote {
                item_id,
                voter_id: Some(voter),
                value,
            }) => self.set(voter, *item_id, value.get()),
            VoteRequest::Set {
                item_id,
                voter_id,
                value,
            } => self.set(voter_id, *item_id, value.map_or(0, Value::get)),
            VoteRequest::CastOnce { .. } => panic!("none is drawn"),
            VoteRequest::Select { voter_id, items, .. } => {
                for item in self.items.clone() {
                    let wants = items.contains(&item);
                    if wants || self.held(voter_id, item) != 0 {
                        self.hold(voter_id, item, i16::from(wants));
                    }
                }
            }
        }
        true
    }

    fn set(&mut self, voter: &VoterId, item: ItemId, value: i16) {
        if self.kind == Kind::Poll(1) && value != 0 {
            for other in self.items.clone() {
                if self.held(voter, other) != 0 {
                    self.hold(voter, other, 0);
                }
            }
        }
        self.hold(voter, item, value);
    }

    /// Whether the voter already holds what a request wants.
    fn is_held(&self, request: &VoteRequest) -> bool {
        match request {
            VoteRequest::Cast(vote) | VoteRequest::CastOnce { vote, .. } => {
                let voter = vote.voter_id.as_ref();
                voter.is_some_and(|voter| self.held(voter, vote.item_id) != 0)
            }
            VoteRequest::Set {
                item_id,
                voter_id,
                value,
            } => self.held(voter_id, *item_id) == value.map_or(0, Value::get),
            VoteRequest::Select { voter_id, items, .. } => {
                let is_so = |item: &ItemId| items.contains(item) == (self.held(voter_id, *item) != 0);
                self.items.iter().all(is_so)
            }
        }
    }

    /// Whether there is no place for a request.
    fn is_full(&self, request: &VoteRequest) -> bool {
        let Kind::Limited(max_votes) = self.kind else {
            return false;
        };
        let (item, is_cast) = match request {
            VoteRequest::Cast(vote) | VoteRequest::CastOnce { vote, .. } => (vote.item_id, true),
            VoteRequest::Set { item_id, value, .. } => (*item_id, value.is_some()),
            VoteRequest::Select { .. } => return false,
        };
        let holds = request.voter().is_some_and(|voter| self.held(voter, item) != 0);
        is_cast && !holds && self.votes(item) >= max_votes
    }

    fn has_too_many_choices(&self, request: &VoteRequest) -> bool {
        let (Kind::Poll(max_choices), Some(voter)) = (self.kind, request.voter()) else {
            return false;
        };
        let held = self
            .items
            .iter()
            .filter(|item| self.held(voter, **item) != 0)
            .count();
        match request {
            VoteRequest::Cast(vote) | VoteRequest::CastOnce { vote, .. } => {
                max_choices > 1 && self.held(voter, vote.item_id) == 0 && held >= max_choices
            }
            VoteRequest::Set { item_id, value, .. } => {
                max_choices > 1 && value.is_some() && self.held(voter, *item_id) == 0 && held >= max_choices
            }
            VoteRequest::Select { items, .. } => items.len() > max_choices,
        }
    }
}
