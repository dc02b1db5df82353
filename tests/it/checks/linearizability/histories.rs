//! Histories by hand: some that may be, and each kind that may not be.

use std::time::Instant;

use super::*;

/// The row of a request without an answer, or whose answer names no row.
const FIRST_ROW: i64 = 1000;

/// A line of an item's history: voter, request, answer, call and return.
type Line = (u32, Wants, Option<Answer>, u64, u64);

fn history(lines: &[Line]) -> Vec<ItemOperation> {
    let first = Instant::now();
    let operations = lines
        .iter()
        .enumerate()
        .map(|(at, (voter, wants, answer, from, to))| {
            let request = Request {
                voter: Some(*voter),
                wants: *wants,
            };
            let answer = match answer {
                Some(TakenBack(_)) => Some(TakenBack(FIRST_ROW + at as i64)),
                other => *other,
            };
            operation(first, request, answer, *from, *to)
        });
    operations.collect()
}

/// What this request may have stored, if its vote has one of these ids.
fn possible(at: usize, request: Request, unknown: &[i64]) -> Vec<Stored> {
    let row = FIRST_ROW + at as i64;
    let ids = unknown.iter().copied().chain([row]);
    match request.wants {
        Wants::Read => Vec::new(),
        Wants::TakeBack => vec![Stored::TakenBack(row)],
        Wants::Cast(value) => ids.map(|id| Stored::New(vote(id, value))).collect(),
        Wants::Set(value) => ids
            .flat_map(|id| [Stored::New(vote(id, value)), Stored::Changed(vote(id, value))])
            .collect(),
    }
}

/// All that the ledger could say happened, in all orders.
/// The answered requests, and some of the unanswered ones.
fn ledgers(is_numbered: bool, history: &[ItemOperation]) -> Vec<Vec<Effect>> {
    let answers = || history.iter().filter_map(|operation| operation.answer);
    let stored: Vec<i64> = answers()
        .filter_map(|answer| answer.effect())
        .map(Stored::id)
        .collect();
    let found = answers().filter_map(|answer| match answer {
        Repeated(vote) | Holds(vote) => Some(vote.id),
        _ => None,
    });
    let unknown: Vec<i64> = found.filter(|id| !stored.contains(id)).collect();
    let mut sets: Vec<Vec<Effect>> = vec![Vec::new()];
    for (at, operation) in history.iter().enumerate() {
        let of = |stored: Stored| Effect {
            voter: operation.request.voter,
            stored,
        };
        let known = operation.answer.map(|answer| answer.effect());
        let ways: Vec<Option<Stored>> = match known {
            Some(stored) => vec![stored],
            None => {
                let stored = possible(at, operation.request, &unknown).into_iter();
                stored.map(Some).chain([None]).collect()
            }
        };
        sets = sets
            .iter()
            .flat_map(|set| {
                ways.iter()
                    .map(|way| set.iter().copied().chain(way.map(of)).collect())
            })
            .collect();
    }
    let orders = sets.into_iter().flat_map(|set| {
        let mut orders = vec![Vec::new()];
        for effect in set {
            orders = orders
                .iter()
                .flat_map(|order: &Vec<Effect>| {
                    (0..=order.len()).map(|at| {
                        let mut order = order.clone();
                        order.insert(at, effect);
                        order
                    })
                })
                .collect();
        }
        orders
    });
    // An unanswered request gets the next number.
    let orders = orders.map(|mut order| {
        let mut number = 0;
        for effect in &mut order {
            if let Stored::New(vote) | Stored::Changed(vote) = &mut effect.stored {
                number += i64::from(is_numbered);
                if is_numbered && vote.number.is_none() && !stored.contains(&vote.id) {
                    vote.number = Some(number);
                }
            }
        }
        order
    });
    orders.collect()
}

/// Whether a history of an item is linearizable for some ledger.
fn may_be(max_votes: Option<usize>, is_numbered: bool, lines: &[Line]) -> bool {
    let history = history(lines);
    let ledgers = ledgers(is_numbered, &history);
    ledgers
        .iter()
        .any(|effects| items::check(max_votes, is_numbered, effects, &history).is_ok())
}

use Answer::{Changed, Full, Holds, New, NothingHeld, Repeated, TakenBack};
use Wants::{Cast, Read, Set, TakeBack};

fn new(id: i64, value: i64) -> Option<Answer> {
    Some(New(vote(id, value)))
}

fn numbered(id: i64, number: i64) -> Option<Answer> {
    Some(New(Vote {
        number: Some(number),
        ..vote(id, 1)
    }))
}

#[test]
fn requests_at_once_take_effect_in_either_order_and_a_read_sees_old_or_new() {
    let set = (1, Set(-1), Some(Changed(vote(2, -1))), 20, 40);
    let cast = (1, Cast(1), new(1, 1), 0, 10);
    for (id, value) in [(1, 1), (2, -1)] {
        let read = (1, Read, Some(Holds(vote(id, value))), 25, 30);
        assert!(may_be(None, false, &[cast, set, read]));
    }
    for (first, second) in [(New as fn(_) -> _, Changed as fn(_) -> _), (Changed, New)] {
        let one = (1, Set(1), Some(first(vote(1, 1))), 0, 10);
        let other = (1, Set(-1), Some(second(vote(2, -1))), 5, 15);
        assert!(may_be(None, false, &[one, other]));
        assert!(!may_be(
            None,
            false,
            &[
                (one.0, one.1, new(1, 1), 0, 10),
                (other.0, other.1, new(2, -1), 5, 15)
            ]
        ));
    }
}

#[test]
fn a_request_without_an_answer_takes_effect_once_or_never_however_late() {
    let cast = (1, Cast(1), new(1, 1), 0, 10);
    let lost = (1, TakeBack, None, 20, 30);
    let found = |from| (1, Read, Some(Holds(vote(1, 1))), from, from + 5);
    let nothing = |from| (1, Read, Some(NothingHeld), from, from + 5);
    assert!(may_be(None, false, &[cast, lost, found(40)]));
    assert!(may_be(None, false, &[cast, lost, nothing(40)]));
    assert!(may_be(None, false, &[cast, lost, found(40), nothing(900)]));
    assert!(!may_be(None, false, &[cast, lost, nothing(40), found(50)]));
    // It takes effect once, after its call, and is none of the answered votes.
    let again = (1, Cast(1), new(2, 1), 50, 60);
    assert!(!may_be(
        None,
        false,
        &[cast, lost, nothing(40), again, nothing(70)]
    ));
    assert!(!may_be(None, false, &[cast, nothing(12), lost]));
    let lost_vote = (1, Cast(1), None, 20, 30);
    let taken_back = (1, TakeBack, Some(TakenBack(0)), 12, 15);
    let other = (1, Read, Some(Holds(vote(7, 1))), 40, 45);
    assert!(may_be(None, false, &[cast, taken_back, lost_vote, other]));
    assert!(!may_be(None, false, &[cast, taken_back, lost_vote, found(40)]));
}

#[test]
fn a_lost_update_is_found() {
    let first = (1, Set(1), new(1, 1), 0, 10);
    // Both changed the first vote.
    let second = (1, Set(-1), Some(Changed(vote(2, -1))), 20, 30);
    let third = (1, TakeBack, Some(TakenBack(0)), 20, 30);
    let fourth = (1, Set(1), Some(Changed(vote(3, 1))), 40, 50);
    assert!(may_be(None, false, &[first, second, fourth]));
    assert!(!may_be(None, false, &[first, second, third, fourth]));
    let read = (1, Read, Some(Holds(vote(1, 1))), 60, 70);
    assert!(!may_be(None, false, &[first, second, read]));
}

#[test]
fn a_stale_read_and_a_repeat_of_what_is_gone_are_found() {
    let cast = (1, Cast(1), new(1, 1), 0, 10);
    let set = (1, Set(-1), Some(Changed(vote(2, -1))), 20, 60);
    let read = |id, value, from| (1, Read, Some(Holds(vote(id, value))), from, from + 5);
    assert!(may_be(None, false, &[cast, set, read(1, 1, 25), read(2, -1, 35)]));
    // First the new value and then the old one, though the change is not yet answered.
    assert!(!may_be(
        None,
        false,
        &[cast, set, read(2, -1, 25), read(1, 1, 35)]
    ));
    assert!(!may_be(None, false, &[cast, set, read(1, 1, 70)]));
    let repeat = |id, value, from| (1, Cast(1), Some(Repeated(vote(id, value))), from, from + 5);
    assert!(may_be(None, false, &[cast, set, repeat(2, -1, 70)]));
    assert!(!may_be(None, false, &[cast, set, repeat(1, 1, 70)]));
    // The read names a vote with another value.
    assert!(!may_be(None, false, &[cast, read(1, -1, 20)]));
}

#[test]
fn an_effect_that_comes_twice_is_found() {
    let cast = (1, Cast(1), new(1, 1), 0, 10);
    let set = (1, Set(-1), Some(Changed(vote(4, -1))), 20, 90);
    let back = (1, Set(1), Some(Changed(vote(3, 1))), 35, 40);
    let read = |id, value, from| (1, Read, Some(Holds(vote(id, value))), from, from + 5);
    assert!(may_be(None, false, &[cast, set, back, read(3, 1, 50)]));
    let twice = [cast, set, back, read(2, -1, 30), read(3, 1, 50), read(4, -1, 70)];
    assert!(!may_be(None, false, &twice));
}

#[test]
fn one_place_that_is_given_to_two_is_found_and_a_refusal_while_one_is_free() {
    let one = (1, Cast(1), new(1, 1), 0, 10);
    let other = (2, Cast(1), new(2, 1), 5, 15);
    let full = (2, Cast(1), Some(Full), 5, 15);
    assert!(may_be(Some(2), false, &[one, other]));
    assert!(!may_be(Some(1), false, &[one, other]));
    assert!(may_be(Some(1), false, &[one, full]));
    assert!(!may_be(Some(2), false, &[one, full]));
    let back = (1, TakeBack, Some(TakenBack(0)), 12, 20);
    assert!(may_be(Some(1), false, &[one, other, back]));
    // The place was free again before the refused one asked.
    assert!(!may_be(
        Some(1),
        false,
        &[one, back, (2, Cast(1), Some(Full), 25, 30)]
    ));
    // A voter with a place is not refused.
    assert!(!may_be(Some(1), false, &[one, (1, Cast(1), Some(Full), 25, 30)]));
    // An unanswered request may have a place, but only one.
    let lost = (3, Cast(1), None, 0, 5);
    assert!(may_be(
        Some(2),
        false,
        &[one, lost, (2, Cast(1), Some(Full), 25, 30)]
    ));
    assert!(!may_be(
        Some(3),
        false,
        &[one, lost, (2, Cast(1), Some(Full), 25, 30)]
    ));
}

#[test]
fn a_number_that_is_given_twice_left_out_or_out_of_order_is_found() {
    let grant = |voter, number, from| {
        (
            voter,
            Cast(1),
            numbered(i64::from(voter), number),
            from,
            from + 10,
        )
    };
    assert!(may_be(
        None,
        true,
        &[grant(1, 1, 0), grant(2, 2, 20), grant(3, 3, 25)]
    ));
    assert!(may_be(None, true, &[grant(1, 2, 0), grant(2, 1, 5)]));
    assert!(!may_be(None, true, &[grant(1, 2, 0), grant(2, 1, 20)]));
    assert!(!may_be(None, true, &[grant(1, 1, 0), grant(2, 1, 5)]));
    assert!(!may_be(None, true, &[grant(1, 1, 0), grant(2, 3, 20)]));
    let lost = (3, Cast(1), None, 5, 6);
    assert!(may_be(None, true, &[grant(1, 1, 0), lost, grant(2, 3, 20)]));
    assert!(!may_be(None, true, &[grant(1, 1, 0), lost, grant(2, 4, 20)]));
    // A change gets a number of its own.
    let change = |number, from| {
        let cast = Vote {
            number: Some(number),
            ..vote(9, -1)
        };
        (1, Set(-1), Some(Changed(cast)), from, from + 10)
    };
    assert!(may_be(
        None,
        true,
        &[grant(1, 1, 0), change(2, 20), grant(2, 3, 40)]
    ));
    assert!(!may_be(None, true, &[grant(1, 1, 0), change(1, 20)]));
}

/// Whether a history in a one-choice poll may be, if the voter held this.
fn poll(held: &[&[i64]], lines: &[(polls::Request, Option<polls::Answer>, u64, u64)]) -> bool {
    let first = Instant::now();
    let lines = lines.iter().cloned();
    let history: Vec<PollOperation> = lines
        .map(|(request, answer, from, to)| operation(first, request, answer, from, to))
        .collect();
    let held: Vec<polls::Choices> = held
        .iter()
        .map(|choices| choices.iter().copied().collect())
        .collect();
    polls::check(&Poll { max_choices: 1 }, &held, &history).is_ok()
}

#[test]
fn a_read_of_two_choices_or_of_none_is_found() {
    use polls::Answer::{Changed, Holds, TooManyChoices};
    use polls::Request::{Cast, Read, Select};
    let select = |choice, from, to| (Select([choice].into()), Some(Changed), from, to);
    let read = |choices: &[i64], from, to| {
        let choices = choices.iter().copied().collect();
        (Read, Some(Holds(choices)), from, to)
    };
    let first = select(1, 0, 10);
    let moved: &[&[i64]] = &[&[1], &[2]];
    for request in [select(2, 20, 40), (Cast(2), Some(Changed), 20, 40)] {
        for choices in [[1], [2]] {
            assert!(poll(
                moved,
                &[first.clone(), request.clone(), read(&choices, 25, 30)]
            ));
        }
        for choices in [vec![1, 2], vec![], vec![3]] {
            assert!(!poll(
                moved,
                &[first.clone(), request.clone(), read(&choices, 25, 30)]
            ));
        }
        let back = [
            first.clone(),
            request.clone(),
            read(&[2], 25, 30),
            read(&[1], 32, 35),
        ];
        assert!(!poll(moved, &back), "back again");
        // The ledger has it in another order, once more, or not at all.
        for held in [
            &[&[2][..], &[1]][..],
            &[&[1], &[2], &[1]],
            &[&[1]],
            &[&[1], &[1, 2]],
        ] {
            assert!(!poll(held, &[first.clone(), request.clone()]), "{held:?}");
        }
        let lost = (request.0.clone(), None, 20, 40);
        assert!(poll(
            moved,
            &[
                first.clone(),
                lost.clone(),
                read(&[1], 50, 60),
                read(&[2], 70, 80)
            ]
        ));
        assert!(
            !poll(moved, &[first.clone(), read(&[2], 15, 18), lost.clone()]),
            "before its call"
        );
        assert!(poll(&[&[1]], &[first.clone(), lost.clone(), read(&[1], 50, 60)]));
        assert!(
            !poll(&[&[1], &[3]], &[first.clone(), lost]),
            "nobody asked for it"
        );
    }
    let none = (Select([].into()), Some(Changed), 20, 40);
    assert!(poll(&[&[1], &[]], &[first.clone(), none, read(&[], 25, 30)]));
    let both = |answer| (Select([1, 2].into()), Some(answer), 20, 40);
    let one: &[&[i64]] = &[&[1]];
    assert!(poll(
        one,
        &[first.clone(), both(TooManyChoices), read(&[1], 50, 60)]
    ));
    assert!(!poll(one, &[first.clone(), both(Changed)]));
    assert!(!poll(&[&[1], &[1, 2]], &[first, both(Changed)]));
}

#[test]
fn a_failure_says_which_answer_was_never_right() {
    let lines = [
        (1, Cast(1), new(1, 1), 0, 10),
        (1, Read, Some(NothingHeld), 20, 30),
    ];
    let history = history(&lines);
    let effects = [Effect {
        voter: Some(1),
        stored: Stored::New(vote(1, 1)),
    }];
    let failure = items::check(None, false, &effects, &history)
        .expect_err("a stale read")
        .to_string();
    for part in ["at no time was this the right answer", "Read", "NothingHeld"] {
        assert!(failure.contains(part), "{part} is not in: {failure}");
    }
}

#[test]
fn a_row_that_nobody_asked_for_and_an_answer_without_a_row_are_found() {
    let cast = (1, Cast(1), new(1, 1), 0, 10);
    let history = history(&[cast]);
    let effect = |voter, stored| Effect {
        voter: Some(voter),
        stored,
    };
    let right = effect(1, Stored::New(vote(1, 1)));
    items::check(None, false, &[right], &history).expect("it was so");
    let wrong: [&[Effect]; 6] = [
        &[],
        &[effect(2, Stored::New(vote(1, 1)))],
        &[effect(1, Stored::New(vote(1, -1)))],
        &[right, effect(2, Stored::New(vote(2, 1)))],
        &[right, effect(1, Stored::TakenBack(2))],
        &[right, right],
    ];
    for effects in wrong {
        assert!(
            items::check(None, false, effects, &history).is_err(),
            "{effects:?}"
        );
    }
}
