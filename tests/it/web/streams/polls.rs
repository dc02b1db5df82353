//! Streams of polls: what they show.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tally::domain::Moment;

use super::Reader;
use crate::helpers::tally::Tally;

async fn poll(tally: &Tally, fields: Value) -> (i64, Vec<i64>) {
    let mut body = fields;
    body["title"] = json!("Lunch?");
    body["choices"] = json!(["soup", "salad"]);
    let (status, poll) = tally.post("/v1/polls", &body).await;
    assert_eq!(status, StatusCode::CREATED, "{poll}");
    let choices = poll["choices"].as_array().expect("an array");
    let choices = choices.iter().filter_map(|choice| choice["item_id"].as_i64());
    (poll["id"].as_i64().expect("an id"), choices.collect())
}

async fn select(tally: &Tally, base: &str, poll: i64, voter: &str, item: i64) {
    let path = format!("/v1/polls/{poll}/votes/{voter}");
    let (status, answer) = tally
        .send_to(base, Method::PUT, &path, Some(&json!({ "items": [item] })))
        .await;
    assert_eq!(status, StatusCode::OK, "{answer}");
}

/// The time this many seconds from now, by Postgres' clock.
async fn in_seconds(tally: &Tally, seconds: f64) -> String {
    let micros: i64 = sqlx::query_scalar(
        "select (extract(epoch from clock_timestamp() + make_interval(secs => $1)) * 1000000)::bigint",
    )
    .bind(seconds)
    .fetch_one(&tally.pool)
    .await
    .expect("Postgres answers");
    Moment::from_micros(micros).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poll_shows_shares_turnout_and_edits_as_get_does() {
    let tally = Tally::start().await;
    let other = tally.another_server().await;
    let (id, choices) = poll(&tally, json!({})).await;
    let path = format!("/v1/stream?polls={id}&items={}", choices[1]);
    let mut reader = Reader::open(&tally, &tally.base, &path).await;
    let first = reader.next().await.expect("an event");
    assert_eq!(first["polls"][0]["choices"][0]["share"], json!(null), "{first}");
    for (voter, choice) in [("ada", 0), ("bob", 0), ("eve", 1), ("bob", 1), ("dan", 1)] {
        select(&tally, &other, id, voter, choices[choice]).await;
    }
    let edit = json!({ "title": "Dinner?" });
    let (status, answer) = tally
        .send_to(&other, Method::PATCH, &format!("/v1/polls/{id}"), Some(&edit))
        .await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let (_, shown) = tally.get(&format!("/v1/polls/{id}")).await;
    assert_eq!(
        (&shown["voter_count"], &shown["choices"][1]["share"]),
        (&json!(4), &json!(0.75))
    );
    reader
        .until("all of it", |reader| reader.polls[&id] == shown)
        .await;
    reader
        .until("the choice", |reader| reader.count(choices[1]) == Some(3))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hidden_results_are_hidden_until_the_poll_closes_and_then_shown_in_the_open_stream() {
    let tally = Tally::start().await;
    let other = tally.another_server().await;
    let closes_at = in_seconds(&tally, 3600.0).await;
    let hidden = json!({ "closes_at": closes_at, "results_before_close": false });
    let (id, choices) = poll(&tally, hidden).await;
    let path = format!("/v1/stream?polls={id}&items={},{}", choices[0], choices[1]);
    let mut reader = Reader::open(&tally, &tally.base, &path).await;
    let first = reader.next().await.expect("an event");
    let seen = reader.last_id.clone();
    select(&tally, &other, id, "ada", choices[0]).await;
    select(&tally, &other, id, "bob", choices[1]).await;
    // The stream shows neither a count nor that someone voted. The next event is of an edit.
    let edit = json!({ "title": "Dinner?" });
    tally
        .send_to(&other, Method::PATCH, &format!("/v1/polls/{id}"), Some(&edit))
        .await;
    let event = reader.next().await.expect("an event");
    for event in [&first, &event] {
        let poll = &event["polls"][0];
        assert_eq!(poll["voter_count"], json!(null), "{event}");
        for choice in poll["choices"].as_array().expect("an array") {
            assert_eq!(
                (&choice["vote_count"], &choice["share"]),
                (&json!(null), &json!(null)),
                "{event}"
            );
        }
        for item in event["items"].as_array().expect("an array") {
            assert_eq!(
                (&item["vote_count"], &item["saved"]["counted_at"]),
                (&json!(null), &json!(null))
            );
        }
    }
    assert_eq!(
        (&event["polls"][0]["title"], &event["items"]),
        (&json!("Dinner?"), &json!([])),
        "{event}"
    );
    // The fingerprint of a hidden count does not change with votes.
    let mut again = Reader::open(&tally, &other, &path).await;
    again.next().await.expect("an event");
    assert_eq!(again.last_id[..16], seen[..16], "the items come first");
    let edit = json!({ "closes_at": in_seconds(&tally, 1.0).await });
    let (status, answer) = tally
        .send_to(&other, Method::PATCH, &format!("/v1/polls/{id}"), Some(&edit))
        .await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    reader
        .until("the results", |reader| reader.polls[&id]["final"] == true)
        .await;
    let (_, shown) = tally.get(&format!("/v1/polls/{id}")).await;
    assert_eq!(
        (&shown["voter_count"], &shown["choices"][0]["vote_count"]),
        (&json!(2), &json!(1))
    );
    assert_eq!(reader.polls[&id], shown);
    // A choice by itself stays as GET shows it.
    assert_eq!(reader.items[&choices[0]]["vote_count"], json!(null));
    // A client that comes later sees the same at once.
    let mut late = Reader::open(&tally, &other, &format!("/v1/polls/{id}/stream")).await;
    assert_eq!(late.next().await.expect("an event")["polls"][0], shown);
}
