//! Draws batches: many votes in one request.

use rand::Rng;
use reqwest::Method;
use serde_json::{Value, json};

use super::answers::{Expected, Refused, refused};
use super::draw::{Draw, Request};
use super::model::{ItemAt, KeyOf, Model};
use super::requests::{Sent, Vote};

/// The most votes in one batch.
const BATCH_VOTES: usize = 6;

impl Draw {
    /// Some votes in one request.
    pub fn batch(&mut self) -> Request {
        let mut votes: Vec<Vote> = Vec::new();
        for _ in 0..self.random.random_range(1..=BATCH_VOTES) {
            let vote = self.vote();
            // Two votes of a voter on an item with places may be decided after other voters' votes:
            // no order is promised.
            let has_places = vote.item.at.is_some_and(|at| {
                self.model.items[at].max_votes.is_some() || self.model.items[at].is_numbered
            });
            let is_same = |other: &Vote| {
                other.item.at == vote.item.at
                    && (vote.voter.is_some() && other.voter == vote.voter
                        || vote.ballot.is_some() && other.ballot == vote.ballot)
            };
            if !has_places || !votes.iter().any(is_same) {
                votes.push(vote);
            }
        }
        let key = self.one_in(2).then(|| self.idempotency_key());
        self.batch_of(votes, key)
    }

    pub fn batch_of(&mut self, votes: Vec<Vote>, key: Option<String>) -> Request {
        let to_other = self.one_in(2);
        let body = Value::Array(votes.iter().map(Vote::in_batch).collect());
        let expected = self.play_batch(&votes, key.as_deref(), to_other);
        let path = "/v1/votes".to_owned();
        if let Some(key) = &key {
            self.sent.push(Sent::Batch(votes, key.clone()));
        }
        let body = json!({ "votes": body });
        Request {
            to_other,
            idempotency_key: key,
            ..Request::new(
                Method::POST,
                path,
                Some(body),
                expected.unwrap_or_else(Expected::from),
            )
        }
    }

    fn play_batch(&mut self, votes: &[Vote], key: Option<&str>, to_other: bool) -> Result<Expected, Refused> {
        // A batch in which each vote is wrong uses up no key.
        if let Some(key) = key
            && votes.iter().any(|vote| vote.check().is_ok())
        {
            let asked: Value = votes.iter().map(|vote| self.asked_in_batch(vote)).collect();
            let kept = self
                .model
                .batches
                .entry(key.to_owned())
                .or_insert_with(|| asked.clone());
            if *kept != asked {
                return Err(refused("key-reused").on("Idempotency-Key"));
            }
        }
        let mut found = Vec::new();
        for vote in votes {
            found.push(match (vote.check(), &vote.ballot) {
                (Err(refused), _) => Err(refused),
                (Ok(()), Some(_)) => self.found(&vote.item),
                (Ok(()), None) => self.find_to_vote_on(&vote.item, to_other),
            });
        }
        let before = self.model.clone();
        let mut results = Vec::new();
        for (at, (vote, item)) in votes.iter().zip(found).enumerate() {
            let key = key.map(|key| KeyOf::VoteOfBatch(key.to_owned(), at));
            let expected = item.and_then(|item| Ok((item, self.decide(vote, item, key)?)));
            results.push(match expected {
                Ok((item, expected)) => (Some(item), expected),
                Err(refused) => (None, refused.into()),
            });
        }
        let results = results.into_iter().map(|(item, expected)| {
            let mut result = expected.in_batch();
            if let Some(item) = item.filter(|item| !before.hides_counts(*item)) {
                self.loosen_counts(&before, item, &mut result);
            }
            result
        });
        Ok(Expected::new(
            200,
            json!({ "results": results.collect::<Vec<_>>() }),
        ))
    }

    /// What a vote asks for, however it names its item. A vote that is wrong stays as it was sent.
    fn asked_in_batch(&self, vote: &Vote) -> Value {
        let mut asked = vote.in_batch();
        if vote.check().is_ok() {
            let at = self.found(&vote.item).ok();
            let key = at.and_then(|at| self.model.items[at].key.clone());
            asked["item_id"] = match (key.or_else(|| vote.item.key.clone()), at) {
                (Some(key), _) => json!({ "key": key }),
                (None, Some(at)) => json!({ "at": at }),
                (None, None) => vote.item.json.clone(),
            };
            asked["value"] = json!(vote.value.unwrap_or(1));
        }
        asked
    }

    /// An answer in a batch may have counts from before, between or after its votes.
    fn loosen_counts(&self, before: &Model, item: ItemAt, result: &mut Value) {
        let stored = || {
            self.model.rows[before.rows.len()..]
                .iter()
                .filter(|row| row.item == item)
        };
        let cast = |value: i64| {
            stored()
                .filter(|row| row.change % 2 == 0 && row.value == value)
                .count() as i64
        };
        let taken_back = |value: i64| {
            stored()
                .filter(|row| row.change % 2 == 1 && row.value == -value)
                .count() as i64
        };
        let [_, ups, downs] = before.counts(item);
        let ups = [ups - taken_back(1), ups + cast(1)];
        let downs = [downs - taken_back(-1), downs + cast(-1)];
        result["up_count"] = json!({ "between": ups });
        result["down_count"] = json!({ "between": downs });
        result["vote_count"] = json!({ "between": [ups[0] - downs[1], ups[1] - downs[0]] });
    }
}
