//! Lists and searches of items and polls.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::helpers::tally::Tally;

/// What this path answers.
pub async fn read(tally: &Tally, path: &str) -> Value {
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

/// A new poll, as the server answers it.
pub async fn poll(tally: &Tally, new: Value) -> Value {
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
