//! Streams of items: what they show.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use sqlx::Executor;
use tally::web::access::CreateItems;

use super::{Reader, without_saved};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::helpers::eventually;
use crate::helpers::tally::{Tally, connected, live_counts};
use crate::telemetry::passes_alone;

#[tokio::test(flavor = "multi_thread")]
async fn votes_through_another_server_show_in_the_words_of_get() {
    let tally = Tally::start().await;
    let other = tally.another_server().await;
    let (status, keyed) = tally
        .post("/v1/items", &json!({ "name": "Keyed", "key": "post,42" }))
        .await;
    assert_eq!(status, StatusCode::CREATED);
    let (_, second) = tally
        .post("/v1/items", &json!({ "name": "ü", "key": "post-43" }))
        .await;
    let item = tally.item("x").await.get();
    let second = second["id"].as_i64().expect("an id");
    let path = format!("/v1/stream?items={item},key:post-43,{item}");
    let mut some = Reader::open(&tally, &tally.base, &path).await;
    let mut one = Reader::open(&tally, &tally.base, "/v1/items/key:post%2C42/stream").await;
    let first = some.next().await.expect("all of it");
    assert_eq!(first["items"].as_array().map(Vec::len), Some(2), "{first}");
    for (item, value) in [(item, 1), (item, 1), (item, -1), (second, -1)] {
        let vote = json!({ "value": value });
        let path = format!("/v1/items/{item}/votes");
        let (status, answer) = tally.send_to(&other, Method::POST, &path, Some(&vote)).await;
        assert_eq!(status, StatusCode::CREATED, "{answer}");
    }
    some.until("all four votes", |some| {
        some.items[&item]["down_count"] == 1 && some.count(item) == Some(1) && some.count(second) == Some(-1)
    })
    .await;
    for id in [item, second] {
        let (_, shown) = tally.get(&format!("/v1/items/{id}")).await;
        assert_eq!(without_saved(some.items[&id].clone()), without_saved(shown));
    }
    let keyed = keyed["id"].as_i64().expect("an id");
    tally
        .send_to(&other, Method::POST, &format!("/v1/items/{keyed}/votes"), None)
        .await;
    one.until("its vote", |one| one.count(keyed) == Some(1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_has_seen_is_not_sent_again_by_whatever_server() {
    let tally = Tally::start().await;
    let other = tally.another_server().await;
    let (a, b) = (tally.item("a").await, tally.item("b").await);
    tally.add(a, 1).await;
    let path = format!("/v1/stream?items={a},{b}");
    let mut before = Reader::open(&tally, &tally.base, &path).await;
    before.until("both", |before| before.items.len() == 2).await;
    let seen = before.last_id.clone();
    drop(before);
    tally.add(b, 1).await;
    let ids = |event: &Value| -> Vec<i64> {
        let items = event["items"].as_array().expect("an array");
        items.iter().filter_map(|item| item["id"].as_i64()).collect()
    };
    for base in [&tally.base, &other] {
        let mut after = Reader::open_after(&tally, base, &path, &seen).await;
        let event = after.next().await.expect("an event");
        assert_eq!(ids(&event), [b.get()], "{event}");
        assert_eq!(after.count(b.get()), Some(1));
    }
    // Ids of other streams, or made-up ids, say nothing about what the client has.
    for wrong in ["1", "AAAAAAAA", &seen.to_uppercase(), &format!("{seen}AAAAAAAA")] {
        let mut after = Reader::open_after(&tally, &other, &path, wrong).await;
        let event = after.next().await.expect("an event");
        assert_eq!(ids(&event), [a.get(), b.get()], "{wrong}");
    }
    // A stream does not repeat what the client has: the first event is of the next vote.
    let mut reader = Reader::open(&tally, &other, &path).await;
    reader.next().await.expect("both");
    let mut after = Reader::open_after(&tally, &tally.base, &path, &reader.last_id).await;
    tally.add(a, 1).await;
    let event = after.next().await.expect("an event");
    assert_eq!(
        (ids(&event), after.count(a.get())),
        (vec![a.get()], Some(2)),
        "{event}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_count_stays_and_one_that_is_invalidated_is_read_from_the_ledger() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    for _ in 0..3 {
        tally.add(item, 1).await;
    }
    let worker = tally.worker();
    worker.flush_until_quiescent().await.expect("a flush");
    let mut reader = Reader::open(&tally, &tally.base, &format!("/v1/items/{item}/stream")).await;
    reader
        .until("three votes", |reader| reader.count(item.get()) == Some(3))
        .await;
    // The live count disappears, as if it had expired.
    let mut redis = tally.stores.redis_connection().await;
    let () = redis::cmd("DEL")
        .arg(format!("tally:{{{item}}}"))
        .query_async(&mut redis)
        .await
        .expect("Redis answers");
    // Streams do not hear of a stored vote that is not counted, until its count is invalidated.
    tally
        .pool
        .execute(sqlx::query("insert into vote (item_id, value) values ($1, 1)").bind(item.get()))
        .await
        .expect("a vote");
    let suspecting = connected(live_counts(&tally)).await;
    suspecting.suspect([item]);
    suspecting.repaired().await;
    let event = reader.next().await.expect("an event");
    assert_eq!(
        (&event["items"][0]["vote_count"], &event["items"][0]["current"]),
        (&json!(4), &json!(true)),
        "{event}"
    );
    tally.add(item, 1).await;
    let event = reader.next().await.expect("an event");
    assert_eq!(event["items"][0]["vote_count"], 5, "{event}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_redis_the_saved_counts_are_shown_as_such_and_then_the_live_ones_again() {
    let mut tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    tally.worker().flush_until_quiescent().await.expect("a flush");
    let mut reader = Reader::open(&tally, &tally.base, &format!("/v1/items/{item}/stream")).await;
    for votes in 2..=5 {
        tally.add(item, 1).await;
        reader
            .until("the live count", |reader| reader.count(item.get()) == Some(votes))
            .await;
    }
    tally.stores.redis.crash().await;
    let event = reader.next().await.expect("an event");
    let shown = &event["items"][0];
    assert_eq!(
        (&shown["current"], &shown["vote_count"]),
        (&json!(false), &json!(1)),
        "{event}"
    );
    assert_eq!(shown["saved"]["vote_count"], 1);
    for _ in 0..5 {
        assert_eq!(tally.add(item, 1).await, None, "stored, and not counted");
    }
    tally.stores.redis.start().await.expect("Redis starts");
    // The order of the events is open, but a current count is right.
    loop {
        let event = reader.next().await.expect("an event");
        let shown = &event["items"][0];
        if shown["current"] == true {
            assert_eq!(shown["vote_count"], 10, "{event}");
            break;
        }
    }
    tally.assert_exact_when_quiescent(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_postgres_streams_go_on_and_what_only_postgres_knows_is_not_called_current() {
    let mut tally = Tally::start().await;
    let (live, missing) = (tally.item("live").await, tally.item("missing").await);
    tally.add(live, 1).await;
    tally.add(missing, 1).await;
    let path = format!("/v1/stream?items={live},{missing}");
    let mut reader = Reader::open(&tally, &tally.base, &path).await;
    reader.until("both", |reader| reader.items.len() == 2).await;
    let suspecting = connected(live_counts(&tally)).await;
    tally.stores.postgres.crash().await;
    suspecting.suspect([missing]);
    suspecting.repaired().await;
    reader
        .until("one is not current", |reader| {
            reader.items[&missing.get()]["current"] == false
        })
        .await;
    assert_eq!(reader.items[&live.get()]["current"], true);
    // A client on another thread, which does not watch them, gets 503 or what others watch.
    let other = tally.get("/v1/items/999/stream").await;
    assert_eq!(other.0, StatusCode::SERVICE_UNAVAILABLE, "{}", other.1);
    tally.stores.postgres.start().await.expect("Postgres starts");
    reader
        .until("both are current", |reader| {
            reader
                .items
                .values()
                .all(|item| item["current"] == true && item["vote_count"] == 1)
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_through_another_server_is_shown() {
    let tally = Tally::start().await;
    let other = tally.another_server().await;
    let item = tally.item("Before").await;
    let mut reader = Reader::open(&tally, &tally.base, &format!("/v1/items/{item}/stream")).await;
    reader.next().await.expect("an event");
    let edit = json!({ "name": "After", "hidden": true });
    let (status, answer) = tally
        .send_to(&other, Method::PATCH, &format!("/v1/items/{item}"), Some(&edit))
        .await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    reader
        .until("the edit", |reader| {
            let shown = &reader.items[&item.get()];
            shown["name"] == "After" && shown["hidden"] == true
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_leaves_out_what_does_not_exist_and_shows_an_id_once_it_exists() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let (next, poll) = (item.get() + 1, 77);
    let path = format!("/v1/stream?items=key:none,{next},{item},key:none-either&polls={poll},key:no-poll");
    let mut reader = Reader::open(&tally, &tally.base, &path).await;
    let first = reader.next().await.expect("an event");
    assert_eq!(
        (
            first["items"].as_array().map(Vec::len),
            first["polls"].as_array().map(Vec::len)
        ),
        (Some(1), Some(0)),
        "{first}"
    );
    let unknown =
        |items: Value| json!({ "items": items, "polls": ["77", "key:no-poll"], "creates_items": false });
    let all = unknown(json!(["key:none", next.to_string(), "key:none-either"]));
    assert_eq!(reader.unknown, Some(all.clone()));
    tally.vote(item, "ada").await;
    reader
        .until("the item's vote", |reader| reader.count(item.get()) == Some(1))
        .await;
    // A client that comes back to another server gets what has changed, and no more.
    tally.vote(item, "bob").await;
    let mut back = Reader::open_after(&tally, &tally.base, &path, &reader.last_id).await;
    back.until("the other vote", |back| back.count(item.get()) == Some(2))
        .await;
    assert_eq!(back.unknown, Some(all), "it is said each time");
    let made = tally.item("y").await;
    assert_eq!(made.get(), next);
    reader
        .until("the new item", |reader| reader.count(next) == Some(0))
        .await;
    // What is named by a key is followed by a stream that is opened later.
    let keyed = tally.item_with(json!({ "key": "none" })).await;
    let mut later = Reader::open(&tally, &tally.base, &path).await;
    later
        .until("its item", |later| later.count(keyed.get()) == Some(0))
        .await;
    assert_eq!(later.unknown, Some(unknown(json!(["key:none-either"]))));
    let creating = tally
        .another_server_with(|options| options.voting.creates = CreateItems::Any)
        .await;
    let mut reader = Reader::open(&tally, &creating, &format!("/v1/stream?items={item},key:new")).await;
    reader.next().await.expect("an event");
    let unknown = json!({ "items": ["key:new"], "polls": [], "creates_items": true });
    assert_eq!(reader.unknown, Some(unknown));
    let mut reader = Reader::open(&tally, &tally.base, &format!("/v1/stream?items={item},key:none")).await;
    reader.next().await.expect("an event");
    assert_eq!(reader.unknown, None, "all of it exists");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_nothing_says_so_and_shows_an_id_once_it_exists() {
    let tally = Tally::start().await;
    for (query, items, polls) in [
        ("items=key:none", &["key:none"][..], &[][..]),
        ("polls=key:none", &[], &["key:none"]),
        ("items=key:none,999&polls=77", &["key:none", "999"], &["77"]),
    ] {
        let mut reader = Reader::open(&tally, &tally.base, &format!("/v1/stream?{query}")).await;
        let unknown = json!({ "items": items, "polls": polls, "creates_items": false });
        assert_eq!(*reader.until_unknown().await, unknown, "{query}");
    }
    let mut reader = Reader::open(&tally, &tally.base, "/v1/stream?items=1").await;
    let made = tally.item("x").await;
    assert_eq!(made.get(), 1);
    reader
        .until("the new item", |reader| reader.count(1) == Some(0))
        .await;
    let unknown = json!({ "items": ["1"], "polls": [], "creates_items": false });
    assert_eq!(reader.unknown, Some(unknown));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_watched_is_refused_and_named() {
    if passes_alone("web::streams::counts::what_cannot_be_watched_is_refused_and_named").await {
        return;
    }
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let list = |total: usize| (1..=total).map(|id| id.to_string()).collect::<Vec<_>>().join(",");
    for (query, status, kind, says) in [
        ("".to_owned(), 400, "malformed", "items"),
        ("?item=1".to_owned(), 400, "malformed", "item:"),
        ("?items=".to_owned(), 400, "malformed", "items"),
        (format!("?items={item},"), 400, "malformed", "items"),
        (
            format!("?items={item}&items={item}"),
            400,
            "malformed",
            "more than once",
        ),
        (format!("?items={}", list(101)), 422, "invalid-value", "101"),
        (format!("?polls={}", list(11)), 422, "invalid-value", "11"),
        (format!("?items={}", list(12_500)), 422, "invalid-value", "bytes"),
    ] {
        let (got, problem) = tally.get(&format!("/v1/stream{query}")).await;
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert_eq!(
            (got.as_u16(), problem["type"].as_str()),
            (status, Some(format!("/problems/{kind}").as_str())),
            "{query:.60}: {problem}"
        );
        assert!(detail.contains(says), "{query:.60}: {detail}");
    }
    for (path, kind) in [
        ("items/999", "item"),
        ("items/key:none", "item"),
        ("polls/77", "poll"),
        ("polls/key:none", "poll"),
    ] {
        let (status, problem) = tally.get(&format!("/v1/{path}/stream")).await;
        assert_eq!(
            (status.as_u16(), &problem["type"]),
            (404, &json!(format!("/problems/unknown-{kind}"))),
            "{path}"
        );
    }
    // The ids of 100,000 items do not fit into a request's head.
    let head = format!(
        "GET /v1/stream?items={} HTTP/1.1\r\nhost: x\r\n\r\n",
        list(100_000)
    );
    let mut greedy = TcpStream::connect(tally.base.trim_start_matches("http://"))
        .await
        .expect("it listens");
    // The server may close before all is written. Then its answer may be lost, too.
    let _ = greedy.write_all(head.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = greedy.read_to_end(&mut answer).await;
    assert!(
        answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"),
        "{answer:?}"
    );
    // Nothing is left of the refused streams.
    eventually("no stream is open", async || {
        (crate::helpers::metrics::metric("tally_streams") == 0.0).then_some(())
    })
    .await;
    let head = tally.http.head(format!("{}/v1/items/{item}/stream", tally.base));
    let head = head.send().await.expect("an answer");
    assert_eq!(head.headers()["content-type"], "text/event-stream");
}
