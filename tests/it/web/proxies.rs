//! What proxies, and clients behind them, make of requests: names in queries, offered upgrades, older HTTP,
//! and answers that a shared cache may keep.

use reqwest::{Method, StatusCode};
use serde_json::json;
use tally::web::routes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::helpers::tally::Tally;
use crate::web::access::raw::{exchange, header, statuses};
use crate::web::streams::Reader;

/// Names that proxies decode, shorten or refuse in a path. An item's key and a poll's are the first part.
const NAMES: [&str; 9] = [
    "a/b",
    "https://example.org//a/../b?c=d#e",
    "..",
    ".",
    "a;b+c d",
    "100%",
    "a%2Fb",
    "<\"|\\^`{}>",
    "ä&ö=ü",
];

fn encoded(name: &str) -> String {
    // As URLSearchParams has it.
    let mut url: reqwest::Url = "http://x".parse().expect("a URL");
    url.query_pairs_mut().append_pair("x", name);
    url.query().expect("a query")["x=".len()..].to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_and_a_voter_in_the_query_name_what_the_same_in_the_path_would_name() {
    let tally = Tally::start_creating_items().await;
    for (at, name) in NAMES.iter().enumerate() {
        let (item, voter) = (
            format!("key=item+{}", encoded(name)),
            format!("voter_id={}", encoded(name)),
        );
        // A vote on a key that no item has makes the item.
        let path = format!("/v1/items/key:/votes?{item}");
        let (status, vote) = tally.post(&path, &json!({ "voter_id": name })).await;
        assert_eq!(status, StatusCode::CREATED, "{name}: {vote}");
        let (status, shown) = tally.get(&format!("/v1/items/key:?{item}")).await;
        assert_eq!(status, StatusCode::OK, "{name}: {shown}");
        assert_eq!(
            (&shown["id"], &shown["key"]),
            (&vote["item_id"], &json!(format!("item {name}")))
        );
        let (_, history) = tally
            .get(&format!("/v1/items/key%3A/history?{item}&over=hour"))
            .await;
        assert!(history["spans"].is_array(), "{name}: {history}");
        let id = vote["item_id"].as_i64().expect("an id");
        let stream = format!("/v1/items/key:/stream?{item}");
        let mut reader = Reader::open(&tally, &tally.base, &stream).await;
        reader
            .until("the item", |reader| reader.count(id) == Some(1))
            .await;
        // The vote of the same voter, whose name is in the path or in the query.
        let of_voter = format!("/v1/items/{id}/votes?{voter}");
        let (status, held) = tally.get(&of_voter).await;
        assert_eq!(
            (status, &held["voter_id"]),
            (StatusCode::OK, &json!(name)),
            "{held}"
        );
        let change = json!({ "value": -1 });
        let both = format!("/v1/items/key:/votes?{voter}&{item}");
        let (status, changed) = tally.send(Method::PUT, &both, Some(&change)).await;
        assert_eq!(
            (status, &changed["vote_count"]),
            (StatusCode::OK, &json!(-1)),
            "{changed}"
        );
        let (status, back) = tally.send(Method::DELETE, &of_voter, None).await;
        assert_eq!(
            (status, &back["vote_count"]),
            (StatusCode::OK, &json!(0)),
            "{back}"
        );

        let key = format!("poll {name}");
        let poll = json!({ "title": "Lunch?", "choices": ["soup", "salad"], "key": key });
        let (status, poll) = tally.post("/v1/polls", &poll).await;
        assert_eq!(status, StatusCode::CREATED, "{name}: {poll}");
        let query = format!("key={}", encoded(&key));
        let chosen = json!({ "items": [poll["choices"][0]["item_id"]] });
        let selection = format!("/v1/polls/key:/votes?{query}&{voter}");
        let (status, chose) = tally.send(Method::PUT, &selection, Some(&chosen)).await;
        assert_eq!(
            (status, &chose["items"]),
            (StatusCode::OK, &chosen["items"]),
            "{chose}"
        );
        assert_eq!(chose["voter_id"], json!(name));
        for page in [format!("/items/key:?{item}"), format!("/polls/key:?{query}")] {
            let shown = tally.http.get(format!("{}{page}", tally.base)).send().await;
            assert_eq!(shown.expect("an answer").status(), StatusCode::OK, "{page}");
        }
        // Nothing else was made.
        let (_, items) = tally.get("/v1/items?choices=false").await;
        assert_eq!(items["items"].as_array().map(Vec::len), Some(at + 1), "{items}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_in_the_query_without_its_place_in_the_path_is_refused() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let vote = Some(json!({ "value": 1 }));
    for (method, path, status, field) in [
        (Method::GET, "/v1/items/key:".to_owned(), 422, "id"),
        (Method::GET, "/v1/items/key:?key=".to_owned(), 422, "id"),
        (Method::GET, "/v1/items/key:?key=a&key=a".to_owned(), 400, "key"),
        (Method::GET, "/v1/items/key:?key=%FF".to_owned(), 400, "key"),
        (
            Method::PUT,
            format!("/v1/items/{item}/votes?voter_id="),
            422,
            "voter_id",
        ),
        (
            Method::PUT,
            format!("/v1/items/{item}/votes?voter_id=a&x=1"),
            400,
            "query",
        ),
        (
            Method::PUT,
            format!("/v1/items/{item}/votes/ada?voter_id=bob"),
            400,
            "query",
        ),
    ] {
        let body = vote.as_ref().filter(|_| method == Method::PUT);
        let (got, problem) = tally.send(method.clone(), &path, body).await;
        assert_eq!(
            (got.as_u16(), &problem["field"]),
            (status, &json!(field)),
            "{method} {path}: {problem}"
        );
    }
    // If a proxy has decoded a slash, the answer says what to send.
    let (status, problem) = tally.get("/v1/items/key:a/b").await;
    let detail = problem["detail"].as_str().expect("a detail");
    assert!(
        status == StatusCode::NOT_FOUND && detail.contains("?key="),
        "{detail}"
    );
    assert_eq!(tally.ledger_sum(item).await, 0);
}

/// A connection that stays open. Its answers end with `end`.
struct Kept(TcpStream);

impl Kept {
    async fn open(tally: &Tally) -> Self {
        let address = tally.base.trim_start_matches("http://");
        Self(TcpStream::connect(address).await.expect("it listens"))
    }

    async fn ask(&mut self, request: &str) -> String {
        self.0.write_all(request.as_bytes()).await.expect("it reads");
        let mut answer = Vec::new();
        while !answer.ends_with(b"}") {
            let count = self.0.read_buf(&mut answer).await.expect("it answers");
            assert!(count > 0, "it closed after {}", String::from_utf8_lossy(&answer));
        }
        String::from_utf8(answer).expect("UTF-8")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_offered_upgrade_is_ignored_and_the_connection_stays_open() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let mut kept = Kept::open(&tally).await;
    for (at, offer) in [
        // As Java's HttpClient has it.
        "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\n",
        "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n",
        "connection: upgrade\r\nupgrade: TLS/1.2, HTTP/1.1\r\n",
        "Upgrade: websocket\r\n",
        "",
    ]
    .iter()
    .enumerate()
    {
        let body = json!({ "voter_id": format!("voter {at}") }).to_string();
        let answer = kept
            .ask(&format!(
                "POST /v1/items/{item}/votes HTTP/1.1\r\nHost: x\r\n{offer}Content-Type: application/json\r\n\
                 Content-Length: {}\r\n\r\n{body}",
                body.len()
            ))
            .await;
        assert_eq!(statuses(&answer), [201], "{offer}: {answer}");
        assert!(header(&answer, "connection").is_empty(), "{answer}");
        assert!(header(&answer, "upgrade").is_empty(), "{answer}");
    }
    assert_eq!(tally.ledger_sum(item).await, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_as_proxies_forward_them_are_answered_as_any_other() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let body = r#"{"voter_id":"ada"}"#;
    let json = format!(
        "Content-Type: application/json\r\nContent-Length: {}\r\n",
        body.len()
    );
    let votes = format!("/v1/items/{item}/votes");
    let chunked = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let many = "X-Forwarded-For: 192.0.2.1\r\n".repeat(3);
    for (status, request) in [
        // nginx speaks HTTP/1.0 to its upstreams by default, and may leave out Host.
        (
            201,
            format!("POST {votes} HTTP/1.0\r\nHost: tally\r\nConnection: close\r\n{json}\r\n{body}"),
        ),
        (
            200,
            format!("POST {votes} HTTP/1.0\r\nConnection: keep-alive\r\n{json}\r\n{body}"),
        ),
        (200, format!("GET /v1/items/{item} HTTP/1.0\r\n\r\n")),
        // The absolute form, as a forward proxy gets it.
        (
            200,
            format!("POST http://votes.example.org{votes} HTTP/1.1\r\nHost: x\r\n{json}\r\n{body}"),
        ),
        (
            200,
            format!("GET http://x/v1/items/{item} HTTP/1.1\r\nHost: x\r\n\r\n"),
        ),
        (
            200,
            format!(
                "POST {votes} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\n{chunked}"
            ),
        ),
        (
            200,
            format!("POST {votes} HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n{json}\r\n{body}"),
        ),
        (
            200,
            format!(
                "POST {votes} HTTP/1.1\r\nHost: x\r\nX_Under_Score: 1\r\nVia: 1.1 a\r\nVia: 1.0 b\r\n{many}{json}\r\n{body}"
            ),
        ),
        (200, format!("HEAD /v1/items/{item} HTTP/1.1\r\nHost: x\r\n\r\n")),
        (
            200,
            format!("HEAD /v1/stream?items={item} HTTP/1.1\r\nHost: x\r\n\r\n"),
        ),
    ] {
        let answer = exchange(&tally.base, request.as_bytes()).await;
        let answer = answer.replace("HTTP/1.0 ", "HTTP/1.1 ");
        assert_eq!(statuses(&answer), [status], "{request}: {answer}");
        assert!(
            !header(&answer, "cache-control").is_empty() || answer.contains("100 Continue"),
            "{answer}"
        );
    }
    assert_eq!(tally.ledger_sum(item).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_says_how_it_may_be_kept() {
    let tally = Tally::start().await;
    tally.item("x").await;
    let mut answers = 0;
    let mut ask = async |method: Method, path: &str, body: Option<&str>| {
        let mut request = tally
            .http
            .request(method.clone(), format!("{}{path}", tally.base));
        if let Some(body) = body {
            request = request
                .header("content-type", "application/json")
                .body(body.to_owned());
        }
        let answer = request.send().await.expect("an answer");
        let kept = answer
            .headers()
            .get_all("cache-control")
            .iter()
            .collect::<Vec<_>>();
        let status = answer.status();
        assert!(kept.len() == 1, "{method} {path}: {status} {kept:?}");
        let kept = kept[0].to_str().expect("text");
        // Only what never changes is kept without asking again.
        assert!(
            kept.starts_with("no-store") || kept == "no-cache" || path.starts_with("/assets/"),
            "{method} {path}: {status} {kept}"
        );
        // What sets a cookie is for one voter alone.
        assert!(
            answer.headers().get("set-cookie").is_none() || kept == "no-store",
            "{method} {path}: {status} {kept}"
        );
        answers += 1;
    };
    for route in routes() {
        let asset = "page.css";
        for id in ["1", "999", "key:none", "key:%FF", "x"] {
            let path = route.path().replace("{id}", id).replace("{voter_id}", "ada");
            let path = path.replace("{slug}", "full").replace("{name}", asset);
            let method: Method = route.method().parse().expect("a method");
            for body in [
                None,
                Some("{"),
                Some("{}"),
                Some("{\"value\":1,\"name\":\"\",\"choices\":[]}"),
            ] {
                ask(method.clone(), &path, body).await;
            }
            for other in [Method::OPTIONS, Method::TRACE] {
                ask(other, &path, None).await;
            }
            if method == Method::GET {
                ask(Method::HEAD, &path, None).await;
                ask(method, &format!("{path}?nonsense=1"), None).await;
            }
        }
    }
    for path in [
        "/nowhere",
        "/v1",
        "//",
        "/v1/items/",
        "/v1/items/1/",
        "/assets/page-00000000.js",
        "/favicon.ico",
    ] {
        for method in [Method::GET, Method::POST, Method::OPTIONS] {
            ask(method, path, None).await;
        }
    }
    assert!(answers > 1000, "{answers}");
}
