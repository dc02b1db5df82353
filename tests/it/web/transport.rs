//! The server closes connections of slow, greedy and silent clients after a while.
//! The limits are short here. `ClientLimits` has those of production.

use std::time::Duration;

use serde_json::json;
use tally::web::limits::{CONNECTIONS_LIMIT, HEAD_LIMIT_BYTES, HEAD_LIMIT_HEADERS};
use tally::web::{ClientLimits, ProblemKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::helpers::eventually;
use crate::helpers::stores::{LOCK_VOTES, blocker};
use crate::helpers::tally::Tally;
use crate::web::api::problems::assert_leads_to_its_section;

/// Longer than the half second by which the clock of actix-http may be late.
const SHORT: Duration = Duration::from_secs(1);
const ASK: &str = "GET /health/live HTTP/1.1\r\nhost: x\r\n\r\n";

fn limits() -> ClientLimits {
    ClientLimits::with_connections(CONNECTIONS_LIMIT)
}

async fn connect(tally: &Tally) -> TcpStream {
    let address = tally.base.trim_start_matches("http://");
    TcpStream::connect(address).await.expect("it listens")
}

/// Reads to the end of the connection. A reset is an end too.
async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes).await;
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Sends a request and reads its answer, which ends with `end`.
async fn ask(stream: &mut TcpStream, request: &str, end: &str) -> String {
    stream.write_all(request.as_bytes()).await.expect("it reads");
    let mut answer = String::new();
    let mut bytes = [0; 4096];
    while !answer.ends_with(end) {
        let count = stream.read(&mut bytes).await.expect("it answers");
        assert!(count > 0, "it closed after {answer:?}");
        answer += &String::from_utf8_lossy(&bytes[..count]);
    }
    answer
}

/// Whether a new connection is answered and not refused. Reads the whole answer.
async fn is_served(stream: &mut TcpStream) -> bool {
    // A refused connection may be closed before the request is written.
    let _ = stream.write_all(ASK.as_bytes()).await;
    let mut bytes = [0; 12];
    if stream.read_exact(&mut bytes).await.is_err() || bytes != *b"HTTP/1.1 200" {
        return false;
    }
    ask(stream, "", "}").await;
    true
}

/// Sends a byte now and then until the other side closes. Returns the answer.
async fn drip(stream: &mut TcpStream) -> String {
    let (mut reader, mut writer) = stream.split();
    let mut bytes = Vec::new();
    let dripping = async {
        while writer.write_all(b"x").await.is_ok() {
            sleep(SHORT / 10).await;
        }
    };
    let reading = async {
        let _ = reader.read_to_end(&mut bytes).await;
    };
    let mut reading = std::pin::pin!(reading);
    tokio::select! {
        () = &mut reading => {}
        // The server's answer is still to be read.
        () = dripping => reading.await,
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_does_not_arrive_gets_408_on_a_new_and_on_a_kept_connection() {
    let tally = Tally::start_limited_to(ClientLimits {
        head: SHORT,
        ..limits()
    })
    .await;
    // One client sends nothing, one the beginning of a head, one a head byte by byte.
    let mut silent = connect(&tally).await;
    assert!(read_to_end(&mut silent).await.starts_with("HTTP/1.1 408 "));
    let mut begun = connect(&tally).await;
    begun.write_all(b"GET /health/li").await.expect("it reads");
    assert!(read_to_end(&mut begun).await.starts_with("HTTP/1.1 408 "));
    let mut dripped = connect(&tally).await;
    dripped
        .write_all(b"GET / HTTP/1.1\r\nx: ")
        .await
        .expect("it reads");
    assert!(drip(&mut dripped).await.starts_with("HTTP/1.1 408 "));

    // The same on a connection that has had an answer.
    for drips in [false, true] {
        let mut kept = connect(&tally).await;
        let answer = ask(&mut kept, ASK, "}").await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        kept.write_all(b"GET / HTTP/1.1\r\nx: ").await.expect("it reads");
        let end = if drips {
            drip(&mut kept).await
        } else {
            read_to_end(&mut kept).await
        };
        assert!(end.starts_with("HTTP/1.1 408 "), "{end}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_without_a_request_is_closed_and_one_with_requests_is_kept() {
    let tally = Tally::start_limited_to(ClientLimits {
        keep_alive: SHORT,
        ..limits()
    })
    .await;
    let mut idle = connect(&tally).await;
    let mut busy = connect(&tally).await;
    ask(&mut idle, ASK, "}").await;
    // The busy connection is served until the idle one is closed, and once more after that.
    loop {
        ask(&mut busy, ASK, "}").await;
        let mut bytes = [0; 1];
        match idle.try_read(&mut bytes) {
            Ok(0) => break,
            Ok(_) => panic!("nothing was asked"),
            Err(_) => sleep(SHORT / 10).await,
        }
    }
    ask(&mut busy, ASK, "}").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_being_answered_has_as_long_as_its_stores_take() {
    let tally = Tally::start_limited_to(ClientLimits {
        head: SHORT,
        keep_alive: SHORT,
        answer: SHORT,
        ..limits()
    })
    .await;
    let item = tally.item("x").await;
    let blocker = blocker(&tally.pool, LOCK_VOTES).await;
    let mut voter = connect(&tally).await;
    let vote = format!("POST /v1/items/{item}/votes HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n");
    voter.write_all(vote.as_bytes()).await.expect("it reads");
    // Meanwhile the server closes a later connection.
    let mut later = connect(&tally).await;
    assert!(read_to_end(&mut later).await.starts_with("HTTP/1.1 408 "));
    blocker.rollback().await.expect("a rollback");
    let answer = ask(&mut voter, "", "}").await;
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_beyond_its_limits_gets_431_and_one_within_them_is_served() {
    let tally = Tally::start().await;
    let headers = |count: usize, bytes: usize| {
        let lines: String = (1..count)
            .map(|at| format!("x-{at}: {}\r\n", "y".repeat(bytes)))
            .collect();
        format!("GET /health/live HTTP/1.1\r\nhost: x\r\n{lines}\r\n")
    };
    for head in [
        headers(HEAD_LIMIT_HEADERS, 10),
        headers(10, HEAD_LIMIT_BYTES / 11),
    ] {
        let answer = ask(&mut connect(&tally).await, &head, "}").await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    for head in [
        headers(HEAD_LIMIT_HEADERS + 1, 10),
        headers(2, HEAD_LIMIT_BYTES + 64 * 1024),
    ] {
        let mut greedy = connect(&tally).await;
        // The server may close before all is written.
        let _ = greedy.write_all(head.as_bytes()).await;
        let answer = read_to_end(&mut greedy).await;
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_beyond_the_limit_of_connections_gets_503_and_retry_after() {
    let mut tally = Tally::start_limited_to(ClientLimits::with_connections(3)).await;
    // The connections of the test's own HTTP client are closed first.
    tally.http = reqwest::Client::new();
    let mut served = Vec::new();
    while served.len() < 3 {
        let mut stream = connect(&tally).await;
        if is_served(&mut stream).await {
            served.push(stream);
        }
    }
    let mut problem = serde_json::Value::Null;
    // One client has not sent its request, the other has.
    for request in ["", ASK] {
        let mut refused = connect(&tally).await;
        refused.write_all(request.as_bytes()).await.expect("it reads");
        let answer = read_to_end(&mut refused).await;
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        assert!(answer.contains("\r\nretry-after: 1\r\n"), "{answer}");
        let body = answer.split("\r\n\r\n").nth(1).expect("a body");
        problem = serde_json::from_str(body).expect("JSON");
        assert_eq!(
            (&problem["status"], &problem["stored"]),
            (&json!(503), &json!("no"))
        );
    }
    // The first clients are still served. When one leaves, another gets in.
    let answer = ask(&mut served[0], ASK, "}").await;
    assert!(answer.contains("HTTP/1.1 200 "), "{answer}");
    drop(served.pop());
    eventually("another client is let in", async || {
        is_served(&mut connect(&tally).await).await.then_some(())
    })
    .await;
    drop(served);
    eventually("the test's own client is let in", async || {
        let asked = tally
            .http
            .get(format!("{}/health/live", tally.base))
            .send()
            .await
            .ok()?;
        asked.status().is_success().then_some(())
    })
    .await;
    let kind = assert_leads_to_its_section(&tally, &problem).await;
    assert_eq!(kind, ProblemKind::TooManyConnections);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_its_answers_is_closed() {
    let mut tally = Tally::start_limited_to(ClientLimits {
        answer: SHORT,
        connections: 1,
        ..limits()
    })
    .await;
    tally.http = reqwest::Client::new();
    let name = "x".repeat(200);
    sqlx::query("insert into item (name) select $1 from generate_series(1, 1000)")
        .bind(&name)
        .execute(&tally.pool)
        .await
        .expect("items");
    // The answer is never read, and is far larger than the buffers of both sides.
    let list = "GET /v1/items?limit=1000 HTTP/1.1\r\nhost: x\r\n\r\n".repeat(200);
    let mut deaf = eventually("the first connection has left", async || {
        let mut stream = connect(&tally).await;
        stream.write_all(list.as_bytes()).await.ok()?;
        let mut bytes = [0; 12];
        stream.read_exact(&mut bytes).await.ok()?;
        (bytes == *b"HTTP/1.1 200").then_some(stream)
    })
    .await;
    eventually("another client is let in", async || {
        is_served(&mut connect(&tally).await).await.then_some(())
    })
    .await;
    let got = read_to_end(&mut deaf).await;
    assert!(got.len() < 200 * 1000 * 200, "it got {} bytes", got.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_arrives_byte_by_byte_gets_408_and_stores_nothing() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let mut slow = connect(&tally).await;
    let head = format!(
        "POST /v1/items/{item}/votes HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{{"
    );
    slow.write_all(head.as_bytes()).await.expect("it reads");
    let answer = drip(&mut slow).await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(answer.contains("The body must arrive within"), "{answer}");
    assert_eq!(tally.ledger_sum(item).await, 0);
    assert_eq!(
        tally.post(&format!("/v1/items/{item}/votes"), &json!({})).await.0,
        201
    );
}
