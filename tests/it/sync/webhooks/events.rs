//! Which events are made, when, and with what.

use std::collections::HashSet;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tally::domain::{ItemId, Moment};
use tally::sync::Repair;
use testkit::receiver::{Delivery, Receiver};

use super::{KEY, execute, is_signed_by, number, want_events, webhook, worker_for};
use crate::helpers::eventually;
use crate::helpers::programs::stop;
use crate::helpers::stores::{blocker, refuse, refuse_no_more};
use crate::helpers::tally::Tally;

const OTHER_KEY: &str = "abababababababababababababababababababababababababababababababab";

/// The data of the events of this kind, in the order in which they happened.
async fn data_of(tally: &Tally, kind: &str) -> Vec<Value> {
    let data: Vec<String> = sqlx::query_scalar("select data::text from event where kind = $1 order by id")
        .bind(kind)
        .fetch_all(&tally.pool)
        .await
        .expect("Postgres answers");
    data.iter()
        .map(|one| serde_json::from_str(one).expect("JSON"))
        .collect()
}

async fn poll(tally: &Tally, fields: Value) -> Value {
    let (status, poll) = tally.post("/v1/polls", &fields).await;
    assert_eq!(status, StatusCode::CREATED, "{poll}");
    poll
}

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_event_is_delivered_once_signed_by_each_key_and_says_what_happened() {
    let tally = Tally::start().await;
    let receiver = Receiver::start().await;
    let keys = format!("{KEY},{OTHER_KEY}");
    let settings = [
        ("TALLY_WEBHOOK_KEYS", keys.as_str()),
        ("TALLY_WEBHOOK_THRESHOLDS", "2,3,50"),
        ("TALLY_AUDIT_CRON", "0 0 0 1 1 *"),
    ];
    let worker = worker_for(&receiver, &tally.stores, "worker", &settings);
    eventually("events are on", async || {
        let on: bool = sqlx::query_scalar("select events_are_made()")
            .fetch_one(&tally.pool)
            .await
            .ok()?;
        on.then_some(())
    })
    .await;
    let item = tally.item_with(json!({ "key": "post/1" })).await;
    for voter in ["ada", "bob", "bot"] {
        tally.vote(item, voter).await;
    }
    let full = tally.item_with(json!({ "max_votes": 1 })).await;
    tally.vote(full, "ada").await;
    let closing = poll(
        &tally,
        json!({ "title": "Lunch", "key": "lunch", "choices": ["Soup", "Salad"],
                "closes_at": "2100-01-01T00:00:00Z", "results_before_close": false }),
    )
    .await;
    let soup = ItemId::new(closing["choices"][0]["item_id"].as_i64().expect("an id")).expect("positive");
    for voter in ["ada", "bob"] {
        tally.vote(soup, voter).await;
    }
    // Before the poll closes, which shows its counts.
    eventually("all votes are rolled up", async || {
        let progress = tally.ledger.saving_progress().await.ok()?;
        (progress.watermark == progress.drawn).then_some(())
    })
    .await;
    let path = format!("/v1/polls/{}", closing["id"]);
    let edit = json!({ "closes_at": "2020-01-01T00:00:00Z" });
    let (status, edited) = tally.send(Method::PATCH, &path, Some(&edit)).await;
    assert_eq!(status, StatusCode::OK, "{edited}");
    let of_kind = |kind: &str| -> Vec<Delivery> {
        let all = receiver.deliveries();
        all.into_iter().filter(|one| one.kind() == kind).collect()
    };
    eventually("what votes make is delivered", async || {
        let enough = of_kind("item.threshold").len() >= 2
            && !of_kind("item.full").is_empty()
            && !of_kind("poll.final").is_empty();
        enough.then_some(())
    })
    .await;
    let void = json!({ "voter_id": "bot", "item": item, "reason": "a bot", "dry_run": false });
    let (status, voiding) = tally.post("/v1/voidings", &void).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{voiding}");
    eventually("the voiding is done", async || {
        (!of_kind("voiding.done").is_empty()).then_some(())
    })
    .await;
    let undo = format!("/v1/voidings/{}/undo", voiding["id"]);
    eventually("the voiding may be undone", async || {
        let (status, _) = tally.post(&undo, &json!({})).await;
        (status == StatusCode::ACCEPTED).then_some(())
    })
    .await;
    eventually("it is undone", async || {
        (!of_kind("voiding.undone").is_empty()).then_some(())
    })
    .await;
    // The worker that audits is another program, and none flushes meanwhile.
    tally.worker().flush_until_quiescent().await.expect("a flush");
    stop(worker, nix::sys::signal::Signal::SIGTERM).await;
    execute(
        &tally.pool,
        &format!("update item set vote_count = 42 where id = {full}"),
    )
    .await;
    let found = tally.worker().audit(Repair::Yes).await.expect("an audit");
    assert_eq!(found.wrong_items, 1);
    tally
        .worker()
        .deliver_events(&webhook(&receiver, &keys))
        .await
        .expect("a delivery");
    let data = |kind: &str| -> Vec<Value> {
        of_kind(kind)
            .iter()
            .map(|one| one.json()["data"].clone())
            .collect()
    };
    let reached = |threshold: i64| json!({ "item_id": item, "key": "post/1", "threshold": threshold });
    let mut thresholds = data("item.threshold");
    for one in &mut thresholds {
        // A roll-up may come between two votes.
        let count = one["vote_count"].as_i64().expect("a count");
        assert!(
            one["threshold"]
                .as_i64()
                .is_some_and(|threshold| threshold <= count),
            "{one}"
        );
        one.as_object_mut().expect("an object").remove("vote_count");
    }
    // Also not those of the poll's choice, whose count is hidden.
    assert_eq!(thresholds, [reached(2), reached(3)]);
    assert_eq!(data("item.full"), [json!({ "item_id": full, "max_votes": 1 })]);
    let results = &data("poll.final")[0];
    let (choices, closed_at) = (&results["choices"], &results["closed_at"]);
    assert_eq!(
        (
            &results["poll_id"],
            &results["key"],
            &results["title"],
            &results["voter_count"]
        ),
        (&closing["id"], &json!("lunch"), &json!("Lunch"), &json!(2))
    );
    assert_eq!(
        choices[0],
        json!({ "item_id": soup, "name": "Soup", "vote_count": 2 })
    );
    assert_eq!(
        (&choices[1]["name"], &choices[1]["vote_count"]),
        (&json!("Salad"), &json!(0))
    );
    let moment = |text: &Value| text.as_str().expect("a time").parse::<Moment>().expect("a time");
    assert_eq!(moment(closed_at), moment(&edited["closes_at"]));
    let id = &voiding["id"];
    assert_eq!(
        data("voiding.done"),
        [json!({ "voiding_id": id, "item_id": item, "voided_votes": 1 })]
    );
    assert_eq!(
        data("voiding.undone"),
        [json!({ "voiding_id": id, "item_id": item, "restored_votes": 1, "left_votes": 0 })]
    );
    let drift = &data("audit.drift")[0];
    assert_eq!(
        (&drift["wrong_items"], &drift["item_ids"]),
        (&json!(1), &json!([full]))
    );
    let all = receiver.deliveries();
    let ids: HashSet<&str> = all.iter().map(Delivery::id).collect();
    assert_eq!((all.len(), ids.len()), (7, 7), "each once");
    for one in &all {
        assert!(is_signed_by(one, KEY) && is_signed_by(one, OTHER_KEY), "{one:?}");
        assert!(!is_signed_by(one, &"00".repeat(32)), "{one:?}");
        assert_eq!(one.headers["content-type"], "application/json");
        assert!(one.headers["user-agent"].starts_with("tally/"), "{one:?}");
        let body = String::from_utf8(one.body.clone()).expect("text");
        assert!(
            !body.contains("ada") && !body.contains("a bot"),
            "no voter, no reason: {body}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_webhook_and_a_week_after_the_last_one_nothing_is_made() {
    let tally = Tally::start().await;
    let everything = async |voter: &str| {
        let full = tally.item_with(json!({ "max_votes": 1 })).await;
        tally.vote(full, voter).await;
        // The voiding before this one left its connection behind.
        let worker = tally.worker();
        eventually("the writers that are gone are forgotten", async || {
            worker.recover_crashed_writers().await.ok()?;
            let writers: i64 = sqlx::query_scalar(
                "select count(*) from writer_connection where name not in (select application_name from pg_stat_activity)",
            )
            .fetch_one(&tally.pool)
            .await
            .ok()?;
            (writers == 0).then_some(())
        })
        .await;
        tally.roll_up_all().await;
        let void = json!({ "voter_id": voter, "reason": "x", "dry_run": false });
        let (_, voiding) = tally.post("/v1/voidings", &void).await;
        let path = format!("/v1/voidings/{}", voiding["id"]);
        eventually("the voiding is done", async || {
            let (_, voiding) = tally.get(&path).await;
            (voiding["under_way"] == false).then_some(())
        })
        .await;
    };
    everything("a").await;
    assert_eq!(number(&tally.pool, "true").await, 0);
    want_events(&tally.pool).await;
    everything("b").await;
    assert_eq!(number(&tally.pool, "true").await, 2);
    execute(
        &tally.pool,
        "update outbox set wanted_at = wanted_at - interval '8 days', since = since - interval '8 days'",
    )
    .await;
    everything("c").await;
    assert_eq!(number(&tally.pool, "true").await, 2);
    // They begin with what happens now.
    want_events(&tally.pool).await;
    let since_now: bool = sqlx::query_scalar("select since > now() - interval '1 minute' from outbox")
        .fetch_one(&tally.pool)
        .await
        .expect("Postgres answers");
    assert!(since_now);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_roll_up_that_fails_makes_no_event_and_the_next_one_makes_it_once() {
    let tally = Tally::start().await;
    execute(&tally.pool, "select want_events('{2}')").await;
    let item = tally.item("x").await;
    for voter in ["a", "b"] {
        tally.vote(item, voter).await;
    }
    refuse(&tally.pool, "update on watermark").await;
    eventually("a roll-up with the votes fails", async || {
        tally.worker().roll_up().await.err().map(drop)
    })
    .await;
    assert_eq!(number(&tally.pool, "true").await, 0);
    refuse_no_more(&tally.pool).await;
    tally.roll_up_all().await;
    assert_eq!(
        data_of(&tally, "item.threshold").await,
        [json!({ "item_id": item, "threshold": 2, "vote_count": 2 })]
    );
    // The event is deleted a week after its delivery; the count falls, and rises again.
    execute(&tally.pool, "delete from event").await;
    let path = format!("/v1/items/{item}/votes/a");
    let (status, _) = tally.send(Method::DELETE, &path, None).await;
    assert!(status.is_success(), "{status}");
    tally.roll_up_all().await;
    tally.vote(item, "a").await;
    tally.roll_up_all().await;
    assert_eq!(number(&tally.pool, "kind = 'item.threshold'").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_is_full_again_once_a_roll_up_saw_it_with_a_free_place() {
    let tally = Tally::start().await;
    want_events(&tally.pool).await;
    let item = tally.item_with(json!({ "max_votes": 2 })).await;
    let fulls = async || {
        tally.roll_up_all().await;
        number(&tally.pool, "kind = 'item.full'").await
    };
    tally.vote(item, "a").await;
    assert_eq!(fulls().await, 0);
    tally.vote(item, "b").await;
    assert_eq!(fulls().await, 1);
    // An up-vote becomes a down-vote: it is as full as before.
    let change = json!({ "value": -1 });
    let (status, _) = tally
        .send(Method::PUT, &format!("/v1/items/{item}/votes/b"), Some(&change))
        .await;
    assert!(status.is_success(), "{status}");
    assert_eq!(fulls().await, 1);
    let (status, _) = tally
        .send(Method::DELETE, &format!("/v1/items/{item}/votes/a"), None)
        .await;
    assert!(status.is_success(), "{status}");
    assert_eq!(fulls().await, 1);
    tally.vote(item, "c").await;
    assert_eq!(fulls().await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poll_is_final_only_with_the_votes_that_were_granted_before_it_closed() {
    let tally = Tally::start().await;
    let receiver = Receiver::start().await;
    // It closed before events were on.
    let old = poll(
        &tally,
        json!({ "title": "Old", "choices": ["a"], "closes_at": "2100-01-01T00:00:00Z" }),
    )
    .await;
    let close = json!({ "closes_at": "2020-01-01T00:00:00Z" });
    tally
        .send(Method::PATCH, &format!("/v1/polls/{}", old["id"]), Some(&close))
        .await;
    want_events(&tally.pool).await;
    let made = poll(
        &tally,
        json!({ "title": "New", "choices": ["a"], "closes_at": "2100-01-01T00:00:00Z" }),
    )
    .await;
    let id = &made["id"];
    tally
        .send(Method::PATCH, &format!("/v1/polls/{id}"), Some(&close))
        .await;
    // A vote that was granted, and is not committed yet.
    let mut granting = blocker(
        &tally.pool,
        &format!("select from rule where id = {id} for no key update"),
    )
    .await;
    sqlx::raw_sql(&format!(
        "insert into vote (item_id, voter_id, poll_id) values ({}, 'ada', {id});
         update rule set voter_count = voter_count + 1 where id = {id}",
        made["choices"][0]["item_id"]
    ))
    .execute(&mut *granting)
    .await
    .expect("a vote");
    let deliver = async || {
        let delivered = tally.worker().deliver_events(&webhook(&receiver, KEY)).await;
        delivered.expect("a delivery")
    };
    assert_eq!(deliver().await, 0);
    granting.commit().await.expect("a commit");
    assert_eq!(deliver().await, 1);
    assert_eq!(deliver().await, 0, "once");
    let data = &receiver.deliveries()[0].json()["data"];
    assert_eq!(
        (
            &data["poll_id"],
            &data["voter_count"],
            &data["choices"][0]["vote_count"]
        ),
        (id, &json!(1), &json!(1))
    );
}
