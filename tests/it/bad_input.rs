//! Bad input gets a clear problem+json, and nothing is stored.

use reqwest::{Method, StatusCode};
use serde_json::Value;

use crate::helpers::tally::Tally;

async fn assert_problem(response: reqwest::Response, status: StatusCode, part: &str) {
    let url = response.url().clone();
    assert_eq!(response.status(), status, "{url}");
    assert_eq!(
        response.headers()["content-type"],
        "application/problem+json",
        "{url}"
    );
    let problem: Value = response.json().await.expect("JSON");
    assert_eq!(problem["status"], status.as_u16());
    assert!(
        problem["title"].is_string() && problem["type"].is_string(),
        "{problem}"
    );
    // A field is named by its own name, so that a form can show it there.
    if [400, 422].contains(&status.as_u16()) {
        assert!(problem["field"].is_string(), "{problem}");
    }
    let text = problem.to_string();
    assert!(text.contains(part), "{text} should contain {part:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_gets_a_problem_that_names_what_was_wrong_and_stores_nothing() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let votes = format!("/v1/items/{item}/votes");
    let long_voter = format!(r#"{{"voter_id":"{}"}}"#, "x".repeat(129));
    let long_name = format!(r#"{{"name":"{}"}}"#, "é".repeat(201));
    let large = format!(r#"{{"voter_id":"{}"}}"#, "x".repeat(16 * 1024));
    let cases: &[(&str, &str, u16, &str)] = &[
        ("/v1/items/999/votes", "{}", 404, "item 999"),
        (&votes, "{", 400, "body"),
        (&votes, "[]", 400, "array"),
        (&votes, r#" ["ada",1]"#, 400, "array"),
        ("/v1/items", r#"["x"]"#, 400, "array"),
        (&votes, "{} {}", 400, "body"),
        (&votes, r#"{"voter_id":7}"#, 400, r#""field":"voter_id""#),
        (&votes, r#"{"value":"up"}"#, 400, "value"),
        (&votes, r#"{"value":1.5}"#, 400, "value"),
        (&votes, r#"{"votr_id":"ada"}"#, 400, r#""field":"votr_id""#),
        ("/v1/items/0/votes", "{}", 400, "id"),
        ("/v1/items/-1/votes", "{}", 400, "id"),
        ("/v1/items/x/votes", "{}", 400, "id"),
        ("/v1/items/9223372036854775808/votes", "{}", 400, "id"),
        (&votes, r#"{"voter_id":""}"#, 422, "voter_id"),
        (&votes, &long_voter, 422, "129 bytes"),
        (&votes, r#"{"voter_id":"a\u0000b"}"#, 422, "control"),
        (&votes, r#"{"value":2}"#, 422, "1 or -1"),
        (&votes, &large, 413, "16384 bytes"),
        ("/v1/items", r#"{"name":""}"#, 422, "name"),
        ("/v1/items", &long_name, 422, "201 characters"),
        ("/v1/items", r#"{"name":"a\u0000"}"#, 422, "control"),
        ("/v1/items", "{}", 400, r#""field":"name""#),
        ("/v1/items", r#"{"name":"x","colour":"red"}"#, 400, "colour"),
        ("/nowhere", "{}", 404, "/nowhere"),
    ];
    for (path, body, status, part) in cases {
        let response = tally.post_raw(path, "application/json", (*body).to_owned()).await;
        assert_problem(response, StatusCode::from_u16(*status).expect("a status"), part).await;
    }
    assert_eq!(tally.ledger_sum(item).await, 0);
    assert_eq!(tally.ledger.item_ids(0, 10).await.expect("items").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_without_a_length_is_cut_off_at_the_limit_as_well() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let chunks = (0..20).map(|_| Ok::<_, std::io::Error>(vec![b' '; 1024]));
    let body = reqwest::Body::wrap_stream(futures_util::stream::iter(chunks));
    let response = tally
        .post_raw(&format!("/v1/items/{item}/votes"), "application/json", body)
        .await;
    assert_problem(response, StatusCode::PAYLOAD_TOO_LARGE, "16384 bytes").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_does_not_arrive_gets_408() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    // Half a body, and then nothing.
    let stream = futures_util::stream::once(async { Ok::<_, std::io::Error>("{") });
    let body = reqwest::Body::wrap_stream(futures_util::StreamExt::chain(
        stream,
        futures_util::stream::pending(),
    ));
    let response = tally
        .post_raw(&format!("/v1/items/{item}/votes"), "application/json", body)
        .await;
    assert_problem(response, StatusCode::REQUEST_TIMEOUT, "within 5 s").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_content_type_is_415() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    for content_type in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/jsonx",
    ] {
        let response = tally
            .post_raw(&format!("/v1/items/{item}/votes"), content_type, "{}")
            .await;
        assert_problem(response, StatusCode::UNSUPPORTED_MEDIA_TYPE, "application/json").await;
    }
    let charset = "application/json; charset=utf-8";
    let response = tally
        .post_raw(&format!("/v1/items/{item}/votes"), charset, "{}")
        .await;
    assert_eq!(response.status(), StatusCode::CREATED);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_method_is_405_and_names_the_allowed_ones() {
    let tally = Tally::start().await;
    for (method, path, allow) in [
        (Method::DELETE, "/v1/items", "GET, HEAD, POST"),
        (Method::PUT, "/v1/items/1", "GET, HEAD"),
        (Method::GET, "/v1/items/1/votes", "POST"),
        (Method::POST, "/health/ready", "GET, HEAD"),
        (Method::POST, "/", "GET, HEAD"),
    ] {
        let request = tally.http.request(method, format!("{}{path}", tally.base));
        let response = request.send().await.expect("an answer");
        assert_eq!(response.headers()["allow"], allow, "{path}");
        assert_problem(response, StatusCode::METHOD_NOT_ALLOWED, allow).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_query_is_refused() {
    let tally = Tally::start().await;
    for (query, status, part) in [
        ("limit=0", 422, "1 to 1000"),
        ("limit=1001", 422, "1 to 1000"),
        ("limit=x", 400, "query"),
        ("page=2", 400, "page"),
        ("after=9223372036854775808", 400, "query"),
    ] {
        let request = tally.http.get(format!("{}/v1/items?{query}", tally.base));
        let response = request.send().await.expect("an answer");
        assert_problem(response, StatusCode::from_u16(status).expect("a status"), part).await;
    }
    // Postgres has no text with this character, so no item has this name.
    assert_eq!(
        tally.get("/v1/items?name=%00").await.1["items"],
        serde_json::json!([])
    );
}
