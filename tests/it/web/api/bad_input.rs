//! Bad input gets a clear problem+json, and nothing is stored.

use reqwest::{Method, StatusCode};
use serde_json::Value;

use crate::helpers::tally::Tally;
use crate::web::api::problems::assert_leads_to_its_section;

async fn assert_problem(tally: &Tally, response: reqwest::Response, status: StatusCode, part: &str) {
    let url = response.url().clone();
    assert_eq!(response.status(), status, "{url}");
    assert_eq!(
        response.headers()["content-type"],
        "application/problem+json",
        "{url}"
    );
    let problem: Value = response.json().await.expect("JSON");
    assert_eq!(problem["status"], status.as_u16());
    assert_leads_to_its_section(tally, &problem).await;
    // A problem names the field by its own name, so that a form can show the problem there.
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
        assert_problem(
            &tally,
            response,
            StatusCode::from_u16(*status).expect("a status"),
            part,
        )
        .await;
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
    assert_problem(&tally, response, StatusCode::PAYLOAD_TOO_LARGE, "16384 bytes").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_does_not_arrive_gets_408() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    // The client sends half a body, and then nothing.
    let stream = futures_util::stream::once(async { Ok::<_, std::io::Error>("{") });
    let body = reqwest::Body::wrap_stream(futures_util::StreamExt::chain(
        stream,
        futures_util::stream::pending(),
    ));
    let response = tally
        .post_raw(&format!("/v1/items/{item}/votes"), "application/json", body)
        .await;
    assert_problem(&tally, response, StatusCode::REQUEST_TIMEOUT, "within 5 s").await;
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
        assert_problem(
            &tally,
            response,
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "application/json",
        )
        .await;
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
        (Method::PUT, "/v1/items/1", "GET, HEAD, PATCH"),
        (Method::PATCH, "/v1/items/1/votes", "GET, HEAD, POST"),
        (Method::POST, "/health/ready", "GET, HEAD"),
        (Method::POST, "/", "GET, HEAD"),
    ] {
        let request = tally.http.request(method, format!("{}{path}", tally.base));
        let response = request.send().await.expect("an answer");
        assert_eq!(response.headers()["allow"], allow, "{path}");
        assert_problem(&tally, response, StatusCode::METHOD_NOT_ALLOWED, allow).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_query_is_refused() {
    let tally = Tally::start().await;
    for (query, status, part) in [
        ("limit=0", 422, "1 to 1000"),
        ("limit=1001", 422, "1 to 1000"),
        ("limit=x", 400, r#""field":"limit""#),
        ("page=2", 400, r#""field":"page""#),
        ("after=9223372036854775808", 400, r#""field":"after""#),
    ] {
        let request = tally.http.get(format!("{}/v1/items?{query}", tally.base));
        let response = request.send().await.expect("an answer");
        assert_problem(
            &tally,
            response,
            StatusCode::from_u16(status).expect("a status"),
            part,
        )
        .await;
    }
    // Beside a body, they would be lost without a word.
    let item = tally.item("x").await;
    let request = tally
        .http
        .post(format!("{}/v1/items/{item}/votes?voter_id=ada", tally.base));
    let response = request.send().await.expect("an answer");
    assert_problem(
        &tally,
        response,
        StatusCode::BAD_REQUEST,
        "voter_id, value, ballot go into the body",
    )
    .await;
    assert_eq!(tally.ledger_sum(item).await, 0);
    // Postgres stores no text with this character. So no item has this name.
    assert_eq!(
        tally.get("/v1/items?name=%00").await.1["items"],
        serde_json::json!([])
    );
}

/// Compares the whole `detail` of each answer: no word of Rust may get into it.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_said_in_words_of_json_and_http() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let votes = format!("/v1/items/{item}/votes");
    let out_of_range =
        "it is out of range; it takes a whole number from -9223372036854775808 to 9223372036854775807.";
    let fields = "there is no such field; the fields are voter_id, value and ballot.";
    let of_votes: &[(&str, &str, &str)] = &[
        (
            r#"{"value":"up"}"#,
            "value",
            "it is a string; it takes a whole number.",
        ),
        (
            r#"{"value":1.5}"#,
            "value",
            "it is a decimal number; it takes a whole number.",
        ),
        (
            r#"{"value":1e3}"#,
            "value",
            "it is a decimal number; it takes a whole number.",
        ),
        (
            r#"{"value":true}"#,
            "value",
            "it is true; it takes a whole number.",
        ),
        (
            r#"{"value":[1]}"#,
            "value",
            "it is an array; it takes a whole number.",
        ),
        (
            r#"{"value":{"x":1}}"#,
            "value",
            "it is an object; it takes a whole number.",
        ),
        (r#"{"value":9223372036854775808}"#, "value", out_of_range),
        (r#"{"value":-99999999999999999999}"#, "value", out_of_range),
        (r#"{"value":1e400}"#, "value", out_of_range),
        (
            r#"{"voter_id":7}"#,
            "voter_id",
            "it is a number; it takes a string.",
        ),
        (
            r#"{"voter_id":0.5}"#,
            "voter_id",
            "it is a decimal number; it takes a string.",
        ),
        (
            r#"{"voter_id":1e400}"#,
            "voter_id",
            "it is a number; it takes a string.",
        ),
        (
            r#"{"voter_id":false}"#,
            "voter_id",
            "it is false; it takes a string.",
        ),
        (
            r#"{"voter_id":"\ud800"}"#,
            "voter_id",
            "it has an escape like \\ud800, which is no character.",
        ),
        (r#"{"votr_id":"ada"}"#, "votr_id", fields),
        (r#"{"value":1,"":2}"#, "", fields),
        (
            r#"{"value":1,"value":1}"#,
            "value",
            "it is given more than once; it takes one value.",
        ),
        ("[]", "body", "it is an array; it takes an object."),
        (r#" ["ada",1]"#, "body", "it is an array; it takes an object."),
        ("null", "body", "it is null; it takes an object."),
        ("7", "body", "it is a number; it takes an object."),
        (r#""ada""#, "body", "it is a string; it takes an object."),
        ("{", "body", "the JSON ends too early, at line 1, column 1."),
        ("  ", "body", "the JSON ends too early, at line 1, column 2."),
        (
            "{} {}",
            "body",
            "more follows after its end, at line 1, column 4.",
        ),
        (
            "{\n  'value': 1\n}",
            "body",
            "it is not JSON; the mistake is at line 2, column 3.",
        ),
        (
            r#"{"value":1,}"#,
            "body",
            "it is not JSON; the mistake is at line 1, column 12.",
        ),
        (
            r#"{"value":+1}"#,
            "body",
            "it is not JSON; the mistake is at line 1, column 10.",
        ),
        (
            r#"{"\ud800":1}"#,
            "body",
            "it is not JSON; the mistake is at line 1, column 9.",
        ),
    ];
    for (body, field, detail) in of_votes {
        assert_says(
            tally
                .post_raw(&votes, "application/json", (*body).to_owned())
                .await,
            field,
            detail,
        )
        .await;
    }
    let not_utf_8 = tally.post_raw(&votes, "application/json", vec![b'{', 0xff]).await;
    assert_says(not_utf_8, "body", "it is not UTF-8; it takes JSON in UTF-8.").await;
    for (body, field, detail) in [
        ("", "name", "it is missing; it takes a string."),
        ("{}", "name", "it is missing; it takes a string."),
        (r#"{"name":null}"#, "name", "it is null; it takes a string."),
        (
            r#"{"name":"x","colour":"red"}"#,
            "colour",
            "there is no such field; the fields are name, key, down_votes, max_votes, numbered, opens_at, closes_at and by_ballot.",
        ),
    ] {
        assert_says(
            tally.post_raw("/v1/items", "application/json", body).await,
            field,
            detail,
        )
        .await;
    }
    for (query, field, detail) in [
        ("after=x", "after", "it takes a whole number."),
        ("after=1.5", "after", "it takes a whole number."),
        ("limit=", "limit", "it takes a whole number."),
        ("limit", "limit", "it takes a whole number."),
        ("after=9223372036854775808", "after", out_of_range),
        (
            "page=2",
            "page",
            "there is no such parameter; the parameters are after, limit, name, search, choices and ids.",
        ),
        (
            "limit=1&limit=1",
            "limit",
            "it is given more than once; it takes one value.",
        ),
    ] {
        let asked = tally
            .http
            .get(format!("{}/v1/items?{query}", tally.base))
            .send()
            .await;
        assert_says(asked.expect("an answer"), field, detail).await;
    }
    for id in ["x", "0", "-1", "+1", "01", "1.0", "9223372036854775808"] {
        let asked = tally
            .http
            .get(format!("{}/v1/items/{id}", tally.base))
            .send()
            .await;
        let detail = "it takes a whole number from 1 to 9223372036854775807, or key: and a key.";
        assert_says(asked.expect("an answer"), "id", detail).await;
    }
    assert_eq!(tally.ledger_sum(item).await, 0);
}

async fn assert_says(response: reqwest::Response, field: &str, detail: &str) {
    assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{field}: {detail}");
    let problem: Value = response.json().await.expect("JSON");
    assert_eq!(problem["field"], field);
    assert_eq!(problem["detail"], format!("{field}: {detail}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_is_read_with_a_byte_order_mark_as_without() {
    let tally = Tally::start().await;
    for body in ["\u{feff}{\"name\":\"x\"}", "\u{feff} {\"name\":\"x\"}\r\n"] {
        let response = tally.post_raw("/v1/items", "application/json", body).await;
        assert_eq!(response.status(), StatusCode::CREATED, "{body:?}");
    }
}
