//! Secrets: no log, error or answer contains a password.
//! Whatever is wrong with the passwords, their URLs or the stores, and however much is logged.

use std::process::Output;

use serde_json::json;
use tally::domain::VoterId;
use tally::ledger::Role;
use tally::web::access::VoterCookies;
use tokio::process::Command;

use crate::helpers::eventually;
use crate::helpers::programs::{SYNC_WORKER, TALLY, command, run, start, text};
use crate::helpers::stores::Stores;
use crate::web::access::credentials::token_for;

/// All of Tally's own messages, and the debug messages of the libraries.
const LOUD: &str = "debug,tally=trace,sync_worker=trace";

/// The passwords, and their form in a URL.
const PASSWORD: &str = "Pg'$e\"crét %s;7zQr";
const PASSWORD_IN_URL: &str = "Pg%27$e%22cr%C3%A9t%20%25s%3B7zQr";
const REDIS_PASSWORD: &str = "rEd!s\\s3cret,9kWt";
const REDIS_PASSWORD_IN_URL: &str = "rEd!s%5Cs3cret%2C9kWt";

/// A part of each secret that no encoding changes; also a voter and an address.
const PARTS: [&str; 7] = [
    // The client that a proxy forwards for.
    "203.0.113.77",
    "7zQr",
    "9kWt",
    "s3cret",
    "very-private-voter",
    "5ec4e75ec4e7",
    "very-private-ballot",
];

/// An API key that exists, and one that does not.
const API_KEY: &str = "tally_5ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4e70000";
const WRONG_API_KEY: &str = "tally_5ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4e70001";

/// The keys of voters' cookies, of their tokens, and of client addresses.
const COOKIE_KEY: &str = "5ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4e70002";
const JWT_SECRET: &str = "a s3cret of thirty-two bytes or more";
const ADDRESS_KEY: &str = "5ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4e70003";
const OF_VOTERS: [(&str, &str); 7] = [
    ("TALLY_COOKIE_KEYS", COOKIE_KEY),
    ("TALLY_JWT_SECRET", JWT_SECRET),
    ("TALLY_JWT_AUDIENCE", "x"),
    ("TALLY_JWT_ISSUER", "y"),
    ("TALLY_THROTTLE", "voter:2000/1h,address:5000/1h"),
    ("TALLY_PROXIES", "127.0.0.0/8"),
    ("TALLY_ADDRESS_KEYS", ADDRESS_KEY),
];

fn assert_silent(what: &str, said: &str) {
    for part in PARTS {
        assert!(!said.contains(part), "{what} shows {part}: {said}");
    }
}

fn loud(program: &str, arguments: &[&str], database_url: &str, redis_url: &str) -> Command {
    let mut command = command(program, None);
    command
        .args(arguments)
        .env("RUST_LOG", LOUD)
        .env("DATABASE_URL", database_url)
        .env("REDIS_URL", redis_url)
        .env("TALLY_LISTEN", "127.0.0.1:0")
        .env("TALLY_FLUSH_EVERY", "50ms")
        .env("TALLY_AUDIT_CRON", "* * * * * *");
    command
}

/// A voter's cookie and token, each valid and forged, as headers.
fn of_voters() -> Vec<(&'static str, String)> {
    let voter = VoterId::parse("visitor-x".to_owned()).expect("a voter");
    let cookie = |key: &str| {
        let keys: VoterCookies = key.parse().expect("a key");
        let set = keys.issue(&voter).expect("a cookie");
        let set = set.to_str().expect("text");
        set.split(';').next().expect("a cookie").to_owned()
    };
    vec![
        ("cookie", cookie(COOKIE_KEY)),
        ("cookie", cookie(&COOKIE_KEY.replace('0', "1"))),
        (
            "authorization",
            format!("Bearer {}", token_for("x", "y", JWT_SECRET)),
        ),
        (
            "authorization",
            format!("Bearer {}", token_for("x", "z", JWT_SECRET)),
        ),
    ]
}

fn said(output: &Output) -> String {
    text(&output.stdout) + &text(&output.stderr)
}

#[tokio::test(flavor = "multi_thread")]
async fn running_programs_show_no_secret_while_all_is_well_and_while_stores_fail() {
    let mut stores = Stores::start().await;
    let address = stores.database_url.rsplit_once('@').expect("a host").1.to_owned();
    let pool = stores.pool();
    for role in [Role::Server, Role::Worker] {
        let statement: String =
            sqlx::query_scalar("select format('create role %I login password %L in role %I', $1, $2, $3)")
                .bind(format!("secret_{}", role.name()))
                .bind(PASSWORD)
                .bind(role.name())
                .fetch_one(&pool)
                .await
                .expect("Postgres answers");
        sqlx::raw_sql(&statement).execute(&pool).await.expect("a login");
    }
    let mut redis = stores.redis_connection().await;
    let () = redis::cmd("CONFIG")
        .arg(&["SET", "requirepass", REDIS_PASSWORD])
        .query_async(&mut redis)
        .await
        .expect("Redis answers");
    let redis_address = stores.redis_url().rsplit_once('@').expect("a host").1.to_owned();
    let redis_url = format!("redis://:{REDIS_PASSWORD_IN_URL}@{redis_address}");
    let url = |role: Role| format!("postgres://secret_{}:{PASSWORD_IN_URL}@{address}", role.name());

    let mut serve = loud(TALLY, &["serve"], &url(Role::Server), &redis_url);
    serve.envs(OF_VOTERS);
    let server = start(serve, &stores, "server");
    let worker = loud(SYNC_WORKER, &[], &url(Role::Worker), &redis_url);
    let worker = start(worker, &stores, "worker");
    let line = server.wait_for_line("listening").await;
    let base = format!(
        "http://{}",
        line.split("address=").nth(1).expect("an address").trim()
    );
    let http = reqwest::Client::new();
    let get = async |path: &str| {
        let answer = http.get(format!("{base}{path}")).send().await.expect("an answer");
        format!(
            "{:?} {}",
            answer.headers().clone(),
            answer.text().await.expect("a body")
        )
    };
    let post = async |path: &str, body: serde_json::Value| {
        let answer = http.post(format!("{base}{path}")).json(&body).send();
        answer.await.expect("an answer").text().await.expect("a body")
    };
    // The passwords work: a vote is stored and counted, and its count is saved.
    post("/v1/items", json!({ "name": "x" })).await;
    let vote = || post("/v1/items/1/votes", json!({ "voter_id": "very-private-voter" }));
    eventually("a vote is counted", async || {
        vote().await.contains("\"vote_count\":1").then_some(())
    })
    .await;
    eventually("the count is saved", async || {
        let saved: i64 = sqlx::query_scalar("select vote_count from item")
            .fetch_one(&pool)
            .await
            .ok()?;
        (saved == 1).then_some(())
    })
    .await;
    let paths = [
        "/",
        "/v1/items",
        "/health/live",
        "/health/ready",
        "/metrics",
        "/nothing",
    ];
    for path in paths {
        assert_silent(path, &get(path).await);
    }
    // Good credentials, wrong credentials, and none.
    sqlx::query(
        "insert into api_key (key_hash, name, scopes) values (sha256($1::text::bytea), 'x', array['admin'])",
    )
    .bind(API_KEY)
    .execute(&pool)
    .await
    .expect("a key");
    let keyed = |key: &str| {
        let request = http.get(format!("{base}/v1/api-keys"));
        request.header("authorization", format!("Bearer {key}")).send()
    };
    for (key, status) in [
        (API_KEY, 200),
        (WRONG_API_KEY, 401),
        (&format!("{API_KEY}0"), 401),
        ("\u{e9}s3cret", 401),
    ] {
        let answer = keyed(key).await.expect("an answer");
        assert_eq!(answer.status(), status);
        assert_silent(
            "/v1/api-keys",
            &format!(
                "{:?} {}",
                answer.headers().clone(),
                answer.text().await.expect("a text")
            ),
        );
    }
    let credentials = of_voters();
    for (name, value) in &credentials {
        for path in ["/v1/items/1/votes", "/v1/voter"] {
            let request = http.post(format!("{base}{path}")).header(*name, value);
            let request = request.header("x-forwarded-for", "9.9.9.9, 203.0.113.77");
            let answer = request.send().await.expect("an answer");
            let said = format!(
                "{:?} {}",
                answer.headers().clone(),
                answer.text().await.expect("a text")
            );
            assert_silent(path, &said);
        }
    }
    // Paths with any encoding, any error, and any content.
    for path in [
        "/v1/items/1/%76otes/very-private-voter",
        "/v1/items/1/VOTES/very-private-voter",
        "/v1/items/1%2fvotes%2fvery-private-voter",
        "/v1/items/1/votes%2Fvery-private-voter",
        &format!("/v1/items/key:{API_KEY}"),
        &format!("/v1/api-keys/{API_KEY}"),
        &format!("/v1/{API_KEY}?{API_KEY}"),
    ] {
        let put = http.put(format!("{base}{path}")).json(&json!({ "value": 1 }));
        put.send().await.expect("an answer");
    }
    // The trail records administrative requests with anything in their paths.
    for (method, path) in [
        (reqwest::Method::PATCH, format!("/v1/items/key:{API_KEY}")),
        (reqwest::Method::PATCH, format!("/v1/polls/{API_KEY}")),
        (reqwest::Method::DELETE, format!("/v1/api-keys/{API_KEY}")),
        (
            reqwest::Method::POST,
            "/v1/items/key:very-private-ballot/ballots".to_owned(),
        ),
    ] {
        let request = http.request(method, format!("{base}{path}"));
        let request = request.header("authorization", format!("Bearer {API_KEY}"));
        let answer = request.json(&json!({ "count": 1 })).send().await;
        assert!(answer.expect("an answer").status().is_client_error());
    }
    let noted: Vec<String> = sqlx::query_scalar("select act::text from act where outcome = 'refused'")
        .fetch_all(&pool)
        .await
        .expect("Postgres answers");
    assert_eq!(noted.len(), 4, "{noted:?}");
    assert_silent("the trail", &noted.join(" "));
    let spent = post("/v1/items/1/votes", json!({ "ballot": "very-private-ballot" })).await;
    assert!(spent.contains("ballot-not-taken"), "{spent}");
    assert_silent("a vote with a ballot", &spent);
    // Paths with a voter: the vote is changed, shown, taken back, and refused below.
    let of_voter = format!("{base}/v1/items/1/votes/very-private-voter");
    let change = || http.put(&of_voter).json(&json!({ "value": -1 })).send();
    assert_eq!(change().await.expect("an answer").status(), 200);
    for method in [
        reqwest::Method::GET,
        reqwest::Method::DELETE,
        reqwest::Method::GET,
    ] {
        let answer = http.request(method, &of_voter).send().await;
        answer.expect("an answer");
    }
    // Each store refuses the programs' passwords, and then stops.
    for role in [Role::Server, Role::Worker] {
        let statement = format!("alter role secret_{} password 'other'", role.name());
        sqlx::raw_sql(&statement).execute(&pool).await.expect("a change");
    }
    sqlx::raw_sql("select pg_terminate_backend(pid) from pg_stat_activity where usename like 'secret%'")
        .execute(&pool)
        .await
        .expect("Postgres answers");
    for name in ["server", "worker"] {
        let program = if name == "server" { &server } else { &worker };
        eventually(&format!("the {name} is refused"), async || {
            let _ = (vote().await, change().await, keyed(WRONG_API_KEY).await);
            program
                .output()
                .contains("password authentication failed")
                .then_some(())
        })
        .await;
    }
    for path in paths {
        assert_silent(path, &get(path).await);
    }
    stores.postgres.crash().await;
    stores.redis.crash().await;
    eventually("both are unavailable", async || {
        let ready = get("/health/ready").await;
        (ready.contains("Postgres: unavailable") && ready.contains("Redis: unavailable")).then_some(())
    })
    .await;
    for path in paths {
        assert_silent(path, &get(path).await);
    }
    assert_silent("a vote", &post("/v1/items/1/votes", json!({})).await);
    assert_silent("the server's log", &server.output());
    for (_, value) in &credentials {
        // The last part is the signature: without it, the credential is worthless.
        let signature = value.rsplit('.').next().expect("a signature");
        assert!(!server.output().contains(signature), "the log has a credential");
    }
    assert_silent("the worker's log", &worker.output());
    assert!(
        server.output().contains("TRACE") || server.output().contains("DEBUG"),
        "it logs much"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_with_wrong_unreachable_or_malformed_urls_show_no_secret() {
    let stores = Stores::start().await;
    let (database_url, redis_url) = (&stores.database_url, &stores.redis_url());
    let address = database_url.rsplit_once('@').expect("a host").1;
    let redis_address = redis_url.rsplit_once('@').expect("a host").1;
    let secret = PASSWORD_IN_URL;
    let databases = [
        format!("postgres://tally:{secret}@{address}"),
        format!("postgres://nobody:{secret}@{address}"),
        format!("postgres://tally:{secret}@127.0.0.1:1/tally"),
        format!("postgres://tally:{secret}@no.such.host.invalid/tally"),
        format!("postgres://tally:{secret}@{address}?sslmode=require"),
        format!("postgres://{address}?passwrod=s3cret"),
        format!("postgres://tally:{secret}@host:port/tally"),
        format!("postgres://tally:pa/s3cret@{address}"),
        format!("postgres://tally:1/s3cret@{address}"),
        format!("postgres://tally:1?s3cret@{address}"),
        format!("postgres://tally:1?host=s3cret@{address}"),
        format!("postgres://tally:1#s3cret@{address}"),
        format!("postgres://tally:%zz%ff{secret}@{address}"),
        format!("postgres://tally:{PASSWORD}@{address}"),
        format!("mysql://tally:{secret}@{address}"),
        format!("postgres:tally:{secret}@{address}"),
        format!("tally:{secret}@{address}"),
        "s3cret".to_owned(),
        "s3cret\npostgres://x".to_owned(),
    ];
    for url in &databases {
        for (program, arguments) in [
            (TALLY, vec!["migrate"]),
            (TALLY, vec!["audit"]),
            (SYNC_WORKER, vec!["--once"]),
        ] {
            let output = run(loud(program, &arguments, url, redis_url)).await;
            let said = said(&output);
            assert!(!output.status.success() && !said.is_empty(), "{url}: {said}");
            assert_silent(&format!("{arguments:?} with {url}"), &said);
        }
    }
    let secret = REDIS_PASSWORD_IN_URL;
    for url in [
        format!("redis://:{secret}@{redis_address}"),
        format!("redis://s3cret:{secret}@{redis_address}"),
        format!("redis://:{secret}@127.0.0.1:1/0"),
        format!("redis://:{secret}@no.such.host.invalid/0"),
        format!("redis://:{secret}@{redis_address}x"),
        format!("redis://:1/s3cret@{redis_address}"),
        format!("redis://:1?protocol=s3cret@{redis_address}"),
        format!("redis://:{secret}@host:port/0"),
        format!("rediss://:{secret}@{redis_address}"),
        format!("http://:{secret}@{redis_address}"),
        format!(":{secret}@{redis_address}"),
        "s3cret".to_owned(),
    ] {
        let output = run(loud(SYNC_WORKER, &["--once"], database_url, &url)).await;
        let said = said(&output);
        assert!(!output.status.success() && !said.is_empty(), "{url}: {said}");
        assert_silent(&format!("the worker with {url}"), &said);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_help_nor_the_error_for_a_wrong_command_line_shows_its_secrets() {
    let url = format!("postgres://tally:{PASSWORD_IN_URL}@127.0.0.1:1/x");
    let api = "http://user:s3cret@127.0.0.1:1";
    let arguments: &[&[&str]] = &[
        &["serve", &url],
        &["serve", "--databse-url", &url],
        &["serve", &format!("--databse-url={url}")],
        &["serve", "--listen", &url],
        &["migrate", "--database-url", &format!("{url}/@")],
        &["migrate", &format!("--database-url={url}/@")],
        &["migrate", "--redis-url", &url],
        &[&url],
        &["replay", "/dev/null", "--url", &format!("{api}:x")],
        &["replay", "/dev/null", "--url", &format!("https{}", &api[4..])],
        &["health", "--url", api],
        &["health", "--url", &format!("{api}:x")],
        &["item", "show", "1", "--api-key", WRONG_API_KEY],
        &["item", "show", "1", "--api-key", &format!("{API_KEY}0")],
        &["item", "show", "1", &format!("--api-key={API_KEY}0")],
        &["item", "show", API_KEY, API_KEY],
        &["health", "--api-key", API_KEY, API_KEY],
        &["key", "revoke", API_KEY],
        &["--help"],
        &["serve", "--help"],
        &["dev", "--help"],
        &["replay", "--help"],
    ];
    for arguments in arguments {
        let mut command = loud(TALLY, arguments, &url, "redis://:s3cret@127.0.0.1:1/0");
        command.env("TALLY_URL", api).env("TALLY_API_KEY", API_KEY);
        let said = said(&run(command).await);
        assert!(!said.is_empty(), "{arguments:?}");
        assert_silent(&format!("{arguments:?}"), &said);
    }
    // A file with a vote, so that the program asks the server.
    let folder = tempfile::tempdir().expect("a folder");
    let votes = folder.path().join("votes");
    std::fs::write(&votes, "ada x\n").expect("a file");
    let mut replay = command(TALLY, None);
    replay.arg("replay").arg(&votes).env("TALLY_URL", api);
    let said = said(&run(replay).await);
    assert!(said.contains("no answer from"), "{said}");
    assert_silent("replay", &said);
}
