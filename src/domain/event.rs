//! Events that a backend would otherwise poll for, as a webhook gets them.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use serde_json::Value;

use super::{Moment, id};

/// The most thresholds.
const THRESHOLDS_LIMIT: usize = 20;

/// An event's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct EventId(pub i64);

impl fmt::Display for EventId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// Accepts what [`super::ItemId`] accepts.
impl FromStr for EventId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        id::parse(text).map(Self)
    }
}

/// The counts of an item at which an event is made, in their order, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thresholds(Vec<i64>);

impl Thresholds {
    /// The counts.
    pub fn as_slice(&self) -> &[i64] {
        &self.0
    }
}

/// Reads positive numbers that are separated by commas. An empty text is none.
impl FromStr for Thresholds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.is_empty() {
            return Ok(Self::default());
        }
        let numbers: Result<Vec<i64>, ()> = text.split(',').map(|one| id::parse(one.trim())).collect();
        let mut numbers = numbers
            .ok()
            .filter(|numbers| numbers.len() <= THRESHOLDS_LIMIT)
            .ok_or_else(|| {
                format!(
                    "it takes up to {THRESHOLDS_LIMIT} positive numbers, separated by commas, like 100,1000"
                )
            })?;
        numbers.sort_unstable();
        numbers.dedup();
        Ok(Self(numbers))
    }
}

impl fmt::Display for Thresholds {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        formatter.write_str(&numbers.join(","))
    }
}

/// Where an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EventState {
    /// It is to be delivered, or delivered again.
    Waiting,
    Delivered,
    /// A worker gave it up: a dead letter.
    Dead,
}

impl EventState {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Delivered => "delivered",
            Self::Dead => "dead",
        }
    }
}

/// An event, and how far its delivery is.
#[derive(Clone, Debug, Serialize)]
pub struct Event {
    pub id: EventId,
    /// What the webhook calls it.
    pub message_id: String,
    pub kind: String,
    /// What it is about: `item:5`.
    pub subject: String,
    pub happened_at: Moment,
    pub state: EventState,
    /// How often it was sent without success, since it was made or sent again by an operator.
    pub tries: i32,
    /// Not before then; `None`: it does not wait.
    pub next_try_at: Option<Moment>,
    pub delivered_at: Option<Moment>,
    pub dead_at: Option<Moment>,
    /// Why the last try failed.
    pub last_problem: Option<String>,
    /// What the webhook is sent as `data`.
    pub data: Value,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_positive_numbers_each_once_and_in_order() {
        let read = |text: &str| text.parse::<Thresholds>().map(|read| read.to_string());
        assert_eq!(read(""), Ok(String::new()));
        assert_eq!(read("1000, 100,100"), Ok("100,1000".to_owned()));
        let many = vec!["1"; THRESHOLDS_LIMIT + 1].join(",");
        for wrong in ["0", "-1", "1,", "1;2", "ten", &many] {
            let error = read(wrong).expect_err("no thresholds");
            assert!(error.contains("like 100,1000"), "{error}");
        }
    }
}
