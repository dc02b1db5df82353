//! The check of answered counts (`testkit::answered_counts`), and that it can fail.

use std::time::{Duration, Instant};

use testkit::answered_counts::{Answer, Bounds, History, Vote};

use crate::helpers::tally::Tally;

/// A moment, so many milliseconds after a fixed one.
fn moments() -> impl Fn(u64) -> Instant {
    let first = Instant::now();
    move |at| first + Duration::from_millis(at)
}

fn bounds(lowest: i64, highest: i64) -> Bounds {
    Bounds { lowest, highest }
}

#[test]
fn a_count_may_have_what_was_sent_and_must_have_what_was_acknowledged() {
    let at = moments();
    let vote = |value, sent, acknowledged: Option<u64>| Vote {
        item: 1,
        value,
        sent: at(sent),
        acknowledged: acknowledged.map(&at),
    };
    let history = History::new([
        vote(1, 10, Some(20)),
        vote(1, 30, Some(50)),
        vote(-1, 35, Some(60)),
        vote(1, 40, None),
    ]);
    let read = |began, ended| Answer {
        item: 1,
        count: 0,
        began: at(began),
        ended: at(ended),
        own: 0,
    };
    for (answer, possible) in [
        (read(1, 10), bounds(0, 0)),
        (read(1, 11), bounds(0, 1)),
        (read(19, 25), bounds(0, 1)),
        (read(20, 25), bounds(1, 1)),
        (read(20, 36), bounds(0, 2)),
        (read(55, 58), bounds(1, 3)),
        // The last vote was never acknowledged. It may be stored at any later time.
        (read(70, 80), bounds(1, 2)),
    ] {
        assert_eq!(history.bounds(&answer), possible, "{answer:?}");
    }
    let other = Answer {
        item: 2,
        ..read(70, 80)
    };
    assert_eq!(history.bounds(&other), bounds(0, 0));
}

#[test]
fn an_answer_to_a_vote_has_that_vote_in_its_count() {
    let at = moments();
    for (own, possible) in [(1, bounds(1, 1)), (-1, bounds(-1, -1)), (0, bounds(0, 1))] {
        let value = if own == 0 { 1 } else { own };
        let history = History::new([Vote {
            item: 1,
            value,
            sent: at(10),
            acknowledged: Some(at(20)),
        }]);
        let answer = Answer {
            item: 1,
            count: own,
            began: at(10),
            ended: at(20),
            own,
        };
        assert_eq!(history.bounds(&answer), possible);
    }
}

#[test]
fn a_count_that_lost_a_vote_or_has_one_twice_lies_outside() {
    let at = moments();
    let history = History::new((0..3).map(|vote| Vote {
        item: 1,
        value: 1,
        sent: at(10 * vote),
        acknowledged: Some(at(10 * vote + 5)),
    }));
    let answers: Vec<Answer> = (0..6)
        .map(|count| Answer {
            item: 1,
            count,
            began: at(15),
            ended: at(19),
            own: 0,
        })
        .collect();
    let outside: Vec<i64> = history
        .outside(&answers)
        .map(|(answer, _)| answer.count)
        .collect();
    assert_eq!(outside, [0, 1, 3, 4, 5]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_count_that_was_changed_by_hand_lies_outside() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let sent = Instant::now();
    tally.add(item, 1).await;
    let vote = Vote {
        item: item.get(),
        value: 1,
        sent,
        acknowledged: Some(Instant::now()),
    };
    let history = History::new([vote]);
    let read = async || {
        let began = Instant::now();
        let (_, answer) = tally.get(&format!("/v1/items/{item}")).await;
        Answer {
            item: item.get(),
            count: answer["vote_count"].as_i64().expect("a count"),
            began,
            ended: Instant::now(),
            own: 0,
        }
    };
    assert_eq!(history.outside(&[read().await]).count(), 0);
    tally.change_counter(item, |parts| parts.count += 1).await;
    assert_eq!(history.outside(&[read().await]).count(), 1);
}
