//! One client: what it tries, and what it records.

use std::time::{Duration, Instant};

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use reqwest::RequestBuilder;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::sleep;

use super::{ADDRESSES, Attempt, Outcome, ThrottledRecords, VOTERS, Window};
use crate::credentials;
use crate::pause::Pause;

/// The longest that a client waits for an answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(8);
/// How many votes of one voter are sent at once.
const BATCH_VOTES: std::ops::Range<usize> = 10..25;

pub(super) struct ThrottledClient {
    pub number: u64,
    pub item: i64,
    /// Votes that were sent; each has a voter of its own unless it has one of the throttled ones.
    pub sent: u64,
    pub servers: Vec<String>,
    pub random: StdRng,
    pub backend: reqwest::Client,
    pub voters: reqwest::Client,
    pub over: watch::Receiver<bool>,
    pub pause: Pause,
    pub records: ThrottledRecords,
}

impl ThrottledClient {
    pub async fn run(mut self) -> ThrottledRecords {
        while !*self.over.borrow() {
            let busy = self.pause.go_on().await;
            match self.random.random_range(0..20) {
                0..8 => self.vote_from_address().await,
                8..14 => self.vote_often().await,
                14..17 => self.vote_as_backend(None).await,
                _ => {
                    let voter = self.new_voter();
                    self.vote_as_backend(Some(voter)).await;
                }
            }
            drop(busy);
            sleep(Duration::from_millis(self.random.random_range(5..40))).await;
        }
        self.records
    }

    fn new_voter(&mut self) -> String {
        self.sent += 1;
        format!("throttled-{}-{}", self.number, self.sent)
    }

    fn url(&mut self, path: &str) -> String {
        let server = self.servers.choose(&mut self.random).cloned().unwrap_or_default();
        format!("{server}{path}")
    }

    /// A new voter's own vote, from an address that others have, too.
    async fn vote_from_address(&mut self) {
        let (voter, address) = (self.new_voter(), self.random.random_range(0..ADDRESSES));
        let url = self.url(&format!("/v1/items/{}/votes", self.item));
        let request = self.voters.post(url).json(&json!({ "voter_id": voter }));
        let request = credentials::add_from(request, &voter, &address_of(address));
        let (answer, began) = self.send(request).await;
        let answer = answer.as_ref().map(|(status, body)| (*status, body));
        self.note(Window::Address(address), answer, began);
    }

    /// Many votes of one voter in a request of a backend. All but the first are repeats, and count all the same.
    async fn vote_often(&mut self) {
        let voter = self.random.random_range(0..VOTERS);
        let vote = json!({ "item_id": self.item, "voter_id": format!("throttled-often-{voter}") });
        let votes = vec![vote; self.random.random_range(BATCH_VOTES)];
        let url = self.url("/v1/votes");
        let request = self.backend.post(url).json(&json!({ "votes": votes }));
        let (answer, began) = self.send(request).await;
        for at in 0..votes.len() {
            let of_vote = match &answer {
                Some((200, body)) => {
                    let result = &body["results"][at];
                    let status = result["status"].as_u64();
                    Some((
                        status.and_then(|status| u16::try_from(status).ok()).unwrap_or(0),
                        result,
                    ))
                }
                Some((status, body)) => Some((*status, body)),
                None => None,
            };
            self.note(Window::Voter(voter), of_vote, began);
        }
    }

    /// A vote that no throttle by address looks at, and none by voter if it has none. It names an address
    /// whose window may be full.
    async fn vote_as_backend(&mut self, voter: Option<String>) {
        let url = self.url(&format!("/v1/items/{}/votes", self.item));
        let address = address_of(self.random.random_range(0..ADDRESSES));
        let request = self
            .backend
            .post(url)
            .header("x-forwarded-for", address)
            .json(&json!({ "voter_id": voter }));
        let (answer, _) = self.send(request).await;
        let Some((status, body)) = answer else { return };
        let by = throttle(&body);
        let is_right = match status {
            200 | 201 | 503 => true,
            429 => by.is_some_and(|(of, _)| of == "item"),
            _ => false,
        };
        if !is_right {
            let wrong = format!("a backend's vote of {voter:?} was answered {status}: {body}");
            self.records.wrong_answers.push(wrong);
        }
    }

    async fn send(&self, request: RequestBuilder) -> (Option<(u16, Value)>, Instant) {
        let began = Instant::now();
        let answer = async {
            let response = request.timeout(ANSWER_LIMIT).send().await.ok()?;
            let status = response.status().as_u16();
            Some((status, response.json::<Value>().await.ok()?))
        };
        (answer.await, began)
    }

    fn note(&mut self, window: Window, answer: Option<(u16, &Value)>, began: Instant) {
        let outcome = match answer {
            Some((200 | 201, _)) => Outcome::Admitted,
            Some((429, body)) => {
                let of_day = match window {
                    Window::Address(_) => "client address",
                    Window::Voter(_) => "voter",
                };
                match throttle(body) {
                    Some((of, limit)) if of == of_day && limit == window.limit() => Outcome::Refused,
                    _ => Outcome::RefusedByOther,
                }
            }
            None | Some((503, _)) => Outcome::Unknown,
            Some((status, body)) => {
                let wrong = format!("an attempt in {window:?} was answered {status}: {body}");
                self.records.wrong_answers.push(wrong);
                return;
            }
        };
        self.records.attempts.entry(window).or_default().push(Attempt {
            outcome,
            began,
            ended: Instant::now(),
        });
    }
}

/// An address as a proxy names it.
fn address_of(number: u64) -> String {
    format!("192.0.2.{number}")
}

/// What a throttle counts by, and its limit: "This server takes 6 votes of one client address in …".
fn throttle(problem: &Value) -> Option<(&str, u64)> {
    let text = problem["hint"].as_str()?.strip_prefix("This server takes ")?;
    let (limit, rest) = text.split_once(" votes o")?;
    let (_, rest) = rest.split_once(" one ")?;
    let (of, _) = rest.split_once(" in ")?;
    Some((of, limit.parse().ok()?))
}
