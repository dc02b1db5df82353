//! `tally doctor` on real installations, well and broken.

use serde_json::Value;
use sqlx::Executor;
use tally::ledger::Role;

use crate::helpers::eventually;
use crate::helpers::programs::{TALLY, command, command_as, run, start_server, start_worker, text};
use crate::helpers::stores::{Stores, blocker};

/// The exit code, and what it says of what is not well, but for the settings that every test's Postgres has.
async fn doctor(stores: &Stores) -> (Option<i32>, Vec<String>) {
    let mut doctor = command(TALLY, Some(stores));
    doctor.args(["doctor", "--json"]);
    let said = run(doctor).await;
    let report: Value = serde_json::from_slice(&said.stdout).unwrap_or_else(|error| {
        panic!("{error}: {} {}", text(&said.stdout), text(&said.stderr));
    });
    let findings = report["findings"].as_array().expect("a list").iter();
    let bad = findings.filter(|one| one["level"] != "well");
    let bad = bad.map(|one| format!("{}: {}", one["level"].as_str().expect("a level"), one["what"]));
    let of_tests = ["fsync", "shows no standby", "one worker runs"];
    let bad = bad.filter(|one| !of_tests.iter().any(|words| one.contains(words)));
    (said.status.code(), bad.collect())
}

async fn finds(stores: &Stores, words: &str) {
    eventually(words, async || {
        let (_, bad) = doctor(stores).await;
        bad.iter().any(|one| one.contains(words)).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_doctor_finds_nothing_where_all_is_well_and_what_is_broken_where_it_is() {
    let mut stores = Stores::start().await;
    finds(&stores, "no worker runs").await;
    let (_server, _) = start_server(&stores, "server").await;
    let _worker = start_worker(&stores, "worker", &[("TALLY_AUDIT_CRON", "* * * * * *")]);
    eventually("all is well", async || {
        let (_, bad) = doctor(&stores).await;
        bad.is_empty().then_some(())
    })
    .await;
    // For people, too. This Postgres has fsync off.
    let mut plain = command(TALLY, Some(&stores));
    plain.arg("doctor");
    let plain = run(plain).await;
    let said = text(&plain.stdout);
    assert!(
        said.contains("look   fsync") && said.contains("       do: "),
        "{said}"
    );
    assert_eq!(plain.status.code(), Some(0));

    let pool = stores.pool();
    let logins =
        "select rolname::text from pg_roles where pg_has_role(oid, 'tally_server', 'member') and rolcanlogin
                  and not rolsuper limit 1";
    let login: String = sqlx::query_scalar(logins)
        .fetch_one(&pool)
        .await
        .expect("a login");
    let set = format!("alter role {login} set synchronous_commit = off");
    pool.execute(set.as_str()).await.expect("a statement");
    finds(&stores, "has synchronous_commit=off").await;
    assert_eq!(doctor(&stores).await.0, Some(1));
    let reset = format!("alter role {login} reset synchronous_commit");
    pool.execute(reset.as_str()).await.expect("a statement");
    let lock = blocker(&pool, "lock table vote in access exclusive mode").await;
    finds(&stores, "strong locks").await;
    lock.rollback().await.expect("a rollback");
    pool.execute("alter table item set (autovacuum_enabled = false)")
        .await
        .expect("a statement");
    finds(&stores, "autovacuum is off").await;
    pool.execute("alter table item reset (autovacuum_enabled)")
        .await
        .expect("a statement");
    pool.execute("select pg_create_physical_replication_slot('forgotten', true)")
        .await
        .expect("a slot");
    finds(&stores, "forgotten").await;
    pool.execute("select pg_drop_replication_slot('forgotten')")
        .await
        .expect("a statement");
    pool.execute("insert into loss (token, vote_total, first_stored_at, last_stored_at, first_vote_id, last_vote_id, item_total, is_whole)
                  values ('x', 7, now(), now(), 1, 7, 1, true)")
        .await
        .expect("a loss");
    finds(&stores, "7 acknowledged votes were lost").await;
    pool.execute("truncate loss, loss_item")
        .await
        .expect("a statement");
    let mut redis = stores.redis_connection().await;
    let mut set = async |name: &str, value: &str| {
        redis::cmd("CONFIG")
            .arg("SET")
            .arg(name)
            .arg(value)
            .exec_async(&mut redis)
            .await
            .expect("Redis answers");
    };
    set("maxmemory-policy", "allkeys-lru").await;
    finds(&stores, "allkeys-lru").await;
    set("maxmemory-policy", "noeviction").await;
    set("maxmemory", "1mb").await;
    finds(&stores, "Redis uses").await;
    set("maxmemory", "0").await;
    stores.redis.stop().await;
    finds(&stores, "wrong: \"Redis: ").await;
    stores.redis.start().await.expect("Redis starts");
    pool.execute("alter system set default_transaction_read_only = on")
        .await
        .expect("a statement");
    pool.execute("select pg_reload_conf()")
        .await
        .expect("a statement");
    finds(&stores, "read").await;
    pool.execute("alter system reset default_transaction_read_only")
        .await
        .expect("a statement");
    pool.execute("select pg_reload_conf()")
        .await
        .expect("a statement");
    // A login that may do more.
    let mut owner = command(TALLY, Some(&stores));
    owner.arg("doctor").env("DATABASE_URL", &stores.database_url);
    let said = text(&run(owner).await.stdout);
    assert!(said.contains("may do more than a worker needs"), "{said}");
    // One that may do less.
    let mut server = command_as(TALLY, Some((&stores, Role::Server)));
    server.arg("doctor");
    let server = run(server).await;
    assert_eq!(server.status.code(), Some(1), "{}", text(&server.stdout));
    stores.postgres.stop().await;
    finds(&stores, "wrong: \"Postgres: ").await;
    stores.postgres.start().await.expect("Postgres starts");
    let empty = stores
        .postgres
        .create_database("empty")
        .await
        .expect("a database");
    let mut new = command(TALLY, Some(&stores));
    new.arg("doctor").env("DATABASE_URL", empty);
    let said = text(&run(new).await.stdout);
    assert!(said.contains("tally migrate"), "{said}");
}
