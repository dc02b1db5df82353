//! Random short histories: the check must agree with a look at all orders.

use std::time::Instant;

use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use testkit::linearizable::polls::Choices;

use super::all_orders::{Item, choose, item_has_order, poll_has_order};
use super::*;

const HISTORIES: u64 = 10_000;
const OPERATIONS: usize = 7;
/// The fewest histories of each kind with which the comparison says something.
const OF_EACH_KIND: usize = 500;

/// When the request with this place in the order was called and returned.
fn times(at: usize, random: &mut StdRng) -> (u64, u64) {
    let effect = 100 * (at as u64 + 1);
    (
        effect - random.random_range(0..100),
        effect + random.random_range(0..250),
    )
}

/// A history that really happened, and what it stored.
/// Requests take effect one after the other. Some without an answer never do.
fn played(random: &mut StdRng, voters: u32, mut item: Item) -> (Vec<Effect>, Vec<ItemOperation>) {
    let first = Instant::now();
    let (mut effects, mut history) = (Vec::new(), Vec::new());
    let answered = random.random_range(0.3..1.0);
    for at in 0..OPERATIONS {
        let wants = [
            Wants::Cast(1),
            Wants::Cast(-1),
            Wants::Set(1),
            Wants::Set(-1),
            Wants::TakeBack,
            Wants::Read,
        ];
        let wants = *wants.choose(random).expect("a request");
        let is_anonymous = voters > 1 && matches!(wants, Wants::Cast(_)) && random.random_bool(0.1);
        let request = Request {
            voter: (!is_anonymous).then(|| random.random_range(0..voters)),
            wants,
        };
        let is_answered = wants == Wants::Read || random.random_bool(answered);
        let mut answer = None;
        if is_answered || random.random_bool(0.7) {
            let said = item.ask(request, at as i64 + 1);
            answer = is_answered.then_some(said);
            effects.extend(said.effect().map(|stored| Effect {
                voter: request.voter,
                stored,
            }));
        }
        let (from, to) = times(at, random);
        history.push(operation(first, request, answer, from, to));
    }
    (effects, history)
}

/// Changes a history, so that it perhaps never happened.
fn change<R, A: Clone>(history: &mut [Operation<R, A>], random: &mut StdRng) {
    let [one, other] = [0, 1].map(|_| random.random_range(0..history.len()));
    if random.random_bool(0.5) {
        // Two answers change places.
        let answers = [one, other].map(|at| history[at].answer.clone());
        let [of_one, of_other] = answers;
        (history[one].answer, history[other].answer) = (of_other, of_one);
    } else {
        // Two requests change times.
        let times = [one, other].map(|at| (history[at].called, history[at].returned));
        (history[one].called, history[one].returned) = times[1];
        (history[other].called, history[other].returned) = times[0];
    }
}

/// Changes what the ledger says.
fn tamper<T>(effects: &mut Vec<T>, random: &mut StdRng) {
    if effects.is_empty() || random.random_bool(0.5) {
        effects.shuffle(random);
    } else {
        effects.remove(random.random_range(0..effects.len()));
    }
}

/// How many histories were checked, and with which verdict.
#[derive(Debug, Default)]
struct Found {
    possible: usize,
    impossible: usize,
}

impl Found {
    fn note(&mut self, is_possible: bool) {
        *(if is_possible {
            &mut self.possible
        } else {
            &mut self.impossible
        }) += 1;
    }

    fn assert_enough(&self) {
        assert!(
            self.possible > OF_EACH_KIND && self.impossible > OF_EACH_KIND,
            "{self:?}"
        );
    }
}

#[test]
fn the_check_of_random_histories_of_an_item_agrees_with_all_orders() {
    let mut found = Found::default();
    for seed in 0..HISTORIES {
        let mut random = StdRng::seed_from_u64(seed);
        let max_votes = [None, Some(1), Some(2)][random.random_range(0..3)];
        let item = Item::new(max_votes, random.random_bool(0.5));
        let voters = random.random_range(1..=3);
        let (mut effects, mut history) = played(&mut random, voters, item.clone());
        let was_so = random.random_bool(0.3);
        match random.random_range(0..4) {
            _ if was_so => {}
            // Another voter sent the request.
            0 => {
                let [one, other] = [0, 1].map(|_| random.random_range(0..OPERATIONS));
                history[one].request.voter = history[other].request.voter;
            }
            1 => tamper(&mut effects, &mut random),
            _ => change(&mut history, &mut random),
        }
        let expected = item_has_order(&item, &effects, &history);
        let got = items::check(item.max_votes, item.is_numbered, &effects, &history);
        assert_eq!(
            got.is_ok(),
            expected,
            "seed {seed}: {got:?} of {effects:#?} {history:#?}"
        );
        assert!(expected || !was_so, "seed {seed}: it was so: {history:#?}");
        found.note(expected);
    }
    found.assert_enough();
}

#[test]
fn the_check_of_random_histories_in_a_poll_agrees_with_all_orders() {
    let mut found = Found::default();
    for seed in 0..HISTORIES {
        let mut random = StdRng::seed_from_u64(seed);
        let poll = Poll {
            max_choices: random.random_range(1..=2),
        };
        let answered = random.random_range(0.3..1.0);
        let first = Instant::now();
        let (mut changes, mut history) = (Vec::new(), Vec::new());
        let mut held = Choices::new();
        for at in 0..OPERATIONS {
            let choices: Choices = (1..=3).filter(|_| random.random_bool(0.4)).collect();
            let request = match random.random_range(0..4) {
                0 => polls::Request::Read,
                1 => polls::Request::Cast(random.random_range(1..=3)),
                _ => polls::Request::Select(choices),
            };
            let is_answered = request == polls::Request::Read || random.random_bool(answered);
            let mut answer = None;
            if is_answered || random.random_bool(0.7) {
                let (said, after) = choose(poll, &held, &request);
                held = after;
                if said == polls::Answer::Changed {
                    changes.push(held.clone());
                }
                answer = is_answered.then_some(said);
            }
            let (from, to) = times(at, &mut random);
            history.push(operation(first, request, answer, from, to));
        }
        let was_so = random.random_bool(0.3);
        if !was_so {
            if random.random_bool(0.3) {
                tamper(&mut changes, &mut random);
            } else {
                change(&mut history, &mut random);
            }
        }
        let expected = poll_has_order(poll, &changes, &history);
        let got = polls::check(&poll, &changes, &history);
        assert_eq!(
            got.is_ok(),
            expected,
            "seed {seed}: {got:?} of {changes:?} {history:#?}"
        );
        assert!(expected || !was_so, "seed {seed}: it was so: {history:#?}");
        found.note(expected);
    }
    found.assert_enough();
}
