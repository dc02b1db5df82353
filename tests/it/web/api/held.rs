//! What a voter holds on many items and in polls, and a feed with it.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::helpers::tally::Tally;
use crate::web::api::lists::{poll, read};

#[tokio::test(flavor = "multi_thread")]
async fn what_a_voter_holds_on_many_items_and_in_polls_is_one_request() {
    let tally = Tally::start().await;
    let (up, down, back, never) = (
        tally.item("up").await.get(),
        tally
            .item_with(json!({ "name": "down", "key": "down" }))
            .await
            .get(),
        tally.item("back").await.get(),
        tally.item("never").await.get(),
    );
    let poll = poll(
        &tally,
        json!({ "title": "x", "choices": ["a", "b"], "key": "poll" }),
    )
    .await;
    let choice = |at: usize| poll["choices"][at]["item_id"].clone();
    let held = format!(
        "/v1/votes?voter_id=ada&items={up},key:down,{back},{never},999999,key:none&polls=key:poll,999"
    );
    assert_eq!(
        read(&tally, &held).await,
        json!({ "voter_id": "ada", "votes": [] })
    );
    let put = async |path: String, body: Value| {
        let (status, answer) = tally.send(Method::PUT, &path, Some(&body)).await;
        assert!(status.is_success(), "{answer}");
    };
    put(format!("/v1/items/{up}/votes/ada"), json!({ "value": 1 })).await;
    put(format!("/v1/items/{down}/votes/ada"), json!({ "value": -1 })).await;
    put(format!("/v1/items/{back}/votes/ada"), json!({ "value": 1 })).await;
    put(format!("/v1/items/{never}/votes/bob"), json!({ "value": 1 })).await;
    tally
        .send(Method::DELETE, &format!("/v1/items/{back}/votes/ada"), None)
        .await;
    for at in [0, 1] {
        put(
            format!("/v1/polls/{}/votes/ada", poll["id"]),
            json!({ "items": [choice(at)] }),
        )
        .await;
    }
    // Votes that the request does not ask for.
    let path = format!("/v1/polls/{}/votes/bob", poll["id"]);
    put(path, json!({ "items": [choice(0)] })).await;
    let elsewhere = self::poll(&tally, json!({ "title": "y", "choices": ["a"] })).await;
    let path = format!("/v1/polls/{}/votes/ada", elsewhere["id"]);
    put(path, json!({ "items": [elsewhere["choices"][0]["item_id"]] })).await;
    let all = read(&tally, &held).await;
    let votes = all["votes"].as_array().expect("votes").iter();
    let votes: Vec<Value> = votes
        .map(|one| {
            json!([
                one["item_id"],
                one["key"],
                one["value"],
                one["poll_id"],
                one["poll_key"]
            ])
        })
        .collect();
    assert_eq!(
        votes,
        [
            json!([up, null, 1, null, null]),
            json!([down, "down", -1, null, null]),
            json!([choice(1), null, 1, poll["id"], "poll"])
        ],
        "{all}"
    );
    // A choice that the request also names by itself comes once.
    let twice = read(
        &tally,
        &format!("/v1/votes?voter_id=ada&items={}&polls={}", choice(1), poll["id"]),
    )
    .await;
    assert_eq!(twice["votes"].as_array().map(Vec::len), Some(1), "{twice}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_feed_by_keys_is_one_request_with_the_counts_and_what_the_voter_holds() {
    let tally = Tally::start_creating_items().await;
    let mut items = Vec::new();
    for key in ["post-1", "post-2", "post-3"] {
        items.push(tally.item_with(json!({ "key": key })).await.get());
    }
    let poll = poll(
        &tally,
        json!({ "title": "x", "choices": ["a", "b"], "key": "poll" }),
    )
    .await;
    let choice = |at: usize| poll["choices"][at]["item_id"].clone();
    for (item, voter, value) in [(0, "ada", 1), (0, "bob", 1), (1, "ada", -1), (2, "bob", 1)] {
        let path = format!("/v1/items/{}/votes/{voter}", items[item]);
        let (status, answer) = tally
            .send(Method::PUT, &path, Some(&json!({ "value": value })))
            .await;
        assert!(status.is_success(), "{answer}");
    }
    let path = format!("/v1/polls/{}/votes/ada", poll["id"]);
    tally
        .send(Method::PUT, &path, Some(&json!({ "items": [choice(1)] })))
        .await;
    let query = "items=key:post-3,key:new,key:post-1,key:post-2,999999&polls=999,key:poll,key:none";
    let feed = read(&tally, &format!("/v1/feed?voter_id=ada&{query}")).await;
    let shown = |name: &str| {
        feed["items"]
            .as_array()
            .expect("items")
            .iter()
            .map(|one| one[name].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        shown("key"),
        ["post-3", "post-1", "post-2"],
        "in the order of the query: {feed}"
    );
    assert_eq!(shown("vote_count"), [1, 2, -1]);
    assert_eq!(shown("held"), [0, 1, -1]);
    assert_eq!(
        (
            &feed["voter_id"],
            &feed["polls"][0]["key"],
            &feed["polls"][0]["held"],
            &feed["polls"][0]["voter_count"]
        ),
        (&json!("ada"), &json!("poll"), &json!([choice(1)]), &json!(1))
    );
    assert_eq!(feed["polls"].as_array().map(Vec::len), Some(1));
    assert_eq!(
        feed["unknown"],
        json!({ "items": ["key:new", "999999"], "polls": ["999", "key:none"], "creates_items": true })
    );
    // As GET shows each of them.
    let mut of_get = read(&tally, "/v1/items/key:post-1").await;
    of_get["held"] = json!(1);
    assert_eq!(feed["items"][1]["held"], of_get["held"]);
    assert_eq!(feed["items"][1]["name"], of_get["name"]);
    assert_eq!(feed["items"][1]["up_count"], of_get["up_count"]);
    // The first vote makes the item.
    let (status, _) = tally
        .post("/v1/items/key:new/votes", &json!({ "voter_id": "ada" }))
        .await;
    assert_eq!(status, StatusCode::CREATED);
    let feed = read(&tally, "/v1/feed?voter_id=ada&items=key:new,key:new").await;
    let items = feed["items"].as_array().expect("items");
    assert_eq!(
        (items.len(), &items[1]["held"], &items[1]["vote_count"]),
        (2, &json!(1), &json!(1))
    );
    assert_eq!(
        (&feed["polls"], &feed["unknown"]["items"]),
        (&json!([]), &json!([]))
    );
    let feed = read(&tally, "/v1/feed?voter_id=nobody&items=key:post-1&polls=key:poll").await;
    assert_eq!(
        (&feed["items"][0]["held"], &feed["polls"][0]["held"]),
        (&json!(0), &json!([]))
    );
}
