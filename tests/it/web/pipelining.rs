//! Requests that a client sends before the ones ahead of them on the connection are answered. Each is answered
//! as if it had come alone.

use std::time::Duration;

use serde_json::{Value, json};
use tally::domain::ItemId;
use tally::web::ClientLimits;
use tally::web::limits::CONNECTIONS_LIMIT;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::helpers::eventually;
use crate::helpers::stores::{LOCK_VOTES, blocker, until_blocked};
use crate::helpers::tally::Tally;

/// Longer than the half second by which the clock of actix-http may be late.
const SHORT: Duration = Duration::from_secs(1);
const VOTES: usize = 100;

/// An answer, read as the client of this one request reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Answer {
    /// The version and the status: `HTTP/1.1 200`.
    status: String,
    connection: String,
    body: String,
}

impl Answer {
    fn count(&self) -> Option<i64> {
        serde_json::from_str::<Value>(&self.body).ok()?["vote_count"].as_i64()
    }
}

/// Takes the answer to a request of this method from the front. `None`: it is not all there.
fn take_answer(method: &str, bytes: &mut Vec<u8>) -> Option<Answer> {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let (head, rest) = text.split_once("\r\n\r\n")?;
    let header = |name: &str| {
        let lines = head.lines().filter_map(|line| line.split_once(": "));
        lines
            .filter(|(one, _)| one.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.to_owned())
            .next()
    };
    let status = head.get(..12).expect("a status line").to_owned();
    let length = header("content-length").and_then(|length| length.parse().ok());
    let length: usize = match (method, length) {
        ("HEAD", _) => 0,
        (_, Some(length)) => length,
        _ if status.ends_with(" 100") => 0,
        _ => panic!("no length: {text}"),
    };
    let body = rest.get(..length)?.to_owned();
    bytes.drain(..head.len() + 4 + length);
    Some(Answer {
        status,
        connection: header("connection").unwrap_or_default(),
        body,
    })
}

/// A client that pipelines.
struct Client {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Client {
    async fn connect(tally: &Tally) -> Self {
        let address = tally.base.trim_start_matches("http://");
        let stream = TcpStream::connect(address).await.expect("it listens");
        stream.set_nodelay(true).expect("a socket");
        Self {
            stream,
            read: Vec::new(),
        }
    }

    async fn send(&mut self, bytes: &str) {
        self.stream.write_all(bytes.as_bytes()).await.expect("it reads");
    }

    async fn answer(&mut self, method: &str) -> Answer {
        loop {
            if let Some(answer) = take_answer(method, &mut self.read) {
                return answer;
            }
            let count = self.stream.read_buf(&mut self.read).await.expect("it answers");
            let read = String::from_utf8_lossy(&self.read);
            assert!(count > 0, "it closed after {read:?}");
        }
    }

    async fn answers(&mut self, methods: &[&str]) -> Vec<Answer> {
        let mut answers = Vec::new();
        for method in methods {
            answers.push(self.answer(method).await);
        }
        answers
    }

    /// Asserts that no other answer comes before the server closes.
    async fn ends(mut self) {
        let _ = self.stream.read_to_end(&mut self.read).await;
        assert_eq!(String::from_utf8_lossy(&self.read), "");
    }
}

fn ask(line: &str, headers: &str) -> String {
    format!("{line}\r\nhost: x\r\n{headers}\r\n")
}

/// A vote with its voter in a body of known length.
fn vote(item: ItemId, voter: &str, headers: &str) -> String {
    let body = json!({ "voter_id": voter }).to_string();
    let length = body.len();
    let line = format!("POST /v1/items/{item}/votes HTTP/1.1");
    let headers = format!("{headers}content-type: application/json\r\ncontent-length: {length}\r\n");
    ask(&line, &headers) + &body
}

/// The same vote in chunks, with an extension and trailers.
fn vote_in_chunks(item: ItemId, voter: &str) -> String {
    let body = json!({ "voter_id": voter }).to_string();
    let (first, second) = body.split_at(3);
    let line = format!("POST /v1/items/{item}/votes HTTP/1.1");
    let headers = "Transfer-Encoding: chunked\r\ncontent-type: application/json\r\n";
    let (one, two) = (first.len(), second.len());
    let chunks = format!("{one:x};a=b\r\n{first}\r\n{two:X}\r\n{second}\r\n0\r\nx: y\r\n\r\n");
    ask(&line, headers) + &chunks
}

fn statuses(answers: &[Answer]) -> Vec<&str> {
    answers.iter().map(|answer| answer.status.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_pipelined_request_is_answered_as_if_it_had_come_alone() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let path = format!("/v1/items/{item}");
    let keep = "connection: keep-alive\r\n";
    let requests = [
        ("GET", ask(&format!("GET {path} HTTP/1.1"), "")),
        ("HEAD", ask(&format!("HEAD {path} HTTP/1.1"), "")),
        ("GET", ask(&format!("GET {path} HTTP/1.0"), keep)),
        ("HEAD", ask(&format!("HEAD {path} HTTP/1.0"), keep)),
        ("GET", ask(&format!("GET {path}/none HTTP/1.1"), "")),
        ("POST", vote(item, "ada", "")),
    ];
    tally.vote(item, "ada").await;
    let mut alone = Vec::new();
    for (method, request) in &requests {
        let mut client = Client::connect(&tally).await;
        client.send(request).await;
        alone.push(client.answer(method).await);
    }
    assert_eq!(
        statuses(&alone[..4]),
        ["HTTP/1.1 200", "HTTP/1.1 200", "HTTP/1.0 200", "HTTP/1.0 200"]
    );
    assert_eq!((&*alone[1].body, &*alone[2].connection), ("", "keep-alive"));
    for (first, (first_method, first_request)) in requests.iter().enumerate() {
        for (second, (second_method, second_request)) in requests.iter().enumerate() {
            let mut client = Client::connect(&tally).await;
            let both = format!("{first_request}{second_request}");
            client.send(&both).await;
            let got = client.answers(&[first_method, second_method]).await;
            assert_eq!(got, [alone[first].clone(), alone[second].clone()], "{both}");
            // The connection is as good as new.
            client.send(first_request).await;
            assert_eq!(client.answer(first_method).await, alone[first], "{both}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_votes_in_one_write_are_each_answered_once_and_in_order() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let votes: Vec<String> = (0..VOTES)
        .map(|at| match at % 2 {
            0 => vote(item, &format!("voter {at}"), ""),
            _ => vote_in_chunks(item, &format!("voter {at}")),
        })
        .collect();
    let mut client = Client::connect(&tally).await;
    client.send(&votes.concat()).await;
    // A client that has no more to say still gets its answers.
    client.stream.shutdown().await.expect("half of it");
    let answers = client.answers(&["POST"; VOTES]).await;
    assert_eq!(statuses(&answers), ["HTTP/1.1 201"; VOTES]);
    let counts: Vec<_> = answers.iter().map(Answer::count).collect();
    let expected: Vec<_> = (1..).take(VOTES).map(Some).collect();
    assert_eq!(counts, expected);
    client.ends().await;
    tally.assert_exact_when_quiescent(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_behind_a_request_that_ends_its_connection_is_carried_out() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let close = "connection: close\r\n";
    let old = |request: String| request.replace("HTTP/1.1", "HTTP/1.0");
    for (at, (last, version)) in [
        (vote(item, "0", close), "1.1"),
        (old(vote(item, "1", "")), "1.0"),
        (
            vote_in_chunks(item, "2").replace("host: x", "host: x\r\nconnection: close"),
            "1.1",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let mut client = Client::connect(&tally).await;
        let behind = vote(item, &format!("behind {at}"), "") + &vote_in_chunks(item, "far behind");
        client.send(&format!("{last}{behind}")).await;
        let answer = client.answer("POST").await;
        assert_eq!(answer.status, format!("HTTP/{version} 201"), "{last}");
        let closes = if version == "1.1" { "close" } else { "" };
        assert_eq!(answer.connection, closes, "{last}");
        client.ends().await;
    }
    assert_eq!(tally.ledger_sum(item).await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_behind_a_refused_request_is_carried_out() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let line = format!("POST /v1/items/{item}/votes HTTP/1.1");
    for bad in [
        ask(&line, "no header\r\n"),
        ask(&line, "content-length: 2\r\ntransfer-encoding: chunked\r\n") + "0\r\n\r\n",
        ask(&line, "content-length: 0\r\ncontent-length: 2\r\n") + "{}",
        ask(&line, "content-length: x\r\n"),
        ask(&line, "transfer-encoding: gzip, chunked\r\n") + "0\r\n\r\n",
    ] {
        let mut client = Client::connect(&tally).await;
        let ahead = vote(item, "ada", "");
        let behind = vote(item, "bob", "");
        client.send(&format!("{ahead}{bad}{behind}")).await;
        let answers = client.answers(&["POST", "POST"]).await;
        assert_eq!(answers[0].count(), Some(1), "{bad}");
        assert_eq!(answers[1].status, "HTTP/1.1 400", "{bad}");
        client.ends().await;
    }
    // A body that is wrong ends its connection as well.
    let mut client = Client::connect(&tally).await;
    let bad = ask(&line, "transfer-encoding: chunked\r\n") + "x\r\n" + &vote(item, "bob", "");
    client.send(&bad).await;
    assert_eq!(client.answer("POST").await.status, "HTTP/1.1 400");
    let _ = client.stream.read_to_end(&mut client.read).await;
    assert_eq!(tally.ledger_sum(item).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_makes_no_difference_where_pipelined_requests_are_cut() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.vote(item, "ada").await;
    tally.vote(item, "bob").await;
    let requests = [
        vote(item, "ada", ""),
        vote_in_chunks(item, "bob"),
        ask(&format!("HEAD /v1/items/{item} HTTP/1.1"), ""),
        ask(&format!("GET /v1/items/{item} HTTP/1.1"), ""),
    ];
    let methods = ["POST", "POST", "HEAD", "GET"];
    let all = requests.concat();
    for cut in 1..all.len() {
        let (first, second) = all.split_at(cut);
        let mut client = Client::connect(&tally).await;
        client.send(first).await;
        // Whatever is whole is answered before the rest is sent.
        let whole = (1..4).filter(|count| requests[..*count].concat().len() <= cut);
        let whole = whole.count();
        let mut answers = client.answers(&methods[..whole]).await;
        client.send(second).await;
        answers.extend(client.answers(&methods[whole..]).await);
        assert_eq!(statuses(&answers), ["HTTP/1.1 200"; 4], "cut at {cut}");
        assert_eq!(answers[3].count(), Some(2), "cut at {cut}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_while_a_request_is_answered_waits_for_the_answer() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let lock = blocker(&tally.pool, LOCK_VOTES).await;
    let mut client = Client::connect(&tally).await;
    client.send(&vote(item, "ada", "")).await;
    until_blocked(&tally.pool, "").await;
    // More than one read brings, and less than the system holds.
    let behind = ask(&format!("HEAD /v1/items/{item} HTTP/1.1"), "");
    let count = 64 * 1024 / behind.len();
    client.send(&behind.repeat(count)).await;
    client.send(&vote(item, "bob", "connection: close\r\n")).await;
    lock.rollback().await.expect("a rollback");
    assert_eq!(client.answer("POST").await.count(), Some(1));
    for _ in 0..count {
        assert_eq!(client.answer("HEAD").await.status, "HTTP/1.1 200");
    }
    assert_eq!(client.answer("POST").await.count(), Some(2));
    client.ends().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_waits_for_leave_gets_it_behind_another_request() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let read = ask(&format!("GET /v1/items/{item} HTTP/1.1"), "");
    let asking = vote(item, "ada", "expect: 100-continue\r\n");
    let (head, body) = asking.split_at(asking.find('{').expect("a body"));
    let mut client = Client::connect(&tally).await;
    client.send(&format!("{read}{head}")).await;
    let answers = client.answers(&["GET", "POST"]).await;
    assert_eq!(statuses(&answers), ["HTTP/1.1 200", "HTTP/1.1 100"]);
    client.send(&format!("{body}{read}")).await;
    let answers = client.answers(&["POST", "GET"]).await;
    assert_eq!(statuses(&answers), ["HTTP/1.1 201", "HTTP/1.1 200"]);
    assert_eq!(answers[1].count(), Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipelined_head_that_does_not_arrive_gets_408() {
    let tally = Tally::start_limited_to(ClientLimits {
        head: SHORT,
        ..ClientLimits::with_connections(CONNECTIONS_LIMIT)
    })
    .await;
    let item = tally.item("x").await;
    let mut client = Client::connect(&tally).await;
    let begun = "GET /health/live HTTP/1.1\r\nx: ";
    client.send(&(vote(item, "ada", "") + begun)).await;
    let answers = client.answers(&["POST", "GET"]).await;
    assert_eq!(statuses(&answers), ["HTTP/1.1 201", "HTTP/1.1 408"]);
    client.ends().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_behind_a_stream_waits_and_a_client_that_leaves_frees_its_place() {
    let tally = Tally::start_limited_to(ClientLimits {
        streams_by_address: 1,
        ..ClientLimits::with_connections(CONNECTIONS_LIMIT)
    })
    .await;
    let item = tally.item("x").await;
    let watch = ask(&format!("GET /v1/items/{item}/stream HTTP/1.1"), "");
    let open = async || {
        let mut client = Client::connect(&tally).await;
        client.send(&watch).await;
        let _ = client.stream.read_buf(&mut client.read).await;
        client.read.starts_with(b"HTTP/1.1 200 ").then_some(client)
    };
    for is_first in [true, false] {
        let mut client = if is_first {
            let mut client = Client::connect(&tally).await;
            client.send(&(watch.clone() + &vote(item, "ada", ""))).await;
            client
        } else {
            let mut client = eventually("the place is free", open).await;
            client.send(&vote(item, "ada", "").repeat(10)).await;
            client
        };
        // The stream shows the votes of other clients.
        let (_, shown) = tally.vote(item, &format!("is first: {is_first}")).await;
        let shown = format!("\"vote_count\":{}", shown["vote_count"]);
        while !String::from_utf8_lossy(&client.read).contains(&shown) {
            let count = client.stream.read_buf(&mut client.read).await.expect("it shows");
            assert!(count > 0, "is first: {is_first}");
        }
    }
    assert_eq!(tally.ledger_sum(item).await, 2);
}
