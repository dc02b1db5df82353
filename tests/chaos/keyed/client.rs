//! One client: which keys it names, and what it records.

use std::time::{Duration, Instant};

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::sleep;

use super::{ANSWER_LIMIT, Acknowledged, Cast, FINISH_LIMIT, KeyedRecords, Keys, PREFIX};
use crate::asking::ask;
use crate::pause::Pause;

/// The part of all turns that reads an item.
const READ: f64 = 0.2;
/// The part of all votes on a key that nobody has named before.
const NEW: f64 = 0.45;
/// The part of all votes that repeats an earlier one.
const AGAIN: f64 = 0.15;
/// The part of all votes that is anonymous.
const ANONYMOUS: f64 = 0.2;
/// The part of all turns that sends several votes in one request, and how many at most.
const BATCH: f64 = 0.3;
const BATCH_LIMIT_VOTES: usize = 4;
/// Votes go to the newest keys: these are lost with a primary.
const NEWEST: usize = 60;

/// What a client knows of a vote from an answer.
enum Outcome {
    Acknowledged {
        vote: i64,
        item: i64,
    },
    /// Certainly not stored.
    Refused,
    NotFound,
    Unknown,
}

pub(super) struct KeyedClient {
    pub number: u64,
    pub keys: Keys,
    pub servers: Vec<String>,
    pub random: StdRng,
    pub http: reqwest::Client,
    pub over: watch::Receiver<bool>,
    pub pause: Pause,
    pub records: KeyedRecords,
}

impl KeyedClient {
    pub async fn run(mut self) -> KeyedRecords {
        while !*self.over.borrow() {
            let busy = self.pause.go_on().await;
            if self.random.random_bool(READ) {
                self.read().await;
            } else {
                let votes = if self.random.random_bool(BATCH) {
                    self.random.random_range(2..=BATCH_LIMIT_VOTES)
                } else {
                    1
                };
                let mut casts: Vec<usize> = (0..votes).map(|_| self.next()).collect();
                // Twice in one request, a vote would be answered twice.
                casts.sort_unstable();
                casts.dedup();
                self.cast(&casts).await;
            }
            drop(busy);
            sleep(Duration::from_millis(self.random.random_range(0..8))).await;
        }
        self.finish().await;
        self.records
    }

    fn server(&mut self) -> String {
        self.servers.choose(&mut self.random).cloned().unwrap_or_default()
    }

    /// One of the newest keys, if there is one.
    fn known_key(&mut self) -> Option<String> {
        let random = &mut self.random;
        self.keys.with(|keys| {
            let newest = &keys[keys.len().saturating_sub(NEWEST)..];
            newest.choose(random).cloned()
        })
    }

    /// The place of the vote that is sent next.
    fn next(&mut self) -> usize {
        let at = self.records.casts.len();
        if at > 0 && self.random.random_bool(AGAIN) {
            let again = self.random.random_range(at.saturating_sub(NEWEST)..at);
            if self.records.casts[again].voter.is_some() {
                return again;
            }
        }
        let known = if self.random.random_bool(NEW) {
            None
        } else {
            self.known_key()
        };
        let key = known.unwrap_or_else(|| {
            let key = format!("{PREFIX}{}-{at}", self.number);
            self.keys.with(|keys| keys.push(key.clone()));
            key
        });
        // The voter's name has the key, so that a row on another item shows it.
        let is_anonymous = self.random.random_bool(ANONYMOUS);
        let voter = (!is_anonymous).then(|| format!("{key}-by-{}-{at}", self.number));
        let value = if self.random.random_bool(0.2) { -1 } else { 1 };
        self.records.casts.push(Cast {
            key,
            voter,
            value,
            requests: 0,
            acknowledged: Vec::new(),
        });
        at
    }

    /// Sends these votes in one request.
    async fn cast(&mut self, casts: &[usize]) {
        let server = self.server();
        let votes: Vec<Value> = casts
            .iter()
            .map(|at| {
                let Cast {
                    key, voter, value, ..
                } = &self.records.casts[*at];
                json!({ "item_id": format!("key:{key}"), "voter_id": voter, "value": value })
            })
            .collect();
        let (url, body) = match (casts, votes.as_slice()) {
            ([at], [vote]) => {
                let mut body = vote.clone();
                body.as_object_mut().expect("an object").remove("item_id");
                let key = &self.records.casts[*at].key;
                (format!("{server}/v1/items/key:{key}/votes"), body)
            }
            _ => (format!("{server}/v1/votes"), json!({ "votes": votes })),
        };
        // Whoever gives up early leaves votes behind that may still be stored.
        let limit = Duration::from_millis(self.random.random_range(200..3000));
        let asked = ask(&self.http, Method::POST, url, &body, limit).await;
        for (place, at) in casts.iter().enumerate() {
            let answer = match asked.answer() {
                Some((200, body)) if casts.len() > 1 => {
                    let result = &body["results"][place];
                    let status = result["status"].as_u64();
                    Some((
                        status.and_then(|status| u16::try_from(status).ok()).unwrap_or(0),
                        result,
                    ))
                }
                answer => answer,
            };
            match outcome(answer, &self.records.casts[*at]) {
                Ok(outcome) => self.note(*at, &outcome, asked.called),
                Err(wrong) => self.records.wrong_answers.push(wrong),
            }
        }
    }

    fn note(&mut self, at: usize, outcome: &Outcome, began: Instant) {
        let cast = &mut self.records.casts[at];
        cast.requests += u64::from(!matches!(outcome, Outcome::Refused | Outcome::NotFound));
        match *outcome {
            Outcome::Acknowledged { vote, item } => {
                cast.acknowledged.push(Acknowledged { vote, item, began });
            }
            Outcome::NotFound => self.records.not_found += 1,
            Outcome::Refused | Outcome::Unknown => {}
        }
    }

    /// Reads an item by its key.
    async fn read(&mut self) {
        let Some(key) = self.known_key() else { return };
        let url = format!("{}/v1/items/key:{key}", self.server());
        let asked = ask(&self.http, Method::GET, url, &Value::Null, ANSWER_LIMIT).await;
        match asked.answer() {
            Some((200, body)) if body["key"] == key => self.records.reads += 1,
            Some((404, _)) => self.records.not_found += 1,
            None | Some((503, _)) => {}
            answer => {
                let wrong = format!("a read of key {key} was answered {answer:?}");
                self.records.wrong_answers.push(wrong);
            }
        }
    }

    /// Repeats the votes that are not acknowledged, now that everything works again.
    async fn finish(&mut self) {
        let ends = Instant::now() + FINISH_LIMIT;
        let is_open = |cast: &Cast| cast.voter.is_some() && cast.acknowledged.is_empty();
        for at in 0..self.records.casts.len() {
            while is_open(&self.records.casts[at]) {
                if Instant::now() > ends {
                    let why = format!(
                        "never acknowledged, though all was repaired: {:?}",
                        self.records.casts[at]
                    );
                    self.records.wrong_answers.push(why);
                    return;
                }
                self.cast(&[at]).await;
                if is_open(&self.records.casts[at]) {
                    sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }
}

/// # Errors
/// The answer, if no such vote may have it.
fn outcome(answer: Option<(u16, &Value)>, cast: &Cast) -> Result<Outcome, String> {
    let Some((status, body)) = answer else {
        return Ok(Outcome::Unknown);
    };
    let voter = cast.voter.as_ref().map_or(Value::Null, |voter| json!(voter));
    let is_this = body["voter_id"] == voter && body["value"] == cast.value;
    let known = match (status, body["vote_id"].as_i64(), body["item_id"].as_i64()) {
        (200 | 201, Some(vote), Some(item)) if is_this => Some(Outcome::Acknowledged { vote, item }),
        (429, ..) => Some(Outcome::Refused),
        (404, ..) => Some(Outcome::NotFound),
        (503, ..) if body["stored"] == "no" => Some(Outcome::Refused),
        (503, ..) => Some(Outcome::Unknown),
        _ => None,
    };
    known.ok_or_else(|| format!("{cast:?} was answered {status}: {body}"))
}
