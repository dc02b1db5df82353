//! How events are delivered: in order, again after a failure, and given up at last.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use reqwest::StatusCode;
use serde_json::Value;
use tally::ledger::{EVENT_LIMIT_REFUSALS, Job, Role};
use testkit::receiver::{Answer, Delivery, Receiver};

use super::{KEY, execute, is_signed_by, let_try, make_events, number, numbers_of, want_events, webhook};
use crate::helpers::programs::{TALLY, command_as, run, text};
use crate::helpers::tally::Tally;

async fn deliver(tally: &Tally, receiver: &Receiver) -> usize {
    // Another client each time: this one does not pause after a failure.
    let webhook = webhook(receiver, KEY);
    tally.worker().deliver_events(&webhook).await.expect("a delivery")
}

/// Runs `tally event` with these arguments. Returns whether it succeeded, and its output.
async fn event_does(tally: &Tally, arguments: &[&str]) -> (bool, String) {
    let mut command = command_as(TALLY, Some((&tally.stores, Role::Operator)));
    command.arg("event").args(arguments);
    let output = run(command).await;
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    (output.status.success(), said)
}

#[tokio::test(flavor = "multi_thread")]
async fn events_about_the_same_are_delivered_in_order_while_the_receiver_fails_some() {
    const SUBJECTS: i32 = 7;
    const EACH: i32 = 12;
    let tally = Tally::start().await;
    want_events(&tally.pool).await;
    make_events(&tally.pool, SUBJECTS, EACH).await;
    // It takes an event at its first, second or third try.
    let receiver = Receiver::answering(|delivery, before| {
        let tries = before.iter().filter(|one| one.id() == delivery.id()).count();
        let wanted = delivery.id().bytes().map(usize::from).sum::<usize>() % 3;
        match (tries < wanted, tries % 3) {
            (false, _) => Answer::ok(),
            (true, 0) => Answer::Status(503, "retry-after: 1\r\n".to_owned()),
            (true, 1) => Answer::Status(404, String::new()),
            (true, _) => Answer::Status(302, "location: /elsewhere\r\n".to_owned()),
        }
    })
    .await;
    while number(&tally.pool, "delivered_at is null").await > 0 {
        let before = receiver.deliveries().len();
        deliver(&tally, &receiver).await;
        assert!(receiver.deliveries().len() > before, "it goes on");
        let_try(&tally.pool).await;
    }
    for subject in 1..=SUBJECTS {
        let numbers = numbers_of(&receiver, subject);
        assert_eq!(
            numbers,
            (1..=i64::from(EACH)).collect::<Vec<_>>(),
            "subject {subject}"
        );
    }
    // Each try of an event has the same id and the same bytes.
    let all = receiver.deliveries();
    for one in &all {
        let again = all.iter().filter(|other| other.id() == one.id());
        assert!(again.clone().all(|other| other.body == one.body), "{one:?}");
        assert!(is_signed_by(one, KEY));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_is_heeded_that_asks_for_time_and_no_redirect_is_followed() {
    let tally = Tally::start().await;
    want_events(&tally.pool).await;
    let elsewhere = Receiver::start().await;
    let location = format!("location: {}\r\n", elsewhere.url);
    let receiver = Receiver::answering(move |_, before| match before.len() {
        0 => Answer::Status(429, "retry-after: 1800\r\n".to_owned()),
        1 => Answer::Status(503, "retry-after: 999999\r\n".to_owned()),
        _ => Answer::Status(307, location.clone()),
    })
    .await;
    make_events(&tally.pool, 1, 1).await;
    for (least, most) in [(1790, 1800), (3590, 3600)] {
        assert_eq!(deliver(&tally, &receiver).await, 0);
        let condition = format!(
            "next_try_at - clock_timestamp() between interval '{least} seconds' and interval '{most} seconds'"
        );
        assert_eq!(number(&tally.pool, &condition).await, 1, "{condition}");
        assert_eq!(deliver(&tally, &receiver).await, 0);
        let_try(&tally.pool).await;
    }
    assert_eq!(deliver(&tally, &receiver).await, 0);
    assert_eq!(
        (receiver.deliveries().len(), elsewhere.deliveries().len()),
        (3, 0)
    );
    let (_, said) = event_does(&tally, &["list", "--waiting"]).await;
    assert!(
        said.contains("307") && said.contains("no redirect is followed"),
        "{said}"
    );
    // Whoever set the clock back does not wait for it to come round.
    execute(
        &tally.pool,
        "update event set next_try_at = clock_timestamp() + interval '1 year'",
    )
    .await;
    deliver(&tally, &receiver).await;
    assert_eq!(receiver.deliveries().len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_events_that_the_webhook_refuses_hold_up_no_other() {
    const REFUSED: i32 = 150;
    let tally = Tally::start().await;
    want_events(&tally.pool).await;
    let receiver = Receiver::answering(|delivery, _| match delivery.json()["data"]["subject"].as_i64() {
        Some(subject) if subject <= i64::from(REFUSED) => Answer::Status(400, String::new()),
        _ => Answer::ok(),
    })
    .await;
    make_events(&tally.pool, REFUSED + 1, 1).await;
    // A round of the webhook takes 100. Those that it refused are due again at once.
    assert_eq!(deliver(&tally, &receiver).await, 0);
    let_try(&tally.pool).await;
    assert_eq!(deliver(&tally, &receiver).await, 1);
    assert_eq!(numbers_of(&receiver, REFUSED + 1), [1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_often_or_not_taken_for_days_is_a_dead_letter_that_an_operator_sends_again() {
    let tally = Tally::start().await;
    want_events(&tally.pool).await;
    make_events(&tally.pool, 2, 2).await;
    // The first event of subject 1 is refused; that of subject 2 has no answer for days.
    let first = |delivery: &Delivery| {
        let data = delivery.json()["data"].clone();
        (data["subject"].as_i64(), data["number"].as_i64())
    };
    let is_mended = Arc::new(AtomicBool::new(false));
    let mended = is_mended.clone();
    let receiver =
        Receiver::answering(
            move |delivery, _| match (first(delivery), mended.load(Ordering::Relaxed)) {
                ((Some(1), Some(1)), false) => Answer::Status(410, String::new()),
                ((Some(2), Some(1)), false) => Answer::Status(500, String::new()),
                _ => Answer::ok(),
            },
        )
        .await;
    for tries in 1..=EVENT_LIMIT_REFUSALS {
        assert_eq!(
            number(&tally.pool, "dead_at is not null").await,
            0,
            "before try {tries}"
        );
        deliver(&tally, &receiver).await;
        let_try(&tally.pool).await;
    }
    assert_eq!(number(&tally.pool, "dead_at is not null").await, 1);
    execute(
        &tally.pool,
        "update event set first_tried_at = first_tried_at - interval '4 days'",
    )
    .await;
    deliver(&tally, &receiver).await;
    assert_eq!(number(&tally.pool, "dead_at is not null").await, 2);
    deliver(&tally, &receiver).await;
    assert_eq!(
        (numbers_of(&receiver, 1), numbers_of(&receiver, 2)),
        (vec![2], vec![2]),
        "later ones do not wait for a dead one"
    );

    let (done, said) = event_does(&tally, &["list", "--dead", "--json"]).await;
    assert!(done, "{said}");
    let dead: Vec<Value> = said
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect();
    assert_eq!(dead.len(), 2, "{said}");
    assert!(dead.iter().all(|one| one["state"] == "dead"), "{said}");
    assert!(
        said.contains("the webhook answered 410") && said.contains("answered 500"),
        "{said}"
    );
    let id = dead[0]["id"].to_string();
    let (done, said) = event_does(&tally, &["show", &id]).await;
    assert!(
        done && said.contains("dead_at") && said.contains("number 1"),
        "{said}"
    );
    is_mended.store(true, Ordering::Relaxed);
    let (done, said) = event_does(&tally, &["resend", "--dead"]).await;
    assert!(done && said.contains('2'), "{said}");
    assert_eq!(deliver(&tally, &receiver).await, 2);
    assert_eq!(numbers_of(&receiver, 1), [2, 1]);
    // Also one that was delivered: the receiver may have lost it. It has the same id.
    let (done, said) = event_does(&tally, &["resend", &id]).await;
    assert!(done, "{said}");
    assert_eq!(deliver(&tally, &receiver).await, 1);
    let all = receiver.deliveries();
    let last = all.last().expect("a delivery");
    assert!(all[..all.len() - 1].iter().any(|one| one.id() == last.id()));
    let (done, said) = event_does(&tally, &["resend", "999"]).await;
    assert!(!done && said.contains("there is no event 999"), "{said}");
    let acts: Vec<(String, String, Option<String>)> =
        sqlx::query_as("select what, outcome, target from act where what like 'event.%' order by id")
            .fetch_all(&tally.pool)
            .await
            .expect("Postgres answers");
    let act = |outcome: &str, target: Option<String>| ("event.resend".to_owned(), outcome.to_owned(), target);
    assert_eq!(
        acts,
        [
            act("done", None),
            act("done", Some(format!("event:{id}"))),
            act("refused", Some("event:999".to_owned()))
        ]
    );
    let (status, _) = tally.get("/health/ready").await;
    assert_eq!(status, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn old_events_are_deleted_and_those_that_wait_stay() {
    let tally = Tally::start().await;
    want_events(&tally.pool).await;
    make_events(&tally.pool, 4, 1).await;
    execute(
        &tally.pool,
        "update event set happened_at = now() - interval '1 year';
         update event set delivered_at = now() - interval '8 days' where subject = 'item:1';
         update event set delivered_at = now() - interval '6 days' where subject = 'item:2';
         update event set dead_at = now() - interval '31 days' where subject = 'item:3'",
    )
    .await;
    let lease = tally
        .ledger
        .take_job(Job::DeliverEvents)
        .await
        .expect("Postgres answers");
    let lease = lease.lease.expect("it is free");
    assert_eq!(
        tally.ledger.delete_old_events(&lease).await.expect("it is held"),
        (2, false)
    );
    assert_eq!(number(&tally.pool, "subject in ('item:2', 'item:4')").await, 2);
    let facts = tally.ledger.event_facts().await.expect("Postgres answers");
    assert_eq!((facts.waiting, facts.dead), (1, 0));
    assert!(facts.oldest_waiting.as_secs() > 364 * 86_400, "{facts:?}");
}
