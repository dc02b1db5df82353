//! One client: what it asks, and what it records.

use std::time::{Duration, Instant};

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use reqwest::Method;
use serde_json::{Value, json};
use testkit::linearizable::items::{self, Wants};
use testkit::linearizable::{Outcome, polls};
use tokio::sync::watch;
use tokio::time::sleep;

use super::{ANSWER_LIMIT, CLIENTS, FINISH_LIMIT, RuledRecords, Targets, VOTERS, voter_id};
use crate::asking::ask;
use crate::pause::Pause;

/// The part of all requests that only reads.
const READ: f64 = 0.25;
/// The part of all other requests on the limited item that takes a vote back.
const TAKE_BACK: f64 = 0.4;

/// A request on one of the targets.
#[derive(Clone, Debug)]
enum Request {
    Changed(Wants),
    Limited(Wants),
    /// In the poll with this number.
    Selected(usize, polls::Request),
}

pub(super) struct RuledClient {
    pub number: u32,
    pub targets: Targets,
    pub servers: Vec<String>,
    pub random: StdRng,
    pub http: reqwest::Client,
    pub over: watch::Receiver<bool>,
    pub pause: Pause,
    pub records: RuledRecords,
}

impl RuledClient {
    pub async fn run(mut self) -> RuledRecords {
        while !*self.over.borrow() {
            let (voter, request) = self.request();
            let busy = self.pause.go_on().await;
            let is_answered = self.send(voter, request).await;
            self.records.answered += u64::from(is_answered);
            drop(busy);
            sleep(Duration::from_millis(self.random.random_range(0..20))).await;
        }
        // Each voter's last request must be answered, now that everything works again.
        let ends = Instant::now() + FINISH_LIMIT;
        for at in 0..VOTERS {
            let voter = self.number * VOTERS + at;
            let request = Request::Changed(self.change());
            while !self.send(voter, request.clone()).await {
                if Instant::now() > ends {
                    let why = format!("never answered, though all was repaired: {request:?} of {voter}");
                    self.records.wrong_answers.push(why);
                    break;
                }
                sleep(Duration::from_millis(50)).await;
            }
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
        let request = match self.random.random_range(0..3) {
            0 if is_read => Request::Changed(Wants::Read),
            0 => Request::Changed(self.change()),
            1 if is_read => Request::Limited(Wants::Read),
            1 if self.random.random_bool(TAKE_BACK) => Request::Limited(Wants::TakeBack),
            1 => Request::Limited(Wants::Cast(1)),
            _ => {
                let at = self.random.random_range(0..self.targets.polls.len());
                let select = if is_read {
                    polls::Request::Read
                } else {
                    self.selection(at)
                };
                Request::Selected(at, select)
            }
        };
        (voter, request)
    }

    fn change(&mut self) -> Wants {
        let all = [Wants::Set(1), Wants::Set(-1), Wants::TakeBack];
        *all.choose(&mut self.random).unwrap_or(&Wants::TakeBack)
    }

    /// Any choices of a poll, or none.
    fn selection(&mut self, poll: usize) -> polls::Request {
        let poll = &self.targets.polls[poll];
        let amount = self.random.random_range(0..=poll.max_choices);
        let chosen = poll.choices.choose_multiple(&mut self.random, amount);
        polls::Request::Select(chosen.copied().collect())
    }

    /// The method, path and body of a request.
    fn text(&self, voter: u32, request: &Request) -> (Method, String, Value) {
        let voter = voter_id(voter);
        let of_item = |item: i64, wants: Wants| {
            let path = format!("/v1/items/{item}/votes/{voter}");
            match wants {
                Wants::Cast(value) => (
                    Method::POST,
                    format!("/v1/items/{item}/votes"),
                    json!({ "voter_id": voter, "value": value }),
                ),
                Wants::Set(value) => (Method::PUT, path, json!({ "value": value })),
                Wants::TakeBack => (Method::DELETE, path, Value::Null),
                Wants::Read => (Method::GET, path, Value::Null),
            }
        };
        match request {
            Request::Changed(wants) => of_item(self.targets.plain, *wants),
            Request::Limited(wants) => of_item(self.targets.limited, *wants),
            Request::Selected(at, request) => {
                let path = format!("/v1/polls/{}/votes/{voter}", self.targets.polls[*at].id);
                match request {
                    polls::Request::Select(choices) => (Method::PUT, path, json!({ "items": choices })),
                    polls::Request::Cast(choice) => of_item(*choice, Wants::Cast(1)),
                    polls::Request::Read => (Method::GET, path, Value::Null),
                }
            }
        }
    }

    /// Sends a request and notes the answer. Returns whether it was answered.
    async fn send(&mut self, voter: u32, request: Request) -> bool {
        let server = &self.servers[self.random.random_range(0..self.servers.len())];
        let (method, path, body) = self.text(voter, &request);
        let asked = ask(&self.http, method, format!("{server}{path}"), &body, ANSWER_LIMIT).await;
        self.note(voter, request, asked.answer(), (asked.called, asked.returned))
    }

    /// Returns whether it was answered.
    fn note(
        &mut self,
        voter: u32,
        request: Request,
        answer: Option<(u16, &Value)>,
        (called, returned): (Instant, Instant),
    ) -> bool {
        let records = &mut self.records;
        let noted = match request {
            Request::Changed(wants) | Request::Limited(wants) => {
                let history = if matches!(request, Request::Changed(_)) {
                    records.changed.entry(voter).or_default()
                } else {
                    &mut records.limited
                };
                let asked = items::Request {
                    voter: Some(voter),
                    wants,
                };
                items::outcome(wants, answer).map(|outcome| {
                    let is_answered = matches!(outcome, Outcome::Answered(_));
                    history.extend(outcome.operation(asked, called, returned));
                    is_answered
                })
            }
            Request::Selected(at, request) => polls::outcome(&request, answer).map(|outcome| {
                let is_answered = matches!(outcome, Outcome::Answered(_));
                let history = records.selected.entry((at, voter)).or_default();
                history.extend(outcome.operation(request, called, returned));
                is_answered
            }),
        };
        noted.unwrap_or_else(|wrong| {
            records.wrong_answers.push(format!("voter {voter}: {wrong}"));
            true
        })
    }
}
