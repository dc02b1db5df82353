//! Draws an interleaving: items, voters, and the batches of each writer.

use std::collections::VecDeque;

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use tally::domain::{
    Actor, ItemId, ItemName, ItemRules, NewItem, NewPoll, NewVote, PollId, Value, VoteRequest, VoterId, Who,
};
use tally::ledger::ServerLedger;

use super::answers::Kind;
use super::items::answer;

/// The actor who creates the polls.
const ANYONE: Actor = Actor {
    who: Who::Anyone,
    address: None,
};

const VOTERS: [&str; 3] = ["ann", "bob", "cat"];
const REQUESTS_LIMIT: usize = 3;
const BATCHES_LIMIT: usize = 2;

/// What one statement decides or inserts.
#[derive(Clone, Debug)]
pub(super) enum Batch {
    /// For `cast_votes`.
    Decide(Vec<VoteRequest>),
    /// First votes.
    Insert(Vec<NewVote>),
}

/// Items that were created for an interleaving.
pub(super) struct Drawn {
    pub kind: Kind,
    pub poll: Option<PollId>,
    pub ids: Vec<ItemId>,
}

fn name(text: &str) -> ItemName {
    ItemName::parse(text.to_owned()).expect("a name")
}

impl Drawn {
    pub(super) async fn draw(ledger: &ServerLedger, random: &mut StdRng) -> Self {
        let kinds = [
            Kind::Plain,
            Kind::Limited(1),
            Kind::Limited(2),
            Kind::Poll(1),
            Kind::Poll(2),
        ];
        let kind = *kinds.choose(random).expect("a kind");
        let rules = match kind {
            Kind::Plain => ItemRules::DEFAULT,
            Kind::Limited(max_votes) => ItemRules {
                max_votes: Some(max_votes),
                is_numbered: true,
                ..ItemRules::DEFAULT
            },
            Kind::Poll(max_choices) => {
                let choices = &["a", "b", "c"][..max_choices + 1];
                let poll = NewPoll {
                    title: name("x"),
                    key: None,
                    by_ballot: false,
                    is_secret: false,
                    choices: choices.iter().map(|text| name(text)).collect(),
                    max_choices: Some(i16::try_from(max_choices).expect("a few")),
                    opens_at: None,
                    closes_at: None,
                    shows_results: true,
                };
                let poll = answer(|| ledger.create_poll(ANYONE, &poll)).await;
                let choices = answer(|| ledger.choices(poll)).await;
                return Self {
                    kind,
                    poll: Some(poll),
                    ids: choices.iter().map(|item| item.id).collect(),
                };
            }
        };
        let new = NewItem {
            name: name("x"),
            key: None,
            rules,
        };
        let item = answer(|| ledger.create_item(&new)).await;
        Self {
            kind,
            poll: None,
            ids: vec![item.id],
        }
    }

    pub(super) fn batches(&self, random: &mut StdRng) -> VecDeque<Batch> {
        (0..random.random_range(1..=BATCHES_LIMIT))
            .map(|_| self.batch(random))
            .collect()
    }

    fn batch(&self, random: &mut StdRng) -> Batch {
        let size = random.random_range(1..=REQUESTS_LIMIT);
        // Only votes: `cast_votes` has its own way for these.
        if matches!(self.kind, Kind::Limited(_)) && random.random_bool(0.3) {
            let votes = (0..size).map(|_| VoteRequest::Cast(self.vote(random)));
            return Batch::Decide(votes.collect());
        }
        if self.kind == Kind::Plain && random.random_bool(0.3) {
            return Batch::Insert((0..size).map(|_| self.vote(random)).collect());
        }
        Batch::Decide((0..size).map(|_| self.request(random)).collect())
    }

    fn voter(random: &mut StdRng) -> VoterId {
        let voter = *VOTERS.choose(random).expect("a voter");
        VoterId::parse(voter.to_owned()).expect("a voter")
    }

    fn value(&self, random: &mut StdRng) -> Value {
        let takes_down_votes = self.poll.is_none();
        if takes_down_votes && random.random_bool(0.5) {
            Value::DOWN
        } else {
            Value::UP
        }
    }

    /// A vote, sometimes anonymous where the item allows that.
    fn vote(&self, random: &mut StdRng) -> NewVote {
        let is_anonymous = self.poll.is_none() && random.random_bool(0.15);
        NewVote {
            item_id: *self.ids.choose(random).expect("an item"),
            voter_id: (!is_anonymous).then(|| Self::voter(random)),
            value: self.value(random),
        }
    }

    fn request(&self, random: &mut StdRng) -> VoteRequest {
        let voter_id = Self::voter(random);
        if let Some(poll_id) = self.poll
            && random.random_bool(0.4)
        {
            let amount = random.random_range(0..=self.ids.len());
            return VoteRequest::Select {
                poll_id,
                voter_id,
                items: self.ids.choose_multiple(random, amount).copied().collect(),
            };
        }
        match random.random_range(0..3) {
            0 => VoteRequest::Cast(self.vote(random)),
            1 => VoteRequest::Set {
                item_id: *self.ids.choose(random).expect("an item"),
                voter_id,
                value: Some(self.value(random)),
            },
            _ => VoteRequest::Set {
                item_id: *self.ids.choose(random).expect("an item"),
                voter_id,
                value: None,
            },
        }
    }
}
