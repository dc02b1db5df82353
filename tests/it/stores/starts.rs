//! Starts with stores that answer, but are unfit for this Tally.
//! Each program says so in one line, and does not start.

use reqwest::StatusCode;
use serde_json::json;
use sqlx::Executor;
use tally::app::{self, StoreUrls};
use tally::ledger::Role;
use tally::live::{KeyPrefix, LiveError};
use tally::sync::{Repair, SyncError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::helpers::eventually;
use crate::helpers::pooler::Pooler;
use crate::helpers::programs::{SYNC_WORKER, TALLY, command, run, start_server_with, start_worker, text};
use crate::helpers::stores::Stores;
use crate::helpers::tally::{Tally, options};

/// Checks that the server, the worker and the migration refuse this database.
pub(super) async fn assert_each_refuses(urls: [&str; 3], redis_url: &str, words: &[&str]) {
    let programs = [(TALLY, &["serve"][..]), (SYNC_WORKER, &[]), (TALLY, &["migrate"])];
    for ((program, arguments), url) in programs.into_iter().zip(urls) {
        assert_refuses(program, arguments, url, redis_url, words).await;
    }
}

pub(super) async fn assert_refuses(
    program: &str,
    arguments: &[&str],
    url: &str,
    redis_url: &str,
    words: &[&str],
) {
    let mut command = command(program, None);
    command
        .args(arguments)
        .env("DATABASE_URL", url)
        .env("REDIS_URL", redis_url)
        .env("TALLY_LISTEN", "127.0.0.1:0");
    let output = run(command).await;
    let errors = text(&output.stderr);
    assert!(!output.status.success(), "{program} {arguments:?} starts");
    assert_eq!(
        errors.trim().lines().count(),
        1,
        "{program} {arguments:?}: {errors}"
    );
    for word in words {
        assert!(errors.contains(word), "{program} {arguments:?}: {errors}");
    }
}

pub(super) fn logins(stores: &Stores) -> [String; 3] {
    [
        stores.login_url(Role::Server),
        stores.login_url(Role::Worker),
        stores.database_url.clone(),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn no_program_starts_on_a_standby() {
    let mut stores = Stores::start().await;
    stores.postgres.stop().await;
    std::fs::write(stores.folder().join("postgres/data/standby.signal"), "").expect("a file");
    stores.postgres.start().await.expect("Postgres starts");
    let urls = logins(&stores);
    assert_each_refuses(
        urls.each_ref().map(String::as_str),
        &stores.redis_url(),
        &["standby"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_program_starts_on_a_read_only_postgres() {
    let stores = Stores::start().await;
    let pool = stores.pool();
    pool.execute("alter database tally set default_transaction_read_only = on")
        .await
        .expect("a statement");
    let urls = logins(&stores);
    let words = ["read-only", "default_transaction_read_only"];
    assert_each_refuses(urls.each_ref().map(String::as_str), &stores.redis_url(), &words).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_program_starts_on_the_tables_of_another_application() {
    let stores = Stores::start().await;
    for (name, statements) in [
        ("shop", "create table item (sku text primary key)"),
        (
            "poll",
            "create table vote (voter text);
             create table _sqlx_migrations (
                 version bigint primary key, description text not null,
                 installed_on timestamptz not null default now(), success boolean not null,
                 checksum bytea not null, execution_time bigint not null);
             insert into _sqlx_migrations values (1, 'vote', now(), true, '\\x00', 1)",
        ),
    ] {
        let url = stores.postgres.create_database(name).await.expect("a database");
        let pool = testkit::stores::owner_pool(&url).expect("a URL");
        pool.execute(statements).await.expect("a table");
        let words = ["item or vote", "not Tally's"];
        assert_each_refuses([&url, &url, &url], &stores.redis_url(), &words).await;
    }
}

/// The first migration there marks every database from before the first release.
#[tokio::test(flavor = "multi_thread")]
async fn no_program_starts_on_a_database_from_before_the_first_release_or_changes_it() {
    let stores = Stores::start().await;
    let url = stores
        .postgres
        .create_database("unreleased")
        .await
        .expect("a database");
    let pool = testkit::stores::owner_pool(&url).expect("a URL");
    pool.execute(
        "create table item (id bigint primary key);
         create table vote (id bigint primary key);
         create table _sqlx_migrations (
             version bigint primary key, description text not null,
             installed_on timestamptz not null default now(), success boolean not null,
             checksum bytea not null, execution_time bigint not null);
         insert into _sqlx_migrations values
             (1, 'item', now(), true, '\\x7ffdc0c3b8201d944b726bf009baa0ec3496607abfa34b7915ad159d4071998e667ccf609f86a23fef7bac17c13743d9', 1),
             (33, 'audited counts', now(), true, '\\xfcb79d', 1)",
    )
    .await
    .expect("tables");
    let words = ["before the first release", "migrations/README.md"];
    assert_each_refuses([&url, &url, &url], &stores.redis_url(), &words).await;
    let left: Vec<String> = sqlx::query_scalar(
        "select relname::text from pg_class
         where relnamespace = current_schema()::regnamespace and relkind = 'r'
         union all
         select proname::text from pg_proc where pronamespace = current_schema()::regnamespace
         order by 1",
    )
    .fetch_all(&pool)
    .await
    .expect("Postgres answers");
    assert_eq!(left, ["_sqlx_migrations", "item", "vote"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_program_starts_where_vote_ids_do_not_go_up_one_by_one() {
    let stores = Stores::start().await;
    let pool = stores.pool();
    pool.execute("insert into item (name) values ('x')")
        .await
        .expect("an item");
    pool.execute("insert into vote (item_id) select id from item, generate_series(1, 21)")
        .await
        .expect("votes");
    let urls = logins(&stores);
    for (change, words) in [
        (
            "select setval('vote_id_seq', 1)",
            ["is at 1", "setval('vote_id_seq', 21)"],
        ),
        (
            "alter sequence vote_id_seq cache 1000",
            ["cache 1000", "cache 1 no cycle"],
        ),
    ] {
        pool.execute(change).await.expect("the owner may");
        let urls = urls.each_ref().map(String::as_str);
        assert_each_refuses(urls, &stores.redis_url(), &words).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_program_sets_its_limits_itself_over_a_pooler_that_drops_them() {
    let stores = Stores::start().await;
    let pooler = Pooler::start(&stores, "session").await;
    let pool = stores.pool();
    pool.execute(
        "create table seen (login text, statement text, lock text, idle text, plans text);
         create function note_limits() returns trigger language plpgsql security definer as $$
         begin
             insert into public.seen
             values (session_user, current_setting('statement_timeout'), current_setting('lock_timeout'),
                     current_setting('idle_in_transaction_session_timeout'), current_setting('plan_cache_mode'));
             return null;
         end $$;
         create trigger note_limits after insert on vote
             for each statement execute function note_limits();
         create trigger note_limits after insert on worker
             for each statement execute function note_limits()",
    )
    .await
    .expect("the owner may");
    let [server_url, worker_url, owner_url] = logins(&stores).map(|url| pooler.url(&stores, &url));
    let mut migrate = command(TALLY, None);
    migrate.arg("migrate").env("DATABASE_URL", owner_url);
    let output = run(migrate).await;
    assert!(output.status.success(), "{}", text(&output.stderr));
    let (_server, base) = start_server_with(&stores, "server", &[("DATABASE_URL", &server_url)]).await;
    let _worker = start_worker(&stores, "worker", &[("DATABASE_URL", &worker_url)]);
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let item = client
        .post(format!("{base}/v1/items"))
        .json(&json!({ "name": "x" }))
        .send()
        .await
        .expect("an answer");
    assert_eq!(item.status(), StatusCode::CREATED);
    let vote = client
        .post(format!("{base}/v1/items/1/votes"))
        .send()
        .await
        .expect("an answer");
    assert_eq!(vote.status(), StatusCode::CREATED);
    // The pool has other plans than a batch writer.
    let of = async |login: &str| -> Option<(String, String, String, String)> {
        sqlx::query_as(
            "select statement, lock, idle, plans from seen where login = $1 order by plans desc limit 1",
        )
        .bind(login)
        .fetch_optional(&pool)
        .await
        .expect("Postgres answers")
    };
    let seen = |statement: &str, lock: &str, plans: &str| {
        Some((
            statement.to_owned(),
            lock.to_owned(),
            "5s".to_owned(),
            plans.to_owned(),
        ))
    };
    assert_eq!(of("server").await, seen("5s", "0", "force_generic_plan"));
    let worker = eventually("a heartbeat", async || of("worker").await).await;
    assert_eq!(Some(worker), seen("2min", "500ms", "force_custom_plan"));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_program_starts_over_a_pooler_that_pools_transactions() {
    let stores = Stores::start().await;
    let pool = stores.pool();
    // With all limits that Tally asks for, only the pooling is wrong.
    for (login, limit) in [("server", "5s"), ("worker", "2min"), ("tally", "2min")] {
        for statement in [
            format!("alter role {login} set statement_timeout = '{limit}'"),
            format!("alter role {login} set idle_in_transaction_session_timeout = '5s'"),
            format!("alter role {login} set lock_timeout = '500ms'"),
        ] {
            pool.execute(statement.as_str()).await.expect("a statement");
        }
    }
    let pooler = Pooler::start(&stores, "transaction").await;
    let urls = logins(&stores).map(|url| pooler.url(&stores, &url));
    let words = ["pool_mode = session"];
    assert_each_refuses(urls.each_ref().map(String::as_str), &stores.redis_url(), &words).await;
}

/// A second Tally on the Redis of the first one, with the same prefix.
async fn second(tally: &Tally) -> StoreUrls {
    let url = tally
        .stores
        .postgres
        .create_database("second")
        .await
        .expect("a database");
    app::migrate(&url, "test").await.expect("the migrations run");
    StoreUrls {
        database_url: url.into(),
        redis_url: tally.stores.redis_url().into(),
        key_prefix: tally::live::KeyPrefix::default(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_tally_does_not_start_on_the_keys_of_the_first() {
    let tally = Tally::start().await;
    let second = second(&tally).await;
    let (url, redis_url) = (second.database_url.as_str(), second.redis_url.as_str());
    let words = ["\"tally\"", "\"second\"", "TALLY_KEY_PREFIX", "tally:owner"];
    assert_refuses(TALLY, &["serve"], url, redis_url, &words).await;
    assert_refuses(SYNC_WORKER, &[], url, redis_url, &words).await;
    assert_refuses(SYNC_WORKER, &["--once"], url, redis_url, &words).await;
    assert_refuses(TALLY, &["audit", "--repair"], url, redis_url, &words).await;
    // With a prefix of its own, it starts.
    let mut once = command(SYNC_WORKER, None);
    once.arg("--once")
        .env("DATABASE_URL", url)
        .env("REDIS_URL", redis_url)
        .env("TALLY_KEY_PREFIX", "second:");
    let output = run(once).await;
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wiped_redis_belongs_to_whoever_comes_first_and_the_other_stores_votes_without_it() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let second = second(&tally).await;
    let second = app::worker(&second, options(), "test worker").expect("URLs");
    let is_refused = |entered: Result<Option<usize>, SyncError>| {
        matches!(entered, Err(SyncError::Live(LiveError::Owner { .. })))
    };
    assert_eq!(tally.add(item, 1).await, Some(1));
    tally.worker().enter_epoch().await.expect("its own keys");
    assert!(is_refused(second.enter_epoch().await));
    assert!(second.audit(Repair::Yes).await.is_err());

    // The first Tally may be first again. Then Redis is wiped again.
    let mut redis = tally.stores.redis_connection().await;
    eventually("the second Tally is the first to come", async || {
        redis::cmd("FLUSHALL").exec_async(&mut redis).await.ok()?;
        second.enter_epoch().await.ok()
    })
    .await;
    assert!(is_refused(tally.worker().enter_epoch().await));
    tally.wait_until_ready("degraded").await;
    assert_eq!(tally.add(item, 1).await, None, "stored, and not counted");

    // The second Tally is removed.
    redis::cmd("DEL")
        .arg("tally:owner")
        .exec_async(&mut redis)
        .await
        .expect("Redis answers");
    tally.wait_until_ready("ready").await;
    assert!(is_refused(second.enter_epoch().await));
    tally.worker().enter_epoch().await.expect("its own keys");
    eventually("live counts are back", async || tally.add(item, 1).await).await;
    tally.assert_exact_when_quiescent(item).await;
}

/// A Redis whose INFO lacks this field, as in some managed services.
async fn redis_without(stores: &Stores, field: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = stores.redis_url();
    let (before, _) = url.rsplit_once(':').expect("a port");
    let hidden = format!("{before}:{}/", listener.local_addr().expect("an address").port());
    let port = stores.redis.port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let store = TcpStream::connect(("127.0.0.1", port))
                .await
                .expect("Redis answers");
            let ((mut requests, mut client), (mut replies, mut store)) =
                (client.into_split(), store.into_split());
            tokio::spawn(async move { tokio::io::copy(&mut requests, &mut store).await });
            tokio::spawn(async move {
                let mut bytes = vec![0; 64 * 1024];
                while let Ok(length @ 1..) = replies.read(&mut bytes).await {
                    // Keeps the length, because a reply begins with it.
                    while let Some(at) = bytes[..length]
                        .windows(field.len())
                        .position(|part| part == field.as_bytes())
                    {
                        bytes[at] = b'x';
                    }
                    if client.write_all(&bytes[..length]).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    hidden
}

#[tokio::test(flavor = "multi_thread")]
async fn no_worker_starts_and_no_audit_runs_on_a_redis_that_hides_its_identity() {
    let stores = Stores::start().await;
    for field in ["run_id", "master_replid"] {
        let url = redis_without(&stores, field).await;
        let database = stores.login_url(Role::Worker);
        for (program, arguments) in [
            (SYNC_WORKER, &[][..]),
            (SYNC_WORKER, &["--once"]),
            (TALLY, &["audit"]),
        ] {
            assert_refuses(program, arguments, &database, &url, &[field, "INFO"]).await;
        }
        // A worker that has started before refuses such a Redis, too.
        let urls = StoreUrls {
            database_url: database.into(),
            redis_url: url.into(),
            key_prefix: KeyPrefix::default(),
        };
        let worker = app::worker(&urls, options(), "test worker").expect("URLs");
        let refused = worker.audit(Repair::No).await;
        assert!(
            matches!(refused, Err(SyncError::Live(LiveError::NoIdentity(hidden))) if hidden == field),
            "{refused:?}"
        );
    }
}
