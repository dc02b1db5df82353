//! What fails while events are delivered: workers that are killed, several at once, a receiver that hangs.

use std::collections::HashSet;

use testkit::receiver::{Answer, Delivery, Receiver};

use super::super::jobs::run_out;
use super::{KEY, let_try, make_events, number, numbers_of, want_events, webhook, worker_for};
use crate::helpers::eventually;
use crate::helpers::stores::{blocker, until_blocked};
use crate::helpers::tally::Tally;

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_was_delivered_and_not_noted_is_delivered_again_with_the_same_id() {
    let tally = Tally::start().await;
    want_events(&tally.pool).await;
    make_events(&tally.pool, 1, 3).await;
    let receiver = Receiver::start().await;
    // Nobody can note that an event is delivered.
    let blocked = blocker(&tally.pool, "select from event order by id limit 1 for update").await;
    let mut worker = worker_for(&receiver, &tally.stores, "worker", &[]);
    eventually("it is delivered", async || {
        (!receiver.deliveries().is_empty()).then_some(())
    })
    .await;
    until_blocked(&tally.pool, "with held as").await;
    worker.kill().await.expect("it runs");
    // Postgres would go on with the statement of a client that is gone.
    eventually("its sessions have ended", async || {
        let ended: Vec<bool> = sqlx::query_scalar(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'tally sync-worker'",
        )
        .fetch_all(&tally.pool)
        .await
        .ok()?;
        ended.is_empty().then_some(())
    })
    .await;
    blocked.rollback().await.expect("Postgres answers");
    assert_eq!(number(&tally.pool, "delivered_at is null").await, 3);
    run_out(&tally.pool).await;
    worker.start_again().expect("it starts");
    eventually("all are delivered", async || {
        (number(&tally.pool, "delivered_at is null").await == 0).then_some(())
    })
    .await;
    let all = receiver.deliveries();
    assert_eq!(all[0].id(), all[1].id());
    assert_eq!(all[0].body, all[1].body);
    let mut numbers = numbers_of(&receiver, 1);
    numbers.dedup();
    assert_eq!(numbers, [1, 2, 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_workers_deliver_each_event_once_and_in_order() {
    const SUBJECTS: i32 = 10;
    const EACH: i32 = 15;
    let tally = Tally::start().await;
    want_events(&tally.pool).await;
    let receiver = Receiver::start().await;
    let _workers = ["one", "two"].map(|name| worker_for(&receiver, &tally.stores, name, &[]));
    // More of them come while some are delivered.
    for _ in 0..3 {
        make_events(&tally.pool, SUBJECTS, EACH).await;
    }
    eventually("all are delivered", async || {
        (number(&tally.pool, "delivered_at is null").await == 0).then_some(())
    })
    .await;
    let all = receiver.deliveries();
    let ids: HashSet<&str> = all.iter().map(Delivery::id).collect();
    assert_eq!((all.len(), ids.len()), (450, 450));
    let each: Vec<i64> = (1..=i64::from(EACH)).collect();
    for subject in 1..=SUBJECTS {
        assert_eq!(
            numbers_of(&receiver, subject),
            each.repeat(3),
            "subject {subject}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_workers_events_are_each_delivered_by_the_next_one_in_order() {
    const SUBJECTS: i32 = 5;
    const EACH: i32 = 100;
    let tally = Tally::start().await;
    want_events(&tally.pool).await;
    make_events(&tally.pool, SUBJECTS, EACH).await;
    let receiver = Receiver::start().await;
    let mut worker = worker_for(&receiver, &tally.stores, "worker", &[]);
    // Killed again and again, wherever it is.
    for _ in 0..4 {
        let before = receiver.deliveries().len();
        eventually("some more are delivered", async || {
            (receiver.deliveries().len() > before + 10).then_some(())
        })
        .await;
        worker.kill().await.expect("it runs");
        run_out(&tally.pool).await;
        worker.start_again().expect("it starts");
    }
    eventually("all are delivered", async || {
        (number(&tally.pool, "delivered_at is null").await == 0).then_some(())
    })
    .await;
    for subject in 1..=SUBJECTS {
        let mut numbers = numbers_of(&receiver, subject);
        // Repeats come at once, before anything later.
        numbers.dedup();
        assert_eq!(
            numbers,
            (1..=i64::from(EACH)).collect::<Vec<_>>(),
            "subject {subject}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_hangs_holds_up_no_flush_and_no_roll_up() {
    let tally = Tally::start().await;
    want_events(&tally.pool).await;
    make_events(&tally.pool, 20, 2).await;
    let receiver = Receiver::answering(|_, _| Answer::Never).await;
    let _worker = worker_for(&receiver, &tally.stores, "worker", &[]);
    eventually("it hangs", async || {
        (!receiver.deliveries().is_empty()).then_some(())
    })
    .await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    eventually("the count is saved", async || {
        (tally.saved_count(item).await == 1).then_some(())
    })
    .await;
    eventually("the vote is rolled up", async || {
        let progress = tally.ledger.saving_progress().await.ok()?;
        (progress.watermark == progress.drawn).then_some(())
    })
    .await;
    assert_eq!(number(&tally.pool, "delivered_at is not null").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_is_down_gets_few_requests_and_all_events_once_it_is_back() {
    let tally = Tally::start().await;
    want_events(&tally.pool).await;
    make_events(&tally.pool, 50, 1).await;
    let receiver = Receiver::answering(|_, before| match before.len() {
        // The first round, and one after each of two pauses.
        0..=51 => Answer::Status(500, String::new()),
        _ => Answer::ok(),
    })
    .await;
    let webhook = webhook(&receiver, KEY);
    tally.worker().deliver_events(&webhook).await.expect("a delivery");
    assert_eq!(receiver.deliveries().len(), 50);
    let_try(&tally.pool).await;
    // It pauses, whatever is due.
    tally.worker().deliver_events(&webhook).await.expect("a delivery");
    assert_eq!(receiver.deliveries().len(), 50);
    eventually("all are delivered", async || {
        let_try(&tally.pool).await;
        let before = receiver.deliveries().len();
        tally.worker().deliver_events(&webhook).await.ok()?;
        let sent = receiver.deliveries().len() - before;
        assert!(sent <= 1 || before >= 52, "{sent} after {before}");
        (number(&tally.pool, "delivered_at is null").await == 0).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_on_events_holds_up_no_flush() {
    let tally = Tally::start().await;
    want_events(&tally.pool).await;
    make_events(&tally.pool, 20, 1).await;
    let receiver = Receiver::start().await;
    // Nobody can note a delivery, while all are under way.
    let locked = blocker(&tally.pool, "lock table event in share mode").await;
    let _worker = worker_for(&receiver, &tally.stores, "worker", &[]);
    until_blocked(&tally.pool, "with held as").await;
    for _ in 0..3 {
        let item = tally.item("x").await;
        tally.add(item, 1).await;
        eventually("the count is saved", async || {
            (tally.saved_count(item).await == 1).then_some(())
        })
        .await;
    }
    locked.rollback().await.expect("Postgres answers");
    eventually("all are delivered", async || {
        (number(&tally.pool, "delivered_at is null").await == 0).then_some(())
    })
    .await;
}
