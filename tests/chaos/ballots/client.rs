//! One client: which ballots it asks for and spends, and what it records.

use std::time::{Duration, Instant};

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::sleep;

use super::{ANSWER_LIMIT, Attempt, Ballot, BallotRecords, Ballots, FINISH_LIMIT, Outcome, Target};
use crate::asking::{Asked, ask};
use crate::pause::Pause;

/// The part of all turns that spends a ballot that someone may have spent.
const AGAIN: f64 = 0.4;
/// The part of all ballots that are sent twice, to both servers at once.
const TWICE: f64 = 0.3;
/// The part of these whose second request is for something else.
const OTHERWISE: f64 = 0.5;
/// The part of all ballots that are sent to a target that does not take them.
const STRAY: f64 = 0.04;
/// The part of all turns that sends a ballot that does not exist.
const UNKNOWN: f64 = 0.03;
/// The most ballots of one request.
const BALLOTS_LIMIT: usize = 12;

pub(super) struct BallotClient {
    pub targets: Vec<Target>,
    pub ballots: Ballots,
    pub servers: Vec<String>,
    pub random: StdRng,
    pub http: reqwest::Client,
    pub over: watch::Receiver<bool>,
    pub pause: Pause,
    pub records: BallotRecords,
}

impl BallotClient {
    pub async fn run(mut self) -> BallotRecords {
        while !*self.over.borrow() {
            let busy = self.pause.go_on().await;
            if self.random.random_bool(UNKNOWN) {
                self.send_unknown().await;
            } else if let Some(ballot) = self.pick() {
                self.spend(ballot).await;
            } else {
                self.ask_for_ballots().await;
            }
            drop(busy);
            sleep(Duration::from_millis(self.random.random_range(0..20))).await;
        }
        self.finish().await;
        self.records
    }

    /// A ballot, fresh or not; `None`: there is no fresh one.
    fn pick(&mut self) -> Option<usize> {
        let again = self.random.random_bool(AGAIN);
        let random = &mut self.random;
        self.ballots.with(|state| {
            if again && !state.all.is_empty() {
                Some(random.random_range(0..state.all.len()))
            } else {
                state.fresh.pop()
            }
        })
    }

    fn server(&mut self) -> usize {
        self.random.random_range(0..self.servers.len())
    }

    /// Asks for ballots. If the answer is lost, nobody has them.
    async fn ask_for_ballots(&mut self) {
        let target = self.random.random_range(0..self.targets.len());
        let count = self.random.random_range(1..=BALLOTS_LIMIT);
        let server = self.server();
        let url = format!("{}{}/ballots", self.servers[server], self.targets[target].path);
        let asked = ask(
            &self.http,
            Method::POST,
            url,
            &json!({ "count": count }),
            ANSWER_LIMIT,
        )
        .await;
        let tokens = match asked.answer() {
            Some((201, body)) => serde_json::from_value(body["ballots"].clone()).unwrap_or_default(),
            None | Some((503, _)) => return,
            Some(_) => Vec::new(),
        };
        if tokens.len() != count {
            let wrong = format!(
                "{count} ballots of {}: {:?}",
                self.targets[target].path, asked.answer
            );
            self.records.wrong_answers.push(wrong);
        }
        self.ballots.with(|state| {
            for token in tokens {
                state.fresh.push(state.all.len());
                state.all.push(Ballot { token, target });
            }
        });
    }

    async fn send_unknown(&mut self) {
        let target = self.random.random_range(0..self.targets.len());
        let Some((item, value)) = self.draw(target) else {
            return;
        };
        let token = format!("{:032x}", self.random.random::<u128>());
        let server = self.server();
        let asked = self.post(server, &token, item, value).await;
        match outcome(&asked, item, value, false) {
            Ok(Outcome::NotValid | Outcome::NoEffect | Outcome::Unknown) => {}
            other => self.records.wrong_answers.push(format!(
                "a ballot that nobody was given, on item {item}: {other:?}"
            )),
        }
    }

    /// An item of a target and a value that it takes.
    fn draw(&mut self, target: usize) -> Option<(i64, i64)> {
        let target = &self.targets[target];
        let is_down = target.takes_down_votes && self.random.random_bool(0.3);
        let item = *target.items.choose(&mut self.random)?;
        Some((item, if is_down { -1 } else { 1 }))
    }

    async fn spend(&mut self, at: usize) {
        let ballot = self.ballots.with(|state| state.all[at].clone());
        let mut target = ballot.target;
        if self.random.random_bool(STRAY) {
            target = (target + 1) % self.targets.len();
        }
        let Some((item, value)) = self.draw(target) else {
            return;
        };
        let first = self.server();
        if !self.random.random_bool(TWICE) {
            let asked = self.post(first, &ballot.token, item, value).await;
            self.note(at, item, value, &asked);
            return;
        }
        let other = if self.random.random_bool(OTHERWISE) {
            self.draw(target)
        } else {
            None
        };
        let (other_item, other_value) = other.unwrap_or((item, value));
        let second = (first + 1) % self.servers.len();
        let (one, two) = tokio::join!(
            self.post(first, &ballot.token, item, value),
            self.post(second, &ballot.token, other_item, other_value)
        );
        self.note(at, item, value, &one);
        self.note(at, other_item, other_value, &two);
    }

    async fn post(&self, server: usize, token: &str, item: i64, value: i64) -> Asked {
        let url = format!("{}/v1/items/{item}/votes", self.servers[server]);
        let body = json!({ "ballot": token, "value": value });
        ask(&self.http, Method::POST, url, &body, ANSWER_LIMIT).await
    }

    /// Notes the answer. Returns its outcome, if it is one that may be.
    fn note(&mut self, ballot: usize, item: i64, value: i64, asked: &Asked) -> Option<Outcome> {
        let is_secret = |target: &Target| target.is_secret && target.items.contains(&item);
        let is_secret = self.targets.iter().any(is_secret);
        match outcome(asked, item, value, is_secret) {
            Ok(outcome) => {
                self.records.attempts.entry(ballot).or_default().push(Attempt {
                    item,
                    value,
                    outcome,
                    called: asked.called,
                    returned: asked.returned,
                });
                Some(outcome)
            }
            Err(wrong) => {
                self.records
                    .wrong_answers
                    .push(format!("ballot {ballot}: {wrong}"));
                None
            }
        }
    }

    /// Repeats the requests without an answer, now that everything works again.
    async fn finish(&mut self) {
        let ends = Instant::now() + FINISH_LIMIT;
        let open: Vec<(usize, Attempt)> = self
            .records
            .attempts
            .iter()
            .filter_map(|(ballot, attempts)| {
                let last = attempts
                    .iter()
                    .rfind(|attempt| attempt.outcome == Outcome::Unknown)?;
                Some((*ballot, *last))
            })
            .collect();
        for (ballot, Attempt { item, value, .. }) in open {
            let token = self.ballots.with(|state| state.all[ballot].token.clone());
            loop {
                let server = self.server();
                let asked = self.post(server, &token, item, value).await;
                let outcome = self.note(ballot, item, value, &asked);
                if !matches!(outcome, Some(Outcome::Unknown | Outcome::NoEffect)) {
                    break;
                }
                if Instant::now() > ends {
                    let why = format!("never answered, though all was repaired: ballot {ballot}");
                    self.records.wrong_answers.push(why);
                    return;
                }
                sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// What a client knows from an answer.
///
/// # Errors
/// The answer, if no request with a ballot may have it.
fn outcome(asked: &Asked, item: i64, value: i64, is_secret: bool) -> Result<Outcome, String> {
    let Some((status, body)) = asked.answer() else {
        return Ok(Outcome::Unknown);
    };
    let vote = body["vote_id"].as_i64();
    let number = body["number"].as_i64();
    let is_this = body["item_id"] == item && body["value"] == value && body["voter_id"] == Value::Null;
    let known = match status {
        503 if body["stored"] == "no" => Some(Outcome::NoEffect),
        503 => Some(Outcome::Unknown),
        201 if is_this && is_secret == vote.is_none() => Some(Outcome::Stored { vote, number }),
        200 if is_this && !is_secret && body["repeated"] == true => {
            vote.map(|vote| Outcome::Repeated { vote, number })
        }
        409 if body["type"] == "/problems/ballot-not-valid" => Some(Outcome::NotValid),
        409 if body["type"] == "/problems/full" => Some(Outcome::Full),
        _ => None,
    };
    known.ok_or_else(|| format!("{value} on item {item} was answered {status}: {body}"))
}
