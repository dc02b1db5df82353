//! Lists and searches of items and polls, a voter's votes, and recent changes.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::helpers::tally::Tally;
use crate::web::api::top_lists::{earlier, summed, votes};

async fn read(tally: &Tally, path: &str) -> Value {
    let (status, body) = tally.get(path).await;
    assert_eq!(status, StatusCode::OK, "{path}: {body}");
    body
}

/// The names of a list of items, or the titles of one of polls.
fn names(list: &Value) -> Vec<String> {
    let all = list.get("items").or_else(|| list.get("polls"));
    let all = all.and_then(Value::as_array).expect("a list").iter();
    all.map(|one| one.get("name").or_else(|| one.get("title")))
        .map(|name| name.and_then(Value::as_str).expect("a name").to_owned())
        .collect()
}

async fn poll(tally: &Tally, new: Value) -> Value {
    let (status, poll) = tally.post("/v1/polls", &new).await;
    assert_eq!(status, StatusCode::CREATED, "{poll}");
    poll
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_finds_names_with_all_its_words_and_whatever_stands_in_it_is_no_syntax() {
    let tally = Tally::start().await;
    for name in [
        "The quick brown fox",
        "Quicksand",
        "A fox's den",
        r"back\slash",
        "größe Ünder",
        "100%",
        "شجرة كبيرة",
        "zebra/quagga and zed@yak.org",
        "<b>bold</b> -42zz",
    ] {
        tally.item(name).await;
    }
    poll(&tally, json!({ "title": "x", "choices": ["quick soup"] })).await;
    let up_only = tally.item_with(json!({ "down_votes": false })).await;
    let limited = tally.item_with(json!({ "max_votes": 3 })).await;
    // The server reads an item without a live count once more. With one, it shows what the list
    // says.
    for item in [up_only, limited] {
        assert_eq!(tally.vote(item, "ada").await.0, StatusCode::CREATED);
    }
    tally.item_with(json!({ "numbered": true, "max_votes": 4 })).await;
    let hidden = tally.item("a quick secret").await;
    let path = format!("/v1/items/{hidden}");
    tally
        .send(Method::PATCH, &path, Some(&json!({ "hidden": true })))
        .await;
    for (query, expected) in [
        (
            "search=quick",
            vec!["The quick brown fox", "Quicksand", "quick soup"],
        ),
        (
            "search=quick&choices=false",
            vec!["The quick brown fox", "Quicksand"],
        ),
        ("search=QUICK+fo", vec!["The quick brown fox"]),
        ("search=quagga", vec!["zebra/quagga and zed@yak.org"]),
        ("search=zed@yak", vec!["zebra/quagga and zed@yak.org"]),
        ("search=42zz+bold", vec!["<b>bold</b> -42zz"]),
        ("search=fox", vec!["The quick brown fox", "A fox's den"]),
        ("search=fox%27s", vec!["A fox's den"]),
        ("search=brown+%26+!quick", vec!["The quick brown fox"]),
        ("search=back%5Cslash", vec![r"back\slash"]),
        ("search=%C3%9Cnd", vec!["größe Ünder"]),
        ("search=100", vec!["100%"]),
        ("search=%D8%B4%D8%AC%D8%B1", vec!["شجرة كبيرة"]),
        ("search=uick", vec![]),
        ("search=%27%29%3A*%7C%5C", vec![]),
        ("search=%00", vec![]),
        ("search=", vec![]),
        ("search=quick&limit=1&after=1", vec!["Quicksand"]),
    ] {
        assert_eq!(
            names(&read(&tally, &format!("/v1/items?{query}")).await),
            expected,
            "{query}"
        );
    }
    // A search shows each item as its own address does, with its rules.
    for word in ["x", "soup", "quagga"] {
        let found = read(&tally, &format!("/v1/items?search={word}")).await;
        for item in found["items"].as_array().expect("items") {
            assert_eq!(*item, read(&tally, &format!("/v1/items/{}", item["id"])).await);
        }
    }
    let found = read(&tally, "/v1/items?search=x").await;
    let of_each = |field: &str| [0, 1, 2].map(|at: usize| found["items"][at][field].clone());
    // A field with its default is left out.
    let none = Value::Null;
    assert_eq!(
        of_each("down_votes"),
        [json!(false), none.clone(), none.clone()],
        "{found}"
    );
    assert_eq!(
        of_each("max_votes"),
        [none.clone(), json!(3), json!(4)],
        "{found}"
    );
    assert_eq!(of_each("numbered"), [none.clone(), none, json!(true)], "{found}");
    // A new version of a row does not change the item's place in the list.
    let rename = json!({ "name": "x" });
    let path = format!("/v1/items/{limited}");
    let (status, _) = tally.send(Method::PATCH, &path, Some(&rename)).await;
    assert_eq!(status, StatusCode::OK);
    let again = read(&tally, "/v1/items?search=x").await;
    assert_eq!(again, found);
    let list = read(&tally, "/v1/items?choices=false").await;
    assert!(!names(&list).contains(&"quick soup".to_owned()), "{list}");
    for (query, field) in [
        (format!("search={}", "x".repeat(201)), "search"),
        ("name=x&search=y".to_owned(), "name"),
        ("ids=1&search=y".to_owned(), "ids"),
        ("choices=maybe".to_owned(), "choices"),
    ] {
        let (status, problem) = tally.get(&format!("/v1/items?{query}")).await;
        assert!(status.is_client_error(), "{query}: {problem}");
        assert_eq!(problem["field"], field, "{problem}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn polls_are_listed_newest_first_page_by_page_each_as_it_is_shown_by_itself() {
    let tally = Tally::start().await;
    for title in ["Lunch?", "Dinner?", "Which lunch place?"] {
        poll(&tally, json!({ "title": title, "choices": ["a", "b"] })).await;
    }
    let secret = json!({
        "title": "Board", "choices": ["yes", "no"], "closes_at": "2100-01-01T00:00:00Z",
        "results_before_close": false
    });
    let secret = poll(&tally, secret).await;
    let closed = json!({ "title": "Over", "choices": ["c"], "closes_at": "2020-01-01T00:00:00Z" });
    poll(&tally, closed).await;
    let hidden = poll(&tally, json!({ "title": "Hidden", "choices": ["d"] })).await;
    let path = format!("/v1/polls/{}", hidden["id"]);
    tally
        .send(Method::PATCH, &path, Some(&json!({ "hidden": true })))
        .await;
    // An item's own rule is not a poll.
    tally
        .item_with(json!({ "name": "Ten seats", "max_votes": 10 }))
        .await;
    for voter in ["ada", "bob"] {
        for poll in read(&tally, "/v1/polls").await["polls"]
            .as_array()
            .expect("polls")
        {
            if poll["state"] == "open" {
                let path = format!("/v1/polls/{}/votes/{voter}", poll["id"]);
                let choice = json!({ "items": [poll["choices"][0]["item_id"]] });
                let (status, answer) = tally.send(Method::PUT, &path, Some(&choice)).await;
                assert_eq!(status, StatusCode::OK, "{answer}");
            }
        }
    }
    let all = read(&tally, "/v1/polls").await;
    assert_eq!(
        names(&all),
        ["Over", "Board", "Which lunch place?", "Dinner?", "Lunch?"]
    );
    assert_eq!(all["next_before"], Value::Null);
    for poll in all["polls"].as_array().expect("polls") {
        assert_eq!(*poll, read(&tally, &format!("/v1/polls/{}", poll["id"])).await);
    }
    assert_eq!(all["polls"][1]["id"], secret["id"]);
    assert_eq!(all["polls"][1]["choices"][0]["vote_count"], Value::Null);
    assert_eq!(all["polls"][2]["choices"][0]["vote_count"], 2);

    let mut seen = Vec::new();
    let mut next = "/v1/polls?limit=2".to_owned();
    loop {
        let page = read(&tally, &next).await;
        seen.extend(names(&page));
        let Some(before) = page["next_before"].as_i64() else {
            break;
        };
        next = format!("/v1/polls?limit=2&before={before}");
    }
    assert_eq!(seen, names(&all));
    assert_eq!(
        names(&read(&tally, "/v1/polls?search=lunch").await),
        ["Which lunch place?", "Lunch?"]
    );
    assert_eq!(
        names(&read(&tally, "/v1/polls?search=lun+whi").await),
        ["Which lunch place?"]
    );
    // The rows of the other polls have been rewritten since they were created.
    poll(&tally, json!({ "title": "Lunch again?", "choices": ["a"] })).await;
    assert_eq!(
        names(&read(&tally, "/v1/polls?search=lunch").await),
        ["Lunch again?", "Which lunch place?", "Lunch?"]
    );
    // The index has the polls in this order. Without it, Postgres returns them in any order.
    let with_index = read(&tally, "/v1/polls").await;
    sqlx::raw_sql("drop index rule_listed")
        .execute(&tally.pool)
        .await
        .expect("the owner may");
    assert_eq!(
        names(&read(&tally, "/v1/polls?search=lunch").await),
        ["Lunch again?", "Which lunch place?", "Lunch?"]
    );
    assert_eq!(read(&tally, "/v1/polls").await, with_index);
    let first = read(&tally, "/v1/polls?search=lunch&limit=1").await;
    let next = format!("/v1/polls?search=lunch&before={}", first["next_before"]);
    assert_eq!(
        names(&read(&tally, &next).await),
        ["Which lunch place?", "Lunch?"]
    );
}

/// The primary key has the items in this order.
/// Without it, they come as their rows lie on disk.
#[tokio::test(flavor = "multi_thread")]
async fn a_search_shows_items_in_the_order_of_their_ids_however_postgres_finds_them() {
    let tally = Tally::start().await;
    let first = tally.item("red pear").await;
    for name in ["green pear", "blue pear"] {
        tally.item(name).await;
    }
    // Its row now lies behind the others on disk.
    sqlx::query("update item set name = 'yellow pear' where id = $1")
        .bind(first.get())
        .execute(&tally.pool)
        .await
        .expect("the owner may");
    sqlx::raw_sql("alter table item drop constraint item_pkey cascade")
        .execute(&tally.pool)
        .await
        .expect("the owner may");
    let page = read(&tally, "/v1/items?search=pear&limit=2").await;
    assert_eq!(names(&page), ["yellow pear", "green pear"]);
    let next = format!("/v1/items?search=pear&after={}", page["next_after"]);
    assert_eq!(names(&read(&tally, &next).await), ["blue pear"]);
}

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
async fn votes_that_no_worker_has_summed_are_in_no_part_of_a_history() {
    let tally = Tally::start().await;
    let item = tally.item("x").await.get();
    let path = format!("/v1/items/{item}/history?over=hour");
    let before = read(&tally, &path).await;
    assert_eq!(before["as_of"], Value::Null, "{before}");
    for votes_so_far in [3, 6] {
        votes(&tally, item, 3, 0).await;
        let not_summed = read(&tally, &path).await;
        assert_eq!(
            not_summed["total"]["vote_count"],
            votes_so_far - 3,
            "{not_summed}"
        );
        drop(summed(&tally).await);
        let history = read(&tally, &path).await;
        assert_eq!(history["total"]["vote_count"], votes_so_far, "{history}");
        let spans = history["spans"].as_array().expect("spans").iter();
        let changes = spans.filter_map(|span| span["change"]["vote_count"].as_i64());
        assert_eq!(changes.sum::<i64>(), votes_so_far, "{history}");
    }
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

#[tokio::test(flavor = "multi_thread")]
async fn a_history_has_what_changed_in_each_span_and_nothing_of_hidden_results() {
    let tally = Tally::start().await;
    let item = tally.item("x").await.get();
    votes(&tally, item, 4, 1).await;
    earlier(&tally.pool, "true", "3 days").await;
    votes(&tally, item, 2, 1).await;
    earlier(&tally.pool, "id > 5", "5 hours").await;
    votes(&tally, item, 3, 0).await;
    let secret = json!({
        "title": "Board", "choices": ["yes"], "closes_at": "2100-01-01T00:00:00Z", "results_before_close": false
    });
    let secret = poll(&tally, secret).await;
    let open = poll(&tally, json!({ "title": "x", "choices": ["a", "b"] })).await;
    for poll in [&secret, &open] {
        let path = format!("/v1/polls/{}/votes/ada", poll["id"]);
        let choice = json!({ "items": [poll["choices"][0]["item_id"]] });
        tally.send(Method::PUT, &path, Some(&choice)).await;
    }
    drop(summed(&tally).await);

    let changes = |history: &Value| -> Vec<(i64, i64, i64)> {
        let spans = history["spans"].as_array().expect("spans").iter();
        let number = |value: &Value| value.as_i64().expect("a number");
        spans
            .map(|span| {
                let change = &span["change"];
                (
                    number(&change["vote_count"]),
                    number(&change["up_count"]),
                    number(&change["down_count"]),
                )
            })
            .collect()
    };
    let path = format!("/v1/items/{item}/history");
    let day = read(&tally, &path).await;
    assert_eq!(day["over"], "day");
    assert_eq!(changes(&day), [(1, 2, 1), (3, 3, 0)], "{day}");
    let hour = read(&tally, &format!("{path}?over=hour")).await;
    assert_eq!(changes(&hour), [(3, 3, 0)], "{hour}");
    assert!(hour["as_of"].is_string() && hour["since"].as_str() > day["since"].as_str());
    // Both end with the same counts, those of all votes.
    let total =
        |net: i64, ups: i64, downs: i64| json!({ "vote_count": net, "up_count": ups, "down_count": downs });
    assert_eq!(
        (&day["total"], &hour["total"]),
        (&total(7, 9, 2), &total(7, 9, 2))
    );

    let history = read(&tally, &format!("/v1/polls/{}/history", open["id"])).await;
    assert_eq!(changes(&history["choices"][0]), [(1, 1, 0)], "{history}");
    assert_eq!(changes(&history["choices"][1]), [], "{history}");
    assert_eq!(history["choices"][0]["total"], total(1, 1, 0), "{history}");
    assert_eq!(history["choices"][1]["total"], total(0, 0, 0), "{history}");
    let hidden = read(&tally, &format!("/v1/polls/{}/history", secret["id"])).await;
    assert_eq!(hidden["choices"], Value::Null, "{hidden}");
    let choice = secret["choices"][0]["item_id"].as_i64().expect("an id");
    let hidden = read(&tally, &format!("/v1/items/{choice}/history")).await;
    assert_eq!(
        (&hidden["spans"], &hidden["total"]),
        (&Value::Null, &Value::Null),
        "{hidden}"
    );

    for (path, status) in [
        ("/v1/items/999999/history", StatusCode::NOT_FOUND),
        ("/v1/polls/999999/history", StatusCode::NOT_FOUND),
        (&format!("{path}?over=week"), StatusCode::UNPROCESSABLE_ENTITY),
    ] {
        assert_eq!(tally.get(path).await.0, status, "{path}");
    }
}
