//! All of Tally in the test's own process: a server on a free port, and a worker.
//! The test calls the worker's steps.

use std::time::Duration;

use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};
use sqlx::PgPool;
use tally::app::{self, StoreUrls};
use tally::domain::{self, Count, Item, ItemId, ItemName, NewVote, Owner, VoterId};
use tally::ledger::{Job, JobLease, LedgerError, Role, ServerLedger, WorkerLedger};
use tally::live::{
    BucketEpoch, CounterParts, Counters, KeyPrefix, LiveCounts, Redis, SERVER_ANSWER_LIMIT,
    SUSPECTS_LIMIT_ITEMS, Seeding,
};
use tally::sync::{SyncOptions, Worker};
use tally::votes::{SeedBackoff, VoteQueue};
use tally::web::access::{AccessOptions, CreateItems, Open, VotingOptions};
use tally::web::limits::CONNECTIONS_LIMIT;
use tally::web::{ClientLimits, Server, ServerOptions};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use super::answers;
use super::metrics::metrics;
use super::stores::Stores;

pub struct Tally {
    pub stores: Stores,
    pub base: String,
    pub http: reqwest::Client,
    /// Has the owner's login. The server and the worker have logins of their own.
    pub ledger: WorkerLedger,
    pub server_ledger: ServerLedger,
    worker_urls: StoreUrls,
    pub counters: Counters,
    pub pool: PgPool,
    stop: Option<oneshot::Sender<()>>,
    server: JoinHandle<anyhow::Result<()>>,
}

/// Options under which the worker expires and evicts nothing.
pub fn options() -> SyncOptions {
    SyncOptions {
        flush_page: 100,
        retention: Some(Duration::from_secs(3600)),
        max_age: Some(Duration::from_secs(3600)),
        writer_stall_limit: Duration::from_secs(3600),
        audit_page: 100,
    }
}

pub fn ledger(url: &str) -> WorkerLedger {
    WorkerLedger::new(url, "test").expect("a URL")
}

/// The lease of the roll-up, for a test that rolls up by itself.
pub async fn roll_up_lease(ledger: &WorkerLedger) -> JobLease {
    let taken = ledger.take_job(Job::RollUp).await.expect("Postgres answers");
    taken.lease.expect("nobody rolls up")
}

pub fn server_ledger(url: &str) -> ServerLedger {
    ServerLedger::new(url, "test").expect("a URL")
}

pub fn counters(url: &str) -> Counters {
    app::counters(&urls("", url)).expect("a URL")
}

fn urls(database_url: &str, redis_url: &str) -> StoreUrls {
    StoreUrls {
        database_url: database_url.into(),
        redis_url: redis_url.into(),
        key_prefix: KeyPrefix::default(),
    }
}

/// A server on a free port, which is not running yet.
fn server(stores: &Stores, edit: impl FnOnce(&mut ServerOptions)) -> Server {
    server_at(|role| logins(stores, role), edit)
}

/// Where the stores are, for the login of this role.
pub fn logins(stores: &Stores, role: Role) -> StoreUrls {
    urls(&stores.login_url(role), &stores.redis_login_url(role))
}

/// The same with these URLs of each role.
fn server_at(urls: impl Fn(Role) -> StoreUrls, edit: impl FnOnce(&mut ServerOptions)) -> Server {
    let mut options = ServerOptions {
        listen: "127.0.0.1:0".parse().expect("an address"),
        shutdown_limit: Duration::from_secs(10),
        drain_for: None,
        clients: ClientLimits::with_connections(CONNECTIONS_LIMIT),
        access: AccessOptions {
            open: Open::ALL,
            ..AccessOptions::default()
        },
        voting: VotingOptions::default(),
        // Most tests look at live counts after a first vote. Those of cold items edit this.
        seeding: Seeding::All,
        operator: Some(
            app::operator(urls(Role::Operator).database_url, "test server operator").expect("a URL"),
        ),
        cells: tally::domain::Cells::ONE,
    };
    edit(&mut options);
    app::server(&urls(Role::Server), options, "test server", metrics()).expect("a free port")
}

impl Tally {
    pub async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    /// Starts a server with other limits for its clients.
    pub async fn start_limited_to(clients: ClientLimits) -> Self {
        Self::start_with(|options| options.clients = clients).await
    }

    /// Starts a server on which a vote on an unknown key creates its item.
    pub async fn start_creating_items() -> Self {
        Self::start_with(|options| options.voting.creates = CreateItems::Any).await
    }

    /// Starts a server with other options.
    pub async fn start_with(edit: impl FnOnce(&mut ServerOptions)) -> Self {
        let stores = Stores::start().await;
        Self::start_at(stores, |_, urls| urls, edit).await
    }

    /// Starts a server. Its programs find the stores by what `leads` makes of the URLs of their logins.
    pub async fn start_at(
        stores: Stores,
        leads: impl Fn(Role, StoreUrls) -> StoreUrls,
        edit: impl FnOnce(&mut ServerOptions),
    ) -> Self {
        let led = |role| leads(role, logins(&stores, role));
        let of_worker = led(Role::Worker);
        let server = server_at(led, edit);
        let base = format!("http://{}", server.address().expect("an address"));
        let (stop, stopped) = oneshot::channel();
        let server = tokio::spawn(server.run(async {
            let _ = stopped.await;
        }));
        let tally = Self {
            base,
            http: reqwest::Client::builder().no_proxy().build().expect("a client"),
            ledger: ledger(&stores.database_url),
            server_ledger: server_ledger(&stores.database_url),
            counters: app::counters(&of_worker).expect("a URL"),
            worker_urls: of_worker,
            pool: stores.pool(),
            stores,
            stop: Some(stop),
            server,
        };
        // Ready means that the live counts have their first connection.
        tally.wait_until_ready("ready").await;
        tally
    }

    pub async fn wait_until_ready(&self, status: &str) {
        super::eventually(&format!("/health/ready says {status}"), async || {
            let answer = self.get("/health/ready").await;
            (answer.1["status"] == status).then_some(())
        })
        .await;
    }

    pub fn worker(&self) -> Worker {
        self.worker_with(options())
    }

    pub fn worker_with(&self, options: SyncOptions) -> Worker {
        app::worker(&self.worker_urls, options, "test worker").expect("URLs")
    }

    pub async fn item(&self, name: &str) -> ItemId {
        made_item(&self.server_ledger, name).await
    }

    pub async fn get(&self, path: &str) -> (StatusCode, Value) {
        self.send(Method::GET, path, None).await
    }

    /// An item with these fields beside its name.
    pub async fn item_with(&self, fields: Value) -> ItemId {
        let mut fields = fields;
        fields["name"] = json!("x");
        // As in `made_item`.
        let (status, item) = super::eventually("an item is made", async || {
            let answer = self.post("/v1/items", &fields).await;
            (answer.0 != StatusCode::SERVICE_UNAVAILABLE).then_some(answer)
        })
        .await;
        assert_eq!(status, StatusCode::CREATED, "{item}");
        ItemId::new(item["id"].as_i64().expect("an id")).expect("positive")
    }

    /// Starts a second server that finds the stores by these URLs of each role, and ends with the test. Returns its
    /// address.
    pub async fn another_server_at(&self, urls: impl Fn(Role) -> StoreUrls) -> String {
        let server = server_at(urls, |_| {});
        let (base, stop) = self.run_until_dropped(server).await;
        std::mem::forget(stop);
        base
    }

    /// Starts a second server on the same stores, which ends with the test.
    /// Returns its address.
    pub async fn another_server(&self) -> String {
        self.another_server_with(|_| {}).await
    }

    /// The same with other options.
    pub async fn another_server_with(&self, edit: impl FnOnce(&mut ServerOptions)) -> String {
        let (base, stop) = self.server_until_dropped(edit).await;
        std::mem::forget(stop);
        base
    }

    /// Starts a second server, which stops when the sender is dropped.
    /// Many at once would take all of Postgres' connections.
    pub async fn server_until_dropped(
        &self,
        edit: impl FnOnce(&mut ServerOptions),
    ) -> (String, oneshot::Sender<()>) {
        self.run_until_dropped(server(&self.stores, edit)).await
    }

    async fn run_until_dropped(&self, server: Server) -> (String, oneshot::Sender<()>) {
        let base = format!("http://{}", server.address().expect("an address"));
        let (stop, stopped) = oneshot::channel::<()>();
        tokio::spawn(server.run(async { drop(stopped.await) }));
        super::eventually("the second server is ready", async || {
            let answer = self.http.get(format!("{base}/health/ready")).send().await.ok()?;
            let answer: Value = answer.json().await.ok()?;
            (answer["status"] == "ready").then_some(())
        })
        .await;
        (base, stop)
    }

    /// Sends a request without a body, or with a JSON body.
    pub async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> (StatusCode, Value) {
        self.send_to(&self.base, method, path, body).await
    }

    /// The same to a server at this address.
    pub async fn send_to(
        &self,
        base: &str,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> (StatusCode, Value) {
        let mut request = self.http.request(method.clone(), format!("{base}{path}"));
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().await.expect("an answer");
        read_described(&method, path, response).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> (StatusCode, Value) {
        let response = self.post_raw(path, "application/json", body.to_string()).await;
        read_described(&Method::POST, path, response).await
    }

    pub async fn post_raw(&self, path: &str, content_type: &str, body: impl Into<reqwest::Body>) -> Response {
        self.http
            .post(format!("{}{path}", self.base))
            .header("content-type", content_type)
            .body(body)
            .send()
            .await
            .expect("an answer")
    }

    pub async fn vote(&self, item: ItemId, voter: &str) -> (StatusCode, Value) {
        self.post(&format!("/v1/items/{item}/votes"), &json!({ "voter_id": voter }))
            .await
    }

    /// Casts an anonymous vote of this value, which must be accepted.
    /// Returns the live count.
    pub async fn add(&self, item: ItemId, value: i64) -> Option<i64> {
        self.add_at(&self.base, item, value).await
    }

    /// The same at a server at this address.
    pub async fn add_at(&self, base: &str, item: ItemId, value: i64) -> Option<i64> {
        let path = format!("/v1/items/{item}/votes");
        let vote = json!({ "value": value });
        let (status, answer) = self.send_to(base, Method::POST, &path, Some(&vote)).await;
        assert_eq!(status, StatusCode::CREATED, "{answer}");
        answer["vote_count"].as_i64()
    }

    /// Changes an item's counter by hand.
    pub async fn change_counter(&self, item: ItemId, change: impl FnOnce(&mut CounterParts)) {
        let mut redis = self.stores.redis_connection().await;
        testkit::counters::change(&mut redis, &format!("tally:{{{item}}}"), change)
            .await
            .expect("Redis answers");
    }

    pub async fn live_count(&self, item: ItemId) -> Option<i64> {
        let counter = self
            .counters
            .read(&[item])
            .await
            .expect("Redis answers")
            .remove(0);
        counter.count.map(|(count, _)| count.net)
    }

    /// The epoch of Redis, which is no Cluster.
    pub async fn epoch(&self) -> BucketEpoch {
        let epochs = self.counters.epochs().await.expect("Redis answers");
        epochs.all().expect("Redis answers").remove(0)
    }

    pub async fn saved_count(&self, item: ItemId) -> i64 {
        self.saved(item).await.saved_count.net
    }

    /// The item as it is in Postgres.
    pub async fn saved(&self, item: ItemId) -> Item {
        self.server_ledger
            .item_reader()
            .read(&[item])
            .await
            .expect("Postgres answers")
            .remove(0)
    }

    pub async fn ledger_sum(&self, item: ItemId) -> i64 {
        sqlx::query_scalar("select coalesce(sum(value), 0)::bigint from vote where item_id = $1")
            .bind(item.get())
            .fetch_one(&self.pool)
            .await
            .expect("Postgres answers")
    }

    /// Rolls up until every vote is in a live or in a saved count.
    pub async fn roll_up_all(&self) {
        let worker = self.worker();
        // A server notes every 250 ms which votes are counted, or leaves them to recovery: if Redis was empty, for one.
        super::eventually("all votes are rolled up and saved", async || {
            worker.recover_crashed_writers().await.ok()?;
            worker.roll_up().await.expect("a roll-up");
            let progress = self.ledger.saving_progress().await.expect("Postgres answers");
            (progress.saved == progress.drawn).then_some(())
        })
        .await;
    }

    /// Flushes until nothing changes.
    /// Then the item's ledger, saved count and live count must agree.
    pub async fn assert_exact_when_quiescent(&self, item: ItemId) {
        self.worker().flush_until_quiescent().await.expect("a flush");
        let downs: i64 = sqlx::query_scalar(
            "select count(*) filter (where value < 0 and change_number % 2 = 0)
                    - count(*) filter (where value > 0 and change_number % 2 = 1)
             from vote where item_id = $1",
        )
        .bind(item.get())
        .fetch_one(&self.pool)
        .await
        .expect("Postgres answers");
        let net = self.ledger_sum(item).await;
        let truth = Count { net, downs };
        assert_eq!(
            self.saved(item).await.saved_count,
            truth,
            "saved count of item {item}"
        );
        let counter = self
            .counters
            .read(&[item])
            .await
            .expect("Redis answers")
            .remove(0);
        if let Some((live, _)) = counter.count {
            assert_eq!(live, truth, "live count of item {item}");
        }
    }

    /// Stops the server, as SIGTERM does.
    pub async fn stop(&mut self) {
        drop(self.stop.take());
        (&mut self.server)
            .await
            .expect("the server ends")
            .expect("the server ends well");
    }
}

/// Reads an answer, which must be as the description says.
async fn read_described(method: &Method, path: &str, response: Response) -> (StatusCode, Value) {
    let (status, headers) = (response.status(), response.headers().clone());
    let body = response.bytes().await.expect("a body");
    answers::check(method, path, status, &headers, &body);
    (status, serde_json::from_slice(&body).expect("JSON"))
}

/// A server's client of this Tally's Redis.
pub fn live_counts(tally: &Tally) -> LiveCounts {
    live_counts_limited_to(tally, SUSPECTS_LIMIT_ITEMS)
}

/// The same with another limit of suspects.
pub fn live_counts_limited_to(tally: &Tally, suspects_limit_items: usize) -> LiveCounts {
    LiveCounts::open(
        owner(&tally.server_ledger),
        redis(&tally.stores.redis_login_url(Role::Server)),
        suspects_limit_items,
        Seeding::All,
    )
}

/// A Tally without a Postgres.
pub fn some_owner() -> Owner {
    Owner {
        id: "1".to_owned(),
        database: "x".to_owned(),
    }
}

/// The live counts of [`some_owner`], in a Redis that no other Tally uses.
pub fn live_counts_of(redis_url: &str, seeding: Seeding) -> LiveCounts {
    let owner = watch::channel(Some(some_owner())).1;
    LiveCounts::open(owner, redis(redis_url), SUSPECTS_LIMIT_ITEMS, seeding)
}

/// Which Tally this is, once its Postgres has answered.
pub fn owner(ledger: &ServerLedger) -> watch::Receiver<Option<Owner>> {
    let (tell, owner) = watch::channel(None);
    let ledger = ledger.clone();
    tokio::spawn(async move {
        let found = ledger.owner().await.expect("Postgres answers");
        tell.send_replace(Some(found));
    });
    owner
}

/// A server's client of the Redis at this URL.
pub fn redis(url: &str) -> Redis {
    Redis::new(url, &KeyPrefix::default(), SERVER_ANSWER_LIMIT).expect("a URL")
}

/// These live counts, once they have reached Redis.
pub async fn connected(live_counts: LiveCounts) -> LiveCounts {
    super::eventually("Redis is found", async || live_counts.answers().then_some(())).await;
    live_counts
}

/// A queue of votes with batch writers of its own, as each thread of a server has.
pub fn vote_queue(tally: &Tally, live_counts: &LiveCounts) -> VoteQueue {
    VoteQueue::start(
        &tally.server_ledger,
        live_counts,
        &SeedBackoff::default(),
        1,
        None,
    )
}

/// A vote of +1, anonymous if there is no voter.
pub fn vote(item_id: ItemId, voter: Option<&str>) -> NewVote {
    NewVote {
        item_id,
        voter_id: voter.map(|voter| VoterId::parse(voter.to_owned()).expect("a voter")),
        value: domain::Value::UP,
    }
}

/// Makes an item with a server's login. A server waits only so long for a connection; on a machine that
/// is too busy for that, nothing is stored and the item is asked for again.
pub async fn made_item(ledger: &ServerLedger, name: &str) -> ItemId {
    let new = ItemName::parse(name.to_owned()).expect("a name").into();
    super::eventually("an item is made", async || match ledger.create_item(&new).await {
        Ok(item) => Some(item.id),
        Err(LedgerError::Postgres(sqlx::Error::PoolTimedOut)) => None,
        Err(other) => panic!("{other}"),
    })
    .await
}
