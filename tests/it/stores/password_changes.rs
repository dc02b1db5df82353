//! Passwords of the stores that change while programs run: what stands in a file is read again.

use std::path::{Path, PathBuf};
use std::pin::pin;

use reqwest::StatusCode;
use serde_json::{Value, json};
use sqlx::PgPool;
use tally::app::StoreUrls;
use tally::domain::ItemId;
use tally::ledger::{Role, ServerLedger};
use tally::store_url::StoreUrl;
use testkit::stores::{SECRET, redis_connection};
use tokio::process::Command;

use crate::helpers::eventually;
use crate::helpers::programs::{SYNC_WORKER, TALLY, command, start, start_server_of, stop};
use crate::helpers::stores::{Stores, blocker, until_blocked};
use crate::helpers::tally::{Tally, made_item, server_ledger, vote as new_vote};

/// The logins of both programs, and of a server's operator.
const ROLES: [Role; 3] = [Role::Server, Role::Worker, Role::Operator];
/// It has what a URL must write otherwise.
const NEW: &str = "n3w @/:?#%";
const NEW_IN_URL: &str = "n3w%20%40%2F%3A%3F%23%25";

/// User, password, and the rest of a URL.
fn parts(url: &str) -> (&str, &str, &str) {
    let (login, rest) = url.rsplit_once('@').expect("a login");
    let (scheme_and_user, password) = login.rsplit_once(':').expect("a password");
    let (_, user) = scheme_and_user.rsplit_once("//").expect("a scheme");
    (user, password, rest)
}

/// The same URL with another user and password.
fn with_login(url: &str, user: &str, password: &str) -> String {
    let (scheme, _) = url.split_once("://").expect("a scheme");
    format!("{scheme}://{user}:{password}@{}", parts(url).2)
}

/// The files of the URLs, with the logins that are in use.
struct Files {
    folder: PathBuf,
    /// The URLs of the stores at the start, by role.
    database: [String; 3],
    redis: [String; 3],
}

impl Files {
    fn new(folder: &Path, database: impl Fn(Role) -> String, redis: impl Fn(Role) -> String) -> Self {
        let files = Self {
            folder: folder.to_owned(),
            database: ROLES.map(database),
            redis: ROLES.map(redis),
        };
        for at in 0..ROLES.len() {
            files.write("database", at, &files.database[at]);
            files.write("redis", at, &files.redis[at]);
        }
        files
    }

    /// The same for stores to which their own URLs lead.
    fn of(stores: &Stores) -> Self {
        let (database, redis) = (|role| stores.login_url(role), |role| stores.redis_login_url(role));
        Self::new(stores.folder(), database, redis)
    }

    fn path(&self, store: &str, at: usize) -> PathBuf {
        self.folder.join(format!("{store}-url-{at}"))
    }

    fn write(&self, store: &str, at: usize, url: &str) {
        std::fs::write(self.path(store, at), format!("{url}\n")).expect("written");
    }

    /// What an in-process program takes.
    fn urls(&self, role: Role) -> StoreUrls {
        let at = ROLES.iter().position(|one| *one == role).expect("a role");
        StoreUrls {
            database_url: StoreUrl::in_file(&self.database[at], &self.path("database", at)),
            redis_url: StoreUrl::in_file(&self.redis[at], &self.path("redis", at)),
            key_prefix: tally::live::KeyPrefix::default(),
        }
    }

    /// Sets other passwords in the stores, writes the files, and ends all connections.
    async fn change_passwords(&self, stores: &Stores, redis: &[String]) {
        self.set_passwords(stores, redis).await;
        self.write_new();
        self.cut_off(stores, redis).await;
    }

    /// Sets other passwords in the stores, as an operator does.
    async fn set_passwords(&self, stores: &Stores, redis: &[String]) {
        let pool = stores.pool();
        for at in 0..ROLES.len() {
            let (user, _, _) = parts(&self.database[at]);
            let statement = format!("alter role \"{user}\" password '{NEW}'");
            execute(&pool, &statement).await;
            let (user, old, _) = parts(&self.redis[at]);
            for node in redis {
                send(
                    node,
                    &["ACL", "SETUSER", user, &format!(">{NEW}"), &format!("<{old}")],
                )
                .await;
            }
        }
    }

    /// Writes URLs with the new password.
    fn write_new(&self) {
        for at in 0..ROLES.len() {
            for (store, url) in [("database", &self.database[at]), ("redis", &self.redis[at])] {
                self.write(store, at, &with_login(url, parts(url).0, NEW_IN_URL));
            }
        }
    }

    /// Lets each of these logins have so many connections; -1: any number.
    async fn limit_connections(&self, stores: &Stores, limit: i32) {
        let pool = stores.pool();
        for url in &self.database {
            let statement = format!("alter role \"{}\" connection limit {limit}", parts(url).0);
            execute(&pool, &statement).await;
        }
    }

    /// Ends all connections of these logins.
    async fn cut_off(&self, stores: &Stores, redis: &[String]) {
        let users = self.database.each_ref().map(|url| parts(url).0.to_owned());
        let pool = stores.pool();
        sqlx::query("select pg_terminate_backend(pid) from pg_stat_activity where usename = any($1)")
            .bind(users.as_slice())
            .execute(&pool)
            .await
            .expect("Postgres answers");
        for node in redis {
            for url in &self.redis {
                send(node, &["CLIENT", "KILL", "USER", parts(url).0]).await;
            }
        }
    }
}

async fn execute(pool: &PgPool, statement: &str) {
    sqlx::raw_sql(statement)
        .execute(pool)
        .await
        .expect("Postgres answers");
}

async fn send(url: &str, words: &[&str]) {
    let mut connection = redis_connection(url).await.expect("it answers");
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    let _: redis::Value = command.query_async(&mut connection).await.expect("it is done");
}

/// A Tally whose URLs stand in these files, with an item that has votes.
async fn started(stores: Stores, files: &Files) -> (Tally, ItemId) {
    let tally = Tally::start_at(stores, |role, _| files.urls(role), |_| {}).await;
    let item = tally.item("x").await;
    until_exact_again(&tally, item).await;
    (tally, item)
}

/// Casts a vote.
async fn vote(tally: &Tally, item: ItemId) -> (StatusCode, Value) {
    let path = format!("/v1/items/{item}/votes");
    tally.post(&path, &json!({ "value": 1 })).await
}

/// Ends all connections of these files' first logins, and votes until no vote is stored.
async fn until_refused(files: &Files, tally: &Tally, item: ItemId, redis: &[String]) {
    files.cut_off(&tally.stores, redis).await;
    eventually("no vote is stored", async || {
        let (status, _) = vote(tally, item).await;
        (status == StatusCode::SERVICE_UNAVAILABLE).then_some(())
    })
    .await;
}

/// Votes, flushes and reads until live and saved counts are those of the ledger.
async fn until_exact_again(tally: &Tally, item: ItemId) {
    eventually("a vote is counted", async || {
        let (status, answer) = vote(tally, item).await;
        (status == StatusCode::CREATED && answer["vote_count"].is_i64()).then_some(())
    })
    .await;
    let worker = tally.worker();
    eventually("the worker logs in", async || {
        let entered = worker.enter_epoch().await.is_ok();
        (entered && worker.flush().await.is_ok()).then_some(())
    })
    .await;
    eventually("live and saved count are those of the ledger", async || {
        let (_, answer) = vote(tally, item).await;
        worker.flush().await.ok()?;
        let votes = tally.ledger_sum(item).await;
        (answer["vote_count"] == votes && tally.saved_count(item).await == votes).then_some(())
    })
    .await;
    tally.wait_until_ready("ready").await;
}

/// Starts a program whose URLs stand in files.
fn with_files(program: &str, files: &Files, role: Role) -> Command {
    let at = ROLES.iter().position(|one| *one == role).expect("a role");
    let mut command = command(program, None);
    command
        .env("DATABASE_URL_FILE", files.path("database", at))
        .env("REDIS_URL_FILE", files.path("redis", at));
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_log_in_with_the_passwords_that_their_files_have_by_now() {
    let stores = Stores::start().await;
    let files = Files::of(&stores);
    let redis = [stores.redis_url()];
    let mut server = with_files(TALLY, &files, Role::Server);
    server
        .arg("serve")
        .env("TALLY_LISTEN", "127.0.0.1:0")
        .env("TALLY_OPERATOR_DATABASE_URL_FILE", files.path("database", 2));
    let (server, base) = start_server_of(server, &stores, "server").await;
    let worker = start(with_files(SYNC_WORKER, &files, Role::Worker), &stores, "worker");
    let http = reqwest::Client::builder().no_proxy().build().expect("a client");
    let post = async |path: &str, body: Value| {
        let request = http.post(format!("{base}{path}")).json(&body);
        let answer = request.send().await.ok()?;
        let status = answer.status();
        let body: Value = answer.json().await.ok()?;
        Some((status, body))
    };
    let (_, item) = post("/v1/items", json!({ "name": "x" }))
        .await
        .expect("an answer");
    let votes = format!("/v1/items/{}/votes", item["id"]);
    for round in 0..2 {
        eventually("a vote is counted", async || {
            let (status, answer) = post(&votes, json!({ "voter_id": format!("voter {round}") })).await?;
            let is_stored = [StatusCode::CREATED, StatusCode::OK].contains(&status);
            (is_stored && answer["vote_count"] == round + 1).then_some(())
        })
        .await;
        // By the operator's login.
        eventually("a key is made", async || {
            let (status, _) = post("/v1/api-keys", json!({ "name": "x", "scopes": ["vote"] })).await?;
            (status == StatusCode::CREATED).then_some(())
        })
        .await;
        eventually("the worker saves the count", async || {
            let saved: i64 = sqlx::query_scalar("select vote_count from item")
                .fetch_one(&stores.pool())
                .await
                .ok()?;
            (saved == round + 1).then_some(())
        })
        .await;
        if round == 0 {
            files.change_passwords(&stores, &redis).await;
        }
    }
    for program in [server, worker] {
        let said = program.output();
        assert!(
            said.contains("another login stands in the file of a store's URL"),
            "{said}"
        );
        assert!(!said.contains("n3w") && !said.contains(SECRET), "{said}");
        stop(program, nix::sys::signal::Signal::SIGTERM).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_sentinels_and_several_hosts_the_passwords_in_files_are_read_again() {
    let (stores, watched) = Stores::start().await.watched().await;
    let port = stores.postgres.port();
    // Nobody is at the first one.
    let free = tally::dev::free_port().expect("a port");
    let hosts = |role| {
        let url = stores.login_url(role);
        url.replace(
            &format!("127.0.0.1:{port}"),
            &format!("127.0.0.1:{free},127.0.0.1:{port}"),
        )
    };
    let files = Files::new(stores.folder(), hosts, |role| {
        watched.sentinels.url(&stores.redis_login_url(role))
    });
    let nodes: Vec<String> = std::iter::once(stores.redis_url())
        .chain(watched.replicas.iter().map(|replica| replica.url()))
        .collect();
    let (tally, item) = started(stores, &files).await;
    files.change_passwords(&tally.stores, &nodes).await;
    until_exact_again(&tally, item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_redis_cluster_the_passwords_in_files_are_read_again() {
    let (stores, cluster) = Stores::start().await.clustered().await;
    let files = Files::new(
        stores.folder(),
        |role| stores.login_url(role),
        |role| cluster.login_url(role),
    );
    let url = cluster.url();
    let (_, password, nodes) = parts(&url);
    let nodes: Vec<String> = nodes
        .split(',')
        .map(|at| format!("redis://:{password}@{at}"))
        .collect();
    let (tally, item) = started(stores, &files).await;
    files.change_passwords(&tally.stores, &nodes).await;
    until_exact_again(&tally, item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_file_is_not_used_until_it_is_right_and_another_user_is() {
    let stores = Stores::start().await;
    let files = Files::of(&stores);
    let redis = [stores.redis_url()];
    let (tally, item) = started(stores, &files).await;
    files.set_passwords(&tally.stores, &redis).await;
    // Half written, of another database, empty: nothing of it is used, and the programs go on asking.
    for text in ["postgres://", "postgres://u:p@elsewhere/tally", ""] {
        for at in 0..ROLES.len() {
            files.write("database", at, text);
            files.write("redis", at, text);
        }
        until_refused(&files, &tally, item, &redis).await;
    }
    files.write_new();
    until_exact_again(&tally, item).await;
    // Two logins in turn: the one that is not used gets the new password.
    let pool = tally.stores.pool();
    for (at, role) in ROLES.into_iter().enumerate() {
        let user = format!("second_{at}");
        let statement = format!(
            "create role {user} login password '{NEW}' in role {}",
            role.name()
        );
        execute(&pool, &statement).await;
        let (before, _, _) = parts(&files.database[at]);
        let statement = format!("alter role \"{before}\" nologin");
        execute(&pool, &statement).await;
        files.write(
            "database",
            at,
            &with_login(&files.database[at], &user, NEW_IN_URL),
        );
    }
    files.cut_off(&tally.stores, &redis).await;
    until_exact_again(&tally, item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_may_be_written_before_the_stores_know_the_passwords() {
    let stores = Stores::start().await;
    let files = Files::of(&stores);
    let redis = [stores.redis_url()];
    let (tally, item) = started(stores, &files).await;
    files.write_new();
    for _ in 0..3 {
        // What is refused for another reason is no reason to stay with the new one.
        files.limit_connections(&tally.stores, 0).await;
        until_refused(&files, &tally, item, &redis).await;
        files.limit_connections(&tally.stores, -1).await;
        until_exact_again(&tally, item).await;
    }
    files.set_passwords(&tally.stores, &redis).await;
    files.cut_off(&tally.stores, &redis).await;
    until_exact_again(&tally, item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_without_rights_is_left_once_the_file_has_another_one() {
    let stores = Stores::start().await;
    let files = Files::of(&stores);
    let redis = [stores.redis_url()];
    let (tally, item) = started(stores, &files).await;
    let pool = tally.stores.pool();
    let statement = format!("create role powerless login password '{NEW}'");
    execute(&pool, &statement).await;
    for at in 0..ROLES.len() {
        files.write(
            "database",
            at,
            &with_login(&files.database[at], "powerless", NEW_IN_URL),
        );
    }
    eventually("no vote is stored", async || {
        // The file is read at most once a second.
        files.cut_off(&tally.stores, &redis).await;
        let (status, _) = vote(&tally, item).await;
        (status == StatusCode::SERVICE_UNAVAILABLE).then_some(())
    })
    .await;
    for at in 0..ROLES.len() {
        files.write("database", at, &files.database[at]);
    }
    until_exact_again(&tally, item).await;
}

/// The ledger of a server whose URL stands in a file, with that file.
fn ledger_of(stores: &Stores, url: &str) -> (ServerLedger, StoreUrl, PathBuf) {
    let path = stores.folder().join("ledger-url");
    std::fs::write(&path, url).expect("written");
    let url = StoreUrl::in_file(url, &path);
    let ledger = ServerLedger::new(&url, "test").expect("a ledger");
    (ledger, url, path)
}

#[tokio::test]
async fn a_reader_leaves_its_connection_once_the_file_has_another_login() {
    let stores = Stores::start().await;
    let item = made_item(&server_ledger(&stores.database_url), "x").await;
    let statement = format!("create role powerless login password '{NEW}'");
    execute(&stores.pool(), &statement).await;
    let good = stores.login_url(Role::Server);
    let powerless = with_login(&good, "powerless", NEW_IN_URL);
    let (ledger, url, path) = ledger_of(&stores, &powerless);
    let failed = ledger.exact_counts(&[item]).await.expect_err("it may not read");
    assert!(failed.is_denied(), "{failed}");
    std::fs::write(&path, &good).expect("written");
    assert!(url.has_other_login(0).await);
    let counts = ledger.exact_counts(&[item]).await.expect("it may read");
    assert_eq!(counts[0].count.net, 0);
}

#[tokio::test]
async fn a_writer_stores_votes_though_a_connection_of_the_login_from_before_hangs() {
    let stores = Stores::start().await;
    let item = made_item(&server_ledger(&stores.database_url), "x").await;
    let pool = stores.pool();
    let statement = format!(
        "create role second login password '{NEW}' in role {}",
        Role::Server.name()
    );
    execute(&pool, &statement).await;
    let first = stores.login_url(Role::Server);
    let (ledger, url, path) = ledger_of(&stores, &first);
    let mut writer = ledger.writer();
    let lock = blocker(&pool, "lock table vote in access exclusive mode").await;
    let given_up = [new_vote(item, Some("a"))];
    tokio::select! {
        ended = writer.insert(&given_up, &[]) => panic!("the table is locked: {ended:?}"),
        () = until_blocked(&pool, "") => {}
    }
    std::fs::write(&path, with_login(&first, "second", NEW_IN_URL)).expect("written");
    assert!(url.has_other_login(0).await);
    let of_second = [new_vote(item, Some("b"))];
    let is_waiting = async || {
        let waiting: Vec<bool> = sqlx::query_scalar(
            "select usename = 'second' from pg_stat_activity where wait_event_type = 'Lock' order by 1",
        )
        .fetch_all(&pool)
        .await
        .ok()?;
        (waiting == [false, true]).then_some(())
    };
    let mut storing = pin!(writer.insert(&of_second, &[]));
    tokio::select! {
        ended = &mut storing => panic!("the table is locked: {ended:?}"),
        () = eventually("the second login waits for the lock, and the first one still", is_waiting) => {}
    }
    lock.rollback().await.expect("Postgres answers");
    storing.await.expect("the vote is stored");
}
