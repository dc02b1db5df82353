//! Cells behind real routers.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures_util::future::join_all;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tally::domain::Cell;

use super::drain::{is_installed, start_proxy};
use crate::helpers::cells;
use crate::helpers::eventually;
use crate::helpers::programs::{
    Program, SYNC_WORKER, TALLY, command, run, start_server_with, start_worker, text,
};
use crate::helpers::stores::Stores;

/// The first id of cell 1.
const FIRST_OF_ONE: i64 = (1 << 40) + 1;
/// Clients that vote in each cell while one dies.
const CLIENTS: usize = 8;

/// A cell as programs: two servers and a worker on stores of their own.
struct CellOfPrograms {
    stores: Stores,
    servers: Vec<(Program, SocketAddr)>,
    worker: Program,
}

impl CellOfPrograms {
    async fn start(number: u16) -> Self {
        let stores = match number {
            0 => Stores::start().await,
            number => cells::stores(number).await,
        };
        let cell = number.to_string();
        let settings = [
            ("TALLY_CELL", cell.as_str()),
            ("TALLY_CELLS", "2"),
            ("TALLY_KEY_CELLS", "2"),
            ("TALLY_OPEN", "admin,anonymous,voters,report"),
            ("TALLY_PROXIES", "127.0.0.1"),
            ("TALLY_SEED", "all"),
            // oEmbed answers where pages may be framed.
            ("TALLY_FRAME_ORIGINS", "https://cms.example.org"),
        ];
        let mut servers = Vec::new();
        for name in ["one", "two"] {
            let (program, base) = start_server_with(&stores, name, &settings).await;
            let address = base.trim_start_matches("http://").parse().expect("an address");
            servers.push((program, address));
        }
        let worker = start_worker(&stores, "worker", &[]);
        Self {
            stores,
            servers,
            worker,
        }
    }

    fn addresses(&self) -> String {
        let addresses: Vec<String> = self
            .servers
            .iter()
            .map(|(_, address)| address.to_string())
            .collect();
        addresses.join(",")
    }

    /// Kills all of it at once.
    async fn die(&mut self) {
        self.stores.postgres.kill().await;
        self.stores.redis.crash().await;
        self.worker.kill().await.expect("it ran");
        for (server, _) in &mut self.servers {
            server.kill().await.expect("it ran");
        }
    }

    /// How many votes an item has in the ledger.
    async fn rows(&self, item: i64) -> u64 {
        let rows: i64 = sqlx::query_scalar("select count(*) from vote where item_id = $1")
            .bind(item)
            .fetch_one(&self.stores.pool())
            .await
            .expect("Postgres answers");
        u64::try_from(rows).expect("a count")
    }
}

/// The file that `tally cell router` prints for these cells.
async fn printed(router: &str, servers: &[String], more: &[&str]) -> String {
    let mut printing = command(TALLY, None);
    printing.args(["cell", "router", router]);
    for of_cell in servers {
        printing.args(["--servers", of_cell]);
    }
    let output = run({
        printing.args(more);
        printing
    })
    .await;
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// A router before two cells of two servers each.
struct Routed {
    zero: CellOfPrograms,
    one: CellOfPrograms,
    base: String,
    http: reqwest::Client,
    _router: Program,
}

impl Routed {
    /// `None`: the router is not installed.
    async fn start(router: &'static str) -> Option<Self> {
        if !is_installed(router) {
            return None;
        }
        let (zero, one) = (CellOfPrograms::start(0).await, CellOfPrograms::start(1).await);
        let servers = [zero.addresses(), one.addresses()];
        let mut config = printed(router, &servers, &["--key-cells", "2"]).await;
        let port = tally::dev::free_port().expect("a port");
        let mut replace = |from: &str, to: &str| {
            assert!(config.contains(from), "{from}: {config}");
            config = config.replace(from, to);
        };
        let stores = &zero.stores;
        let kept = if router == "haproxy" {
            replace(
                ":443 ssl crt /etc/haproxy/votes.pem alpn h2,http/1.1",
                &format!("127.0.0.1:{port}"),
            );
            // As many as this machine allows.
            replace("maxconn 8000", "maxconn 400");
            start_proxy(stores, router, &config, &["-db", "-f"])
        } else {
            replace("listen 443 ssl;", &format!("listen 127.0.0.1:{port};"));
            replace("    ssl_certificate     /etc/nginx/votes.crt;\n", "");
            replace("    ssl_certificate_key /etc/nginx/votes.key;\n", "");
            let folder = stores.folder().display();
            let around = format!(
                "daemon off; master_process off; pid {folder}/nginx.pid; error_log stderr warn;\n\
                 events {{ worker_connections 1024; }}\n\
                 http {{ access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;\n\
                 fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;\n\
                 {config}}}\n"
            );
            start_proxy(stores, router, &around, &["-e", "stderr", "-c"])
        };
        let routed = Self {
            zero,
            one,
            base: format!("http://127.0.0.1:{port}"),
            http: reqwest::Client::builder().no_proxy().build().expect("a client"),
            _router: kept,
        };
        eventually("the router sends to both cells", async || {
            for cell in ["0", "1"] {
                let ready = routed.http.get(format!("{}/health/ready", routed.base));
                let answer = ready.header("tally-cell", cell).send().await.ok()?;
                answer.status().is_success().then_some(())?;
            }
            Some(())
        })
        .await;
        Some(routed)
    }

    async fn ask(&self, method: Method, path: &str, body: Option<Value>) -> (StatusCode, Value) {
        self.ask_of(None, method, path, body).await
    }

    /// Asks, and says the cell.
    async fn ask_of(
        &self,
        cell: Option<&str>,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> (StatusCode, Value) {
        let mut request = self.http.request(method, format!("{}{path}", self.base));
        if let Some(cell) = cell {
            request = request.header("tally-cell", cell);
        }
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer = request.send().await.expect("an answer");
        let status = answer.status();
        let text = answer.text().await.expect("a body");
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    async fn well(&self, method: Method, path: &str, body: Option<Value>) -> Value {
        let (status, answer) = self.ask(method.clone(), path, body).await;
        assert!(status.is_success(), "{method} {path}: {status} {answer}");
        answer
    }

    /// A new item of each cell.
    async fn items(&self) -> [i64; 2] {
        let mut items = Vec::new();
        for cell in ["0", "1"] {
            let new = json!({ "name": format!("of cell {cell}") });
            let (status, item) = self
                .ask_of(Some(cell), Method::POST, "/v1/items", Some(new))
                .await;
            assert_eq!(status, StatusCode::CREATED, "{item}");
            items.push(item["id"].as_i64().expect("an id"));
        }
        assert!(items[0] < FIRST_OF_ONE && items[1] >= FIRST_OF_ONE, "{items:?}");
        [items[0], items[1]]
    }
}

/// Follows a list's pages from its beginning, and returns the ids.
async fn pages_of(routed: &Routed, list: &str, parameter: &str) -> Vec<i64> {
    let mut ids = Vec::new();
    let mut path = format!("/v1/{list}?limit=2");
    loop {
        let page = routed.well(Method::GET, &path, None).await;
        let listed = page[list].as_array().expect("a list");
        ids.extend(listed.iter().map(|one| one["id"].as_i64().expect("an id")));
        match page[format!("next_{parameter}")].as_i64() {
            Some(next) => path = format!("/v1/{list}?limit=2&{parameter}={next}"),
            None => return ids,
        }
    }
}

/// Each kind of request reaches the cell that has what it names.
async fn each_request_reaches_its_cell(router: &'static str) {
    let Some(routed) = Routed::start(router).await else {
        return;
    };
    let items = routed.items().await;
    for item in items {
        let path = format!("/v1/items/{item}");
        let vote = routed
            .well(
                Method::POST,
                &format!("{path}/votes"),
                Some(json!({ "voter_id": "ada" })),
            )
            .await;
        assert_eq!(vote["item_id"], json!(item));
        let id = vote["vote_id"].as_i64().expect("an id");
        assert_eq!(Cell::of_id(id), Cell::of_id(item));
        assert_eq!(routed.well(Method::GET, &path, None).await["id"], json!(item));
        let receipt = routed.well(Method::GET, &format!("/v1/votes/{id}"), None).await;
        assert_eq!(receipt["item_id"], json!(item));
        let held = routed
            .well(Method::GET, &format!("/v1/votes?voter_id=ada&items={item}"), None)
            .await;
        assert_eq!(held["votes"][0]["vote_id"], json!(id));
        let feed = routed
            .well(Method::GET, &format!("/v1/feed?voter_id=ada&items={item}"), None)
            .await;
        assert_eq!(feed["items"][0]["id"], json!(item));
        let list = routed
            .well(Method::GET, &format!("/v1/items?ids={item}"), None)
            .await;
        assert_eq!(list["items"][0]["id"], json!(item));
        let batch = json!({ "votes": [{ "item_id": item, "voter_id": "bob" }, { "item_id": item, "voter_id": "cy" }] });
        let batch = routed.well(Method::POST, "/v1/votes", Some(batch)).await;
        assert_eq!(batch["results"][1]["item_id"], json!(item));
        let page = routed.well(Method::GET, &format!("/items/{item}"), None).await;
        assert!(page.as_str().expect("a page").contains("of cell"), "{page}");
        let shown = routed
            .well(
                Method::GET,
                &format!("/oembed?url={}/items/{item}", routed.base),
                None,
            )
            .await;
        assert_eq!(shown["type"], json!("rich"), "{shown}");
        let mut stream = routed
            .http
            .get(format!("{}/v1/stream?items={item}", routed.base))
            .send()
            .await
            .expect("an answer");
        let mut seen = String::new();
        while !seen.contains(&format!("\"id\":{item}")) {
            let chunk = stream.chunk().await.expect("a chunk").expect("it goes on");
            seen.push_str(&String::from_utf8_lossy(&chunk));
        }
    }
    // Of two cells: refused, and nothing is stored.
    let both = format!("{},{}", items[0], items[1]);
    let (status, problem) = routed
        .ask(Method::GET, &format!("/v1/items?ids={both}"), None)
        .await;
    assert_eq!(
        (status, &problem["type"]),
        (StatusCode::MISDIRECTED_REQUEST, &json!("/problems/other-cell"))
    );
    let votes = items.map(|item| json!({ "item_id": item, "voter_id": "dora" }));
    let (status, _) = routed
        .ask(Method::POST, "/v1/votes", Some(json!({ "votes": votes })))
        .await;
    assert_eq!(status, StatusCode::MISDIRECTED_REQUEST);

    // Own keys: in the path, in the query, in the body, in a list.
    let mut of_keys = BTreeSet::new();
    for number in 0..8 {
        let key = format!("page-{number}");
        let item = routed
            .well(
                Method::POST,
                "/v1/items",
                Some(json!({ "name": "keyed", "key": format!("{key}/post") })),
            )
            .await;
        let id = item["id"].as_i64().expect("an id");
        assert_eq!(Cell::of_id(id), Some(Cell::of_key(&key, 2)), "{key}");
        of_keys.insert(Cell::of_id(id));
        let again = json!({ "name": "keyed", "key": format!("{key}/post") });
        let (status, _) = routed.ask(Method::POST, "/v1/items", Some(again)).await;
        assert_eq!(status, StatusCode::OK, "the same item");
        for path in [
            format!("/v1/items/key:{key}%2Fpost"),
            format!("/v1/items/key:?key={key}%2Fpost"),
        ] {
            assert_eq!(
                routed.well(Method::GET, &path, None).await["id"],
                json!(id),
                "{path}"
            );
        }
        let list = format!("/v1/items?ids=key:{key}/post");
        assert_eq!(
            routed.well(Method::GET, &list, None).await["items"][0]["id"],
            json!(id)
        );
        let vote = format!("/v1/items/key:{key}%2Fpost/votes");
        let vote = routed
            .well(Method::POST, &vote, Some(json!({ "voter_id": "ada" })))
            .await;
        assert_eq!(vote["item_id"], json!(id));
        let batch = json!({ "votes": [{ "item_id": format!("key:{key}/post"), "voter_id": "bob" }] });
        let batch = routed.well(Method::POST, "/v1/votes", Some(batch)).await;
        assert_eq!(batch["results"][0]["item_id"], json!(id));
    }
    assert_eq!(of_keys.len(), 2, "{of_keys:?}");

    // New items and polls go to both cells. A poll's choices are with it.
    let mut polls = BTreeSet::new();
    for number in 0..30 {
        let new = json!({ "title": format!("poll {number}"), "choices": ["a", "b"] });
        let poll = routed.well(Method::POST, "/v1/polls", Some(new)).await;
        let id = poll["id"].as_i64().expect("an id");
        polls.insert(id);
        let choice = poll["choices"][1]["item_id"].as_i64().expect("an id");
        assert_eq!(Cell::of_id(choice), Cell::of_id(id));
        let selection = routed
            .well(
                Method::PUT,
                &format!("/v1/polls/{id}/votes/ada"),
                Some(json!({ "items": [choice] })),
            )
            .await;
        assert_eq!(selection["items"][0], json!(choice), "{selection}");
    }
    let of_polls: BTreeSet<Option<Cell>> = polls.iter().map(|id| Cell::of_id(*id)).collect();
    assert_eq!(of_polls.len(), 2, "30 polls lie in one cell");

    // Lists lead over all cells.
    let listed = pages_of(&routed, "polls", "before").await;
    assert_eq!(listed, polls.iter().rev().copied().collect::<Vec<_>>());
    let listed = pages_of(&routed, "items", "after").await;
    assert_eq!(listed.len(), 2 + 8 + 60);
    assert!(listed.is_sorted(), "{listed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_request_through_haproxy_reaches_the_cell_of_what_it_names() {
    each_request_reaches_its_cell("haproxy").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_request_through_nginx_reaches_the_cell_of_what_it_names() {
    each_request_reaches_its_cell("nginx").await;
}

/// What the clients of a cell saw.
#[derive(Default)]
struct Seen {
    stored: AtomicU64,
    refused: AtomicU64,
}

/// A cell dies as a whole while both are voted in; the other one loses no request.
async fn a_cell_dies(router: &'static str) {
    let Some(mut routed) = Routed::start(router).await else {
        return;
    };
    let items = routed.items().await;
    let is_over = Arc::new(AtomicBool::new(false));
    let seen = [Arc::new(Seen::default()), Arc::new(Seen::default())];
    let mut clients = Vec::new();
    for (item, seen) in items.iter().zip(&seen) {
        for _ in 0..CLIENTS {
            let (is_over, seen) = (Arc::clone(&is_over), Arc::clone(seen));
            let url = format!("{}/v1/items/{item}/votes", routed.base);
            clients.push(tokio::spawn(async move {
                let client = reqwest::Client::builder().no_proxy().build().expect("a client");
                while !is_over.load(Ordering::Relaxed) {
                    let answer = client.post(&url).send().await;
                    match answer {
                        Ok(answer) if answer.status() == StatusCode::CREATED => {
                            seen.stored.fetch_add(1, Ordering::Relaxed);
                        }
                        _ => {
                            seen.refused.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
            }));
        }
    }
    let stored = |cell: usize| seen[cell].stored.load(Ordering::Relaxed);
    let more = async |cell: usize, votes: u64| {
        let before = stored(cell);
        eventually("votes are stored", async || {
            (stored(cell) >= before + votes).then_some(())
        })
        .await;
    };
    more(0, 200).await;
    more(1, 200).await;
    routed.one.die().await;
    eventually("the votes of the dead cell are refused", async || {
        (seen[1].refused.load(Ordering::Relaxed) > 20).then_some(())
    })
    .await;
    let at_death = stored(0);
    more(0, 1000).await;
    // It goes on with everything else, too.
    let made = json!({ "name": "made meanwhile" });
    let (status, made) = routed
        .ask_of(Some("0"), Method::POST, "/v1/items", Some(made))
        .await;
    assert_eq!(status, StatusCode::CREATED, "{made}");
    let list = routed.well(Method::GET, "/v1/items", None).await;
    assert_eq!(list["items"].as_array().map(Vec::len), Some(2), "{list}");
    is_over.store(true, Ordering::Relaxed);
    for client in join_all(clients).await {
        client.expect("no panic");
    }
    assert_eq!(
        seen[0].refused.load(Ordering::Relaxed),
        0,
        "votes in the living cell"
    );
    assert_eq!(routed.zero.rows(items[0]).await, stored(0));
    eventually("the saved count is exact", async || {
        let shown = routed
            .well(Method::GET, &format!("/v1/items/{}", items[0]), None)
            .await;
        let exact = json!(stored(0));
        (shown["vote_count"] == exact && shown["saved"]["vote_count"] == exact).then_some(())
    })
    .await;
    let mut audit = command(TALLY, Some(&routed.zero.stores));
    audit.arg("audit");
    let audit = run(audit).await;
    assert!(audit.status.success(), "{}", text(&audit.stdout));

    // The dead cell comes back with all that it acknowledged.
    routed.one.stores.postgres.start().await.expect("Postgres starts");
    routed.one.stores.redis.start().await.expect("Redis starts");
    let rows = routed.one.rows(items[1]).await;
    assert!(
        (stored(1)..=stored(1) + CLIENTS as u64).contains(&rows),
        "{rows} rows, {} acknowledged",
        stored(1)
    );
    let mut once = command(SYNC_WORKER, Some(&routed.one.stores));
    once.arg("--once");
    let once = run(once).await;
    assert!(
        once.status.success(),
        "{}{}",
        text(&once.stdout),
        text(&once.stderr)
    );
    let saved: i64 = sqlx::query_scalar("select vote_count from item where id = $1")
        .bind(items[1])
        .fetch_one(&routed.one.stores.pool())
        .await
        .expect("Postgres answers");
    assert_eq!(u64::try_from(saved), Ok(rows));
    println!(
        "{router}: {} votes in the living cell, {} of them after the death, none refused; {} acknowledged in the dead cell, \
         {rows} there",
        stored(0),
        stored(0) - at_death,
        stored(1)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cell_that_dies_behind_haproxy_does_the_other_one_no_harm() {
    a_cell_dies("haproxy").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cell_that_dies_behind_nginx_does_the_other_one_no_harm() {
    a_cell_dies("nginx").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_routers_files_in_deploy_are_what_the_command_prints_for_two_cells() {
    let servers = ["10.0.0.11:8080,10.0.0.12:8080", "10.0.1.11:8080,10.0.1.12:8080"].map(str::to_owned);
    for (router, file) in [("haproxy", "haproxy-cells.cfg"), ("nginx", "nginx-cells.conf")] {
        let path = format!("{}/deploy/{file}", env!("CARGO_MANIFEST_DIR"));
        let there = std::fs::read_to_string(&path).expect("the file");
        assert_eq!(
            printed(router, &servers, &[]).await,
            there,
            "tally cell router {router} … > deploy/{file}"
        );
    }
}
