//! One-choice polls: voters change their minds while a reader looks at the ledger.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use reqwest::StatusCode;
use testkit::linearizable::polls::{self, Answer, Choices, Poll, PollOperation};

use super::*;
use crate::rules::assert_rules_hold;

const VOTERS: usize = 100;
/// How often each voter moves in an ordinary run.
const MOVES: usize = 30;

/// What each voter asked and saw, and the answers.
type Histories = BTreeMap<usize, Vec<PollOperation>>;

/// How often each voter moves in this run.
fn moves() -> usize {
    std::env::var("TALLY_TEST_MOVES").ok().map_or(MOVES, |number| {
        number.parse().expect("TALLY_TEST_MOVES takes a number")
    })
}

struct OneChoice<'a> {
    pair: &'a Pair,
    id: i64,
    choices: Vec<i64>,
    is_over: AtomicBool,
}

impl<'a> OneChoice<'a> {
    async fn start(pair: &'a Pair) -> Self {
        let body = json!({ "title": "Lunch?", "choices": ["a", "b", "c"] });
        let (status, poll) = pair.tally.post("/v1/polls", &body).await;
        assert_eq!(status, StatusCode::CREATED, "{poll}");
        let choices = poll["choices"].as_array().expect("choices");
        let ids = choices.iter().filter_map(|choice| choice["item_id"].as_i64());
        Self {
            pair,
            id: poll["id"].as_i64().expect("an id"),
            choices: ids.collect(),
            is_over: AtomicBool::new(false),
        }
    }

    /// A client's request, for the history. Retries as [`Pair::ask`] does.
    async fn ask(&self, client: usize, voter: usize, request: polls::Request) -> PollOperation {
        let path = format!("/v1/polls/{}/votes/{}", self.id, name(voter as u32));
        let (method, path, body) = match &request {
            polls::Request::Select(choices) => (Method::PUT, path, Some(json!({ "items": choices }))),
            polls::Request::Cast(choice) => (
                Method::POST,
                format!("/v1/items/{choice}/votes"),
                Some(json!({ "voter_id": name(voter as u32) })),
            ),
            polls::Request::Read => (Method::GET, path, None),
        };
        self.pair
            .ask_until_known(
                client,
                method,
                &path,
                body.as_ref(),
                |answer, called, returned| {
                    let known = polls::outcome(&request, Some(answer))?;
                    Ok(known.operation(request.clone(), called, returned))
                },
            )
            .await
    }

    /// A voter's first choice, which must be stored.
    async fn choose(&self, voter: usize) -> Vec<PollOperation> {
        let first = polls::Request::Select([self.choices[0]].into());
        let mut asked = Vec::new();
        loop {
            asked.push(self.ask(voter, voter, first.clone()).await);
            if asked.last().is_some_and(|last| last.answer.is_some()) {
                return asked;
            }
        }
    }

    /// Two clients of each voter, one on each server, until the voter has moved enough.
    async fn move_all(&self, moves: usize) -> Histories {
        let clients = (0..CLIENTS).map(|client| async move {
            let voter = client / 2;
            let mut random = StdRng::seed_from_u64(client as u64);
            let mut asked = Vec::new();
            let mut moved = 0;
            while moved < moves.div_ceil(2) {
                let choice = self.choices[random.random_range(0..self.choices.len())];
                let request = match random.random_range(0..10) {
                    0 => polls::Request::Read,
                    1..=3 => polls::Request::Cast(choice),
                    _ => polls::Request::Select([choice].into()),
                };
                let operation = self.ask(client, voter, request).await;
                moved += usize::from(operation.answer == Some(Answer::Changed));
                asked.push(operation);
            }
            (voter, asked)
        });
        let mut histories = Histories::new();
        for (voter, asked) in join_all(clients).await {
            histories.entry(voter).or_default().extend(asked);
        }
        self.is_over.store(true, Ordering::Relaxed);
        histories
    }

    /// Reads the ledger again and again, each time in one snapshot.
    async fn watch(&self) -> Histories {
        let mut seen = Histories::new();
        let mut looks = 0_usize;
        while !self.is_over.load(Ordering::Relaxed) || looks == 0 {
            let called = Instant::now();
            let held: Vec<(String, Vec<i64>)> = sqlx::query_as(
                "select voter_id, coalesce(array_agg(item_id) filter (where votes > 0), '{}')
                 from (
                     select voter_id, item_id, sum(1 - 2 * (change_number % 2)) as votes
                     from vote where poll_id = $1 group by voter_id, item_id
                 ) as held
                 group by voter_id",
            )
            .bind(self.id)
            .fetch_all(&self.pair.tally.pool)
            .await
            .expect("Postgres answers");
            let returned = Instant::now();
            let mut held: BTreeMap<String, Vec<i64>> = held.into_iter().collect();
            assert_eq!(held.len(), VOTERS);
            for voter in 0..VOTERS {
                let choices = held.remove(&name(voter as u32)).expect("a voter");
                assert_eq!(choices.len(), 1, "voter {voter} holds {choices:?}");
                seen.entry(voter).or_default().push(Operation {
                    request: polls::Request::Read,
                    answer: Some(Answer::Holds(choices.into_iter().collect::<Choices>())),
                    called,
                    returned,
                });
            }
            looks += 1;
        }
        println!("{looks} looks at the ledger");
        seen
    }
}

/// `TALLY_TEST_MOVES` sets how often each voter moves.
/// 100 voters 1,000 times each: `TALLY_TEST_MOVES=1000 cargo nextest run --profile long no_reader_of_the_ledger`.
#[tokio::test(flavor = "multi_thread")]
async fn no_reader_of_the_ledger_ever_sees_a_voter_with_two_choices_or_with_none() {
    let pair = Pair::start().await;
    let poll = OneChoice::start(&pair).await;
    let firsts = join_all((0..VOTERS).map(|voter| poll.choose(voter))).await;
    let mut histories: Histories = firsts.into_iter().enumerate().collect();
    let (seen, asked) = tokio::join!(poll.watch(), poll.move_all(moves()));
    for (voter, history) in seen.into_iter().chain(asked) {
        histories.entry(voter).or_default().extend(history);
    }
    for (voter, history) in &mut histories {
        history.push(poll.ask(*voter, *voter, polls::Request::Read).await);
    }
    let stored = rows::of_items(&pair.tally.pool, &poll.choices)
        .await
        .expect("rows");
    for (voter, history) in &histories {
        let held = rows::of_poll(&stored, &poll.choices, *voter as u32);
        if let Err(why) = polls::check(&Poll { max_choices: 1 }, &held, history) {
            panic!("voter {voter}: {why}");
        }
    }
    let operations: usize = histories.values().map(Vec::len).sum();
    println!("{operations} operations");
    let (_, shown) = pair.tally.get(&format!("/v1/polls/{}", poll.id)).await;
    let choices = shown["choices"].as_array().expect("choices");
    let counts = choices.iter().filter_map(|choice| choice["vote_count"].as_i64());
    assert_eq!(
        (counts.sum::<i64>(), &shown["voter_count"]),
        (VOTERS as i64, &json!(VOTERS))
    );
    assert_rules_hold(&pair.tally.pool).await;
    for choice in &poll.choices {
        let choice = ItemId::new(*choice).expect("positive");
        pair.tally.assert_exact_when_quiescent(choice).await;
    }
}
