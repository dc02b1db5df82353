//! Names that nobody can see, choices that look the same, and ballots as people type them.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::helpers::tally::Tally;

/// Nobody sees any of these.
const INVISIBLE: [&str; 6] = [
    "\u{200b}\u{200d}",
    "\u{202e}\u{2066}\u{200f}",
    "\u{feff} \u{a0}",
    "\u{3164}\u{115f}",
    "\u{2800}\u{ad}",
    "\u{fe0f}\u{e0041}\u{2028}",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_nobody_can_see_is_refused_with_the_reason() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let (_, poll) = tally
        .post("/v1/polls", &json!({ "title": "x", "choices": ["a"] }))
        .await;
    for name in INVISIBLE {
        let (item, poll) = (format!("/v1/items/{item}"), format!("/v1/polls/{}", poll["id"]));
        let asked = [
            (Method::POST, "/v1/items", json!({ "name": name }), "name"),
            (Method::PATCH, &*item, json!({ "name": name }), "name"),
            (
                Method::POST,
                "/v1/polls",
                json!({ "title": name, "choices": ["a"] }),
                "title",
            ),
            (
                Method::POST,
                "/v1/polls",
                json!({ "title": "x", "choices": ["a", name] }),
                "choices",
            ),
            (Method::PATCH, &*poll, json!({ "title": name }), "title"),
            (
                Method::POST,
                "/v1/api-keys",
                json!({ "name": name, "scopes": ["vote"] }),
                "name",
            ),
            (
                Method::POST,
                "/v1/voidings",
                json!({ "voter_id": "x", "reason": name, "dry_run": true }),
                "reason",
            ),
        ];
        for (method, path, body, field) in asked {
            let (status, problem) = tally.send(method, path, Some(&body)).await;
            assert_eq!(
                (status, &problem["field"]),
                (StatusCode::UNPROCESSABLE_ENTITY, &json!(field)),
                "{path} {name:?}: {problem}"
            );
            let detail = problem["detail"].as_str().unwrap_or_default();
            assert!(detail.contains("nobody can see"), "{detail}");
        }
    }
    // Invisible characters beside visible ones are a part of many names.
    for name in ["👩\u{200d}💻", "می\u{200c}خواهم", "\u{200f}שלום"] {
        let (status, made) = tally.post("/v1/items", &json!({ "name": name })).await;
        assert_eq!((status, &made["name"]), (StatusCode::CREATED, &json!(name)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poll_has_no_two_choices_that_look_the_same_whether_it_is_made_or_edited() {
    let tally = Tally::start().await;
    let same = [
        ("Café", "Café"),
        ("Café", "Cafe\u{301}"),
        ("Café", " Café\u{a0}"),
        ("Red  wine", "Red\u{3000}wine"),
        ("Soup", "So\u{200b}up\u{feff}"),
        ("한국", "\u{1112}\u{1161}\u{11ab}\u{1100}\u{116e}\u{11a8}"),
        ("a\u{2028}b", "a b"),
    ];
    for (one, other) in same {
        let poll = json!({ "title": "x", "choices": [one, "between", other] });
        let (status, problem) = tally.post("/v1/polls", &poll).await;
        assert_eq!(
            (status, &problem["field"]),
            (StatusCode::UNPROCESSABLE_ENTITY, &json!("choices")),
            "{one:?} {other:?}: {problem}"
        );
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert!(detail.contains("twice"), "{detail}");
    }
    for (one, other) in [("Soup", "soup"), ("Café", "Cafe"), ("1", "①"), ("ab", "a b")] {
        let poll = json!({ "title": "x", "choices": [one, other] });
        assert_eq!(tally.post("/v1/polls", &poll).await.0, StatusCode::CREATED);
    }
    for (one, other) in same {
        let poll = json!({ "title": "x", "choices": [one, "second"] });
        let (_, poll) = tally.post("/v1/polls", &poll).await;
        let path = |at: usize| format!("/v1/items/{}", poll["choices"][at]["item_id"]);
        let (status, problem) = tally
            .send(Method::PATCH, &path(1), Some(&json!({ "name": other })))
            .await;
        assert_eq!(
            (status, &problem["field"]),
            (StatusCode::UNPROCESSABLE_ENTITY, &json!("name")),
            "{one:?} {other:?}: {problem}"
        );
        // A choice may be spelt otherwise, and other polls and items may have its name.
        let (status, _) = tally
            .send(Method::PATCH, &path(0), Some(&json!({ "name": other })))
            .await;
        assert_eq!(status, StatusCode::OK);
    }
}

async fn ballots(tally: &Tally, item: &Value) -> Vec<String> {
    let path = format!("/v1/items/{item}/ballots");
    let (status, made) = tally.post(&path, &json!({ "count": 6 })).await;
    assert_eq!(status, StatusCode::CREATED, "{made}");
    serde_json::from_value(made["ballots"].clone()).expect("ballots")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ballot_counts_once_however_it_is_typed() {
    let tally = Tally::start().await;
    let (_, item) = tally
        .post("/v1/items", &json!({ "name": "x", "by_ballot": true }))
        .await;
    let path = format!("/v1/items/{}/votes", item["id"]);
    let typed: [fn(&str) -> String; 6] = [
        str::to_uppercase,
        |ballot| format!("{}-{}", &ballot[..16], &ballot[16..]),
        |ballot| format!(" {} {}\u{a0}{}\n", &ballot[..8], &ballot[8..20], &ballot[20..]),
        |ballot| ballot.replace('0', "O").replace('1', "l"),
        |ballot| format!("\u{feff}{}\u{2013}{}\r\n", &ballot[..16], &ballot[16..]),
        |ballot| {
            let wide = |one: char| char::from_u32(u32::from(one) - 0x21 + 0xff01);
            ballot.chars().filter_map(wide).collect()
        },
    ];
    for (ballot, typed) in ballots(&tally, &item["id"]).await.iter().zip(typed) {
        let typed = typed(ballot);
        let (status, answer) = tally.post(&path, &json!({ "ballot": typed })).await;
        assert_eq!(status, StatusCode::CREATED, "{typed:?}: {answer}");
        let (status, again) = tally.post(&path, &json!({ "ballot": ballot })).await;
        assert_eq!(
            (status, &again["repeated"], &again["vote_id"]),
            (StatusCode::OK, &json!(true), &answer["vote_id"]),
            "{again}"
        );
    }
}
