//! Many clients on two servers: their answers must be linearizable.

mod choices;
mod places;
mod voters;

use std::time::Instant;

use futures_util::future::join_all;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use reqwest::Method;
use serde_json::{Value, json};
use tally::domain::ItemId;
use testkit::linearizable::items::{self, Answer, ItemOperation, Request, Vote, Wants};
use testkit::linearizable::{Operation, rows};

use crate::helpers::tally::Tally;

const CLIENTS: usize = 200;
/// The most tries of a request that certainly had no effect.
const ATTEMPTS_LIMIT: usize = 50;

/// A Tally with two servers.
struct Pair {
    tally: Tally,
    other: String,
}

impl Pair {
    async fn start() -> Self {
        let tally = Tally::start().await;
        let other = tally.another_server().await;
        Self { tally, other }
    }

    /// Half of the clients ask each server.
    fn server(&self, client: usize) -> &str {
        if client.is_multiple_of(2) {
            &self.tally.base
        } else {
            &self.other
        }
    }

    /// A client's request on an item, for the history.
    /// The client retries while the request certainly had no effect, as on a busy machine.
    async fn ask(&self, client: usize, item: ItemId, request: Request) -> ItemOperation {
        let votes = format!("/v1/items/{item}/votes");
        let of_voter = || format!("{votes}/{}", name(request.voter.expect("a voter")));
        let (method, path, body) = match request.wants {
            Wants::Cast(value) => {
                let voter = request.voter.map(name);
                let body = json!({ "voter_id": voter, "value": value });
                (Method::POST, votes.clone(), Some(body))
            }
            Wants::Set(value) => (Method::PUT, of_voter(), Some(json!({ "value": value }))),
            Wants::TakeBack => (Method::DELETE, of_voter(), None),
            Wants::Read => (Method::GET, of_voter(), None),
        };
        self.ask_until_known(
            client,
            method,
            &path,
            body.as_ref(),
            |answer, called, returned| {
                let known = items::outcome(request.wants, Some(answer))?;
                Ok(known.operation(request, called, returned))
            },
        )
        .await
    }

    /// Sends a request until it had, or may have had, an effect.
    /// `known` makes an operation of its answer.
    async fn ask_until_known<R, A>(
        &self,
        client: usize,
        method: Method,
        path: &str,
        body: Option<&Value>,
        known: impl Fn((u16, &Value), Instant, Instant) -> Result<Option<Operation<R, A>>, String>,
    ) -> Operation<R, A> {
        for _ in 0..ATTEMPTS_LIMIT {
            let called = Instant::now();
            let server = self.server(client);
            let (status, answer) = self.tally.send_to(server, method.clone(), path, body).await;
            match known((status.as_u16(), &answer), called, Instant::now()) {
                Ok(Some(operation)) => return operation,
                Ok(None) => {}
                Err(wrong) => panic!("{method} {path}: {wrong}"),
            }
        }
        panic!("{method} {path} was refused {ATTEMPTS_LIMIT} times");
    }

    /// Checks that an item's history fits what the ledger says happened.
    /// The item has a rule.
    async fn assert_linearizable(
        &self,
        item: ItemId,
        max_votes: Option<usize>,
        is_numbered: bool,
        history: &[ItemOperation],
    ) {
        let item = item.get();
        let stored = rows::of_items(&self.tally.pool, &[item]).await.expect("rows");
        let effects = rows::of_item(&stored, item);
        let checked = items::check(max_votes, is_numbered, &effects, history);
        checked.unwrap_or_else(|why| panic!("item {item}: {why}"));
    }

    /// All clients at once send this many requests each, one after the other.
    async fn race(
        &self,
        item: ItemId,
        seed: u64,
        requests: usize,
        request: impl Fn(usize, &mut StdRng) -> Request,
    ) -> Vec<ItemOperation> {
        let request = &request;
        let clients = (0..CLIENTS).map(|client| async move {
            let mut random = StdRng::seed_from_u64(seed << 32 | client as u64);
            let mut asked = Vec::new();
            for _ in 0..requests {
                let request = request(client, &mut random);
                asked.push(self.ask(client, item, request).await);
            }
            asked
        });
        join_all(clients).await.concat()
    }
}

fn name(voter: u32) -> String {
    format!("voter-{voter}")
}

/// A change, a retraction, a vote or a read by this voter.
fn any(voter: u32, random: &mut StdRng) -> Request {
    let value = if random.random_bool(0.5) { 1 } else { -1 };
    let wants = match random.random_range(0..10) {
        0..=2 => Wants::Set(value),
        3..=4 => Wants::TakeBack,
        5..=6 => Wants::Cast(value),
        _ => Wants::Read,
    };
    Request {
        voter: Some(voter),
        wants,
    }
}

/// How many requests may or may not have taken effect. A busy machine has some.
fn unanswered(history: &[ItemOperation]) -> usize {
    history
        .iter()
        .filter(|operation| operation.answer.is_none())
        .count()
}

/// The votes that were stored, in the order of their numbers.
fn stored(history: &[ItemOperation]) -> Vec<Vote> {
    let answers = history.iter().filter_map(|operation| operation.answer);
    let mut votes: Vec<Vote> = answers.filter_map(Answer::stored).collect();
    votes.sort_by_key(|cast| cast.number);
    votes
}

/// Checks that stored votes have the numbers 1, 2, 3 and so on.
/// Unanswered requests may have the missing ones.
fn assert_without_a_gap(history: &[ItemOperation]) {
    let numbers: Vec<i64> = stored(history).iter().filter_map(|cast| cast.number).collect();
    assert!(numbers.windows(2).all(|two| two[0] < two[1]), "{numbers:?}");
    let most = (numbers.len() + unanswered(history)) as i64;
    assert!(
        numbers.first() >= Some(&1) && numbers.last() <= Some(&most),
        "{numbers:?}"
    );
}
