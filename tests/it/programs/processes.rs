//! The real programs as processes: what they need at their start and what they say.

use nix::sys::signal::Signal;
use reqwest::StatusCode;
use tally::ledger::Role;
use testkit::programs::until_ready;

use crate::helpers::eventually;
use crate::helpers::programs::{
    SYNC_WORKER, TALLY, command, command_as, run, start, start_server, start_worker, stop, text,
};
use crate::helpers::stores::Stores;

/// A file in which every voter votes on every item.
pub(super) fn votes(voters: usize, items: usize) -> String {
    (0..voters)
        .flat_map(|voter| (0..items).map(move |item| format!("voter{voter} item{item}\n")))
        .collect()
}

pub(super) async fn replay(stores: &Stores, file: &str, urls: &str) -> (Option<i32>, String) {
    let path = stores.folder().join("votes.txt");
    std::fs::write(&path, file).expect("a file");
    let mut replay = command(TALLY, None);
    replay
        .arg("replay")
        .arg(&path)
        .args(["--url", urls, "--connections", "32"]);
    let output = run(replay).await;
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

pub(super) async fn saved(stores: &Stores) -> (i64, i64) {
    sqlx::query_as("select count(*), coalesce(sum(vote_count), 0)::bigint from item where name like 'item%'")
        .fetch_one(&stores.pool())
        .await
        .expect("Postgres answers")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_setting_ends_either_program_at_start_with_one_line_that_names_it() {
    for (program, arguments, variable, value) in [
        (TALLY, vec!["serve"], "TALLY_LISTEN", "nowhere"),
        (TALLY, vec!["serve"], "DATABASE_URL", "mysql://x"),
        (TALLY, vec!["key", "list"], "DATABASE_URL", "mysql://x"),
        (TALLY, vec!["migrate"], "DATABASE_URL", "postgres://127.0.0.1:1/y"),
        (TALLY, vec!["serve"], "TALLY_OPERATOR_DATABASE_URL", "mysql://x"),
        (TALLY, vec!["serve"], "REDIS_URL", "x"),
        (TALLY, vec!["serve"], "RUST_LOG", "tally=loud"),
        (TALLY, vec!["audit"], "TALLY_WRITER_STALL_LIMIT", "soon"),
        (SYNC_WORKER, vec![], "TALLY_WRITER_STALL_LIMIT", "29s"),
        (SYNC_WORKER, vec![], "TALLY_RETENTION", "-1s"),
        (SYNC_WORKER, vec![], "TALLY_FLUSH_EVERY", "0s"),
        (SYNC_WORKER, vec![], "TALLY_AUDIT_CRON", "often"),
        (SYNC_WORKER, vec![], "TALLY_LOG_FORMAT", "xml"),
        (SYNC_WORKER, vec!["--once"], "DATABASE_URL", ""),
    ] {
        let mut command = command(program, None);
        command
            .args(arguments)
            .env("DATABASE_URL", "postgres://127.0.0.1:1/x")
            .env("REDIS_URL", "redis://127.0.0.1:1/0")
            .env(variable, value);
        let output = run(command).await;
        let errors = text(&output.stderr);
        assert!(!output.status.success(), "{variable}={value}");
        assert!(
            errors.trim().lines().count() == 1 && errors.contains(variable),
            "{variable}={value}: {errors}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_setting_and_an_unknown_command_are_one_line_too() {
    for arguments in [
        vec!["serve"],
        vec!["migrate"],
        vec!["dance"],
        vec!["replay"],
        vec!["serve", "--loud"],
    ] {
        let mut command = command(TALLY, None);
        command.args(&arguments);
        let output = run(command).await;
        let errors = text(&output.stderr);
        assert!(!output.status.success());
        assert_eq!(errors.trim().lines().count(), 1, "{arguments:?}: {errors}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_warning_names_a_misspelt_setting() {
    let stores = Stores::start().await;
    let mut command = command(SYNC_WORKER, Some(&stores));
    command.arg("--once").env("TALLY_RETENTOIN", "10s");
    let output = run(command).await;
    assert!(output.status.success());
    assert!(text(&output.stderr).contains("TALLY_RETENTOIN"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_warns_of_a_redis_that_evicts_counts() {
    let stores = Stores::start().await;
    redis::cmd("CONFIG")
        .arg(&["SET", "maxmemory-policy", "allkeys-lru"])
        .exec_async(&mut stores.redis_connection().await)
        .await
        .expect("Redis answers");
    let worker = start_worker(&stores, "worker", &[]);
    let line = worker.wait_for_line("maxmemory-policy noeviction").await;
    assert!(line.contains("WARN") && line.contains("allkeys-lru"), "{line}");
    stop(worker, Signal::SIGTERM).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn migrate_may_be_run_again_and_by_several_at_once() {
    let stores = Stores::start().await;
    stores
        .postgres
        .create_database("fresh")
        .await
        .expect("a database");
    let migrate = || {
        let mut command = command(TALLY, None);
        command
            .arg("migrate")
            .env("DATABASE_URL", stores.postgres.url("fresh"));
        run(command)
    };
    let (one, other) = tokio::join!(migrate(), migrate());
    assert!(
        one.status.success() && other.status.success(),
        "{}",
        text(&other.stderr)
    );
    assert!(migrate().await.status.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn serve_migrates_at_start_if_it_is_set_to() {
    let stores = Stores::start().await;
    let fresh = stores
        .postgres
        .create_database("fresh")
        .await
        .expect("a database");
    let mut serve = command_as(TALLY, Some((&stores, Role::Server)));
    serve
        .arg("serve")
        .env("DATABASE_URL", fresh)
        .env("TALLY_MIGRATE", "true")
        .env("TALLY_LISTEN", "127.0.0.1:0")
        .env("TALLY_LOG_FORMAT", "json");
    let server = start(serve, &stores, "server");
    let line = server.wait_for_line("listening").await;
    let line: serde_json::Value = serde_json::from_str(&line).expect("a JSON line");
    let base = format!("http://{}", line["address"].as_str().expect("an address"));
    eventually("it is ready", async || {
        let answer = reqwest::get(format!("{base}/health/ready")).await.ok()?;
        (answer.status() == StatusCode::OK).then_some(())
    })
    .await;
    stop(server, Signal::SIGTERM).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_servers_memory_is_of_small_pages() {
    let stores = Stores::start().await;
    let mut serve = command_as(TALLY, Some((&stores, Role::Server)));
    serve.arg("serve").env("TALLY_LISTEN", "127.0.0.1:0");
    let server = start(serve, &stores, "server");
    server.wait_for_line("listening").await;
    let process = server.id().expect("it runs");
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("its status");
    let enabled = status.lines().find_map(|line| line.strip_prefix("THP_enabled:"));
    // `None`: this kernel does not say.
    assert!(enabled.is_none_or(|enabled| enabled.trim() == "0"), "{status}");
    stop(server, Signal::SIGTERM).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_starts_without_redis_logs_so_and_uses_it_later() {
    let mut stores = Stores::start().await;
    stores.redis.stop().await;
    let mut serve = command_as(TALLY, Some((&stores, Role::Server)));
    serve.arg("serve").env("TALLY_LISTEN", "127.0.0.1:0");
    let server = start(serve, &stores, "server");
    server.wait_for_line("voting begins without live counts").await;
    stores.redis.start().await.expect("Redis starts");
    server.wait_for_line("live counts are back").await;
    stop(server, Signal::SIGTERM).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_and_a_worker_that_start_without_postgres_wait_for_it() {
    let mut stores = Stores::start().await;
    stores.postgres.stop().await;
    let mut serve = command_as(TALLY, Some((&stores, Role::Server)));
    serve.arg("serve").env("TALLY_LISTEN", "127.0.0.1:0");
    let server = start(serve, &stores, "server");
    let worker = start_worker(&stores, "worker", &[]);
    let line = server.wait_for_line("address=").await;
    worker.wait_for_line("working").await;
    stores.postgres.start().await.expect("Postgres starts");
    let base = format!(
        "http://{}",
        line.split("address=").nth(1).expect("an address").trim()
    );
    until_ready(&base).await.expect("a server that is ready");
    replay(&stores, &votes(10, 3), &base).await;
    eventually("the counts are saved", async || {
        (saved(&stores).await == (3, 30)).then_some(())
    })
    .await;
    stop(server, Signal::SIGTERM).await;
    stop(worker, Signal::SIGTERM).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_of_an_outage_names_each_cause_and_not_each_request() {
    let mut stores = Stores::start().await;
    let (server, base) = start_server(&stores, "server").await;
    let (code, output) = replay(&stores, &votes(2, 2), &base).await;
    assert_eq!(code, Some(0), "{output}");
    stores.postgres.stop().await;
    let client = reqwest::Client::new();
    for _ in 0..200 {
        let answer = client.post(format!("{base}/v1/items/1/votes")).send().await;
        assert_eq!(
            answer.expect("an answer").status(),
            StatusCode::SERVICE_UNAVAILABLE
        );
    }
    let log = server.output();
    assert!(log.contains("a batch of votes was not stored"), "{log}");
    assert!(log.contains("a request was not served"), "{log}");
    assert!(log.lines().count() < 30, "{log}");
    stores.postgres.start().await.expect("Postgres starts");
    stop(server, Signal::SIGTERM).await;
}
