//! The state that draws requests: random numbers, the model, and targets.

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use reqwest::Method;
use serde_json::{Value, json};

use super::answers::Expected;
use super::model::{ItemAt, Model, VOTERS};
use super::requests::Sent;

/// An id that no item and no poll has.
pub const UNKNOWN_ID: i64 = 999_999;
/// How many items and polls a sequence begins with. Requests prefer these.
const FIRST_ITEMS: usize = 19;
const FIRST_POLLS: usize = 5;

/// A request, and what its answer must be.
pub struct Request {
    /// Whether it goes to the second server.
    /// Only votes do: another server shows an edit later.
    pub to_other: bool,
    pub method: Method,
    pub path: String,
    pub body: Option<Value>,
    pub idempotency_key: Option<String>,
    pub expected: Expected,
    /// The rule whose ballots are in the answer, and whether these have expired.
    pub ballots: Option<(usize, bool)>,
}

impl Request {
    pub fn new(method: Method, path: String, body: Option<Value>, expected: Expected) -> Self {
        Self {
            to_other: false,
            method,
            path,
            body,
            idempotency_key: None,
            expected,
            ballots: None,
        }
    }
}

/// What names an item or a poll in a request.
#[derive(Clone, Debug)]
pub struct Target {
    /// `None`: it did not exist when the request was drawn.
    pub at: Option<usize>,
    pub key: Option<String>,
    /// Its name in a path, and in a body.
    pub path: String,
    pub json: Value,
}

impl Target {
    pub fn of_id(at: Option<usize>, id: i64) -> Self {
        Self {
            at,
            key: None,
            path: id.to_string(),
            json: json!(id),
        }
    }

    fn of_key(at: Option<usize>, key: &str) -> Self {
        let encoded = key.bytes().map(|byte| match byte {
            byte if byte.is_ascii_alphanumeric() || byte == b'-' => char::from(byte).to_string(),
            byte => format!("%{byte:02X}"),
        });
        let path = format!("key:{}", encoded.collect::<String>());
        Self {
            at,
            key: Some(key.to_owned()),
            path,
            json: json!(format!("key:{key}")),
        }
    }
}

/// Draws requests, and plays each in the model.
pub struct Draw {
    pub random: StdRng,
    pub model: Model,
    /// Whether a vote on an unknown key creates an item on the first server.
    pub creates_items: bool,
    pub sent: Vec<Sent>,
    /// How many keys were made up so far.
    pub new_keys: usize,
}

impl Draw {
    pub fn one_in(&mut self, times: u32) -> bool {
        self.random.random_ratio(1, times)
    }

    pub fn any<T: Clone>(&mut self, among: &[T]) -> T {
        among.choose(&mut self.random).expect("one of them").clone()
    }

    pub fn voter(&mut self) -> &'static str {
        self.any(&VOTERS)
    }

    pub fn new_key(&mut self) -> String {
        self.new_keys += 1;
        format!("new/é {}", self.new_keys)
    }

    /// An item by its id or key; now and then one that does not exist.
    pub fn item(&mut self) -> Target {
        match self.random.random_range(0..40) {
            0 => return Target::of_id(None, UNKNOWN_ID),
            1 => {
                let key = self.new_key();
                return Target::of_key(None, &key);
            }
            _ => {}
        }
        let at = self.known_item();
        self.reference(at)
    }

    /// Mostly one of the first items, so that requests meet, or one that may be full.
    pub fn known_item(&mut self) -> ItemAt {
        let total = self.model.items.len();
        let limited = (0..total.min(FIRST_ITEMS)).filter(|at| self.model.items[*at].max_votes.is_some());
        let limited: Vec<ItemAt> = limited.collect();
        if self.one_in(4) && !limited.is_empty() {
            return self.any(&limited);
        }
        let among = if self.one_in(4) {
            total
        } else {
            total.min(FIRST_ITEMS)
        };
        self.random.random_range(0..among)
    }

    pub fn reference(&mut self, at: ItemAt) -> Target {
        let item = self.model.items[at].clone();
        match item.key {
            Some(key) if self.one_in(2) => Target::of_key(Some(at), &key),
            _ => Target::of_id(Some(at), item.id),
        }
    }

    pub fn poll(&mut self) -> Target {
        match self.random.random_range(0..40) {
            0 => return Target::of_id(None, UNKNOWN_ID),
            1 => return Target::of_key(None, "unknown"),
            _ => {}
        }
        let total = self.model.polls.len();
        let among = if self.one_in(4) {
            total
        } else {
            total.min(FIRST_POLLS)
        };
        let at = self.random.random_range(0..among);
        let poll = self.model.polls[at].clone();
        match poll.key {
            Some(key) if self.one_in(2) => Target::of_key(Some(at), &key),
            _ => Target::of_id(Some(at), poll.id),
        }
    }
}
