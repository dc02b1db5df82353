//! Slow, greedy, dead and many clients of streams, over bare sockets.

use std::net::SocketAddr;
use std::time::Duration;

use reqwest::{Response, StatusCode};
use serde_json::{Value, json};
use tally::domain::ItemId;
use tally::web::limits::CONNECTIONS_LIMIT;
use tally::web::{ClientLimits, ProblemKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};

use super::{EVENT_LIMIT, Reader};
use crate::helpers::eventually;
use crate::helpers::metrics::metric;
use crate::helpers::tally::Tally;
use crate::telemetry::passes_alone;
use crate::web::api::problems::assert_leads_to_its_section;

const SHORT: Duration = Duration::from_secs(1);

fn limits() -> ClientLimits {
    ClientLimits::with_connections(CONNECTIONS_LIMIT)
}

fn address(tally: &Tally) -> SocketAddr {
    let address = tally.base.trim_start_matches("http://");
    address.parse().expect("an address")
}

/// Asks for a stream and reads nothing.
/// The system's buffer for the answer is small.
async fn ask(tally: &Tally, path: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a size");
    let mut stream = socket.connect(address(tally)).await.expect("it listens");
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("it reads");
    stream
}

/// Whether the stream is open. Reads up to its first event.
async fn is_open(stream: &mut TcpStream) -> bool {
    let mut answer = String::new();
    let mut bytes = [0; 1024];
    while !answer.contains("\nevent: ") {
        match timeout(EVENT_LIMIT, stream.read(&mut bytes))
            .await
            .expect("an answer")
        {
            Ok(count) if count > 0 => answer += &String::from_utf8_lossy(&bytes[..count]),
            _ => return false,
        }
        if answer.contains("HTTP/1.1 4") || answer.contains("HTTP/1.1 5") {
            return false;
        }
    }
    true
}

async fn until_streams_are(total: usize) {
    eventually(&format!("{total} streams are open"), async || {
        (metric("tally_streams") == total as f64).then_some(())
    })
    .await;
}

async fn get(tally: &Tally, path: &str) -> Response {
    let answer = tally.http.get(format!("{}{path}", tally.base)).send().await;
    answer.expect("an answer")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_closes_frees_its_place_at_once() {
    if passes_alone("web::streams::clients::a_client_that_closes_frees_its_place_at_once").await {
        return;
    }
    let tally = Tally::start_limited_to(ClientLimits {
        streams_by_address: 1,
        ..limits()
    })
    .await;
    let item = tally.item("x").await;
    let path = format!("/v1/items/{item}/stream");
    // No vote, no heartbeat and no limit wakes the stream: only the client's end does.
    for how in ["closed", "half closed", "cut off", "cut off in mid-event"] {
        let mut stream = ask(&tally, &path).await;
        if how == "cut off in mid-event" {
            stream.read_exact(&mut [0; 20]).await.expect("an answer");
        } else {
            assert!(is_open(&mut stream).await, "{how}");
        }
        until_streams_are(1).await;
        match how {
            "half closed" => {
                stream.shutdown().await.expect("half of it");
                // The server closes its half as well.
                let mut rest = Vec::new();
                let _ = stream.read_to_end(&mut rest).await;
            }
            "closed" => drop(stream),
            _ => {
                stream.set_zero_linger().expect("a reset");
                drop(stream);
            }
        }
        until_streams_are(0).await;
    }
    // A client that half-closes and waits for an ordinary answer still gets it.
    let mut half = ask(&tally, &format!("/v1/items/{item}")).await;
    half.shutdown().await.expect("half of it");
    let mut answer = String::new();
    half.read_to_string(&mut answer).await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_beyond_a_limit_are_refused_and_votes_are_not() {
    if passes_alone("web::streams::clients::streams_beyond_a_limit_are_refused_and_votes_are_not").await {
        return;
    }
    let tally = Tally::start_limited_to(ClientLimits {
        streams: 3,
        streams_by_address: 2,
        ..limits()
    })
    .await;
    let all = tally
        .another_server_with(|options| {
            options.clients.streams = 3;
            options.clients.streams_by_address = 10;
        })
        .await;
    let item = tally.item("x").await;
    let path = format!("/v1/items/{item}/stream");
    let problem = async |base: &str| -> (Response, Value) {
        let answer = tally
            .http
            .get(format!("{base}{path}"))
            .send()
            .await
            .expect("an answer");
        let shown = tally
            .http
            .get(format!("{base}{path}"))
            .send()
            .await
            .expect("an answer");
        (answer, shown.json().await.expect("a problem"))
    };
    for (base, places, status, kind) in [
        (&tally.base, 2, 429, ProblemKind::TooManyStreamsOfAddress),
        (&all, 3, 503, ProblemKind::TooManyStreams),
    ] {
        let mut open = Vec::new();
        for _ in 0..places {
            let mut reader = Reader::open(&tally, base, &path).await;
            reader.next().await.expect("an event");
            open.push(reader);
        }
        let (answer, problem) = problem(base).await;
        assert_eq!(answer.status().as_u16(), status);
        assert_eq!(answer.headers()["retry-after"], "1");
        assert_eq!(assert_leads_to_its_section(&tally, &problem).await, kind);
        assert!(tally.add(item, 1).await.is_some());
        drop(open.pop());
        eventually("another one is let in", async || {
            let answer = tally.http.get(format!("{base}{path}")).send().await.ok()?;
            (answer.status() == StatusCode::OK).then_some(())
        })
        .await;
    }
    assert!(metric("tally_streams_refused_total{by=\"address\"}") >= 2.0);
    assert!(metric("tally_streams_refused_total{by=\"server\"}") >= 2.0);
    assert!(metric("tally_stream_events_total") >= 5.0);
    eventually("a tick has ended", async || {
        (metric("tally_stream_tick_seconds_count") >= 1.0).then_some(())
    })
    .await;
    // Streams never take all connections: a quarter is left for votes.
    assert_eq!(ClientLimits::with_connections(400).streams_beside_votes(), 300);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_ends_streams_at_once() {
    if passes_alone("web::streams::clients::a_shutdown_ends_streams_at_once").await {
        return;
    }
    let mut tally = Tally::start_with(|options| {
        // Longer than any test takes.
        options.shutdown_limit = Duration::from_secs(3600);
    })
    .await;
    let item = tally.item("x").await;
    let path = format!("/v1/items/{item}/stream");
    let mut reader = Reader::open(&tally, &tally.base, &path).await;
    reader.next().await.expect("an event");
    let unread = ask(&tally, &path).await;
    until_streams_are(2).await;
    tally.stop().await;
    assert_eq!(reader.next().await, None);
    drop(unread);
}

/// Items with long names: an event of all exceeds the system's buffer for a client.
async fn large_items(tally: &Tally) -> (Vec<ItemId>, String) {
    let name = "é".repeat(200);
    let mut items = Vec::new();
    for _ in 0..100 {
        items.push(tally.item(&name).await);
    }
    let ids: Vec<String> = items.iter().map(ItemId::to_string).collect();
    (items, format!("/v1/stream?items={}", ids.join(",")))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_gets_the_newest_state_and_nothing_of_what_was_in_between() {
    let tally = Tally::start().await;
    let (items, path) = large_items(&tally).await;
    let mut watcher = Reader::open(&tally, &tally.base, &path).await;
    let mut slow = ask(&tally, &path).await;
    slow.read_exact(&mut [0; 12]).await.expect("an answer");
    let rounds = 12;
    for round in 1..=rounds {
        let votes = items.iter().map(|item| tally.add(*item, 1));
        futures_util::future::join_all(votes).await;
        watcher
            .until("all votes of this round", |watcher| {
                items.iter().all(|item| watcher.count(item.get()) == Some(round))
            })
            .await;
    }
    // The reader now gets the event under way, and then the newest.
    let newest = format!("\"vote_count\":{rounds},");
    let mut got = String::new();
    let mut bytes = [0; 65536];
    while got.matches(&newest).count() < items.len() {
        let count = timeout(EVENT_LIMIT, slow.read(&mut bytes)).await.expect("more");
        let count = count.expect("bytes");
        assert!(count > 0, "it closed");
        got += &String::from_utf8_lossy(&bytes[..count]);
    }
    let events = got.matches("\nevent: ").count();
    assert!(events <= 4, "{events} events of {rounds} rounds");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_never_reads_is_closed_and_one_that_is_only_quiet_is_not() {
    if passes_alone(
        "web::streams::clients::a_client_that_never_reads_is_closed_and_one_that_is_only_quiet_is_not",
    )
    .await
    {
        return;
    }
    let tally = Tally::start_limited_to(ClientLimits {
        head: SHORT,
        keep_alive: SHORT,
        answer: SHORT,
        ..limits()
    })
    .await;
    let (items, path) = large_items(&tally).await;
    let quiet = tally.item("x").await;
    let mut reader = Reader::open(&tally, &tally.base, &format!("/v1/items/{quiet}/stream")).await;
    reader.next().await.expect("an event");
    let deaf = ask(&tally, &path).await;
    until_streams_are(2).await;
    // An idle connection is closed. The deaf one takes one event and no more.
    eventually("the deaf one is closed", async || {
        tally.add(items[0], 1).await;
        (metric("tally_streams") == 1.0).then_some(())
    })
    .await;
    let mut idle = TcpStream::connect(address(&tally)).await.expect("it listens");
    let _ = idle.read_to_end(&mut Vec::new()).await;
    sleep(2 * SHORT).await;
    tally.add(quiet, 1).await;
    let event = reader.next().await.expect("the quiet one goes on");
    assert_eq!(event["items"][0]["vote_count"], 1);
    drop(deaf);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_greedy_clients_are_bounded_and_votes_go_on() {
    if passes_alone("web::streams::clients::a_thousand_greedy_clients_are_bounded_and_votes_go_on").await {
        return;
    }
    const GREEDY: usize = 1000;
    const PLACES: usize = 300;
    let tally = Tally::start_limited_to(ClientLimits {
        streams: PLACES,
        streams_by_address: GREEDY,
        ..limits()
    })
    .await;
    let (items, path) = large_items(&tally).await;
    let mut greedy = Vec::new();
    for _ in 0..GREEDY {
        greedy.push(ask(&tally, &path).await);
    }
    until_streams_are(PLACES).await;
    eventually("all others are refused", async || {
        let refused = metric("tally_streams_refused_total{by=\"server\"}");
        (refused == (GREEDY - PLACES) as f64).then_some(())
    })
    .await;
    for round in 1..=10 {
        let votes = items.iter().map(|item| tally.add(*item, 1));
        let counts = futures_util::future::join_all(votes).await;
        assert!(counts.iter().all(|count| *count == Some(round)), "{counts:?}");
    }
    assert_eq!(
        get(&tally, &format!("/v1/items/{}", items[0])).await.status(),
        StatusCode::OK
    );
    drop(greedy);
    until_streams_are(0).await;
    let mut reader = Reader::open(&tally, &tally.base, &path).await;
    let event = reader.next().await.expect("an event");
    assert_eq!(event["items"][0]["vote_count"], json!(10));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_http_1_0_gets_a_stream_without_chunks_that_ends_with_its_connection() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let mut stream = TcpStream::connect(address(&tally)).await.expect("it listens");
    let request = format!("GET /v1/items/{item}/stream HTTP/1.0\r\nhost: x\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("it reads");
    let mut answer = String::new();
    let mut bytes = [0; 1024];
    while !answer.contains("\ndata: ") {
        let read = timeout(EVENT_LIMIT, stream.read(&mut bytes))
            .await
            .expect("an answer");
        let read = read.expect("an answer");
        assert!(read > 0, "{answer}");
        answer += &String::from_utf8_lossy(&bytes[..read]);
    }
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(!head.to_lowercase().contains("transfer-encoding"), "{head}");
    assert!(!head.to_lowercase().contains("keep-alive"), "{head}");
    assert!(body.starts_with("retry: ") || body.starts_with("id: "), "{body}");
}
