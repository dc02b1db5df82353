//! Long histories, like those of the races, with some 200 requests at once.
//! The check finds one wrong answer in them without trying all orders.

use std::collections::BTreeMap;
use std::time::Instant;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;
use Answer::{Changed, Full, Holds, New, NothingHeld, Repeated, TakenBack};

/// What is stored for these answers, in this order.
fn effects(history: &[ItemOperation]) -> Vec<Effect> {
    let stored = history.iter().filter_map(|operation| {
        Some(Effect {
            voter: operation.request.voter,
            stored: operation.answer?.effect()?,
        })
    });
    stored.collect()
}

#[test]
fn numbers_of_many_voters_are_checked_and_two_that_are_mixed_up_are_found() {
    const VOTERS: u64 = 200;
    const ROUNDS: u64 = 50;
    let first = Instant::now();
    // The requests of a round are under way at once. They take effect in another order than they
    // return in.
    let mut history: Vec<ItemOperation> = Vec::new();
    for round in 0..ROUNDS {
        for voter in 0..VOTERS {
            let number = (round * VOTERS + (voter * 7) % VOTERS + 1) as i64;
            let value = if round % 2 == 0 { 1 } else { -1 };
            let cast = Vote {
                number: Some(number),
                ..vote(number, value)
            };
            let request = Request {
                voter: Some(voter as u32),
                wants: Wants::Set(value),
            };
            let answer = if round == 0 { New(cast) } else { Changed(cast) };
            let from = 1000 * round + voter;
            history.push(operation(first, request, Some(answer), from, from + 600));
        }
    }
    let mut effects = effects(&history);
    effects.sort_by_key(|effect| effect.stored.id());
    items::check(None, true, &effects, &history).expect("it was so");
    // The two answers came seconds apart.
    let answers = [3000, 3600].map(|at| history[at].answer);
    (history[3000].answer, history[3600].answer) = (answers[1], answers[0]);
    assert!(items::check(None, true, &effects, &history).is_err());
}

/// A history of one voter that really happened.
/// Requests take effect one after the other, 10 ms apart. Each is called and answered up to this
/// long before and after.
fn of_one_voter(spread_ms: u64) -> Vec<ItemOperation> {
    const REQUESTS: i64 = 1000;
    let first = Instant::now();
    let mut random = StdRng::seed_from_u64(0);
    let mut history: Vec<ItemOperation> = Vec::new();
    let mut held: Option<Vote> = None;
    for id in 1..=REQUESTS {
        let value = if random.random_bool(0.5) { 1 } else { -1 };
        let (wants, answer) = match (random.random_range(0..3), held) {
            (0, None) => (Wants::Read, NothingHeld),
            (0, Some(held)) => (Wants::Read, Holds(held)),
            (1, None) => (Wants::TakeBack, NothingHeld),
            (1, Some(_)) => (Wants::TakeBack, TakenBack(id)),
            (_, None) => (Wants::Set(value), New(vote(id, value))),
            (_, Some(held)) => (Wants::Set(-held.value), Changed(vote(id, -held.value))),
        };
        held = match answer {
            TakenBack(_) => None,
            _ => answer.stored().or(held),
        };
        let effect = 10 * id as u64 + spread_ms;
        let request = Request {
            voter: Some(0),
            wants,
        };
        let (from, to) = (
            effect - random.random_range(0..spread_ms),
            effect + random.random_range(0..spread_ms),
        );
        history.push(operation(first, request, Some(answer), from, to));
    }
    history
}

fn assert_wrong(effects: &[Effect], history: &[ItemOperation]) {
    items::check(None, false, effects, history).expect_err("it was not so");
}

#[test]
fn one_voters_requests_are_checked_and_a_stale_read_among_them_is_found() {
    let mut history = of_one_voter(1000);
    let effects = effects(&history);
    items::check(None, false, &effects, &history).expect("it was so");
    let reads = history.iter().enumerate();
    let reads = reads.filter(|(_, operation)| matches!(operation.answer, Some(Holds(_))));
    let reads: Vec<usize> = reads.map(|(at, _)| at).collect();
    let (early, late) = (reads[reads.len() / 4], reads[reads.len() / 2]);
    history[late].answer = history[early].answer;
    assert_wrong(&effects, &history);
}

#[test]
fn a_retraction_that_is_lost_among_one_voters_requests_is_found() {
    let mut history = of_one_voter(100);
    let all = effects(&history);
    let is_retraction = |operation: &ItemOperation| matches!(operation.answer, Some(TakenBack(_)));
    history.remove(history.iter().rposition(is_retraction).expect("a retraction"));
    assert_wrong(&all, &history);
    // It does not help if the ledger lacks the vote.
    let effects = effects(&history);
    assert_wrong(&effects, &history);
}

#[test]
fn a_long_history_of_one_voter_that_was_not_so_is_found_though_requests_in_it_were_never_answered() {
    let mut history = of_one_voter(100);
    let effects = effects(&history);
    for (at, operation) in history.iter_mut().enumerate() {
        if at % 50 == 0 {
            operation.answer = None;
        }
    }
    items::check(None, false, &effects, &history).expect("it was so");
    // A read at the end shows a vote that was changed or retracted long before.
    let is_change = |operation: &&ItemOperation| matches!(operation.answer, Some(Changed(_)));
    let changes: Vec<_> = history.iter().filter(is_change).collect();
    let early = changes[changes.len() / 4]
        .answer
        .and_then(|answer| answer.stored());
    let last = history
        .iter_mut()
        .rev()
        .find(|operation| matches!(operation.answer, Some(Holds(_))));
    last.expect("a read").answer = early.map(Holds);
    assert_wrong(&effects, &history);
}

/// A history as in chaos that really happened.
/// Six clients have five voters each, and an item has 20 numbered places. At times nothing is
/// answered: a request then takes effect up to a second later, or never.
fn under_faults(seed: u64) -> (Vec<Effect>, Vec<ItemOperation>) {
    const REQUESTS: u64 = 100;
    const PLACES: usize = 20;
    let first = Instant::now();
    let mut random = StdRng::seed_from_u64(seed);
    // When it takes effect, the request, its call, and its return.
    let mut asked: Vec<(u64, Request, u64, Option<u64>)> = Vec::new();
    for client in 0..6 {
        let mut now = 0;
        for _ in 0..REQUESTS {
            let is_fault = now % 2000 > 1400;
            let called = now + random.random_range(1..20);
            let is_read = random.random_bool(0.25);
            let voter = if is_read {
                random.random_range(0..30)
            } else {
                client * 5 + random.random_range(0..5)
            };
            let wants = match random.random_range(0..10) {
                _ if is_read => Wants::Read,
                0..4 => Wants::TakeBack,
                _ => Wants::Cast(1),
            };
            let request = Request {
                voter: Some(voter),
                wants,
            };
            now = called + random.random_range(5..60);
            if !is_fault {
                asked.push((random.random_range(called..now), request, called, Some(now)));
            } else if !is_read {
                let effect = random.random_bool(0.5);
                let effect = if effect {
                    called + random.random_range(0..1000)
                } else {
                    u64::MAX
                };
                asked.push((effect, request, called, None));
            }
        }
    }
    asked.sort_by_key(|(effect, ..)| *effect);
    let mut held: BTreeMap<u32, Vote> = BTreeMap::new();
    let mut number = 0;
    let end = 2 * asked
        .iter()
        .filter_map(|(.., returned)| *returned)
        .max()
        .unwrap_or_default();
    let last = (0..30).map(|voter| {
        let request = Request {
            voter: Some(voter),
            wants: Wants::Read,
        };
        (end, request, end, Some(end))
    });
    asked.retain(|(effect, _, _, returned)| *effect < end || returned.is_none());
    let at = asked.partition_point(|(effect, ..)| *effect < end);
    asked.splice(at..at, last);
    let mut history = Vec::new();
    let mut effects = Vec::new();
    for (row, (effect, request, called, returned)) in (100_000..).zip(asked) {
        let voter = request.voter.unwrap_or_default();
        let answer = match (request.wants, held.get(&voter).copied()) {
            _ if effect == u64::MAX => Full,
            (Wants::Read, Some(cast)) => Holds(cast),
            (Wants::TakeBack, Some(_)) => {
                held.remove(&voter);
                TakenBack(row)
            }
            (Wants::Read | Wants::TakeBack, None) => NothingHeld,
            (_, Some(cast)) => Repeated(cast),
            (_, None) if held.len() == PLACES => Full,
            (_, None) => {
                number += 1;
                let cast = Vote {
                    number: Some(number),
                    ..vote(1000 + number, 1)
                };
                held.insert(voter, cast);
                New(cast)
            }
        };
        effects.extend(answer.effect().map(|stored| Effect {
            voter: request.voter,
            stored,
        }));
        let answer = returned.map(|_| answer);
        history.push(operation(
            first,
            request,
            answer,
            called,
            returned.unwrap_or(called),
        ));
    }
    (effects, history)
}

#[test]
fn a_limited_item_is_checked_though_many_requests_were_never_answered() {
    for seed in 0..4 {
        let (effects, mut history) = under_faults(seed);
        let unanswered = history
            .iter()
            .filter(|operation| operation.answer.is_none())
            .count();
        assert!(unanswered > 50, "{unanswered}");
        let checked = items::check(Some(20), true, &effects, &history);
        checked.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        // Two voters had a place at once, or a request that was never sent had an effect.
        assert!(items::check(Some(19), true, &effects, &history).is_err());
        let is_lost = |operation: &ItemOperation| operation.answer.is_none();
        let voter = history[history.iter().position(is_lost).expect("one")]
            .request
            .voter;
        history.retain(|operation| !is_lost(operation) || operation.request.voter != voter);
        let had_effect = effects.iter().any(|effect| {
            effect.voter == voter
                && !history
                    .iter()
                    .any(|operation| operation.answer.and_then(Answer::effect) == Some(effect.stored))
        });
        assert_eq!(
            items::check(Some(20), true, &effects, &history).is_err(),
            had_effect,
            "seed {seed}"
        );
    }
}
