//! Roles: each program may do in Postgres what it must, and nothing else.
//! All other tests check the first half: their servers and workers log in with these roles.

mod rights;

use nix::sys::signal::Signal;
use reqwest::StatusCode;
use serde_json::json;
use sqlx::postgres::PgConnection;
use sqlx::{Connection, Executor};
use tally::ledger::{OwnerLedger, Role, Roles};

use self::rights::rights;
use crate::helpers::eventually;
use crate::helpers::programs::{TALLY, command, command_as, run, start, start_server, start_worker, text};
use crate::helpers::stores::Stores;

/// insufficient_privilege.
const REFUSED: &str = "42501";

pub(super) async fn connect(url: &str) -> PgConnection {
    PgConnection::connect(url).await.expect("Postgres answers")
}

async fn execute(url: &str, statement: &str) -> Result<u64, String> {
    match connect(url).await.execute(statement).await {
        Ok(done) => Ok(done.rows_affected()),
        Err(sqlx::Error::Database(error)) => Err(error.code().expect("a code").into_owned()),
        Err(error) => panic!("{statement}: {error}"),
    }
}

/// Makes the cluster as it was before Tally had roles.
async fn without_roles(stores: &Stores) {
    let names = Role::ALL.map(Role::name).join(", ");
    for statement in [format!("drop owned by {names}"), format!("drop role {names}")] {
        execute(&stores.database_url, &statement)
            .await
            .expect("they exist");
    }
}

async fn migrate(url: &str) -> (bool, String) {
    let mut command = command(TALLY, None);
    command.arg("migrate").env("DATABASE_URL", url);
    let output = run(command).await;
    (
        output.status.success(),
        text(&output.stdout) + &text(&output.stderr),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn votes_flushes_audits_rebuilds_and_epochs_work_with_each_program_under_its_role() {
    let stores = Stores::start().await;
    let (_server, base) = start_server(&stores, "server").await;
    let worker = start_worker(
        &stores,
        "worker",
        &[("TALLY_FLUSH_EVERY", "20ms"), ("TALLY_AUDIT_CRON", "* * * * * *")],
    );
    let http = reqwest::Client::new();
    let made = http
        .post(format!("{base}/v1/items"))
        .json(&json!({ "name": "x" }))
        .send()
        .await
        .expect("an answer");
    assert_eq!(made.status(), StatusCode::CREATED);
    let vote = async |body: serde_json::Value| {
        let path = format!("{base}/v1/items/1/votes");
        let answer = http.post(path).json(&body).send().await.expect("an answer");
        (
            answer.status(),
            answer.json::<serde_json::Value>().await.expect("JSON"),
        )
    };
    let pool = stores.pool();
    let logins: Vec<(String, String)> = eventually("both are logged in", async || {
        let logins = sqlx::query_as(
            "select distinct application_name, usename::text from pg_stat_activity
             where application_name in ('tally serve', 'tally sync-worker') order by 1",
        )
        .fetch_all(&pool)
        .await
        .ok()?;
        (Vec::len(&logins) == 2).then_some(logins)
    })
    .await;
    assert_eq!(
        logins,
        [
            ("tally serve".to_owned(), "server".to_owned()),
            ("tally sync-worker".to_owned(), "worker".to_owned())
        ]
    );

    assert_eq!(vote(json!({ "voter_id": "ada" })).await.0, StatusCode::CREATED);
    assert_eq!(vote(json!({ "value": -1 })).await.0, StatusCode::CREATED);
    let (status, repeated) = vote(json!({ "voter_id": "ada" })).await;
    assert_eq!(
        (status, &repeated["vote_count"]),
        (StatusCode::OK, &json!(0)),
        "a repeat"
    );
    assert_eq!(vote(json!({})).await.1["vote_count"], 1);
    let saved = async |wanted: i64| {
        eventually(&format!("the item has {wanted}, audited"), async || {
            let row: (i64, i64, i64) = sqlx::query_as(
                "select item.vote_count, audited_count.vote_count, (select vote_total from watermark)
                 from item join audited_count on item_id = item.id where item.id = 1",
            )
            .fetch_one(&pool)
            .await
            .ok()?;
            (row == (wanted, wanted, wanted + 2)).then_some(())
        })
        .await;
    };
    saved(1).await;

    // A new epoch: all counts are lost, and one vote is cast before the worker sees that.
    let mut redis = stores.redis_connection().await;
    let () = redis::cmd("FLUSHALL")
        .query_async(&mut redis)
        .await
        .expect("Redis answers");
    assert_eq!(vote(json!({})).await.0, StatusCode::CREATED);
    saved(2).await;
    // The audit finds a wrong count, which is rebuilt. A vote first makes a live count. The worker
    // is frozen so that it does not drop that count.
    worker.freeze().await.expect("it runs");
    let mut count = 2;
    eventually("it has a live count", async || {
        count += 1;
        assert_eq!(vote(json!({})).await.1["vote_count"], count);
        let parts = testkit::counters::parts(&mut redis.clone(), "tally:{1}").await;
        parts.ok()?.live()
    })
    .await;
    testkit::counters::change(&mut redis, "tally:{1}", |parts| parts.count += 5)
        .await
        .expect("Redis answers");
    let audit = |arguments: &'static [&'static str]| {
        let mut audit = command(TALLY, Some(&stores));
        audit.arg("audit").args(arguments);
        run(audit)
    };
    let found = text(&audit(&["--repair"]).await.stdout);
    assert!(
        found.contains("wrong              1 items, by 5 votes"),
        "{found}"
    );
    let repaired = audit(&[]).await;
    assert!(repaired.status.success(), "{}", text(&repaired.stdout));
    worker.signal(Signal::SIGCONT).expect("it runs");
    assert!(
        !worker.output().contains("permission denied"),
        "{}",
        worker.output()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn each_role_is_refused_what_is_not_its_own() {
    let stores = Stores::start().await;
    let owner = &stores.database_url;
    execute(owner, "insert into item (name) values ('x')")
        .await
        .expect("an item");
    execute(owner, "insert into vote (item_id, voter_id) values (1, 'ada')")
        .await
        .expect("a vote");
    let refused: &[(Role, &[&str])] = &[
        (
            Role::Server,
            &[
                "update item set vote_count = 7",
                "update item set name = 'y'",
                "delete from item",
                "truncate item",
                "insert into item (name, vote_count) values ('y', 7)",
                "insert into audited_count values (1, 7, 0)",
                "update audited_count set vote_count = 7",
                "update vote set value = 1",
                "delete from vote",
                "truncate vote",
                "insert into vote (item_id, created_at) values (1, '2020-01-01')",
                "insert into vote (item_id, voter_id, change_number) values (1, 'ada', 1)",
                "select setval('vote_id_seq', 1)",
                "update watermark set vote_id = 0",
                "update identity set id = 'mine'",
                "select * from ballot",
                "insert into ballot (token_hash, rule_id) values (sha256('x'), 1)",
                "select void_votes(1, 1, 1)",
                "insert into voiding (item_id, reason, until_vote_id) values (1, 'x', 1)",
                "update idempotency_key set vote_id = 1",
                "update rule set closes_at = now()",
                "select edit_times(1, true, now(), false, null)",
                "select * from incarnation",
                "update job set fencing_number = 7",
                "update job_run set outcome = 'done'",
                "delete from worker",
                "insert into worker (name, started_at, seen_at) values ('x', now(), now())",
                "select * from act",
                "delete from _sqlx_migrations",
                "alter table vote disable trigger all",
                "drop table vote",
                "create table mine (id int)",
                "set role tally_worker",
            ],
        ),
        (
            Role::Worker,
            &[
                "insert into vote (item_id) values (1)",
                "update vote set value = 1",
                "delete from vote",
                "truncate vote",
                "select voter_id from vote",
                "insert into item (name) values ('y')",
                "update item set name = 'y'",
                "delete from item",
                "select nextval('vote_id_seq')",
                "insert into watermark default values",
                "delete from watermark",
                "delete from identity",
                "update incarnation set token = 'mine'",
                "insert into incarnation (token) values ('mine')",
                "select * from _sqlx_migrations",
                "insert into job (name) values ('x')",
                "update job set name = 'x'",
                "delete from job",
                "update job_run set started_at = now()",
                "select * from act",
                "alter table vote disable trigger all",
                "create table mine (id int)",
                "set role tally_server",
            ],
        ),
        (
            Role::Operator,
            &[
                "insert into vote (item_id) values (1)",
                "update vote set value = 1",
                "delete from vote",
                "update item set vote_count = 7",
                "insert into item (name) values ('y')",
                "insert into voided (vote_id, voiding_id, by_vote_id) values (1, 1, 1)",
                "update voiding set done_vote_id = 7",
                "delete from voiding",
                "update place set taken = 0",
                "update rule set voter_count = 0",
                "select * from ballot",
                "update watermark set vote_id = 7",
                "update job set fencing_number = 7",
                "delete from act",
                "create table mine (id int)",
            ],
        ),
        (
            Role::Report,
            &[
                "insert into item (name) values ('y')",
                "update item set vote_count = 7",
                "delete from item",
                "truncate item",
                "insert into vote (item_id) values (1)",
                "update vote set value = 1",
                "delete from vote",
                "truncate vote",
                "select nextval('vote_id_seq')",
                "select setval('vote_id_seq', 1)",
                "update watermark set vote_id = 7",
                "insert into incarnation default values",
                "delete from _sqlx_migrations",
                "select from item for update",
                "create table mine (id int)",
            ],
        ),
    ];
    for (role, statements) in refused {
        let url = stores.login_url(*role);
        for statement in *statements {
            assert_eq!(
                execute(&url, statement).await,
                Err(REFUSED.to_owned()),
                "{role:?}: {statement}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_may_not_create_roles_is_shown_what_to_run_and_tally_works_without_them() {
    let stores = Stores::start().await;
    without_roles(&stores).await;
    let admin = &stores.database_url;
    execute(admin, "create role plain login password 'plain'")
        .await
        .expect("a login");
    execute(admin, "create database plain owner plain")
        .await
        .expect("a database");
    let port_and_database = admin
        .rsplit_once('@')
        .expect("a host")
        .1
        .replace("/tally", "/plain");
    let plain = format!("postgres://plain:plain@{port_and_database}");
    let (done, output) = migrate(&plain).await;
    assert!(done, "{output}");
    let [printed, logged] = ["the database is up to date", "WARN"].map(|start| {
        output
            .lines()
            .find(|line| line.contains(start))
            .unwrap_or_else(|| panic!("{output}"))
    });
    for line in [printed, logged] {
        assert!(
            line.contains(
                "create role tally_server; create role tally_worker; create role tally_report; create role tally_operator"
            ),
            "{line}"
        );
    }

    let mut serve = command_as(TALLY, Some((&stores, Role::Server)));
    serve
        .arg("serve")
        .env("DATABASE_URL", &plain)
        .env("TALLY_MIGRATE", "true")
        .env("TALLY_LISTEN", "127.0.0.1:0");
    let server = start(serve, &stores, "server");
    let line = server.wait_for_line("address=").await;
    assert_eq!(
        server
            .output()
            .lines()
            .filter(|line| line.contains("create role"))
            .count(),
        1,
        "logged once"
    );
    let base = format!(
        "http://{}",
        line.split("address=").nth(1).expect("an address").trim()
    );
    let http = reqwest::Client::new();
    let post = async |path: &str, body: serde_json::Value| {
        let request = http.post(format!("{base}{path}")).json(&body);
        request.send().await.expect("an answer").status()
    };
    assert_eq!(
        post("/v1/items", json!({ "name": "x" })).await,
        StatusCode::CREATED
    );
    assert_eq!(post("/v1/items/1/votes", json!({})).await, StatusCode::CREATED);

    // A superuser creates the roles. Then the owner grants them, in a migrated database.
    let roles = Role::ALL
        .map(|role| format!("create role {}", role.name()))
        .join("; ");
    execute(admin, &roles).await.expect("roles");
    let (done, output) = migrate(&plain).await;
    assert!(done && output.contains("are granted"), "{output}");
    execute(
        admin,
        "create role reader login password 'reader' in role tally_report",
    )
    .await
    .expect("a login");
    let reader = format!("postgres://reader:reader@{port_and_database}");
    assert_eq!(execute(&reader, "select from vote").await, Ok(1));
    assert_eq!(
        execute(&reader, "delete from vote").await,
        Err(REFUSED.to_owned())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn many_databases_of_one_cluster_may_be_migrated_at_once() {
    let stores = Stores::start().await;
    without_roles(&stores).await;
    let mut urls = Vec::new();
    for name in ["a", "b", "c", "d"] {
        urls.push(stores.postgres.create_database(name).await.expect("a database"));
    }
    // Several connections use each login at once, again and again.
    let tasks: Vec<_> = urls
        .iter()
        .cycle()
        .take(16)
        .map(|url| {
            let owner = OwnerLedger::new(url, "test").expect("a URL");
            tokio::spawn(async move {
                for _ in 0..5 {
                    assert_eq!(owner.migrate().await.expect("it migrates"), Roles::Granted);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
    for url in &urls {
        let granted: bool =
            sqlx::query_scalar("select has_table_privilege('tally_report', 'vote', 'select')")
                .fetch_one(&mut connect(url).await)
                .await
                .expect("Postgres answers");
        assert!(granted, "{url}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn migrate_takes_back_what_a_role_was_granted_beyond_its_own() {
    let stores = Stores::start().await;
    let owner = &stores.database_url;
    let before = rights(owner).await;
    let names = Role::ALL.map(Role::name).join(", ");
    // The last grant is from a version in which cast_votes had this name.
    for grant in [
        format!("grant all on all tables in schema public to {names}"),
        format!("grant all on sequence item_id_seq, vote_id_seq to {names}"),
        "grant execute on function decide_votes to tally_server".to_owned(),
    ] {
        execute(owner, &grant).await.expect("a grant");
    }
    let server = stores.login_url(Role::Server);
    assert_eq!(execute(&server, "update item set vote_count = 7").await, Ok(0));
    let (done, output) = migrate(owner).await;
    assert!(done, "{output}");
    assert_eq!(
        execute(&server, "update item set vote_count = 7").await,
        Err(REFUSED.to_owned())
    );
    assert_eq!(rights(owner).await, before);
}
