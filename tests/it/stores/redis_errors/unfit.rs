//! A Redis that Tally cannot work with is refused at the start, in one line. Also the versions of
//! the protocol.

use tally::dev::PrivateRedis;
use tally::ledger::Role;
use tally::live::LiveError;
use tally::telemetry::Program;
use testkit::stores::{is_valkey, temporary_folder};

use super::{private_node, private_redis, send, takes};
use crate::helpers::eventually;
use crate::helpers::programs::{SYNC_WORKER, TALLY, command, run, start_server_with, text};
use crate::helpers::stores::Stores;
use crate::helpers::tally::redis;

/// What a program says as it ends at its start.
async fn said_at_start(program: &str, arguments: &[&str], database_url: &str, redis_url: &str) -> String {
    let mut command = command(program, None);
    command
        .args(arguments)
        .env("DATABASE_URL", database_url)
        .env("REDIS_URL", redis_url)
        .env("TALLY_LISTEN", "127.0.0.1:0");
    let output = run(command).await;
    let said = text(&output.stderr);
    assert!(!output.status.success(), "{program} {arguments:?} starts");
    assert_eq!(said.trim().lines().count(), 1, "{said}");
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn no_program_starts_with_a_node_of_a_redis_cluster() {
    let stores = Stores::start().await;
    let (_folder, private, mut owner) = private_node().await;
    let check = async || redis(&private.url()).check(Program::Server).await;
    let is_named = |error: &LiveError| error.is_unfit() && error.to_string().contains("Redis Cluster");
    // What serves no slots says so of any key. That may end.
    let without_slots = check().await.expect_err("it serves no slots");
    let said = without_slots.to_string();
    // Valkey looks first whether the keys are in one slot.
    let (is_unfit, code) = if is_valkey() {
        (true, "(CROSSSLOT)")
    } else {
        (false, "(CLUSTERDOWN)")
    };
    assert!(
        without_slots.is_unfit() == is_unfit && said.contains(code),
        "{said}"
    );
    // A cluster of one node serves every key, and no two of them at once.
    takes(&mut owner, "CLUSTER ADDSLOTSRANGE 0 16383").await;
    eventually("the slots are served", async || {
        send(&mut owner.clone(), "GET x").await.ok()
    })
    .await;
    let error = check().await.expect_err("it is a cluster");
    assert!(
        is_named(&error) && error.to_string().contains("(CROSSSLOT)"),
        "{error}"
    );
    for (program, arguments, role) in [
        (TALLY, &["serve"][..], Role::Server),
        (SYNC_WORKER, &[], Role::Worker),
    ] {
        let said = said_at_start(program, arguments, &stores.login_url(role), &private.url()).await;
        assert!(
            said.contains("REDIS_URL") && said.contains("is a node of a Redis Cluster"),
            "{said}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_without_a_command_that_a_program_needs_is_refused_and_the_command_named() {
    let (_folder, mut private, owner) = private_redis(&[]).await;
    drop(owner);
    for (command, program, named) in [
        ("EVALSHA", Program::Server, "EVALSHA"),
        ("SCRIPT", Program::Server, "SCRIPT LOAD"),
        // Valkey's scripts call it all the same.
        ("MSET", Program::Server, if is_valkey() { "" } else { "MSET" }),
        ("SCAN", Program::Worker, "SCAN"),
        ("INFO", Program::Worker, "INFO"),
        ("UNWATCH", Program::Worker, "UNWATCH"),
    ] {
        private.stop().await;
        private.set_settings(&[&format!("rename-command {command} ''")]);
        private
            .start()
            .await
            .unwrap_or_else(|error| panic!("{command}: {error}"));
        let checked = redis(&private.url()).check(program).await;
        if named.is_empty() {
            checked.expect(command);
            continue;
        }
        let error = checked.expect_err(command);
        let said = error.to_string();
        assert!(error.is_unfit(), "{said}");
        assert!(
            said.contains(&format!("does not know {named}, ")) && said.contains("rename-command"),
            "{said}"
        );
    }
}

/// The password is an argument, and Redis repeats arguments of a command that it does not know.
#[tokio::test(flavor = "multi_thread")]
async fn a_redis_without_auth_is_named_and_the_password_is_not() {
    let folder = temporary_folder("redis-").expect("a folder");
    let mut private = PrivateRedis::new(folder.path(), "secret").expect("a port");
    private.set_settings(&["rename-command AUTH ''"]);
    let url = private.url();
    let named = eventually("Redis answers", async || {
        let error = redis(&url).ping().await.err()?;
        error.refusal().is_some().then_some(error)
    });
    let error = tokio::select! {
        // It waits until its owner can log in.
        started = private.start() => panic!("{started:?}"),
        error = named => error,
    };
    let said = format!("{error} {error:?}");
    // Valkey says nothing of commands to whoever is not logged in.
    let code = if is_valkey() { "(NOAUTH)" } else { "(ERR AUTH)" };
    assert!(said.contains(code) && !said.contains("secret"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_and_a_worker_also_speak_the_third_version_of_the_protocol() {
    let stores = Stores::start().await;
    let of = |role| format!("{}?protocol=resp3", stores.redis_login_url(role));
    let (_server, base) = start_server_with(&stores, "server", &[("REDIS_URL", &of(Role::Server))]).await;
    let id: i64 = sqlx::query_scalar("insert into item (name) values ('x') returning id")
        .fetch_one(&stores.pool())
        .await
        .expect("an item");
    let http = reqwest::Client::builder().no_proxy().build().expect("a client");
    for count in 1..=3 {
        let sent = http.post(format!("{base}/v1/items/{id}/votes")).send().await;
        let answer: serde_json::Value = sent.expect("an answer").json().await.expect("JSON");
        assert_eq!(answer["vote_count"], count, "{answer}");
    }
    let mut once = command(SYNC_WORKER, Some(&stores));
    once.arg("--once").env("REDIS_URL", of(Role::Worker));
    let output = run(once).await;
    assert!(output.status.success(), "{}", text(&output.stderr));
    let saved: i64 = sqlx::query_scalar("select vote_count from item where id = $1")
        .bind(id)
        .fetch_one(&stores.pool())
        .await
        .expect("Postgres answers");
    assert_eq!(saved, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_does_not_speak_the_protocol_in_the_url_is_named() {
    let (_folder, mut private, owner) = private_redis(&[]).await;
    drop(owner);
    private.stop().await;
    private.set_settings(&["rename-command HELLO ''"]);
    private.start().await.expect("Redis starts");
    let plain = redis(&private.url()).ping().await;
    plain.expect("Tally asks for no protocol");
    let third = redis(&format!("{}?protocol=resp3", private.url()));
    let said = third.ping().await.expect_err("HELLO is unknown").to_string();
    let words = if is_valkey() {
        "(NOAUTH)"
    } else {
        "?protocol=resp3"
    };
    assert!(said.contains(words), "{said}");
}
