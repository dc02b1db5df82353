//! Counts the kinds of answers: a draw that meets too few proves too little.

use std::collections::BTreeMap;

use serde_json::Value;

use super::draw::Request;
use super::voidings::Voiding;

/// Answers that must be met. Each stands for a part of the decisions.
const WANTED: &[&str] = &[
    "DELETE items votes: 200",
    "DELETE items votes: 200 repeated",
    "DELETE polls votes: 200",
    "GET items votes: 200",
    "GET items: 200",
    "GET polls votes: 200",
    "GET polls: 200",
    "GET votes: 200",
    "GET votes: unknown-vote",
    "PATCH items: 200",
    "PATCH items: invalid-value",
    "PATCH items: never-changes",
    "PATCH polls: 200",
    "PATCH polls: closed",
    "POST items ballots: 201",
    "POST items votes key: 200 repeated",
    "POST items votes key: 201",
    "POST items votes key: 201 repeated",
    "POST items votes key: key-reused",
    "POST items votes: 200 repeated",
    "POST items votes: 201",
    "POST items votes: ballot-missing",
    "POST items votes: ballot-not-taken",
    "POST items votes: ballot-not-valid",
    "any: closed",
    "POST items votes: full",
    "any: not-open-yet",
    "POST items votes: unknown-item",
    "POST items votes: value-not-taken",
    "POST items votes: voter-missing",
    "POST items: 200",
    "POST items: 201",
    "POST items: key-taken",
    "POST polls ballots: 201",
    "POST polls: 200",
    "POST polls: key-taken",
    "POST votes key: 200",
    "POST votes key: key-reused",
    "PUT items votes: 200",
    "PUT items votes: 200 repeated",
    "PUT items votes: 201",
    "PUT items votes: full",
    "PUT polls votes: 200",
    "PUT polls votes: 200 repeated",
    "PUT polls votes: not-in-poll",
    "PUT polls votes: too-many-choices",
    "of a batch key: 200 repeated",
    "of a batch key: 201",
    "of a batch key: 201 repeated",
    "of a batch: 200 repeated",
    "of a batch: 201",
    "of a batch: ballot-not-valid",
    "of a batch: full",
    "undone: some restored, none left",
    "undone: some restored, some left",
    "undone: none restored, some left",
    "voiding: none",
    "voiding: some",
];

/// How often each kind of request had each kind of answer.
#[derive(Debug, Default)]
pub struct Seen(BTreeMap<String, usize>);

impl Seen {
    fn add(&mut self, kind: String) {
        *self.0.entry(kind).or_default() += 1;
    }

    /// Counts what was asked and answered. Of a batch, it counts each vote.
    pub fn answer(&mut self, request: &Request, status: u16, answer: &Value) {
        let parts: Vec<&str> = request.path.split(['/', '?']).skip(2).collect();
        let path = match parts[..] {
            [of, _, part, ..] => format!("{of} {part}"),
            [of, ..] => of.to_owned(),
            [] => String::new(),
        };
        let key = if request.idempotency_key.is_some() {
            " key"
        } else {
            ""
        };
        let kind = format!("{} {path}{key}", request.method);
        self.add(format!("{kind}: {}", outcome(status, answer)));
        self.add(format!("any: {}", outcome(status, answer)));
        for result in answer["results"].as_array().into_iter().flatten() {
            let status = result["status"].as_u64().unwrap_or_default() as u16;
            self.add(format!("of a batch{key}: {}", outcome(status, result)));
        }
    }

    /// Counts voidings and undos by what became of their votes.
    pub fn void(&mut self, voidings: &[Voiding]) {
        for voiding in voidings {
            let has = |votes: usize| if votes > 0 { "some" } else { "none" };
            self.add(match voiding.undone {
                None => format!("voiding: {}", has(voiding.votes.len())),
                Some([restored, left]) => format!("undone: {} restored, {} left", has(restored), has(left)),
            });
        }
    }

    /// Wanted answers that were never met.
    pub fn missing(&self) -> Vec<&'static str> {
        let missing = WANTED.iter().filter(|kind| !self.0.contains_key(**kind));
        missing.copied().collect()
    }
}

fn outcome(status: u16, answer: &Value) -> String {
    match answer["type"].as_str() {
        Some(problem) => problem.trim_start_matches("/problems/").to_owned(),
        None if answer["repeated"] == true => format!("{status} repeated"),
        None => status.to_string(),
    }
}
