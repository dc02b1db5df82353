//! Requests that two servers in a row could read in two ways.

use std::fmt::Write as _;

use super::{Target, bearer, held, request};
use crate::web::access::raw::statuses;

/// Framings that two servers in a row could read in two ways.
/// Behind each is a whole request with the right key. Only a server that reads the framing wrongly
/// would see it.
fn ambiguous(target: &Target) -> Vec<(String, String)> {
    let host = target.host();
    let post = "POST /v1/items HTTP/1.1\r\n";
    let head = format!("{post}host: {host}\r\ncontent-type: application/json\r\n");
    let hidden = target.hidden();
    let length = hidden.len();
    let mut cases = Vec::new();
    let mut add = |name: &str, request: String| cases.push((name.to_owned(), request));
    for (name, lines) in [
        (
            "two equal lengths",
            "content-length: 2\r\ncontent-length: 2\r\n".to_owned(),
        ),
        (
            "two lengths",
            format!("content-length: 2\r\ncontent-length: {}\r\n", 2 + length),
        ),
        (
            "two lengths, the other way",
            format!("content-length: {}\r\ncontent-length: 2\r\n", 2 + length),
        ),
        ("a list of lengths", "content-length: 2, 2\r\n".to_owned()),
        ("a length with a sign", "content-length: +2\r\n".to_owned()),
        ("a negative length", "content-length: -2\r\n".to_owned()),
        ("a hexadecimal length", "content-length: 0x2\r\n".to_owned()),
        ("an empty length", "content-length:\r\n".to_owned()),
        (
            "a length with a space within",
            "content-length: 2 2\r\n".to_owned(),
        ),
        (
            "a length beyond 64 bits",
            "content-length: 18446744073709551618\r\n".to_owned(),
        ),
        (
            "chunks and a length",
            "transfer-encoding: chunked\r\ncontent-length: 2\r\n".to_owned(),
        ),
        (
            "a length and chunks",
            "content-length: 2\r\ntransfer-encoding: chunked\r\n".to_owned(),
        ),
        (
            "xchunked",
            "transfer-encoding: xchunked\r\ncontent-length: 2\r\n".to_owned(),
        ),
        ("xchunked alone", "transfer-encoding: xchunked\r\n".to_owned()),
        (
            "chunked twice",
            "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n".to_owned(),
        ),
        (
            "chunked, then identity",
            "transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n".to_owned(),
        ),
        (
            "identity and a length",
            "transfer-encoding: identity\r\ncontent-length: 2\r\n".to_owned(),
        ),
        (
            "a list of encodings",
            "transfer-encoding: gzip, chunked\r\n".to_owned(),
        ),
        (
            "an encoding in quotes",
            "transfer-encoding: \"chunked\"\r\n".to_owned(),
        ),
        (
            "an encoding with a control character",
            "transfer-encoding: \u{b}chunked\r\ncontent-length: 2\r\n".to_owned(),
        ),
        (
            "a space before the colon",
            "transfer-encoding : chunked\r\ncontent-length: 2\r\n".to_owned(),
        ),
        (
            "a space before the length's colon",
            "content-length : 2\r\n".to_owned(),
        ),
        (
            "an encoding over two lines",
            "transfer-encoding:\r\n chunked\r\ncontent-length: 2\r\n".to_owned(),
        ),
        (
            "a header over two lines",
            "x: a\r\n content-length: 2\r\n".to_owned(),
        ),
        (
            "a first line that begins with a space",
            " content-length: 2\r\n".to_owned(),
        ),
        (
            "a return in a value",
            "x: a\rcontent-length: 0\r\ncontent-length: 2\r\n".to_owned(),
        ),
        (
            "a zero byte in a value",
            "x: a\0b\r\ncontent-length: 2\r\n".to_owned(),
        ),
        (
            "a zero byte in a name",
            "x\0: a\r\ncontent-length: 2\r\n".to_owned(),
        ),
        ("a header without a colon", "content-length 2\r\n".to_owned()),
        (
            "a header without a name",
            ": 2\r\ncontent-length: 2\r\n".to_owned(),
        ),
        (
            "two hosts",
            "host: evil.example\r\ncontent-length: 2\r\n".to_owned(),
        ),
    ] {
        add(
            name,
            format!("{head}{}{lines}\r\n{{}}{hidden}", bearer(&target.report)),
        );
    }
    for (name, chunks) in [
        ("a chunk with a prefix", "0x2\r\n{}\r\n0\r\n\r\n"),
        ("a chunk with a sign", "+2\r\n{}\r\n0\r\n\r\n"),
        ("a negative chunk", "-2\r\n{}\r\n0\r\n\r\n"),
        ("a chunk without a size", "\r\n{}\r\n0\r\n\r\n"),
        ("a chunk beyond 64 bits", "10000000000000002\r\n{}\r\n0\r\n\r\n"),
        ("a chunk with more than its size", "1\r\n{}\r\n0\r\n\r\n"),
        ("a chunk whose line ends with a return", "2\r{}\r\n0\r\n\r\n"),
        ("a chunk whose line ends with a newline", "2\n{}\r\n0\r\n\r\n"),
    ] {
        let lines = "transfer-encoding: chunked\r\n";
        add(
            name,
            format!("{head}{}{lines}\r\n{chunks}{hidden}", bearer(&target.admin)),
        );
    }
    let old = post.replace("1.1", "1.0");
    add(
        "chunks in HTTP/1.0",
        format!("{old}host: {host}\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n{hidden}"),
    );
    add("no host", format!("{post}content-length: 2\r\n\r\n{{}}{hidden}"));
    add("HTTP/0.9", format!("POST /v1/items\r\n\r\n{hidden}"));
    add("HTTP/2", format!("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n{hidden}"));
    add(
        "HTTP/1.2",
        format!("{}host: {host}\r\n\r\n{hidden}", post.replace("1.1", "1.2")),
    );
    add(
        "a space in the path",
        format!("POST /v1/items x HTTP/1.1\r\nhost: {host}\r\n\r\n{hidden}"),
    );
    add(
        "a zero byte in the path",
        format!("POST /v1/items\0 HTTP/1.1\r\nhost: {host}\r\n\r\n{hidden}"),
    );
    add(
        "a return in the first line",
        format!("POST /v1/items\rHTTP/1.1\r\nhost: {host}\r\n\r\n{hidden}"),
    );
    cases
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_could_be_read_in_two_ways_is_refused_and_what_comes_behind_it_is_not_read() {
    let target = Target::start().await;
    let before = held(&target.tally.pool).await;
    let mut wrong = String::new();
    for (name, request) in ambiguous(&target) {
        let answer = target.send(&request).await;
        let got = statuses(&answer);
        let now = held(&target.tally.pool).await;
        // The server finds the wrong chunk while it reads the body. If the server is writing the
        // refusal into the trail then, the connection ends before the answer.
        let is_refused = got == [400] || (name.contains("chunk") && got.is_empty());
        if !is_refused || now != before {
            let _ = writeln!(wrong, "{name}: {got:?} {now:?}");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    // The hidden request would work: behind an unambiguous request, it creates an item.
    let twice = request("GET", "/health/live", target.host(), "", "") + &target.hidden();
    assert_eq!(statuses(&target.send(&twice).await), [200, 201]);
    assert_ne!(held(&target.tally.pool).await, before);
}

/// What stands in a body, or behind one, is not a request.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_in_a_body_is_a_body() {
    let target = Target::start().await;
    let before = held(&target.tally.pool).await;
    let (host, hidden) = (target.host().to_owned(), target.hidden());
    let size = hidden.len();
    let in_chunks = format!("transfer-encoding: chunked\r\n\r\n{size:x};a=b\r\n{hidden}\r\n0\r\n");
    let head = |method: &str, path: &str| format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\n");
    let with = |key: &str| format!("content-type: application/json\r\n{}", bearer(key));
    let cases: [(&str, String, &[u16]); 12] = [
        (
            "a body",
            request("POST", "/v1/items", &host, &bearer(&target.report), &hidden),
            &[400, 403],
        ),
        (
            "a body of the right key",
            request("POST", "/v1/items", &host, &bearer(&target.admin), &hidden),
            &[400],
        ),
        (
            "a body without a key",
            request("POST", "/v1/items/1/votes", &host, "", &hidden),
            &[400, 401],
        ),
        (
            "a body of a GET",
            request("GET", "/v1/items", &host, "", &hidden),
            &[200],
        ),
        (
            "a body of a HEAD",
            request("HEAD", "/v1/items", &host, "", &hidden),
            &[200],
        ),
        (
            "a body of a DELETE",
            request(
                "DELETE",
                "/v1/items/1/votes/ada",
                &host,
                &bearer(&target.report),
                &hidden,
            ),
            &[403],
        ),
        (
            "a body of what is not there",
            request("POST", "/nowhere", &host, "", &hidden),
            &[404],
        ),
        (
            "chunks",
            format!(
                "{}{}{in_chunks}\r\n",
                head("POST", "/v1/items"),
                with(&target.admin)
            ),
            &[400],
        ),
        (
            "trailers",
            format!(
                "{}{}{in_chunks}{}\r\n",
                head("POST", "/v1/items"),
                with(&target.admin),
                bearer(&target.admin)
            ),
            &[400],
        ),
        (
            "a body that waits for leave",
            request(
                "POST",
                "/v1/items",
                &host,
                &format!("{}expect: 100-continue\r\n", bearer(&target.report)),
                &hidden,
            ),
            &[400, 403],
        ),
        (
            "an upgrade to websocket",
            request(
                "POST",
                "/v1/items",
                &host,
                &format!(
                    "{}connection: upgrade\r\nupgrade: websocket\r\n",
                    bearer(&target.admin)
                ),
                &hidden,
            ),
            &[400],
        ),
        (
            "an upgrade to HTTP/2",
            request(
                "GET",
                "/v1/items",
                &host,
                "connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAARAAAAAAAIAAAAA\r\n",
                &hidden,
            ),
            &[200],
        ),
    ];
    let mut wrong = String::new();
    for (name, request, expected) in cases {
        let answer = target.send(&request).await;
        let (got, now) = (statuses(&answer), held(&target.tally.pool).await);
        let is_one = got.len() == 1 && expected.contains(&got[0]);
        if !is_one || now != before {
            let _ = writeln!(wrong, "{name}: {got:?} {now:?}");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
