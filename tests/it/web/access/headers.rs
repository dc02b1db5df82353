//! Every answer has the headers that protect browsers, and names no program.

use std::time::Duration;

use reqwest::StatusCode;
use tally::web::ClientLimits;
use tally::web::access::{Open, hsts};
use tally::web::limits::CONNECTIONS_LIMIT;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::raw::{exchange, header, statuses};
use crate::helpers::eventually;
use crate::helpers::programs::{TALLY, command, run, text};
use crate::helpers::tally::Tally;

const ALLOWED: &str = "https://news.example.org";
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

fn post(path: &str, headers: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn assert_names_no_program(answer: &str) {
    for name in ["server", "x-powered-by", "via"] {
        assert!(header(answer, name).is_empty(), "{answer}");
    }
    for name in ["actix", "tally/", "rust"] {
        let head = answer.split("\r\n\r\n").next().expect("a head").to_lowercase();
        assert!(!head.contains(name), "{answer}");
    }
}

fn assert_protects(answer: &str) {
    assert_eq!(header(answer, "x-content-type-options"), ["nosniff"], "{answer}");
    assert_eq!(header(answer, "referrer-policy"), ["no-referrer"], "{answer}");
    let policies = header(answer, "content-security-policy");
    assert!(
        policies.len() == 1
            && policies[0].contains("default-src 'none'")
            && policies[0].contains("frame-ancestors 'none'"),
        "{answer}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_of_a_route_protects_browsers_and_asks_for_https_where_tls_ends_in_front() {
    let mut tally = Tally::start_with(|options| {
        options.access.hsts = Some(hsts(YEAR));
        options.access.origins = ALLOWED.parse().expect("an origin");
    })
    .await;
    let plain = tally.another_server().await;
    let closed = tally
        .another_server_with(|options| {
            options.access.hsts = Some(hsts(YEAR));
            options.access.open = Open::default();
        })
        .await;
    tally.item("x").await;
    let json = "content-type: application/json\r\n";
    let long = "x".repeat(20_000);
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
    let preflight = format!(
        "OPTIONS /v1/items HTTP/1.1\r\nhost: x\r\norigin: {ALLOWED}\r\naccess-control-request-method: POST\r\n\r\n"
    );
    let requests = |vote: u16| {
        vec![
            (200, get("/")),
            (200, get("/assets/page-00000000.js")),
            (200, get("/problems")),
            (200, get("/health/live")),
            (vote, post("/v1/items/1/votes", json, "{}")),
            (204, preflight.clone()),
            (400, post("/v1/items", json, "{")),
            (403, post("/v1/items", "origin: https://evil.example\r\n", "{}")),
            (404, get("/nowhere")),
            (404, get("/v1/items/999")),
            (405, post("/health/live", "", "")),
            (413, post("/v1/items", json, &long)),
            (415, post("/v1/items", "content-type: text/plain\r\n", "x")),
            (422, post("/v1/items", json, "{\"name\":\"\"}")),
        ]
    };
    let checked = async |requests: Vec<(u16, String)>| {
        for (status, request) in requests {
            let answer = exchange(&tally.base, request.as_bytes()).await;
            assert_eq!(statuses(&answer), [status], "{request}: {answer}");
            assert_protects(&answer);
            assert_names_no_program(&answer);
            assert_eq!(
                header(&answer, "strict-transport-security"),
                ["max-age=31536000"],
                "{answer}"
            );
        }
    };
    checked(requests(201)).await;
    let refused = exchange(&closed, post("/v1/items", json, "{}").as_bytes()).await;
    assert_eq!(statuses(&refused), [401]);
    assert_eq!(
        header(&refused, "strict-transport-security"),
        ["max-age=31536000"]
    );
    assert_protects(&refused);
    // A server without the setting does not send the header.
    let answer = exchange(&plain, get("/").as_bytes()).await;
    assert_eq!(statuses(&answer), [200]);
    assert!(
        header(&answer, "strict-transport-security").is_empty(),
        "{answer}"
    );
    tally.stores.postgres.stop().await;
    eventually("the server knows that Postgres is gone", async || {
        let (status, _) = tally.get("/health/ready").await;
        (status == StatusCode::SERVICE_UNAVAILABLE).then_some(())
    })
    .await;
    checked(vec![
        (503, post("/v1/items/1/votes", json, "{}")),
        (503, get("/health/ready")),
    ])
    .await;
}

/// An answer from below the routes has no body, or has the headers of every answer.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_answered_below_the_routes_names_no_program_and_protects_what_has_a_body() {
    let tally = Tally::start_limited_to(ClientLimits {
        head: Duration::from_secs(1),
        ..ClientLimits::with_connections(CONNECTIONS_LIMIT)
    })
    .await;
    let greedy = format!("GET / HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "y".repeat(200_000));
    for (status, request) in [(400, "GET\r\n\r\n"), (431, &greedy)] {
        let answer = exchange(&tally.base, request.as_bytes()).await;
        assert_eq!(statuses(&answer), [status], "{answer}");
        assert_names_no_program(&answer);
        assert_eq!(header(&answer, "content-length"), ["0"], "{answer}");
    }
    let address = tally.base.trim_start_matches("http://").to_owned();
    let read = async |mut stream: TcpStream| {
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer).await;
        answer
    };
    // One connection is new, the other has been answered before.
    let silent = TcpStream::connect(&address).await.expect("it listens");
    let mut kept = TcpStream::connect(&address).await.expect("it listens");
    let whole = b"GET /health/live HTTP/1.1\r\nhost: x\r\n\r\n";
    kept.write_all(whole).await.expect("it reads");
    let mut first = Vec::new();
    while !first.ends_with(b"}") {
        assert!(kept.read_buf(&mut first).await.expect("it answers") > 0);
    }
    kept.write_all(b"GET / HTTP/1.1\r\nx:").await.expect("it reads");
    for stream in [silent, kept] {
        let answer = read(stream).await;
        assert_eq!(statuses(&answer), [408], "{answer}");
        assert_names_no_program(&answer);
        assert_eq!(header(&answer, "content-length"), ["0"], "{answer}");
    }

    let mut crowded = Tally::start_limited_to(ClientLimits::with_connections(1)).await;
    // The connections of the test's own client are closed first.
    crowded.http = reqwest::Client::new();
    let address = crowded.base.trim_start_matches("http://").to_owned();
    let _held = eventually("the only place is taken", async || {
        let mut stream = TcpStream::connect(&address).await.ok()?;
        stream
            .write_all(b"GET /health/live HTTP/1.1\r\nhost: x\r\n\r\n")
            .await
            .ok()?;
        let mut start = [0; 12];
        stream.read_exact(&mut start).await.ok()?;
        (start == *b"HTTP/1.1 200").then_some(stream)
    })
    .await;
    let answer = exchange(&crowded.base, b"").await;
    assert_eq!(statuses(&answer), [503], "{answer}");
    assert_names_no_program(&answer);
    assert_protects(&answer);
}

#[tokio::test]
async fn a_time_for_https_that_browsers_would_ignore_is_refused() {
    for (value, words) in [("500ms", "1 s or longer"), ("0s", "above 0"), ("forever", "10s")] {
        let mut serve = command(TALLY, None);
        serve
            .args([
                "serve",
                "--database-url",
                "postgres://x/y",
                "--redis-url",
                "redis://x",
            ])
            .env("TALLY_HSTS", value);
        let output = run(serve).await;
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("TALLY_HSTS") && said.contains(words), "{said}");
    }
}
