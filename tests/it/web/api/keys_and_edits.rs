//! The frontend's own keys, and edits.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tally::web::access::CreateItems;
use tokio::task::JoinSet;

use crate::helpers::eventually;
use crate::helpers::tally::Tally;

#[tokio::test(flavor = "multi_thread")]
async fn a_key_stands_wherever_an_id_may_and_is_made_once() {
    let tally = Tally::start().await;
    let new = json!({ "name": "Tea", "key": "post/1, é" });
    let (status, made) = tally.post("/v1/items", &new).await;
    assert_eq!((status, &made["key"]), (StatusCode::CREATED, &json!("post/1, é")));
    let (status, again) = tally.post("/v1/items", &new).await;
    assert_eq!((status, &again["id"]), (StatusCode::OK, &made["id"]));
    for other in [
        json!({ "name": "Coffee", "key": "post/1, é" }),
        json!({ "name": "Tea", "key": "post/1, é", "down_votes": false }),
        json!({ "name": "Tea", "key": "post/1, é", "max_votes": 3 }),
    ] {
        let (status, problem) = tally.post("/v1/items", &other).await;
        assert_eq!(
            (status, &problem["field"]),
            (StatusCode::CONFLICT, &json!("key")),
            "{other}"
        );
    }
    let path = "/v1/items/key:post%2F1%2C%20%C3%A9";
    let vote = tally
        .post(&format!("{path}/votes"), &json!({ "voter_id": "ada" }))
        .await;
    assert_eq!((vote.0, &vote.1["item_id"]), (StatusCode::CREATED, &made["id"]));
    let change = json!({ "value": -1 });
    let put = tally
        .send(Method::PUT, &format!("{path}/votes/ada"), Some(&change))
        .await;
    assert_eq!(put.0, StatusCode::OK, "{}", put.1);
    assert_eq!(tally.get(&format!("{path}/votes/ada")).await.1["value"], -1);
    assert_eq!(tally.get(path).await.1["vote_count"], -1);
    let back = tally
        .send(Method::DELETE, &format!("{path}/votes/ada"), None)
        .await;
    assert_eq!(back.1["vote_count"], 0);
    let batch =
        json!({ "votes": [{ "item_id": "key:post/1, é" }, { "item_id": "key:no" }, { "item_id": "7" }] });
    let (_, answer) = tally.post("/v1/votes", &batch).await;
    let statuses: Vec<&Value> = (0..3).map(|at| &answer["results"][at]["status"]).collect();
    assert_eq!(statuses, [201, 404, 404]);

    let (_, other) = tally.post("/v1/items", &json!({ "name": "x", "key": "b" })).await;
    let (_, list) = tally
        .get(&format!("/v1/items?ids=key:b,{},key:no,99", made["id"]))
        .await;
    let ids: Vec<&Value> = (0..2).map(|at| &list["items"][at]["id"]).collect();
    assert_eq!(ids, [&other["id"], &made["id"]]);
    assert_eq!(list["items"].as_array().map(Vec::len), Some(2));

    let poll = json!({ "title": "Lunch", "choices": ["a", "b"], "key": "lunch" });
    let (status, made) = tally.post("/v1/polls", &poll).await;
    assert_eq!(status, StatusCode::CREATED);
    assert_eq!(tally.post("/v1/polls", &poll).await.0, StatusCode::OK);
    let other = json!({ "title": "Lunch", "choices": ["a", "c"], "key": "lunch" });
    assert_eq!(tally.post("/v1/polls", &other).await.0, StatusCode::CONFLICT);
    let selection = json!({ "items": [made["choices"][1]["item_id"]] });
    let voted = tally
        .send(Method::PUT, "/v1/polls/key:lunch/votes/ada", Some(&selection))
        .await;
    assert_eq!(voted.0, StatusCode::OK);
    assert_eq!(tally.get("/v1/polls/key:lunch").await.1["voter_count"], 1);
    assert_eq!(
        tally.get("/v1/polls/key:lunch/votes/ada").await.1["items"],
        selection["items"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_key_and_an_unknown_key_are_refused() {
    let tally = Tally::start().await;
    for (path, status) in [
        ("/v1/items/key:", 422),
        ("/v1/items/key:%01", 422),
        ("/v1/items/key:%zz", 400),
        ("/v1/items/key:unknown", 404),
        ("/v1/items/unknown", 400),
        ("/v1/polls/key:unknown", 404),
        ("/v1/items?ids=1,,2", 400),
        ("/v1/items?ids=1&limit=2", 400),
    ] {
        let (got, problem) = tally.get(path).await;
        assert_eq!(got, status, "{path}: {problem}");
    }
    let (status, _) = tally.post("/v1/items/key:unknown/votes", &json!({})).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let long = "k".repeat(201);
    for key in ["", "a\n", &long] {
        let (status, problem) = tally.post("/v1/items", &json!({ "name": "x", "key": key })).await;
        assert_eq!((status.as_u16(), &problem["field"]), (422, &json!("key")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_it_is_allowed_the_first_vote_on_a_key_makes_its_item_once() {
    let tally = Tally::start_creating_items().await;
    let mut voting = JoinSet::new();
    for voter in 0..30 {
        let http = tally.http.clone();
        let url = format!("{}/v1/items/key:post-1/votes", tally.base);
        voting.spawn(async move {
            let body = json!({ "voter_id": format!("v{voter}") });
            http.post(url)
                .json(&body)
                .send()
                .await
                .expect("an answer")
                .status()
        });
    }
    assert!(
        voting
            .join_all()
            .await
            .iter()
            .all(|status| *status == StatusCode::CREATED)
    );
    let (_, item) = tally.get("/v1/items/key:post-1").await;
    assert_eq!(
        (&item["name"], &item["vote_count"]),
        (&json!("post-1"), &json!(30))
    );
    let (_, list) = tally.get("/v1/items").await;
    assert_eq!(list["items"].as_array().map(Vec::len), Some(1));
    // Neither a read nor a refused vote creates an item.
    assert_eq!(tally.get("/v1/items/key:post-2").await.0, StatusCode::NOT_FOUND);
    let bad = tally
        .post("/v1/items/key:post-2/votes", &json!({ "value": 2 }))
        .await;
    assert_eq!(bad.0, StatusCode::UNPROCESSABLE_ENTITY);
    let ballot = tally
        .post("/v1/items/key:post-2/votes", &json!({ "ballot": "x" }))
        .await;
    assert_eq!(ballot.0, StatusCode::NOT_FOUND);
    assert_eq!(tally.get("/v1/items/key:post-2").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_keys_says_which_items_a_first_vote_creates_until_they_exist() {
    for (creates, down_votes) in [(CreateItems::Any, None), (CreateItems::Likes, Some(false))] {
        let tally = Tally::start_with(|options| options.voting.creates = creates).await;
        let known = json!({ "name": "Known", "key": "known" });
        assert_eq!(tally.post("/v1/items", &known).await.0, StatusCode::CREATED);
        // No item has an id that nobody gave it, and a blank is no name.
        let path = "/v1/items?ids=key:post-2,key:known,999999,key:%20,key:post-1";
        let (_, list) = tally.get(path).await;
        let future = |key: &str| match down_votes {
            Some(taken) => json!({ "key": key, "down_votes": taken }),
            None => json!({ "key": key }),
        };
        assert_eq!(list["items"].as_array().map(Vec::len), Some(1), "{list}");
        assert_eq!(
            list["created_by_a_vote"],
            json!([future("post-2"), future("post-1")])
        );
        for key in ["post-1", "post-2"] {
            let vote = tally
                .post(
                    &format!("/v1/items/key:{key}/votes"),
                    &json!({ "voter_id": "ada" }),
                )
                .await;
            assert_eq!(vote.0, StatusCode::CREATED, "{}", vote.1);
            let (_, item) = tally.get(&format!("/v1/items/key:{key}")).await;
            assert_eq!(item["down_votes"].as_bool(), down_votes, "{item}");
        }
        let (_, list) = tally.get(path).await;
        assert_eq!(list["items"].as_array().map(Vec::len), Some(3), "{list}");
        assert_eq!(list["created_by_a_vote"], Value::Null, "{list}");
    }
    let tally = Tally::start().await;
    let (_, list) = tally.get("/v1/items?ids=key:post-1").await;
    assert_eq!(list, json!({ "items": [], "next_after": null }));
}

#[tokio::test(flavor = "multi_thread")]
async fn where_first_votes_create_items_for_likes_a_down_vote_creates_none() {
    let tally = Tally::start_with(|options| options.voting.creates = CreateItems::Likes).await;
    let down = json!({ "voter_id": "ada", "value": -1 });
    let (status, _) = tally.post("/v1/items/key:post-1/votes", &down).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let put = json!({ "value": -1 });
    let (status, _) = tally
        .send(Method::PUT, "/v1/items/key:post-1/votes/ada", Some(&put))
        .await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let batch = json!({ "votes": [{ "item_id": "key:post-1", "voter_id": "ada", "value": -1 }, { "item_id": "key:post-2", "voter_id": "ada" }] });
    let (_, answer) = tally.post("/v1/votes", &batch).await;
    let statuses = [&answer["results"][0]["status"], &answer["results"][1]["status"]];
    assert_eq!(statuses, [404, 201], "{answer}");
    assert_eq!(tally.get("/v1/items/key:post-1").await.0, StatusCode::NOT_FOUND);
    let (status, problem) = tally.post("/v1/items/key:post-2/votes", &down).await;
    assert_eq!(
        (status, &problem["type"]),
        (
            StatusCode::UNPROCESSABLE_ENTITY,
            &json!("/problems/value-not-taken")
        )
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_shows_at_once_and_keeps_votes_and_counts() {
    let tally = Tally::start().await;
    let item = tally
        .item_with(json!({ "opens_at": "2001-01-01T00:00:00Z" }))
        .await;
    let path = format!("/v1/items/{item}");
    tally.vote(item, "ada").await;
    assert_eq!(tally.get(&path).await.1["name"], "x");
    let edit = json!({ "name": "y", "hidden": true, "opens_at": null, "closes_at": "2100-01-01T00:00:00Z" });
    let (status, edited) = tally.send(Method::PATCH, &path, Some(&edit)).await;
    assert_eq!(status, StatusCode::OK, "{edited}");
    // Every thread shows the edit.
    for _ in 0..20 {
        let (_, shown) = tally.get(&path).await;
        assert_eq!(
            (&shown["name"], &shown["hidden"], &shown["vote_count"]),
            (&json!("y"), &json!(true), &json!(1))
        );
        assert_eq!(shown["closes_at"], "2100-01-01T00:00:00Z");
        assert!(shown["opens_at"].is_null());
    }
    assert_eq!(tally.get("/v1/items").await.1["items"], json!([]));
    assert_eq!(tally.get("/v1/items?name=y").await.1["items"], json!([]));
    let by_id = tally.get(&format!("/v1/items?ids={item}")).await.1;
    assert_eq!(by_id["items"][0]["hidden"], true);
    assert_eq!(tally.vote(item, "bob").await.0, StatusCode::CREATED);
    let (_, shown) = tally
        .send(Method::PATCH, &path, Some(&json!({ "hidden": false })))
        .await;
    assert_eq!(shown.get("hidden"), None);
    assert_eq!(tally.get("/v1/items").await.1["items"][0]["id"], json!(item));
    tally.assert_exact_when_quiescent(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_never_changes_is_refused_with_its_reason_and_what_has_closed_stays_closed() {
    let tally = Tally::start().await;
    let plain = format!("/v1/items/{}", tally.item("x").await);
    let timed = tally
        .item_with(json!({ "opens_at": "2050-01-01T00:00:00Z" }))
        .await;
    let timed = format!("/v1/items/{timed}");
    let hidden = json!({
        "title": "x", "choices": ["a", "b"], "results_before_close": false,
        "closes_at": "2100-01-01T00:00:00Z",
    });
    let (_, poll) = tally.post("/v1/polls", &hidden).await;
    let choice = format!("/v1/items/{}", poll["choices"][0]["item_id"]);
    let poll = format!("/v1/polls/{}", poll["id"]);
    for (path, edit, part) in [
        (
            &plain,
            json!({ "max_votes": 3, "name": "y" }),
            "max_votes never changes",
        ),
        (&plain, json!({ "key": "k" }), "key never changes"),
        (&plain, json!({ "max_votes": null }), "max_votes never changes"),
        (&plain, json!({ "name": null }), "name is null"),
        (&plain, json!({ "hidden": null }), "hidden is null"),
        (&plain, json!({ "closes_at": null }), "closes_at never changes"),
        (&plain, json!({ "poll_id": 1 }), "poll_id never changes"),
        (
            &plain,
            json!({ "closes_at": "2100-01-01T00:00:00Z" }),
            "without a rule",
        ),
        (
            &choice,
            json!({ "closes_at": "2100-01-01T00:00:00Z" }),
            "its poll has the times",
        ),
        (
            &timed,
            json!({ "closes_at": "2049-01-01T00:00:00Z" }),
            "after opens_at",
        ),
        (&poll, json!({ "choices": ["c"] }), "choices never changes"),
        (&poll, json!({ "max_choices": 2 }), "max_choices never changes"),
        (&poll, json!({ "closes_at": null }), "takes a time"),
        (&poll, json!({ "title": "" }), "title is empty"),
        (&poll, json!({ "title": null }), "title is null"),
        (&poll, json!({ "secret": null }), "secret never changes"),
    ] {
        let (status, problem) = tally.send(Method::PATCH, path, Some(&edit)).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{edit}: {problem}");
        let detail = problem["detail"].as_str().expect("text");
        assert!(detail.contains(part), "{edit}: {detail}");
    }
    assert_eq!(tally.get(&plain).await.1["name"], "x", "nothing of it is stored");
    for path in ["/v1/items/999", "/v1/polls/999"] {
        let edited = tally
            .send(Method::PATCH, path, Some(&json!({ "hidden": true })))
            .await;
        assert_eq!(edited.0, StatusCode::NOT_FOUND);
    }
    // A time that has passed closes it at once, for good.
    let close = json!({ "closes_at": "2001-01-01T00:00:00Z" });
    assert_eq!(
        tally.send(Method::PATCH, &poll, Some(&close)).await.0,
        StatusCode::OK
    );
    eventually("the results are final", async || {
        (tally.get(&poll).await.1["final"] == json!(true)).then_some(())
    })
    .await;
    let later = json!({ "closes_at": "2100-01-01T00:00:00Z" });
    let (status, problem) = tally.send(Method::PATCH, &poll, Some(&later)).await;
    assert_eq!(
        (status, &problem["title"]),
        (StatusCode::CONFLICT, &json!("Closed"))
    );
    let (status, renamed) = tally
        .send(Method::PATCH, &poll, Some(&json!({ "title": "y" })))
        .await;
    assert_eq!((status, &renamed["title"]), (StatusCode::OK, &json!("y")));
}
