//! One client: what it asks, and what it records.

use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use reqwest::Method;
use serde_json::{Value, json};
use testkit::linearizable::items::{self, Wants};
use testkit::linearizable::polls;
use tokio::sync::watch;
use tokio::time::sleep;

use super::{ANSWER_LIMIT, Anonymous, CLIENTS, RESTORED_VOTER, Targets, VOTERS, VoidingRecords, voter_id};
use crate::asking::ask;
use crate::pause::Pause;

/// The part of all requests that only reads.
const READ: f64 = 0.25;
/// The part of all other requests on a limited item that takes a vote back. It is small, so that a
/// voiding finds places taken.
const TAKE_BACK: f64 = 0.15;
/// The part of all requests that are anonymous votes.
const ANONYMOUS: f64 = 0.15;

/// A request on one of the targets.
#[derive(Clone, Debug)]
enum Request {
    OnItem(i64, Wants),
    Anonymous(i64, i64),
    Select(polls::Request),
}

pub(super) struct VoidedClient {
    pub number: u32,
    pub targets: Targets,
    pub servers: Vec<String>,
    pub random: StdRng,
    pub http: reqwest::Client,
    pub over: watch::Receiver<bool>,
    pub pause: Pause,
    pub records: VoidingRecords,
}

impl VoidedClient {
    pub async fn run(mut self) -> VoidingRecords {
        while !*self.over.borrow() {
            let (voter, request) = self.request();
            let busy = self.pause.go_on().await;
            self.send(voter, request).await;
            drop(busy);
            sleep(Duration::from_millis(self.random.random_range(0..20))).await;
        }
        self.records
    }

    fn request(&mut self) -> (u32, Request) {
        let is_read = self.random.random_bool(READ);
        let voter = if is_read {
            self.random.random_range(0..CLIENTS * VOTERS)
        } else {
            self.number * VOTERS + self.random.random_range(0..VOTERS)
        };
        let value = *[1, 1, -1].choose(&mut self.random).unwrap_or(&1);
        let Targets {
            plain,
            span,
            many,
            numbered,
            limited,
            ..
        } = self.targets;
        if self.random.random_bool(ANONYMOUS) {
            let item = *[plain, span, many].choose(&mut self.random).unwrap_or(&plain);
            return (voter, Request::Anonymous(item, value));
        }
        let request = match self.random.random_range(0..5) {
            at @ 0..2 => {
                let item = [plain, span][at];
                let all = [Wants::Cast(value), Wants::Set(value), Wants::TakeBack];
                let wants = *all.choose(&mut self.random).unwrap_or(&Wants::Read);
                Request::OnItem(item, if is_read { Wants::Read } else { wants })
            }
            at @ 2..4 => {
                let is_restored = voter == RESTORED_VOTER;
                let item = if at == 2 && !is_restored {
                    numbered
                } else {
                    limited
                };
                let wants = if is_read {
                    Wants::Read
                } else if self.random.random_bool(TAKE_BACK) {
                    Wants::TakeBack
                } else {
                    Wants::Cast(value)
                };
                Request::OnItem(item, wants)
            }
            _ if is_read => Request::Select(polls::Request::Read),
            _ => {
                let choice = *self.targets.choices.choose(&mut self.random).unwrap_or(&0);
                let all = [
                    polls::Request::Cast(choice),
                    polls::Request::Select([choice].into()),
                    polls::Request::Select([].into()),
                ];
                Request::Select(
                    all.choose(&mut self.random)
                        .cloned()
                        .unwrap_or(polls::Request::Read),
                )
            }
        };
        (voter, request)
    }

    /// The method, path and body of a request.
    fn text(&self, voter: u32, request: &Request) -> (Method, String, Value) {
        let voter = voter_id(voter);
        let cast = |item: i64, voter: Value, value: i64| {
            (
                Method::POST,
                format!("/v1/items/{item}/votes"),
                json!({ "voter_id": voter, "value": value }),
            )
        };
        match request {
            Request::Anonymous(item, value) => cast(*item, Value::Null, *value),
            Request::OnItem(item, wants) => {
                let path = format!("/v1/items/{item}/votes/{voter}");
                match wants {
                    Wants::Cast(value) => cast(*item, json!(voter), *value),
                    Wants::Set(value) => (Method::PUT, path, json!({ "value": value })),
                    Wants::TakeBack => (Method::DELETE, path, Value::Null),
                    Wants::Read => (Method::GET, path, Value::Null),
                }
            }
            Request::Select(request) => {
                let path = format!("/v1/polls/{}/votes/{voter}", self.targets.poll);
                match request {
                    polls::Request::Select(choices) => (Method::PUT, path, json!({ "items": choices })),
                    polls::Request::Cast(choice) => cast(*choice, json!(voter), 1),
                    polls::Request::Read => (Method::GET, path, Value::Null),
                }
            }
        }
    }

    /// Sends a request and notes the answer.
    async fn send(&mut self, voter: u32, request: Request) {
        let server = &self.servers[self.random.random_range(0..self.servers.len())];
        let (method, path, body) = self.text(voter, &request);
        let asked = ask(&self.http, method, format!("{server}{path}"), &body, ANSWER_LIMIT).await;
        let times = (asked.called, asked.returned);
        let records = &mut self.records;
        let noted = match request {
            Request::Anonymous(item, value) => {
                anonymous(item, value, asked.answer()).map(|vote| records.anonymous.extend(vote))
            }
            Request::OnItem(item, wants) => items::outcome(wants, asked.answer()).map(|outcome| {
                let asked = items::Request {
                    voter: Some(voter),
                    wants,
                };
                let history = records.histories.entry(item).or_default();
                history.extend(outcome.operation(asked, times.0, times.1));
            }),
            Request::Select(request) => polls::outcome(&request, asked.answer()).map(|outcome| {
                let history = records.selected.entry(voter).or_default();
                history.extend(outcome.operation(request, times.0, times.1));
            }),
        };
        if let Err(wrong) = noted {
            records.wrong_answers.push(format!("voter {voter}: {wrong}"));
        }
    }
}

/// What a client knows about an anonymous vote; `None`: it is not stored.
fn anonymous(item: i64, value: i64, answer: Option<(u16, &Value)>) -> Result<Option<Anonymous>, String> {
    let vote = match answer {
        Some((201, body)) if body["value"] == value && body["item_id"] == item => body["vote_id"].as_i64(),
        Some((503, body)) if body["stored"] == "no" => return Ok(None),
        None | Some((503, _)) => None,
        Some((status, body)) => return Err(format!("an anonymous vote was answered {status}: {body}")),
    };
    Ok(Some(Anonymous { item, value, vote }))
}
