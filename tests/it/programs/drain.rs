//! How a server ends: nothing that was asked is lost, also through proxies that look at nothing.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::future::join_all;
use nix::sys::signal::Signal;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

use crate::helpers::eventually;
use crate::helpers::programs::{Program, command, start, start_server_with, stop};
use crate::helpers::stores::Stores;

async fn item(base: &str) -> i64 {
    let made = reqwest::Client::new()
        .post(format!("{base}/v1/items"))
        .json(&json!({ "name": "x" }))
        .send()
        .await
        .expect("an answer");
    made.json::<Value>().await.expect("JSON")["id"]
        .as_i64()
        .expect("an id")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_drains_is_not_ready_and_answers_all_the_same_and_ends_each_connection() {
    let stores = Stores::start().await;
    let settings = [("TALLY_OPEN", "admin,anonymous,voters"), ("TALLY_DRAIN", "1h")];
    let (mut server, base) = start_server_with(&stores, "server", &settings).await;
    let item = item(&base).await;
    let client = reqwest::Client::new();
    let vote = async || {
        let url = format!("{base}/v1/items/{item}/votes");
        client.post(url).send().await.expect("an answer")
    };
    assert!(vote().await.headers().get("connection").is_none());
    server.signal(Signal::SIGTERM).expect("it runs");
    eventually("it is not ready", async || {
        let answer = client.get(format!("{base}/health/ready")).send().await.ok()?;
        let status = answer.status();
        let body: Value = answer.json().await.ok()?;
        (status == StatusCode::SERVICE_UNAVAILABLE && body["detail"] == "the server is about to stop")
            .then_some(())
    })
    .await;
    for _ in 0..2 {
        let answer = vote().await;
        assert_eq!(answer.status(), StatusCode::CREATED);
        assert_eq!(answer.headers()["connection"], "close");
    }
    server.kill().await.expect("it runs");
}

/// A proxy that knows nothing of HTTP: it gives each connection to the next server, or to another one if that
/// server refuses it.
async fn proxy(servers: Vec<SocketAddr>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let servers = Arc::new(Mutex::new(VecDeque::from(servers)));
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let in_turn = {
                let mut servers = servers.lock().expect("no panic");
                servers.rotate_left(1);
                servers.clone()
            };
            tokio::spawn(async move {
                for server in in_turn {
                    if let Ok(mut server) = TcpStream::connect(server).await {
                        let _ = copy_bidirectional(&mut client, &mut server).await;
                        return;
                    }
                }
            });
        }
    });
    address
}

/// A server behind a proxy.
struct Server {
    program: Program,
    address: SocketAddr,
}

async fn serve(stores: &Stores, name: &str, address: &str, drain: &str) -> Server {
    let settings = [
        ("TALLY_OPEN", "admin,anonymous,voters,report"),
        ("TALLY_PROXIES", "127.0.0.1"),
        ("TALLY_DRAIN", drain),
        ("TALLY_LISTEN", address),
    ];
    let (program, base) = start_server_with(stores, name, &settings).await;
    let address = base.trim_start_matches("http://").parse().expect("an address");
    Server { program, address }
}

/// How often each server is started again. `TALLY_TEST_RESTARTS` has another number.
const RESTARTS: u64 = 2;
const CLIENTS: usize = 16;

/// Votes through a proxy while two servers are started again, one after the other, and finds each vote stored
/// that was answered, and no request lost. `proxy` starts the proxy, and returns its address and what keeps it.
/// `keeps_to_a_server`: a client's connection leads to the same server as long as that serves.
async fn lose_no_request<Kept>(
    drain: &str,
    keeps_to_a_server: bool,
    proxy: impl AsyncFn(&Stores, [SocketAddr; 2]) -> (SocketAddr, Kept),
) {
    let restarts = std::env::var("TALLY_TEST_RESTARTS");
    let restarts = restarts.map_or(RESTARTS, |text| text.parse().expect("a number"));
    let stores = Stores::start().await;
    let mut servers = vec![
        serve(&stores, "one", "127.0.0.1:0", drain).await,
        serve(&stores, "two", "127.0.0.1:0", drain).await,
    ];
    let item = item(&format!("http://{}", servers[0].address)).await;
    let (address, _kept) = proxy(&stores, [servers[0].address, servers[1].address]).await;
    eventually("the proxy answers", async || {
        let answer = reqwest::get(format!("http://{address}/health/live")).await.ok()?;
        answer.status().is_success().then_some(())
    })
    .await;
    let (is_over, stored) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let clients = (0..CLIENTS).map(|_| {
        let (is_over, stored) = (Arc::clone(&is_over), Arc::clone(&stored));
        tokio::spawn(async move {
            let client = reqwest::Client::builder().no_proxy().build().expect("a client");
            let mut lost = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                let url = format!("http://{address}/v1/items/{item}/votes");
                match client.post(url).send().await {
                    Ok(answer) if answer.status() == StatusCode::CREATED => {
                        stored.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(answer) => lost.push(answer.status().to_string()),
                    Err(error) => lost.push(format!("{error:?}")),
                }
            }
            lost
        })
    });
    let clients: Vec<_> = clients.collect();
    for _ in 0..restarts {
        for at in 0..servers.len() {
            let Server { program, address } = servers.remove(at);
            stop(program, Signal::SIGTERM).await;
            let name = format!("again-{at}");
            let again = serve(&stores, &name, &address.to_string(), drain).await;
            servers.insert(at, again);
            let seen = stored.load(Ordering::Relaxed);
            eventually("votes go on", async || {
                if keeps_to_a_server {
                    return (stored.load(Ordering::Relaxed) >= seen + 100).then_some(());
                }
                // The proxy uses it again before the other one stops.
                let metrics = reqwest::get(format!("http://{address}/metrics")).await.ok()?;
                let metrics = metrics.text().await.ok()?;
                let count = |line: &str| {
                    line.strip_prefix("tally_vote_seconds_count ")?
                        .parse::<u64>()
                        .ok()
                };
                metrics
                    .lines()
                    .find_map(count)
                    .filter(|votes| *votes >= 100)
                    .map(drop)
            })
            .await;
        }
    }
    is_over.store(true, Ordering::Relaxed);
    let lost = join_all(clients).await;
    let lost: Vec<String> = lost
        .into_iter()
        .flat_map(|of_one| of_one.expect("no panic"))
        .collect();
    assert!(
        lost.is_empty(),
        "{} lost, the first: {:?}",
        lost.len(),
        lost.first()
    );
    let rows: i64 = sqlx::query_scalar("select count(*) from vote")
        .fetch_one(&stores.pool())
        .await
        .expect("Postgres answers");
    assert_eq!(
        u64::try_from(rows).expect("a count"),
        stored.load(Ordering::Relaxed)
    );
    println!("{rows} votes, {restarts} rolling restarts of two servers");
}

#[tokio::test(flavor = "multi_thread")]
async fn rolling_restarts_behind_a_proxy_that_looks_at_nothing_lose_no_request() {
    lose_no_request("500ms", true, async |_, servers| {
        (proxy(servers.into()).await, ())
    })
    .await;
}

/// Starts a proxy with this configuration.
pub fn start_proxy(stores: &Stores, program: &str, config: &str, arguments: &[&str]) -> Program {
    let path = stores.folder().join(program);
    std::fs::write(&path, config).expect("a file");
    let mut command = command(program, None);
    command.args(arguments).arg(&path);
    start(command, stores, &format!("{program}-log"))
}

/// The file of `deploy/`, with these texts in the place of those.
fn deployed(file: &str, changes: &[(&str, String)]) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(file);
    let mut text = std::fs::read_to_string(path).expect("the file");
    for (from, to) in changes {
        assert!(text.contains(from), "{file} has {from}");
        text = text.replace(from, to);
    }
    text
}

pub fn is_installed(program: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let is_there = std::env::split_paths(&folders).any(|folder| folder.join(program).exists());
    if !is_there {
        println!("NOT CHECKED: {program} is not installed");
    }
    is_there
}

/// Longer than HAProxy takes to see that a server is not ready.
const DRAIN: &str = "3s";

#[tokio::test(flavor = "multi_thread")]
async fn rolling_restarts_behind_haproxy_lose_no_request() {
    if !is_installed("haproxy") {
        return;
    }
    lose_no_request(DRAIN, false, async |stores, [one, two]| {
        let port = tally::dev::free_port().expect("a port");
        let changes = [
            (
                ":443 ssl crt /etc/haproxy/votes.pem alpn h2,http/1.1",
                format!("127.0.0.1:{port}"),
            ),
            ("10.0.0.11:8080", one.to_string()),
            ("10.0.0.12:8080", two.to_string()),
            // As many as this machine allows.
            ("maxconn 8000", "maxconn 200".to_owned()),
        ];
        let config = deployed("haproxy.cfg", &changes);
        let kept = start_proxy(stores, "haproxy", &config, &["-db", "-f"]);
        (SocketAddr::from(([127, 0, 0, 1], port)), kept)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rolling_restarts_behind_nginx_lose_no_request() {
    if !is_installed("nginx") {
        return;
    }
    lose_no_request(DRAIN, false, async |stores, [one, two]| {
        let port = tally::dev::free_port().expect("a port");
        let changes = [
            ("listen 443 ssl;", format!("listen 127.0.0.1:{port};")),
            ("    ssl_certificate     /etc/nginx/votes.crt;\n", String::new()),
            ("    ssl_certificate_key /etc/nginx/votes.key;\n", String::new()),
            ("10.0.0.11:8080", one.to_string()),
            ("10.0.0.12:8080", two.to_string()),
        ];
        let folder = stores.folder().display();
        let around = format!(
            "daemon off; master_process off; pid {folder}/nginx.pid; error_log stderr warn;\n\
             events {{ worker_connections 1024; }}\n\
             http {{ access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;\n\
             fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;\n\
             {}}}\n",
            deployed("nginx.conf", &changes)
        );
        let kept = start_proxy(stores, "nginx", &around, &["-e", "stderr", "-c"]);
        (SocketAddr::from(([127, 0, 0, 1], port)), kept)
    })
    .await;
}
