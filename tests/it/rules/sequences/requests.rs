//! Draws votes, changes and selections, each with what its answer must be.

use rand::Rng;
use rand::seq::IndexedRandom;
use reqwest::Method;
use serde_json::{Value, json};

use super::answers::{Expected, Refused, refused};
use super::draw::{Draw, Request, Target, UNKNOWN_ID};
use super::making::NewItem;
use super::model::{Asked, ItemAt, KeyOf, PollAt, RowAt, Spent};

/// Few keys, so that requests meet.
const IDEMPOTENCY_KEYS: usize = 12;

/// A vote as a client sends it.
#[derive(Clone, Debug)]
pub struct Vote {
    pub item: Target,
    pub voter: Option<&'static str>,
    pub value: Option<i64>,
    pub ballot: Option<String>,
}

impl Vote {
    fn body(&self) -> Value {
        let mut body = json!({});
        for (name, value) in [
            ("voter_id", json!(self.voter)),
            ("value", json!(self.value)),
            ("ballot", json!(self.ballot)),
        ] {
            if !value.is_null() {
                body[name] = value;
            }
        }
        body
    }

    pub fn in_batch(&self) -> Value {
        let mut body = self.body();
        body["item_id"] = self.item.json.clone();
        body
    }

    fn asked(&self, item: ItemAt) -> Asked {
        let value = self.value.unwrap_or(1);
        Asked {
            item,
            voter: self.voter,
            value,
            ballot: self.ballot.clone(),
        }
    }

    pub fn check(&self) -> Result<(), Refused> {
        match self.value {
            None | Some(1 | -1) => Ok(()),
            _ => Err(refused("invalid-value").on("value")),
        }
    }
}

/// What a client sent with an idempotency key.
#[derive(Clone, Debug)]
pub enum Sent {
    Vote(Vote, String),
    Batch(Vec<Vote>, String),
}

impl Draw {
    /// The item of a target, if it exists.
    pub fn found(&self, target: &Target) -> Result<ItemAt, Refused> {
        let by_key = target
            .key
            .as_deref()
            .and_then(|key| self.model.item_with_key(key));
        target.at.or(by_key).ok_or(refused("unknown-item"))
    }

    /// The item to vote on. Creates it, if votes may do that.
    pub fn find_to_vote_on(&mut self, target: &Target, to_other: bool) -> Result<ItemAt, Refused> {
        match (self.found(target), &target.key) {
            (Err(_), Some(key)) if self.creates_items && !to_other => {
                Ok(self.model.add_item(NewItem::plain(key, Some(key))))
            }
            (found, _) => found,
        }
    }

    pub fn vote(&mut self) -> Vote {
        if self.one_in(8)
            && let Some(vote) = self.vote_with_spent_ballot()
        {
            return vote;
        }
        let item = self.item();
        let by_ballot = item
            .at
            .and_then(|at| self.model.rule(at))
            .is_some_and(|rule| rule.by_ballot);
        let takes_ballot = if by_ballot {
            !self.one_in(8)
        } else {
            self.one_in(30)
        };
        let ballot = takes_ballot.then(|| self.ballot(item.at));
        let voter = match by_ballot {
            true => self.one_in(12),
            false => !self.one_in(5),
        };
        let value = match self.random.random_range(0..40) {
            0 => Some(0),
            1..=8 => Some(1),
            9..=20 => Some(-1),
            _ => None,
        };
        let voter = voter.then(|| self.voter());
        Vote {
            item,
            voter,
            value,
            ballot,
        }
    }

    /// A spent ballot once more: with the same vote, another value, or another choice.
    fn vote_with_spent_ballot(&mut self) -> Option<Vote> {
        let ballots = self.model.ballots.iter();
        let spent: Vec<(String, RowAt)> = ballots
            .filter_map(|ballot| match ballot.spent {
                Some(Spent::On(row)) => Some((ballot.token.clone(), row)),
                _ => None,
            })
            .collect();
        let (token, row) = spent.choose(&mut self.random)?.clone();
        let bought = self.model.rows[row].clone();
        let of_rule = |item: &ItemAt| self.model.items[*item].rule == self.model.items[bought.item].rule;
        let items: Vec<ItemAt> = (0..self.model.items.len()).filter(of_rule).collect();
        let item = if self.one_in(2) {
            bought.item
        } else {
            self.any(&items)
        };
        let value = if self.one_in(4) {
            -bought.value
        } else {
            bought.value
        };
        Some(Vote {
            item: self.reference(item),
            voter: None,
            value: Some(value),
            ballot: Some(token),
        })
    }

    /// The token of a ballot, mostly of this item.
    fn ballot(&mut self, item: Option<ItemAt>) -> String {
        let rule = item.and_then(|at| self.model.items[at].rule);
        let of_rule = self
            .model
            .ballots
            .iter()
            .filter(|ballot| Some(ballot.rule) == rule);
        let mut tokens: Vec<String> = of_rule.map(|ballot| ballot.token.clone()).collect();
        if tokens.is_empty() || self.one_in(8) {
            tokens = self
                .model
                .ballots
                .iter()
                .map(|ballot| ballot.token.clone())
                .collect();
        }
        if tokens.is_empty() || self.one_in(20) {
            return "no such".to_owned();
        }
        self.any(&tokens)
    }

    pub fn idempotency_key(&mut self) -> String {
        format!("k{}", self.random.random_range(0..IDEMPOTENCY_KEYS))
    }

    /// A vote. Some have an idempotency key.
    pub fn post(&mut self) -> Request {
        let vote = self.vote();
        let key = self.one_in(4).then(|| self.idempotency_key());
        self.post_of(vote, key)
    }

    fn post_of(&mut self, vote: Vote, key: Option<String>) -> Request {
        let to_other = self.one_in(2);
        let expected = match self.play_post(&vote, key.as_deref(), to_other) {
            Ok(expected) => expected,
            Err(refused) => refused.into(),
        };
        let path = format!("/v1/items/{}/votes", vote.item.path);
        let idempotency_key = key.as_deref().map(|key| {
            if self.one_in(5) {
                format!("\"{key}\"")
            } else {
                key.to_owned()
            }
        });
        let body = vote.body();
        if let Some(key) = key {
            self.sent.push(Sent::Vote(vote, key));
        }
        Request {
            to_other,
            idempotency_key,
            ..Request::new(Method::POST, path, Some(body), expected)
        }
    }

    fn play_post(&mut self, vote: &Vote, key: Option<&str>, to_other: bool) -> Result<Expected, Refused> {
        let item = if vote.item.key.is_some() && vote.ballot.is_some() {
            let item = self.found(&vote.item)?;
            vote.check()?;
            item
        } else {
            vote.check()?;
            self.find_to_vote_on(&vote.item, to_other)?
        };
        self.decide(vote, item, key.map(|key| KeyOf::Vote(item, key.to_owned())))
    }

    pub fn decide(&mut self, vote: &Vote, item: ItemAt, key: Option<KeyOf>) -> Result<Expected, Refused> {
        let asked = vote.asked(item);
        let cast = self.model.decide(&asked, true, key)?;
        Ok(self.model.vote_answer(item, vote.voter, asked.value, cast))
    }

    /// A repeat with an idempotency key, or another request with that key.
    pub fn post_again(&mut self) -> Request {
        let Some(sent) = self.sent.choose(&mut self.random).cloned() else {
            return self.post();
        };
        let differs = self.one_in(4);
        match sent {
            Sent::Vote(mut vote, key) => {
                self.name_otherwise(&mut vote);
                if differs {
                    match self.random.random_range(0..3) {
                        0 => vote.voter = Some(self.voter()),
                        1 => vote.ballot = Some(self.ballot(vote.item.at)),
                        _ => vote.value = Some(-vote.value.unwrap_or(1)),
                    }
                }
                self.post_of(vote, Some(key))
            }
            Sent::Batch(mut votes, key) => {
                votes.iter_mut().for_each(|vote| self.name_otherwise(vote));
                if differs {
                    let at = self.random.random_range(0..votes.len());
                    votes[at].value = Some(-votes[at].value.unwrap_or(1));
                }
                self.batch_of(votes, Some(key))
            }
        }
    }

    /// Names the item of a vote by its id or its own key, whichever comes.
    fn name_otherwise(&mut self, vote: &mut Vote) {
        if let Ok(item) = self.found(&vote.item) {
            vote.item = self.reference(item);
        }
    }

    /// Sets a vote, or takes it back.
    /// Some have an idempotency key, which changes nothing.
    pub fn set(&mut self) -> Request {
        let (mut target, mut voter, to_other) = (self.item(), self.voter(), self.one_in(2));
        // Half of the time, a vote that someone holds.
        let held: Vec<RowAt> = self.model.held.iter().copied().collect();
        if self.one_in(2)
            && let Some(row) = held
                .choose(&mut self.random)
                .map(|row| self.model.rows[*row].clone())
            && let Some(holder) = row.voter
        {
            (target, voter) = (self.reference(row.item), holder);
        }
        let path = format!("/v1/items/{}/votes/{voter}", target.path);
        let value = self.any(&[Some(1), Some(1), Some(-1), None, None]);
        let item = match value {
            Some(_) => self.find_to_vote_on(&target, to_other),
            None => self.found(&target),
        };
        let expected = item.and_then(|item| {
            let asked = Asked {
                item,
                voter: Some(voter),
                value: value.unwrap_or(0),
                ballot: None,
            };
            let cast = self.model.decide(&asked, false, None)?;
            Ok(self.model.vote_answer(item, Some(voter), asked.value, cast))
        });
        let (method, body) = match value {
            Some(value) => (Method::PUT, Some(json!({ "value": value }))),
            None => (Method::DELETE, None),
        };
        let idempotency_key = self.one_in(8).then(|| self.idempotency_key());
        let expected = expected.unwrap_or_else(Expected::from);
        Request {
            to_other,
            idempotency_key,
            ..Request::new(method, path, body, expected)
        }
    }

    /// Sets a whole selection, or takes it back.
    pub fn select(&mut self) -> Request {
        let (target, voter, to_other) = (self.poll(), self.voter(), self.one_in(2));
        let path = format!("/v1/polls/{}/votes/{voter}", target.path);
        let mut wanted: Vec<ItemAt> = Vec::new();
        if let Some(poll) = target.at {
            let amount = self.random.random_range(0..=3);
            let choices = &self.model.polls[poll].choices;
            wanted = choices
                .choose_multiple(&mut self.random, amount)
                .copied()
                .collect();
        }
        let strays = target.at.is_some() && self.one_in(20);
        let mut ids: Vec<i64> = wanted.iter().map(|item| self.model.items[*item].id).collect();
        if strays {
            let of_no_poll = (0..self.model.items.len()).find(|at| self.model.items[*at].poll.is_none());
            let id = of_no_poll.map_or(UNKNOWN_ID, |at| self.model.items[at].id);
            ids.push(self.any(&[UNKNOWN_ID, id]));
        }
        wanted.sort_unstable();
        let expected = match target.at {
            None => Err(refused("unknown-poll")),
            Some(poll) => self
                .model
                .select(poll, voter, &wanted, strays)
                .map(|is_changed| selection(poll, voter, &wanted, (!is_changed).then_some(true))),
        };
        let (method, body) = match ids.is_empty() && self.one_in(2) {
            true => (Method::DELETE, None),
            false => (Method::PUT, Some(json!({ "items": ids }))),
        };
        let expected = expected.unwrap_or_else(Expected::from);
        Request {
            to_other,
            ..Request::new(method, path, body, expected)
        }
    }
}

/// The answer to a selection.
pub fn selection(poll: PollAt, voter: &str, items: &[ItemAt], repeated: Option<bool>) -> Expected {
    let items: Vec<Value> = items.iter().map(|item| json!({ "item": item })).collect();
    let body =
        json!({ "poll_id": { "poll": poll }, "voter_id": voter, "items": items, "repeated": repeated });
    Expected::new(200, body)
}
