//! Random sequences of all requests and voidings, against a small model in memory.
//! After each step the answer and the ledger must be as in the model. Now and then, live and saved
//! counts must be, too.

mod answers;
mod batches;
mod deciding;
mod draw;
mod edits;
mod ledger;
mod making;
mod model;
mod reads;
mod requests;
mod seen;
mod voidings;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use reqwest::Method;
use serde_json::Value;

use self::draw::{Draw, Request, Target};
use self::making::{NewItem, NewPoll};
use self::model::{Ballot, Model, Rule, Time};
use self::seen::Seen;
use self::voidings::{Filter, Operator};
use super::assert_rules_hold;
use crate::helpers::eventually;
use crate::helpers::tally::Tally;

/// How many sequences an ordinary run plays, with the seeds 0, 1 and so on.
const SEQUENCES: u64 = 4;
const REQUESTS: usize = 400;
/// How many ballots each item or poll that takes ballots has at the beginning.
const FIRST_BALLOTS: usize = 5;
/// After this many requests, all live counts are compared.
const COMPARE_LIVE_EVERY: usize = 10;
/// After this many requests, all saved counts and polls are compared.
const COMPARE_ALL_EVERY: usize = 50;

/// `TALLY_TEST_SEQUENCES` sets how many sequences run.
/// `TALLY_TEST_SEQUENCE` plays the one with this seed.
#[tokio::test(flavor = "multi_thread")]
async fn every_sequence_of_requests_is_answered_and_counted_as_a_small_model_says() {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .map(|text| text.parse().expect("a number"))
    };
    let seeds = match number("TALLY_TEST_SEQUENCE") {
        Some(seed) => seed..seed + 1,
        None => 0..number("TALLY_TEST_SEQUENCES").unwrap_or(SEQUENCES),
    };
    let is_whole = seeds.start == 0 && seeds.end >= SEQUENCES;
    let mut seen = Seen::default();
    for seed in seeds {
        let (step, ended) = play(seed, &mut seen).await;
        if let Err(why) = ended {
            panic!("seed {seed}, request {step}: {why}");
        }
    }
    if is_whole {
        let missing = seen.missing();
        assert!(
            missing.is_empty(),
            "the sequences never met {missing:?}, but {seen:#?}"
        );
    }
}

/// Plays the sequence of a seed. Returns how far it got.
async fn play(seed: u64, seen: &mut Seen) -> (usize, Result<(), String>) {
    // In half of the sequences, the first vote on a key creates its item.
    let creates_items = seed % 2 == 1;
    let tally = if creates_items {
        Tally::start_creating_items().await
    } else {
        Tally::start().await
    };
    let mut sequence = Sequence {
        other: tally.another_server().await,
        operator: Operator::of(&tally).await,
        draw: Draw {
            random: StdRng::seed_from_u64(seed),
            model: Model::default(),
            creates_items,
            sent: Vec::new(),
            new_keys: 0,
        },
        filters: Vec::new(),
        tally,
    };
    if let Err(why) = sequence.begin(seen).await {
        return (0, Err(why));
    }
    for step in 1..=REQUESTS {
        if let Err(why) = sequence.step(step, seen).await {
            return (step, Err(why));
        }
    }
    (REQUESTS, Ok(()))
}

struct Sequence {
    tally: Tally,
    /// The second server.
    other: String,
    operator: Operator,
    draw: Draw,
    /// The filters of earlier voidings.
    filters: Vec<Filter>,
}

impl Sequence {
    /// Makes an item or a poll of each kind.
    async fn begin(&mut self, seen: &mut Seen) -> Result<(), String> {
        let with_rule = |rule: Rule| NewItem {
            rule,
            ..NewItem::plain("x", None)
        };
        let limited = NewItem {
            max_votes: Some(3),
            is_numbered: true,
            ..NewItem::plain("x", Some("seats"))
        };
        let opened = Rule {
            opens_at: Some(Time::Past),
            ..Rule::default()
        };
        let by_ballot = Rule {
            by_ballot: true,
            ..Rule::default()
        };
        let items = [
            NewItem::plain("x", Some("post/1 é")),
            NewItem {
                takes_down_votes: false,
                ..NewItem::plain("likes", None)
            },
            limited.clone(),
            NewItem {
                takes_down_votes: false,
                key: None,
                max_votes: Some(2),
                ..limited.clone()
            },
            NewItem {
                key: Some("opened".to_owned()),
                ..with_rule(opened)
            },
            NewItem {
                rule: by_ballot.clone(),
                key: None,
                ..limited
            },
        ];
        for item in &items {
            let request = self.draw.make_item_of(item);
            self.play(request, seen).await?;
        }
        let secret = Rule {
            is_secret: true,
            ..by_ballot.clone()
        };
        let closing = Rule {
            closes_at: Some(Time::Future),
            ..Rule::default()
        };
        let polls = [
            NewPoll {
                key: Some("lunch".to_owned()),
                ..NewPoll::with(Some(1), Rule::default())
            },
            NewPoll::with(Some(2), Rule::default()),
            NewPoll {
                choices: 2,
                ..NewPoll::with(Some(1), by_ballot)
            },
            NewPoll {
                choices: 2,
                key: Some("board".to_owned()),
                ..NewPoll::with(Some(1), secret)
            },
            NewPoll {
                shows_results: false,
                key: Some("hidden".to_owned()),
                ..NewPoll::with(None, closing)
            },
        ];
        for poll in &polls {
            let request = self.draw.make_poll_of(poll);
            self.play(request, seen).await?;
        }
        let model = &self.draw.model;
        let takes_ballots = |rule: usize| model.rules[rule].by_ballot;
        let items = (0..model.items.len()).filter(|at| {
            let item = &model.items[*at];
            item.poll.is_none() && item.rule.is_some_and(takes_ballots)
        });
        let polls = (0..model.polls.len()).filter(|at| takes_ballots(model.polls[*at].rule));
        let items = items.map(|at| ("items", Target::of_id(Some(at), model.items[at].id)));
        let polls = polls.map(|at| ("polls", Target::of_id(Some(at), model.polls[at].id)));
        for (kind, target) in items.chain(polls).collect::<Vec<_>>() {
            let request = self.draw.make_ballots_of(kind, &target, FIRST_BALLOTS, None);
            self.play(request, seen).await?;
        }
        Ok(())
    }

    /// A request or a voiding, and the comparisons after it.
    async fn step(&mut self, step: usize, seen: &mut Seen) -> Result<(), String> {
        let request = match self.draw.random.random_range(0..100) {
            0..26 => self.draw.post(),
            26..34 => self.draw.post_again(),
            34..52 => self.draw.set(),
            52..61 => self.draw.select(),
            61..70 => self.draw.batch(),
            70..75 => self.draw.make_ballots(),
            75..83 => self.draw.read(),
            83..85 => self.draw.make_item(),
            85 => self.draw.make_poll(),
            86..90 => self.draw.edit_item(),
            90..93 => self.draw.edit_poll(),
            _ => {
                self.void(seen).await?;
                return self.compare(step).await;
            }
        };
        self.play(request, seen).await?;
        self.compare(step).await
    }

    /// Sends a request. Its answer and its rows must be as in the model.
    async fn play(&mut self, request: Request, seen: &mut Seen) -> Result<(), String> {
        let base = if request.to_other {
            &self.other
        } else {
            &self.tally.base
        };
        let mut sending = self
            .tally
            .http
            .request(request.method.clone(), format!("{base}{}", request.path));
        if let Some(body) = &request.body {
            sending = sending.json(body);
        }
        if let Some(key) = &request.idempotency_key {
            sending = sending.header("Idempotency-Key", key);
        }
        let is_read = request.method == Method::GET;
        let (status, answer) = eventually("the answer has live counts", async || {
            let response = sending.try_clone()?.send().await.expect("an answer");
            let status = response.status().as_u16();
            let answer: Value = response.json().await.expect("JSON");
            (!is_read || ledger::is_current(&answer)).then_some((status, answer))
        })
        .await;
        seen.answer(&request, status, &answer);
        let model = &mut self.draw.model;
        let judged = match ledger::learn(&self.tally, model).await {
            Ok(()) => model.difference(&request.expected, status, &answer),
            // If the answer is wrong, too, its difference says more.
            Err(why) if status == request.expected.status => Err(why),
            Err(why) => model.difference(&request.expected, status, &answer).and(Err(why)),
        };
        judged.map_err(|why| {
            let body = request.body.unwrap_or_default();
            let key = request
                .idempotency_key
                .map_or(String::new(), |key| format!(" Idempotency-Key: {key}"));
            let server = if request.to_other {
                " to the second server"
            } else {
                ""
            };
            format!("{} {} {body}{key}{server}: {why}", request.method, request.path)
        })?;
        if let Some((rule, is_expired)) = request.ballots {
            let made: Vec<String> = serde_json::from_value(answer["ballots"].clone()).expect("ballots");
            let ballot = |token| Ballot {
                token,
                rule,
                is_expired,
                spent: None,
            };
            model.ballots.extend(made.into_iter().map(ballot));
        }
        Ok(())
    }

    /// Voids some votes, voids the same ones again, or undoes a voiding.
    async fn void(&mut self, seen: &mut Seen) -> Result<(), String> {
        let draw = &mut self.draw;
        let (what, ended) = if !draw.model.voidings.is_empty() && draw.one_in(2) {
            let last = draw.model.voidings.len() - 1;
            let at = if draw.one_in(2) {
                last
            } else {
                draw.random.random_range(0..=last)
            };
            (
                format!("undo of voiding {}", at + 1),
                self.operator.undo(&mut draw.model, at).await,
            )
        } else {
            let filter = match self.filters.last() {
                Some(last) if draw.one_in(5) => last.clone(),
                _ => draw.filter(),
            };
            self.filters.push(filter.clone());
            (
                format!("voiding of {filter:?}"),
                self.operator.void(&mut draw.model, &filter).await,
            )
        };
        seen.void(&draw.model.voidings);
        let ended = ended.and(ledger::learn(&self.tally, &mut draw.model).await);
        ended.map_err(|why| format!("{what}: {why}"))
    }

    async fn compare(&mut self, step: usize) -> Result<(), String> {
        let model = &self.draw.model;
        ledger::compare_kept(&self.tally, model).await?;
        if step.is_multiple_of(COMPARE_LIVE_EVERY) {
            ledger::compare_shown(&self.tally, model).await?;
        }
        if step.is_multiple_of(COMPARE_ALL_EVERY) {
            ledger::compare_all(&self.tally, model).await?;
            assert_rules_hold(&self.tally.pool).await;
        }
        if step == REQUESTS / 2 {
            // Saved counts are exact here. So no count is wrong without Redis.
            let mut redis = self.tally.stores.redis_connection().await;
            let () = redis::cmd("FLUSHALL")
                .query_async(&mut redis)
                .await
                .expect("Redis answers");
        }
        Ok(())
    }
}
