//! Pages of other origins.

use reqwest::{Method, Response, StatusCode};
use serde_json::json;

use crate::helpers::answers::DESCRIPTION;
use crate::helpers::tally::Tally;

const ALLOWED: &str = "https://news.example.org";

async fn tally() -> Tally {
    let origins = ALLOWED.parse().expect("origins");
    Tally::start_with(|options| options.access.origins = origins).await
}

async fn from(tally: &Tally, method: Method, path: &str, origin: &str) -> Response {
    tally
        .http
        .request(method, format!("{}{path}", tally.base))
        .header("origin", origin)
        .send()
        .await
        .expect("an answer")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_foreign_page_writes_is_refused_whatever_its_content_type_and_stores_nothing() {
    let tally = tally().await;
    let item = tally.item("x").await;
    let votes = format!("/v1/items/{item}/votes");
    let foreign = [
        "https://evil.example",
        "null",
        "https://news.example.org.evil.example",
        "file://",
    ];
    for origin in foreign {
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            for path in [votes.as_str(), "/v1/items", "/v1/votes", "/nowhere"] {
                let answer = from(&tally, method.clone(), path, origin).await;
                assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{method} {path} {origin}");
                assert!(answer.headers().get("access-control-allow-origin").is_none());
                let problem: serde_json::Value = answer.json().await.expect("JSON");
                assert_eq!(problem["type"], "/problems/foreign-origin");
            }
        }
        // Requests that a page sends without a preflight.
        for content_type in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "application/json",
        ] {
            let simple = tally
                .http
                .post(format!("{}{votes}", tally.base))
                .header("origin", origin)
                .header("content-type", content_type)
                .body("{}");
            let answer = simple.send().await.expect("an answer");
            assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{content_type} {origin}");
        }
    }
    assert_eq!(tally.ledger_sum(item).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_an_allowed_origin_and_the_servers_own_may_vote() {
    let tally = tally().await;
    let item = tally.item("x").await;
    let votes = format!("/v1/items/{item}/votes");
    let answer = from(&tally, Method::POST, &votes, ALLOWED).await;
    assert_eq!(answer.status(), StatusCode::CREATED);
    assert_eq!(answer.headers()["access-control-allow-origin"], ALLOWED);
    let vary: Vec<_> = answer.headers().get_all("vary").iter().collect();
    assert!(vary.iter().any(|value| *value == "origin"), "{vary:?}");
    // The page can read a refusal, too.
    let answer = from(&tally, Method::POST, "/v1/items/999/votes", ALLOWED).await;
    assert_eq!(answer.status(), StatusCode::NOT_FOUND);
    assert_eq!(answer.headers()["access-control-allow-origin"], ALLOWED);
    let own = tally.base.clone();
    let answer = from(&tally, Method::POST, &votes, &own).await;
    assert_eq!(answer.status(), StatusCode::CREATED);
    assert!(answer.headers().get("access-control-allow-origin").is_none());
    assert_eq!(tally.ledger_sum(item).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preflight_is_answered_for_allowed_origins_only_and_votes_nothing() {
    let tally = tally().await;
    let item = tally.item("x").await;
    let ask = async |origin: &str| {
        tally
            .http
            .request(Method::OPTIONS, format!("{}/v1/items/{item}/votes", tally.base))
            .header("origin", origin)
            .header("access-control-request-method", "POST")
            .header("access-control-request-headers", "content-type")
            .send()
            .await
            .expect("an answer")
    };
    let answer = ask(ALLOWED).await;
    assert_eq!(answer.status(), StatusCode::NO_CONTENT);
    assert_eq!(answer.headers()["access-control-allow-origin"], ALLOWED);
    let allowed = |name: &str| answer.headers()[name].to_str().expect("text").to_owned();
    assert!(allowed("access-control-allow-methods").contains("DELETE"));
    assert!(allowed("access-control-allow-headers").contains("idempotency-key"));
    let answer = ask("https://evil.example").await;
    assert_eq!(answer.status(), StatusCode::FORBIDDEN);
    assert!(answer.headers().get("access-control-allow-methods").is_none());
    assert_eq!(tally.ledger_sum(item).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_an_allowed_origin_may_send_tracing_headers_and_read_every_header_that_is_described() {
    let tally = tally().await;
    let item = tally.item("x").await;
    let address = format!("{}/v1/items/{item}", tally.base);
    let asked = "baggage,if-none-match,sentry-trace,traceparent,tracestate,x-request-id";
    let preflight = tally
        .http
        .request(Method::OPTIONS, &address)
        .header("origin", ALLOWED)
        .header("access-control-request-method", "GET")
        .header("access-control-request-headers", asked);
    let preflight = preflight.send().await.expect("an answer");
    assert_eq!(preflight.status(), StatusCode::NO_CONTENT);
    let allowed = preflight.headers()["access-control-allow-headers"].to_str();
    assert!(
        allowed.expect("text").ends_with(asked),
        "{:?}",
        preflight.headers()
    );
    let answer = from(&tally, Method::GET, &format!("/v1/items/{item}"), ALLOWED).await;
    let exposed = answer.headers()["access-control-expose-headers"]
        .to_str()
        .expect("text");
    let exposed: Vec<&str> = exposed.split(',').map(str::trim).collect();
    let described = DESCRIPTION["components"]["headers"].as_object().expect("headers");
    for name in described.keys().map(|name| name.to_lowercase()) {
        // Those that every script may read, those that none may, and those for browsers and proxies.
        let is_of_others = [
            "cache-control",
            "set-cookie",
            "content-security-policy",
            "x-accel-buffering",
        ]
        .contains(&name.as_str());
        assert!(
            is_of_others || exposed.contains(&name.as_str()),
            "{name}: {exposed:?}"
        );
    }
    let tag = answer.headers()["etag"].to_str().expect("text");
    let again = tally
        .http
        .get(&address)
        .header("origin", ALLOWED)
        .header("if-none-match", tag);
    let again = again.send().await.expect("an answer");
    assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
    assert_eq!(again.headers()["access-control-allow-origin"], ALLOWED);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_servers_own_page_writes_through_a_proxy_that_adds_a_default_port_or_sends_another_host() {
    let tally = tally().await;
    let item = tally.item("x").await;
    let vote = async |host: &str, headers: &[(&str, &str)]| {
        let mut request = tally.http.post(format!("{}/v1/items/{item}/votes", tally.base));
        request = request
            .header("host", host)
            .header("origin", "https://votes.example.org");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.send().await.expect("an answer").status().as_u16()
    };
    assert_eq!(vote("votes.example.org:443", &[]).await, 201);
    assert_eq!(vote("votes.example.org:80", &[]).await, 201);
    assert_eq!(vote("tally", &[("sec-fetch-site", "same-origin")]).await, 201);
    assert_eq!(vote("tally", &[]).await, 403);
    assert_eq!(
        vote("tally", &[("x-forwarded-host", "votes.example.org")]).await,
        403
    );
    assert_eq!(vote("votes.example.org:8443", &[]).await, 403);
    assert_eq!(
        vote("votes.example.org", &[("sec-fetch-site", "cross-site")]).await,
        403
    );
    assert_eq!(tally.ledger_sum(item).await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_tells_browsers_to_guess_nothing_and_no_answer_names_the_program() {
    let tally = tally().await;
    tally.item("x").await;
    for path in [
        "/",
        "/assets/page-00000000.js",
        "/v1/items",
        "/v1/items/1",
        "/problems/full",
        "/nowhere",
        "/metrics",
    ] {
        let answer = tally
            .http
            .get(format!("{}{path}", tally.base))
            .send()
            .await
            .expect("an answer");
        let headers = answer.headers();
        assert_eq!(headers["x-content-type-options"], "nosniff", "{path}");
        assert_eq!(headers["referrer-policy"], "no-referrer", "{path}");
        let policy = headers["content-security-policy"].to_str().expect("text");
        assert!(
            policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"),
            "{path}"
        );
        assert!(
            headers.get("server").is_none() && headers.get("x-powered-by").is_none(),
            "{path}"
        );
    }
    let body = json!({ "voter_id": "ada" }).to_string();
    let twice = tally
        .post_raw("/v1/items/1/votes", "application/json", body)
        .await;
    assert_eq!(twice.headers()["x-content-type-options"], "nosniff");
}
