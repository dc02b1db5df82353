//! Random short histories: the check must say of each what a search without any short cut says.

use std::collections::BTreeSet;
use std::time::Instant;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use testkit::linearizable::Specification;
use testkit::linearizable::items::{Item, State};

use super::*;

const HISTORIES: u64 = 10_000;
const OPERATIONS: usize = 7;
/// How many histories of each kind there must be, for the comparison to say something.
const OF_EACH_KIND: usize = 500;

/// All orders, one after the other.
struct AllOrders<'a> {
    item: &'a Item,
    history: &'a [ItemOperation],
    is_placed: Vec<bool>,
    /// Votes that were held and are not held any more.
    ended: BTreeSet<i64>,
}

impl AllOrders<'_> {
    fn has_one(&mut self, state: &State) -> bool {
        let open: Vec<usize> = (0..self.history.len())
            .filter(|at| !self.is_placed[*at])
            .collect();
        let answered = open.iter().filter(|at| self.history[**at].answer.is_some());
        let Some(limit) = answered.map(|at| self.history[*at].returned).min() else {
            return true;
        };
        open.into_iter().any(|at| {
            let Operation {
                request,
                answer,
                called,
                ..
            } = &self.history[at];
            let needs = answer.as_ref().and_then(|answer| self.item.needs(answer));
            if *called > limit || needs.is_some_and(|needs| self.ended.contains(&needs)) {
                return false;
            }
            let Some(after) = self.item.step(state, request, answer.as_ref()) else {
                return false;
            };
            let after = after.into_owned();
            let ends = self.item.ends(state, request);
            let is_first = ends.is_some_and(|ends| self.ended.insert(ends));
            self.is_placed[at] = true;
            let found = self.has_one(&after);
            self.is_placed[at] = false;
            if let Some(ends) = ends.filter(|_| is_first) {
                self.ended.remove(&ends);
            }
            found
        })
    }
}

/// The answer in a state, by trying all.
fn answer(item: &Item, state: &State, request: &Request, id: i64, held: &BTreeSet<i64>) -> Answer {
    let ids = held.iter().copied().chain([id]);
    let votes: Vec<Vote> = ids
        .flat_map(|id| [-1, 1].map(move |value| (id, value)))
        .flat_map(|(id, value)| {
            let numbers = (0..=OPERATIONS as i64).map(|number| Some(number).filter(|number| *number > 0));
            numbers.map(move |number| Vote {
                id: Some(id),
                value,
                number,
            })
        })
        .collect();
    let of_votes = votes.iter().flat_map(|cast| {
        [
            Answer::New(*cast),
            Answer::Changed(*cast),
            Answer::Repeated(*cast),
            Answer::Holds(*cast),
        ]
    });
    let others = [Answer::TakenBack, Answer::NothingHeld, Answer::Full];
    let is_new = |answer: &Answer| match answer {
        Answer::New(cast) | Answer::Changed(cast) => cast.id == Some(id),
        _ => true,
    };
    others
        .into_iter()
        .chain(of_votes)
        .filter(is_new)
        .find(|answer| item.step(state, request, Some(answer)).is_some())
        .expect("an answer")
}

/// A history that was so: requests took effect one after the other.
fn played(
    random: &mut StdRng,
    voters: u32,
    max_votes: Option<usize>,
    is_numbered: bool,
) -> Vec<ItemOperation> {
    let first = Instant::now();
    let item = Item::new(max_votes, is_numbered, &[]);
    let mut state = item.initial();
    let mut ids = BTreeSet::new();
    let mut history = Vec::new();
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
        let id = at as i64 + 1;
        let answer = answer(&item, &state, &request, id, &ids);
        ids.insert(id);
        state = item
            .step(&state, &request, Some(&answer))
            .expect("that answer")
            .into_owned();
        let effect = 100 * (at as u64 + 1);
        let (from, to) = (
            effect - random.random_range(0..100),
            effect + random.random_range(0..250),
        );
        let is_answered = wants == Wants::Read || random.random_bool(answered);
        history.push(operation(first, request, is_answered.then_some(answer), from, to));
    }
    history
}

/// Makes it another history, which was perhaps never so.
fn change(history: &mut [ItemOperation], random: &mut StdRng) {
    let [one, other] = [0, 1].map(|_| random.random_range(0..history.len()));
    match random.random_range(0..3) {
        // Two answers are mixed up.
        0 => {
            let answers = [one, other].map(|at| history[at].answer);
            (history[one].answer, history[other].answer) = (answers[1], answers[0]);
        }
        // It was asked at another time.
        1 => {
            let times = [one, other].map(|at| (history[at].called, history[at].returned));
            (history[one].called, history[one].returned) = times[1];
            (history[other].called, history[other].returned) = times[0];
        }
        // Another one asked.
        _ => history[one].request.voter = history[other].request.voter,
    }
}

#[test]
fn of_random_short_histories_it_says_what_all_orders_say() {
    let (mut possible, mut impossible) = (0, 0);
    for seed in 0..HISTORIES {
        let mut random = StdRng::seed_from_u64(seed);
        let max_votes = [None, Some(1), Some(2)][random.random_range(0..3)];
        let is_numbered = random.random_bool(0.5);
        let voters = random.random_range(1..=3);
        let mut history = played(&mut random, voters, max_votes, is_numbered);
        let was_so = random.random_bool(0.3);
        if !was_so {
            change(&mut history, &mut random);
        }
        let item = Item::new(max_votes, is_numbered, &history);
        let mut all = AllOrders {
            item: &item,
            history: &history,
            is_placed: vec![false; history.len()],
            ended: BTreeSet::new(),
        };
        let expected = all.has_one(&item.initial());
        for got in [
            check(&item, &history),
            items::check(max_votes, is_numbered, &history),
        ] {
            assert!(!matches!(got, Err(NoOrder::GivenUp { .. })), "seed {seed}");
            assert_eq!(got.is_ok(), expected, "seed {seed}: {got:?} of {history:#?}");
        }
        assert!(expected || !was_so, "seed {seed}: it was so: {history:#?}");
        *(if expected { &mut possible } else { &mut impossible }) += 1;
    }
    assert!(
        possible > OF_EACH_KIND && impossible > OF_EACH_KIND,
        "{possible} and {impossible}"
    );
}
