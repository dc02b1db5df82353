//! Traces, as a collector gets them.

use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::signal::Signal;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tally::ledger::Role;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::helpers::eventually;
use crate::helpers::programs::{TALLY, command_as, run, start_server_with, start_worker, stop, text};
use crate::helpers::stores::Stores;

const VOTES: i64 = 20;

/// A span, with the name of the service that it is of.
type Received = Arc<Mutex<Vec<(String, Span)>>>;

/// A collector that notes what it gets. Returns its address.
async fn collector() -> (String, Received) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    let received = Received::default();
    let noted = received.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(receive(stream, noted.clone()));
        }
    });
    (address, received)
}

async fn receive(stream: TcpStream, noted: Received) {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut line, mut length) = (String::new(), 0);
        while stream.read_line(&mut line).await.is_ok_and(|read| read > 0) {
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().expect("a length");
            }
            if line.trim().is_empty() {
                break;
            }
            if line.starts_with("POST") {
                assert!(line.starts_with("POST /v1/traces "), "{line}");
            }
            line.clear();
        }
        if length == 0 {
            return;
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.expect("a body");
        let request = ExportTraceServiceRequest::decode(body.as_slice()).expect("spans");
        for of_resource in request.resource_spans {
            let attributes = of_resource.resource.expect("a resource").attributes;
            let mut service = attributes.iter().filter(|one| one.key == "service.name");
            let service = service.next().and_then(|one| one.value.clone()?.value);
            let Some(Any::StringValue(service)) = service else {
                panic!("no name of a service: {attributes:?}");
            };
            let spans = of_resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
            let mut noted = noted.lock().unwrap_or_else(PoisonError::into_inner);
            noted.extend(spans.map(|span| (service.clone(), span)));
        }
        let answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(answer).await.expect("it listens");
    }
}

fn spans(received: &Received, service: &str, name: &str) -> Vec<Span> {
    let received = received.lock().unwrap_or_else(PoisonError::into_inner);
    let wanted = received
        .iter()
        .filter(|(of, span)| of == service && span.name == name);
    wanted.map(|(_, span)| span.clone()).collect()
}

fn number(span: &Span, key: &str) -> i64 {
    let value = span.attributes.iter().find(|one| one.key == key);
    match value.and_then(|one| one.value.clone()?.value) {
        Some(Any::IntValue(number)) => number,
        other => panic!("{key} is {other:?}"),
    }
}

async fn cast_votes(base: &str) {
    let client = reqwest::Client::new();
    let post = async |path: &str, body: Value| {
        let answer = client.post(format!("{base}{path}")).json(&body).send();
        let answer = answer.await.expect("an answer");
        assert_eq!(answer.status(), StatusCode::CREATED);
        answer.json::<Value>().await.expect("JSON")
    };
    let item = post("/v1/items", json!({ "name": "x" })).await["id"].clone();
    for voter in 0..VOTES {
        post(
            &format!("/v1/items/{item}/votes"),
            json!({ "voter_id": format!("voter {voter}") }),
        )
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_gets_a_span_of_each_batch_and_each_job_before_the_programs_end() {
    let stores = Stores::start().await;
    let (address, received) = collector().await;
    let collector = ("OTEL_EXPORTER_OTLP_ENDPOINT", address.as_str());
    let open = ("TALLY_OPEN", "admin,voters");
    let (server, base) = start_server_with(&stores, "server", &[open, collector]).await;
    let audits = ("TALLY_AUDIT_CRON", "* * * * * *");
    let worker = start_worker(&stores, "worker", &[audits, collector]);
    cast_votes(&base).await;
    stop(server, Signal::SIGTERM).await;
    let batches = spans(&received, "tally-server", "batch");
    let votes: i64 = batches.iter().map(|span| number(span, "tally.votes")).sum();
    assert_eq!(votes, VOTES, "each vote is in one batch");
    for batch in &batches {
        assert!(batch.parent_span_id.is_empty() && batch.end_time_unix_nano >= batch.start_time_unix_nano);
        for part in ["store", "count"] {
            let parts = spans(&received, "tally-server", part);
            let mut of_batch = parts.iter().filter(|part| part.parent_span_id == batch.span_id);
            let part = of_batch.next().expect("a part");
            assert!(
                part.trace_id == batch.trace_id && part.start_time_unix_nano >= batch.start_time_unix_nano
            );
            assert_eq!(of_batch.next(), None);
        }
    }
    eventually("all jobs have spans", async || {
        let has = |name| !spans(&received, "tally-worker", name).is_empty();
        (has("flush") && has("roll_up") && has("audit")).then_some(())
    })
    .await;
    stop(worker, Signal::SIGTERM).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_gone_or_hangs_holds_up_no_vote_and_no_end() {
    let stores = Stores::start().await;
    let hung = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let gone = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = |of: &TcpListener| format!("http://{}", of.local_addr().expect("an address"));
    let addresses = [address(&hung), address(&gone)];
    drop(gone);
    for (address, name) in addresses.iter().zip(["hung", "gone"]) {
        let settings = [
            ("TALLY_OPEN", "admin,voters"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", address.as_str()),
            // How often spans are sent, in milliseconds.
            ("OTEL_BSP_SCHEDULE_DELAY", "50"),
        ];
        let (server, base) = start_server_with(&stores, name, &settings).await;
        cast_votes(&base).await;
        let said = server.wait_for_line("spans were not sent to the collector").await;
        assert!(said.contains("WARN"), "{said}");
        stop(server, Signal::SIGTERM).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_of_a_collector_that_cannot_be_is_refused_and_an_empty_one_is_none() {
    let stores = Stores::start().await;
    let refused = async |endpoint: &str| {
        let mut server = command_as(TALLY, Some((&stores, Role::Server)));
        server.arg("serve").env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint);
        let said = run(server).await;
        assert_eq!(said.status.code(), Some(2));
        text(&said.stderr)
    };
    for endpoint in ["https://collector:4318", "127.0.0.1:4318"] {
        let said = refused(endpoint).await;
        assert!(
            said.contains("begins with http:// and has no TLS: send spans to a collector near Tally")
                && said.lines().count() == 1,
            "{said}"
        );
    }
    let (server, _) = start_server_with(&stores, "none", &[("OTEL_EXPORTER_OTLP_ENDPOINT", "")]).await;
    stop(server, Signal::SIGTERM).await;
}
