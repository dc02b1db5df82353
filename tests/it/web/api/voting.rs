//! The HTTP contract, as a frontend uses it.

use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::helpers::eventually;
use crate::helpers::tally::Tally;

#[tokio::test(flavor = "multi_thread")]
async fn an_item_is_made_read_and_listed() {
    let tally = Tally::start().await;
    let (status, made) = tally.post("/v1/items", &json!({ "name": "Tabs" })).await;
    assert_eq!(status, StatusCode::CREATED);
    let id = made["id"].as_i64().expect("an id");
    let expected = json!({ "id": id, "name": "Tabs", "vote_count": 0, "up_count": 0, "down_count": 0, "current": true,
        "saved": { "vote_count": 0, "up_count": 0, "down_count": 0, "counted_at": null } });
    assert_eq!(made, expected);
    assert_eq!(
        tally.get(&format!("/v1/items/{id}")).await,
        (StatusCode::OK, expected.clone())
    );
    let (_, list) = tally.get("/v1/items").await;
    assert_eq!(list, json!({ "items": [expected], "next_after": null }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vote_is_stored_counted_and_answered_with_the_live_count() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let (status, first) = tally.vote(item, "ada").await;
    assert_eq!(status, StatusCode::CREATED);
    let id = first["vote_id"].as_i64().expect("an id");
    assert_eq!(
        first,
        json!({ "vote_id": id, "item_id": item, "voter_id": "ada", "value": 1,
            "vote_count": 1, "up_count": 1, "down_count": 0 })
    );
    let (_, second) = tally.vote(item, "bob").await;
    assert_eq!(second["vote_count"], 2);
    let row: (i64, i16, Option<String>) =
        sqlx::query_as("select item_id, value, voter_id from vote where id = $1")
            .bind(id)
            .fetch_one(&tally.pool)
            .await
            .expect("the row");
    assert_eq!(row, (item.get(), 1, Some("ada".to_owned())));
    assert_eq!(tally.live_count(item).await, Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_voter_again_gets_the_first_vote_and_changes_nothing() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let (_, first) = tally.vote(item, "ada").await;
    let path = format!("/v1/items/{item}/votes");
    let (status, again) = tally
        .post(&path, &json!({ "voter_id": "ada", "value": -1 }))
        .await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(
        (&again["vote_id"], &again["repeated"]),
        (&first["vote_id"], &json!(true))
    );
    assert_eq!((&again["vote_count"], &again["value"]), (&json!(1), &json!(1)));
    // The same voter on another item casts a new vote.
    let other = tally.item("y").await;
    assert_eq!(tally.vote(other, "ada").await.0, StatusCode::CREATED);
    tally.assert_exact_when_quiescent(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_seeds_a_missing_live_count() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.vote(item, "ada").await;
    let mut redis = tally.stores.redis_connection().await;
    let () = redis::cmd("FLUSHALL")
        .query_async(&mut redis)
        .await
        .expect("Redis answers");
    assert_eq!(tally.vote(item, "ada").await.1["vote_count"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_anonymous_vote_always_counts_with_an_empty_body_too() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let path = format!("/v1/items/{item}/votes");
    for (count, body) in [(1, "{}"), (2, ""), (3, r#"{"voter_id":null}"#)] {
        let response = tally.post_raw(&path, "application/json", body).await;
        assert_eq!(response.status(), StatusCode::CREATED);
        let answer: Value = response.json().await.expect("JSON");
        assert_eq!(
            (&answer["vote_count"], &answer["voter_id"]),
            (&json!(count), &Value::Null)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn votes_up_and_down_add_up() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    assert_eq!(tally.add(item, -1).await, Some(-1));
    assert_eq!(tally.add(item, -1).await, Some(-2));
    assert_eq!(tally.add(item, 1).await, Some(-1));
    tally.assert_exact_when_quiescent(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_voter_in_many_requests_at_once_has_one_vote() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let answers = futures_util::future::join_all((0..200).map(|_| tally.vote(item, "ada"))).await;
    let created = answers
        .iter()
        .filter(|(status, _)| *status == StatusCode::CREATED)
        .count();
    assert_eq!(created, 1);
    assert!(
        answers
            .iter()
            .all(|(_, answer)| answer["vote_id"] == answers[0].1["vote_id"])
    );
    assert_eq!(tally.ledger_sum(item).await, 1);
    tally.assert_exact_when_quiescent(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_hangs_up_takes_back_neither_its_own_vote_nor_another() {
    let mut tally = Tally::start().await;
    let item = tally.item("x").await;
    let impatient = tally.http.post(format!("{}/v1/items/{item}/votes", tally.base));
    // The client hangs up on some requests before they are sent, and on others before they are
    // answered.
    for wait_us in (0..3000).step_by(50) {
        let request = impatient.try_clone().expect("a request").send();
        let _ = tokio::time::timeout(std::time::Duration::from_micros(wait_us), request).await;
    }
    assert!(tally.add(item, 1).await.is_some());
    // The server finishes these votes by itself. When it has stopped, all have ended.
    tally.stop().await;
    tally.assert_exact_when_quiescent(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_without_a_live_count_is_answered_from_postgres() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    tally.worker().flush().await.expect("a flush");
    let mut redis = tally.stores.redis_connection().await;
    let () = redis::cmd("FLUSHALL")
        .query_async(&mut redis)
        .await
        .expect("Redis answers");
    let (_, answer) = tally.get(&format!("/v1/items/{item}")).await;
    assert_eq!(
        (&answer["vote_count"], &answer["saved"]["vote_count"]),
        (&json!(1), &json!(1))
    );
    let counted_at = answer["saved"]["counted_at"].as_str().expect("a time");
    assert!(
        counted_at.starts_with("20") && counted_at.ends_with('Z'),
        "{counted_at}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_list_goes_on_from_page_to_page_and_finds_by_name() {
    let tally = Tally::start().await;
    for name in ["a", "b", "a", "c", "a"] {
        tally.item(name).await;
    }
    let mut ids = Vec::new();
    let mut after = json!(0);
    while !after.is_null() {
        let (_, page) = tally.get(&format!("/v1/items?limit=2&after={after}")).await;
        ids.extend(
            page["items"]
                .as_array()
                .expect("items")
                .iter()
                .map(|item| item["id"].clone()),
        );
        after = page["next_after"].clone();
    }
    assert_eq!(ids, [1, 2, 3, 4, 5].map(Value::from));
    let (_, named) = tally.get("/v1/items?name=a&limit=2").await;
    let named: Vec<_> = named["items"]
        .as_array()
        .expect("items")
        .iter()
        .map(|item| &item["id"])
        .collect();
    assert_eq!(named, [1, 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_carries_a_request_id_and_the_metrics_count_votes_by_outcome() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.vote(item, "ada").await;
    tally.vote(item, "ada").await;
    let response = tally
        .post_raw("/v1/items/999/votes", "application/json", "{}")
        .await;
    assert!(response.headers().contains_key("x-request-id"));
    eventually("the metrics have the votes", async || {
        let text = tally
            .http
            .get(format!("{}/metrics", tally.base))
            .send()
            .await
            .ok()?
            .text()
            .await
            .ok()?;
        let has = |line: &str| text.lines().any(|one| one.starts_with(line));
        (has(r#"tally_votes_total{outcome="accepted"}"#)
            && has(r#"tally_votes_total{outcome="repeated"}"#)
            && has(r#"tally_votes_total{outcome="unknown_item"}"#)
            && has("tally_batch_votes_bucket")
            && has("tally_queue_depth_votes 0")
            && has("tally_live_seeds_total")
            && text.contains("/v1/items/{id}/votes"))
        .then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_loads_nothing_from_elsewhere() {
    let tally = Tally::start().await;
    for (path, kind) in [
        ("/", "text/html"),
        ("/embed", "text/html"),
        ("/assets/page-00000000.css", "text/css"),
        ("/ops", "text/html"),
        ("/assets/ops-00000000.css", "text/css"),
        ("/assets/ops-00000000.js", "text/javascript"),
        ("/assets/page-00000000.js", "text/javascript"),
        ("/assets/embed-00000000.js", "text/javascript"),
        ("/assets/embed-page-00000000.js", "text/javascript"),
        ("/assets/frame-00000000.css", "text/css"),
        ("/assets/frame-00000000.js", "text/javascript"),
        ("/embed.js", "text/javascript"),
    ] {
        let response = tally
            .http
            .get(format!("{}{path}", tally.base))
            .send()
            .await
            .expect("an answer");
        assert_eq!(response.status(), StatusCode::OK);
        let content_type = response.headers()["content-type"]
            .to_str()
            .expect("text")
            .to_owned();
        assert!(content_type.starts_with(kind), "{path}: {content_type}");
        assert!(response.headers().contains_key("content-security-policy"));
        assert!(
            !response.text().await.expect("text").contains("https://"),
            "{path}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_answers_the_votes_of_the_last_batch_and_leaves_them_counted() {
    let mut tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    let votes = (0..100).map(|_| {
        let request = tally.http.post(format!("{}/v1/items/{item}/votes", tally.base));
        tokio::spawn(async move { request.send().await.map(|response| response.status()) })
    });
    let votes: Vec<_> = votes.collect();
    tally.stop().await;
    let mut accepted = 1;
    for vote in votes {
        // A request that came too late gets no connection, so it is no vote.
        if let Ok(status) = vote.await.expect("no panic") {
            accepted += i64::from(status == StatusCode::CREATED);
        }
    }
    assert_eq!(tally.ledger_sum(item).await, accepted);
    tally.assert_exact_when_quiescent(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_that_wait_together_are_each_answered_with_their_own_item() {
    let tally = Tally::start().await;
    let mut items = Vec::new();
    for number in 1..=20 {
        let item = tally.item(&format!("item {number}")).await;
        for _ in 0..number {
            tally.add(item, 1).await;
        }
        items.push((item, number));
    }
    // Many reads at once, some of the same item, some of an unknown one.
    let reads = (0..200).map(|at| {
        let (tally, items) = (&tally, &items);
        async move {
            if at % 10 == 9 {
                let (status, _) = tally.get("/v1/items/999999").await;
                assert_eq!(status, StatusCode::NOT_FOUND);
                return;
            }
            let (item, number) = items[at % items.len()];
            let (status, answer) = tally.get(&format!("/v1/items/{item}")).await;
            assert_eq!(status, StatusCode::OK);
            assert_eq!(
                (&answer["id"], &answer["name"], &answer["vote_count"]),
                (&json!(item), &json!(format!("item {number}")), &json!(number))
            );
        }
    });
    futures_util::future::join_all(reads).await;
}
