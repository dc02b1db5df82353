//! Random sequences of all requests, against a small model in memory. After each request the
//! answer is what the model says; now and then ledger, live and saved counts are, too.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use reqwest::Method;
use serde_json::{Value, json};
use tally::domain::ItemId;

use super::assert_rules_hold;
use crate::helpers::tally::Tally;

const REQUESTS: usize = 400;
/// After so many requests all counts are compared.
const COMPARE_EVERY: usize = 50;
const VOTERS: [&str; 4] = ["ada", "bob", "cy", "dee"];

/// What the model knows of an item.
#[derive(Clone, Debug, Default)]
struct Item {
    takes_down_votes: bool,
    max_votes: Option<usize>,
    is_numbered: bool,
    /// The poll that it is a choice of, by its place in the model.
    poll: Option<usize>,
    /// By voter: value and number.
    held: BTreeMap<&'static str, (i64, Option<i64>)>,
    /// Anonymous votes: up and down.
    anonymous: [i64; 2],
    last_number: i64,
}

#[derive(Clone, Debug)]
struct Poll {
    id: i64,
    max_choices: usize,
    choices: Vec<i64>,
}

#[derive(Clone, Debug, Default)]
struct Model {
    items: BTreeMap<i64, Item>,
    polls: Vec<Poll>,
}

/// What an answer must be: its status, and for a vote its value, number and counts.
#[derive(Debug, PartialEq)]
struct Expected {
    status: u16,
    value: Option<i64>,
    number: Option<i64>,
    counts: Option<[i64; 3]>,
}

impl Item {
    /// Net, up and down.
    fn counts(&self) -> [i64; 3] {
        let [up, down] = self.anonymous;
        let ups = up + self.held.values().filter(|(value, _)| *value > 0).count() as i64;
        let downs = down + self.held.values().filter(|(value, _)| *value < 0).count() as i64;
        [ups - downs, ups, downs]
    }

    fn is_full(&self) -> bool {
        let taken = self.held.len() + (self.anonymous[0] + self.anonymous[1]) as usize;
        self.max_votes.is_some_and(|most| taken >= most)
    }

    fn number(&mut self) -> Option<i64> {
        self.is_numbered.then(|| {
            self.last_number += 1;
            self.last_number
        })
    }
}

impl Model {
    fn refused(status: u16) -> Expected {
        Expected {
            status,
            value: None,
            number: None,
            counts: None,
        }
    }

    fn answered(&self, status: u16, item: i64, value: i64, number: Option<i64>) -> Expected {
        Expected {
            status,
            value: Some(value),
            number,
            counts: Some(self.items[&item].counts()),
        }
    }

    /// A voter wants to hold this value on an item; if it `keeps`, what is held stays.
    fn set(&mut self, id: i64, voter: &'static str, value: i64, keeps: bool) -> Expected {
        let item = &self.items[&id];
        if value < 0 && !item.takes_down_votes {
            return Self::refused(422);
        }
        let before = item.held.get(voter).copied();
        let (held, number) = before.unwrap_or((0, None));
        if held == value || value != 0 && held != 0 && keeps {
            return self.answered(200, id, held, number);
        }
        let poll = item.poll;
        if let Some(at) = poll
            && value != 0
            && held == 0
        {
            let holds = |choice: &&i64| self.items[choice].held.contains_key(voter);
            let choices: Vec<i64> = self.polls[at].choices.iter().filter(holds).copied().collect();
            if self.polls[at].max_choices == 1 {
                for choice in choices {
                    self.item(choice).held.remove(voter);
                }
            } else if choices.len() >= self.polls[at].max_choices {
                return Self::refused(409);
            }
        }
        let item = self.item(id);
        if value == 0 {
            item.held.remove(voter);
            return self.answered(200, id, 0, None);
        }
        if held == 0 && item.is_full() {
            return Self::refused(409);
        }
        let number = item.number();
        item.held.insert(voter, (value, number));
        self.answered(if held == 0 { 201 } else { 200 }, id, value, number)
    }

    fn anonymous(&mut self, id: i64, value: i64) -> Expected {
        let item = self.item(id);
        if item.poll.is_some() || value < 0 && !item.takes_down_votes {
            return Self::refused(422);
        }
        if item.is_full() {
            return Self::refused(409);
        }
        item.anonymous[usize::from(value < 0)] += 1;
        let number = item.number();
        self.answered(201, id, value, number)
    }

    fn select(&mut self, at: usize, voter: &'static str, wanted: &[i64]) -> Expected {
        let Poll {
            max_choices, choices, ..
        } = self.polls[at].clone();
        if wanted.len() > max_choices {
            return Self::refused(409);
        }
        for choice in choices {
            let item = self.item(choice);
            if !wanted.contains(&choice) {
                item.held.remove(voter);
            } else if !item.held.contains_key(voter) {
                item.held.insert(voter, (1, None));
            }
        }
        Self::refused(200)
    }

    fn item(&mut self, id: i64) -> &mut Item {
        self.items.get_mut(&id).expect("an item of the model")
    }

    async fn add_item(&mut self, tally: &Tally, fields: Value, item: Item) {
        let id = tally.item_with(fields).await;
        self.items.insert(id.get(), item);
    }

    async fn add_poll(&mut self, tally: &Tally, max_choices: usize) {
        let body = json!({ "title": "x", "choices": ["a", "b", "c"], "max_choices": max_choices });
        let (_, poll) = tally.post("/v1/polls", &body).await;
        let choices = poll["choices"].as_array().expect("choices");
        let choices: Vec<i64> = choices.iter().filter_map(|one| one["item_id"].as_i64()).collect();
        for choice in &choices {
            let item = Item {
                poll: Some(self.polls.len()),
                ..Item::default()
            };
            self.items.insert(*choice, item);
        }
        self.polls.push(Poll {
            id: poll["id"].as_i64().expect("an id"),
            max_choices,
            choices,
        });
    }
}

fn expected(status: u16, answer: &Value) -> Expected {
    let number = |name: &str| answer[name].as_i64();
    Expected {
        status,
        value: number("value"),
        number: number("number"),
        counts: number("vote_count")
            .zip(number("up_count"))
            .zip(number("down_count"))
            .map(|((net, ups), downs)| [net, ups, downs]),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_sequence_of_requests_is_answered_and_counted_as_a_small_model_says() {
    for seed in 0..4 {
        play(seed).await;
    }
}

async fn play(seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let tally = Tally::start().await;
    let mut model = Model::default();
    let both = Item {
        takes_down_votes: true,
        ..Item::default()
    };
    model.add_item(&tally, json!({}), both.clone()).await;
    model
        .add_item(&tally, json!({ "down_votes": false }), Item::default())
        .await;
    let limited = Item {
        max_votes: Some(3),
        is_numbered: true,
        ..both
    };
    let fields = json!({ "max_votes": 3, "numbered": true });
    model.add_item(&tally, fields, limited).await;
    model.add_poll(&tally, 1).await;
    model.add_poll(&tally, 2).await;
    let items: Vec<i64> = model.items.keys().copied().collect();
    for step in 1..=REQUESTS {
        let item = *items.choose(&mut random).expect("an item");
        let voter = *VOTERS.choose(&mut random).expect("a voter");
        let value = *[1, 1, -1].choose(&mut random).expect("a value");
        let votes = format!("/v1/items/{item}/votes");
        let (method, path, body, expects) = match random.random_range(0..10) {
            0 => (
                Method::POST,
                votes,
                json!({ "value": value }),
                model.anonymous(item, value),
            ),
            1..=3 => {
                let body = json!({ "voter_id": voter, "value": value });
                (Method::POST, votes, body, model.set(item, voter, value, true))
            }
            4..=5 => {
                let body = json!({ "value": value });
                (
                    Method::PUT,
                    format!("{votes}/{voter}"),
                    body,
                    model.set(item, voter, value, false),
                )
            }
            6..=7 => {
                let expects = model.set(item, voter, 0, false);
                (Method::DELETE, format!("{votes}/{voter}"), Value::Null, expects)
            }
            _ => {
                let at = random.random_range(0..model.polls.len());
                let Poll { id, choices, .. } = model.polls[at].clone();
                let amount = random.random_range(0..=2);
                let wanted: Vec<i64> = choices.choose_multiple(&mut random, amount).copied().collect();
                let path = format!("/v1/polls/{id}/votes/{voter}");
                let body = json!({ "items": wanted });
                (Method::PUT, path, body, model.select(at, voter, &wanted))
            }
        };
        let at = format!("seed {seed}, request {step}: {method} {path} {body}");
        let (status, answer) = tally
            .send(method, &path, (!body.is_null()).then_some(&body))
            .await;
        let mut got = expected(status.as_u16(), &answer);
        if expects.value.is_none() {
            // A refusal, or a selection.
            got = Expected {
                value: None,
                number: None,
                counts: None,
                ..got
            };
        }
        assert_eq!(got, expects, "{at}: {answer}");
        if step % COMPARE_EVERY == 0 {
            compare(&tally, &model).await;
        }
        if step == REQUESTS / 2 {
            let mut redis = tally.stores.redis_connection().await;
            let () = redis::cmd("FLUSHALL")
                .query_async(&mut redis)
                .await
                .expect("Redis answers");
        }
    }
}

/// Ledger, live and saved counts, and turnout.
async fn compare(tally: &Tally, model: &Model) {
    tally.worker().flush_until_quiescent().await.expect("a flush");
    for (id, item) in &model.items {
        let id = ItemId::new(*id).expect("positive");
        tally.assert_exact_when_quiescent(id).await;
        let saved = tally.saved(id).await.saved_count;
        assert_eq!([saved.net, saved.ups(), saved.downs], item.counts(), "item {id}");
    }
    for poll in &model.polls {
        let (_, shown) = tally.get(&format!("/v1/polls/{}", poll.id)).await;
        let voters = VOTERS.iter().filter(|voter| {
            poll.choices
                .iter()
                .any(|choice| model.items[choice].held.contains_key(*voter))
        });
        assert_eq!(shown["voter_count"], voters.count());
    }
    assert_rules_hold(&tally.pool).await;
}
