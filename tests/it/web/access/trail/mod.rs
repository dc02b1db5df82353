//! The trail: each administrative act leaves a row, which nobody changes.

mod commands;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use sqlx::{Connection, Executor, PgConnection, PgPool};
use tally::domain::Scope;
use tally::ledger::Role;
use tally::web::access::{CreateItems, Open};
use tally::web::limits::REFUSED_ACTS_LIMIT_PER_MINUTE;

use super::matrix::rows;
use super::{api_key, send};
use crate::helpers::eventually;
use crate::helpers::stores::{blocker, until_blocked};
use crate::helpers::tally::Tally;

/// A row of the trail: who, login, tool, address, what, target, outcome, problem.
type Row = (
    String,
    String,
    String,
    Option<String>,
    String,
    Option<String>,
    String,
    Option<String>,
);

/// The rows after this id, oldest first. Moves `id` to the last one.
async fn since(pool: &PgPool, id: &mut i64) -> Vec<Row> {
    let rows: Vec<Row> = sqlx::query_as(
        "select who, login, tool, host(address), what, target, outcome, problem from act where id > $1 order by id",
    )
    .bind(*id)
    .fetch_all(pool)
    .await
    .expect("Postgres answers");
    *id = sqlx::query_scalar("select max(id) from act")
        .fetch_one(pool)
        .await
        .expect("the migrations are in the trail");
    rows
}

/// A row of an act over HTTP.
fn over_http(who: &str, what: &str, target: Option<&str>, outcome: &str, problem: Option<&str>) -> Row {
    (
        who.to_owned(),
        "server".to_owned(),
        "http".to_owned(),
        Some("127.0.0.1".to_owned()),
        what.to_owned(),
        target.map(str::to_owned),
        outcome.to_owned(),
        problem.map(str::to_owned),
    )
}

/// A request that succeeds on this route: its path, body, act and target.
fn good(
    method: &str,
    path: &str,
    revoked: i64,
) -> (String, Option<Value>, &'static str, Option<&'static str>) {
    let (id, body, what, target) = match (method, path) {
        // Item 1 is there, poll 1 too; its choice is item 2.
        ("POST", "/v1/items") => (0, Some(json!({ "name": "y" })), "item.create", Some("item:3")),
        ("PATCH", "/v1/items/{id}") => (1, Some(json!({ "name": "z" })), "item.edit", Some("item:1")),
        ("PUT", "/v1/items/{id}/access") => {
            let body = json!({ "open": ["anonymous"] });
            (1, Some(body), "item.access", Some("item:1"))
        }
        ("PUT", "/v1/polls/{id}/access") => {
            let body = json!({ "open": ["voters"] });
            (2, Some(body), "poll.access", Some("poll:2"))
        }
        ("POST", "/v1/items/{id}/ballots") => {
            (1, Some(json!({ "count": 2 })), "ballots.create", Some("item:1"))
        }
        ("POST", "/v1/polls") => (
            0,
            Some(json!({ "title": "y", "choices": ["a"] })),
            "poll.create",
            Some("poll:3"),
        ),
        ("PATCH", "/v1/polls/{id}") => (2, Some(json!({ "title": "z" })), "poll.edit", Some("poll:2")),
        ("POST", "/v1/polls/{id}/choices") => {
            (2, Some(json!({ "name": "b" })), "choice.create", Some("poll:2"))
        }
        ("POST", "/v1/polls/{id}/copy") => (2, Some(json!({})), "poll.create", Some("poll:4")),
        ("POST", "/v1/polls/{id}/ballots") => {
            (2, Some(json!({ "count": 2 })), "ballots.create", Some("poll:2"))
        }
        ("POST", "/v1/api-keys") => {
            let body = json!({ "name": "y", "scopes": ["admin"] });
            (0, Some(body), "api_key.create", None)
        }
        ("POST", "/v1/api-keys/{id}/rotate") => (revoked, Some(json!({})), "api_key.rotate", None),
        ("DELETE", "/v1/api-keys/{id}") => (revoked, None, "api_key.revoke", None),
        ("POST", "/v1/audits") => (0, None, "audit.ask", Some("job:audit")),
        ("POST", "/v1/voidings") => {
            let body = json!({ "voter_id": "x", "reason": "x", "dry_run": false });
            (0, Some(body), "voiding.create", None)
        }
        ("POST", "/v1/voter-edits") => {
            let body = json!({ "kind": "erase", "voter_id": "x", "dry_run": false });
            (0, Some(body), "voter_edit.create", None)
        }
        ("POST", "/v1/voter-edits/{id}/resume") => (1, None, "voter_edit.run", Some("voter_edit:1")),
        ("POST", "/v1/voidings/{id}/resume") => (1, None, "voiding.run", Some("voiding:1")),
        ("POST", "/v1/voidings/{id}/undo") => (1, None, "voiding.undo", Some("voiding:1")),
        _ => panic!("{method} {path} is a new administrative route: note what it does, and say so here"),
    };
    (path.replace("{id}", &id.to_string()), body, what, target)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_administrative_request_leaves_one_row_if_it_is_done_or_refused_and_none_if_a_stranger_sends_it()
{
    let tally = Tally::start_with(|options| options.access.open = Open::default()).await;
    let (admin_id, admin) = api_key(&tally, &[Scope::Admin]).await;
    let (vote_id, vote) = api_key(&tally, &[Scope::Vote]).await;
    let admin_key = format!("Bearer {}", admin.as_str());
    let vote_key = format!("Bearer {}", vote.as_str());
    let (admin, voter) = (
        format!("api_key:{}", admin_id.0),
        format!("api_key:{}", vote_id.0),
    );
    let ask = async |method: Method, path: &str, key: Option<&str>, body: Option<&Value>| {
        send(&tally, &tally.base, (method, path), key, body).await
    };
    for (path, body) in [
        ("/v1/items", json!({ "name": "x", "by_ballot": true })),
        (
            "/v1/polls",
            json!({ "title": "x", "choices": ["a"], "by_ballot": true }),
        ),
    ] {
        let (status, problem) = ask(Method::POST, path, Some(&admin_key), Some(&body)).await;
        assert_eq!(status, StatusCode::CREATED, "{problem}");
    }
    let mut seen = 0;
    since(&tally.pool, &mut seen).await;
    let mut acts = 0;
    for row in rows() {
        let is_read = row.method == Method::GET;
        if row.scope != "admin" || is_read {
            continue;
        }
        acts += 1;
        let (revoked, _) = api_key(&tally, &[Scope::Admin]).await;
        let (path, body, what, target) = good(row.method.as_str(), &row.path, revoked.0);
        let revoked = format!("api_key:{}", revoked.0);
        let target = if ["api_key.revoke", "api_key.rotate"].contains(&what) {
            Some(revoked.as_str())
        } else {
            target
        };
        since(&tally.pool, &mut seen).await;
        let said = format!("{} {path}", row.method);

        for (key, problem) in [
            (None, "credential-missing"),
            (Some("Bearer tally_0"), "credential-not-valid"),
        ] {
            let refused = ask(row.method.clone(), &path, key, body.as_ref()).await;
            assert_eq!(refused.1, problem, "{said}");
        }
        assert_eq!(since(&tally.pool, &mut seen).await, [], "{said} of a stranger");

        let refused = ask(row.method.clone(), &path, Some(&vote_key), body.as_ref()).await;
        assert_eq!(refused.1, "not-allowed", "{said}");
        // A request that would have created something has no id.
        let on = if path.ends_with("/copy") {
            // The other poll.
            Some("poll:2")
        } else if path.contains(|digit: char| digit.is_ascii_digit() && digit != '1') || path.contains("/1") {
            target
        } else {
            None
        };
        assert_eq!(
            since(&tally.pool, &mut seen).await,
            [over_http(&voter, what, on, "refused", Some("not-allowed"))],
            "{said}"
        );

        // These leave several rows: see `operator::acts_over_http` and `operator::voters`.
        if path.starts_with("/v1/voidings") || path.starts_with("/v1/voter-edits") {
            continue;
        }
        let (status, problem) = ask(row.method.clone(), &path, Some(&admin_key), body.as_ref()).await;
        assert!(status.is_success(), "{said}: {status} {problem}");
        let made: i64 = sqlx::query_scalar("select max(id) from api_key")
            .fetch_one(&tally.pool)
            .await
            .expect("Postgres answers");
        let made = format!("api_key:{made}");
        let done_on = if what == "api_key.create" {
            Some(&*made)
        } else {
            target
        };
        let mut done = over_http(&admin, what, done_on, "done", None);
        if ["api_key.create", "api_key.rotate"].contains(&what) {
            done.1 = "operator".to_owned();
        }
        assert_eq!(since(&tally.pool, &mut seen).await, [done], "{said}");

        // A repeat changes nothing, and leaves no row.
        if [
            "api_key.revoke",
            "item.access",
            "poll.access",
            "choice.create",
            "audit.ask",
        ]
        .contains(&what)
        {
            let (status, problem) = ask(row.method.clone(), &path, Some(&admin_key), body.as_ref()).await;
            assert!(status.is_success(), "{said} again: {status} {problem}");
            assert_eq!(since(&tally.pool, &mut seen).await, [], "{said} again");
        }

        if body.is_some() {
            let wrong = json!({ "no": "such field" });
            let (status, problem) = ask(row.method.clone(), &path, Some(&admin_key), Some(&wrong)).await;
            assert!(status.is_client_error(), "{said}");
            assert_eq!(
                since(&tally.pool, &mut seen).await,
                [over_http(&admin, what, on, "refused", Some(&problem))],
                "{said}"
            );
        }
        // Something that does not exist.
        let none = path.replace("/1", "/999").replace("/2", "/999");
        if none != path && !what.starts_with("api_key.") {
            let (status, problem) = ask(row.method.clone(), &none, Some(&admin_key), body.as_ref()).await;
            assert_eq!(status, StatusCode::NOT_FOUND, "{said}");
            let on = target.map(|target| target.split(':').next().unwrap_or_default().to_owned() + ":999");
            assert_eq!(
                since(&tally.pool, &mut seen).await,
                [over_http(&admin, what, on.as_deref(), "refused", Some(&problem))],
                "{said}"
            );
        }
        // A read is no act.
        ask(Method::GET, "/v1/api-keys", Some(&admin_key), None).await;
        assert_eq!(since(&tally.pool, &mut seen).await, [], "a read");
    }
    assert_eq!(acts, 19);
}

/// The details of the only act of this kind.
async fn details_of(pool: &PgPool, what: &str) -> Value {
    let details: String = sqlx::query_scalar("select details::text from act where what = $1")
        .bind(what)
        .fetch_one(pool)
        .await
        .expect("one act");
    details.parse().expect("JSON")
}

#[tokio::test(flavor = "multi_thread")]
async fn acts_of_anyone_of_a_page_and_of_a_vote_that_makes_its_item_are_noted_as_what_they_are() {
    let tally = Tally::start().await;
    let mut seen = 0;
    since(&tally.pool, &mut seen).await;
    let new = json!({ "name": "x", "key": "k" });
    let (status, _) = tally.post("/v1/items", &new).await;
    assert_eq!(status, StatusCode::CREATED);
    let done = |who: &str, target: &str| over_http(who, "item.create", Some(target), "done", None);
    assert_eq!(since(&tally.pool, &mut seen).await, [done("anyone", "item:1")]);
    assert_eq!(details_of(&tally.pool, "item.create").await, new);

    // The row of an edit has all changes that were asked for.
    let edit = json!({ "name": "z", "hidden": true, "opens_at": null, "closes_at": "2100-01-01T00:00:00Z" });
    let dated =
        json!({ "name": "y", "opens_at": "2099-01-01T00:00:00Z", "closes_at": "2101-01-01T00:00:00Z" });
    let dated = tally.item_with(dated).await;
    let path = format!("/v1/items/{dated}");
    let (status, answer) = tally.send(Method::PATCH, &path, Some(&edit)).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    assert_eq!(details_of(&tally.pool, "item.edit").await, edit);
    since(&tally.pool, &mut seen).await;

    // The item exists already: nothing is done.
    assert_eq!(tally.post("/v1/items", &new).await.0, StatusCode::OK);
    assert_eq!(since(&tally.pool, &mut seen).await, []);
    let other = json!({ "name": "y", "key": "k" });
    assert_eq!(tally.post("/v1/items", &other).await.0, StatusCode::CONFLICT);
    // By the item's key, and by a key that no item has, which may be anything.
    for key in ["k", "unknown"] {
        let path = format!("/v1/items/key:{key}");
        let (status, _) = tally
            .send(Method::PATCH, &path, Some(&json!({ "max_votes": 3 })))
            .await;
        assert!(status.is_client_error(), "{status}");
    }
    let refused = |what: &str, target: Option<&str>, problem: &str| {
        over_http("anyone", what, target, "refused", Some(problem))
    };
    assert_eq!(
        since(&tally.pool, &mut seen).await,
        [
            refused("item.create", None, "key-taken"),
            refused("item.edit", Some("item:1"), "never-changes"),
            refused("item.edit", None, "never-changes"),
        ]
    );
    // A request of a page of another origin.
    let page = tally.http.post(format!("{}/v1/items", tally.base));
    let page = page.header("origin", "http://evil.example").json(&new).send();
    assert_eq!(page.await.expect("an answer").status(), StatusCode::FORBIDDEN);
    assert_eq!(
        since(&tally.pool, &mut seen).await,
        [refused("item.create", None, "foreign-origin")]
    );

    // A vote that creates an item is an act of the key that allows it. Where everyone may create
    // items, it is no act.
    let (id, key) = api_key(&tally, &[Scope::Admin, Scope::Vote]).await;
    since(&tally.pool, &mut seen).await;
    let creating = tally
        .another_server_with(|options| options.voting.creates = CreateItems::Any)
        .await;
    let closed = tally
        .another_server_with(|options| options.access.open = Open::default())
        .await;
    let bearer = format!("Bearer {}", key.as_str());
    for (base, key) in [(&creating, "one"), (&closed, "two")] {
        let path = format!("/v1/items/key:{key}/votes");
        let request = (Method::POST, path.as_str());
        let (status, problem) = send(&tally, base, request, Some(&bearer), Some(&json!({}))).await;
        assert_eq!(status, StatusCode::CREATED, "{problem}");
    }
    let who = format!("api_key:{}", id.0);
    let made: i64 = sqlx::query_scalar("select id from item where key = 'two'")
        .fetch_one(&tally.pool)
        .await
        .expect("Postgres answers");
    assert_eq!(
        since(&tally.pool, &mut seen).await,
        [done(&who, &format!("item:{made}"))]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_changes_or_deletes_a_row_and_the_owner_removes_old_ones_by_the_documented_statement() {
    let tally = Tally::start().await;
    tally.post("/v1/items", &json!({ "name": "x" })).await;
    let execute = async |url: &str, statement: &str| {
        let mut connection = PgConnection::connect(url).await.expect("Postgres answers");
        match connection.execute(statement).await {
            Ok(done) => Ok(done.rows_affected()),
            Err(sqlx::Error::Database(error)) => Err(error.code().expect("a code").into_owned()),
            Err(error) => panic!("{statement}: {error}"),
        }
    };
    let changes = [
        "update act set who = 'someone'",
        "delete from act",
        "truncate act",
        "delete from act where id < 0",
    ];
    for role in Role::ALL {
        let url = tally.stores.login_url(role);
        for statement in changes.iter().chain(&[
            "insert into act (who, tool, what, outcome) values ('x', 'x', 'x', 'done')",
            "alter table act disable trigger all",
            "drop table act",
        ]) {
            // Each login gets insufficient_privilege.
            assert_eq!(
                execute(&url, statement).await,
                Err("42501".to_owned()),
                "{role:?}: {statement}"
            );
        }
        let reads = execute(&url, "select from act").await;
        assert_eq!(reads.is_ok(), role == Role::Operator, "{role:?}");
    }
    let report = tally.stores.login_url(Role::Report);
    let note = r#"select note_act('{"tool": "x", "what": "x", "outcome": "done"}')"#;
    assert_eq!(execute(&report, note).await, Err("42501".to_owned()));
    let owner = &tally.stores.database_url;
    for statement in changes {
        // The owner gets restrict_violation.
        assert_eq!(
            execute(owner, statement).await,
            Err("23001".to_owned()),
            "{statement}"
        );
        let replicating = format!("set session_replication_role = replica; {statement}");
        assert_eq!(
            execute(owner, &replicating).await,
            Err("23001".to_owned()),
            "{statement}"
        );
    }

    // Rows of an hour ago stay, rows of two years ago are deleted, and the deletion leaves a row.
    for age in ["1 hour", "2 years"] {
        let old = format!(
            "insert into act (acted_at, who, tool, what, outcome) values (now() - interval '{age}', 'x', 'x', 'x', 'done')"
        );
        assert_eq!(execute(owner, &old).await, Ok(1));
    }
    let documented = include_str!("../../../../../docs/operating/trail.md")
        .split("```sql\n")
        .find(|part| part.contains("delete from act"))
        .and_then(|part| part.split("```").next())
        .expect("the statement");
    execute(owner, documented).await.expect("it runs");
    let left: Vec<String> = sqlx::query_scalar("select what from act order by id")
        .fetch_all(&tally.pool)
        .await
        .expect("Postgres answers");
    assert_eq!(left, ["migrate", "item.create", "x", "trail.remove"]);
    assert_eq!(
        execute(owner, "delete from act").await,
        Err("23001".to_owned()),
        "afterwards too"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_act_that_is_cut_off_leaves_neither_its_effect_nor_a_row_that_says_done() {
    let tally = Tally::start().await;
    let mut seen = 0;
    since(&tally.pool, &mut seen).await;
    // The item is created already, and its row of the trail waits.
    let lock = blocker(&tally.pool, "lock table act in share row exclusive mode").await;
    let asking = tokio::spawn({
        let (http, base) = (tally.http.clone(), tally.base.clone());
        async move {
            let request = http.post(format!("{base}/v1/items"));
            let sent = request.json(&json!({ "name": "x" })).send().await;
            sent.expect("an answer").status()
        }
    });
    until_blocked(&tally.pool, "with made as").await;
    let ended: bool = sqlx::query_scalar(
        "select bool_and(pg_terminate_backend(pid)) from pg_stat_activity
         where wait_event_type = 'Lock' and starts_with(query, 'with made as')",
    )
    .fetch_one(&tally.pool)
    .await
    .expect("Postgres answers");
    assert!(ended);
    drop(lock);
    assert_eq!(asking.await.expect("no panic"), StatusCode::SERVICE_UNAVAILABLE);
    let items: i64 = sqlx::query_scalar("select count(*) from item")
        .fetch_one(&tally.pool)
        .await
        .expect("Postgres answers");
    assert_eq!(items, 0);
    assert_eq!(
        since(&tally.pool, &mut seen).await,
        [over_http(
            "anyone",
            "item.create",
            None,
            "failed",
            Some("unavailable")
        )]
    );
    // The same, and all of Postgres crashes: nobody can write down that it failed.
    let lock = blocker(&tally.pool, "lock table act in share row exclusive mode").await;
    let asking = tokio::spawn({
        let (http, base) = (tally.http.clone(), tally.base.clone());
        async move {
            let request = http.post(format!("{base}/v1/items"));
            let sent = request.json(&json!({ "name": "x" })).send().await;
            sent.expect("an answer").status()
        }
    });
    until_blocked(&tally.pool, "with made as").await;
    let mut tally = tally;
    tally.stores.postgres.crash().await;
    drop(lock);
    assert_eq!(asking.await.expect("no panic"), StatusCode::SERVICE_UNAVAILABLE);
    tally
        .stores
        .postgres
        .start()
        .await
        .expect("Postgres starts again");
    let pool = tally.stores.pool();
    let rows = eventually("Postgres answers", async || {
        sqlx::query_as::<_, (i64, i64)>(
            "select (select count(*) from item), (select count(*) from act where what = 'item.create' and outcome = 'done')",
        )
        .fetch_one(&pool)
        .await
        .ok()
    })
    .await;
    assert_eq!(rows, (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_refused_requests_fills_the_trail_up_to_a_limit_and_does_not_keep_acts_out() {
    let tally = Tally::start_with(|options| options.access.open = Open::default()).await;
    let (_, admin) = api_key(&tally, &[Scope::Admin]).await;
    let (_, vote) = api_key(&tally, &[Scope::Vote]).await;
    let body = json!({ "name": "x" });
    let ask = async |key: Option<&str>| {
        let key = key.map(|key| format!("Bearer {key}"));
        let request = (Method::POST, "/v1/items");
        send(&tally, &tally.base, request, key.as_deref(), Some(&body))
            .await
            .0
    };
    let refused = async || -> i64 {
        sqlx::query_scalar("select count(*) from act where outcome = 'refused'")
            .fetch_one(&tally.pool)
            .await
            .expect("Postgres answers")
    };
    let limit = i64::from(REFUSED_ACTS_LIMIT_PER_MINUTE);
    for _ in 0..2 * limit {
        assert_eq!(ask(None).await, StatusCode::UNAUTHORIZED);
    }
    assert_eq!(refused().await, 0);
    // A minute may end meanwhile, and the next begin.
    for _ in 0..3 * limit {
        assert_eq!(ask(Some(vote.as_str())).await, StatusCode::FORBIDDEN);
    }
    let noted = refused().await;
    assert!((limit..3 * limit).contains(&noted), "{noted}");
    // An act that is done still leaves its row.
    assert_eq!(ask(Some(admin.as_str())).await, StatusCode::CREATED);
    let done: i64 =
        sqlx::query_scalar("select count(*) from act where what = 'item.create' and outcome = 'done'")
            .fetch_one(&tally.pool)
            .await
            .expect("Postgres answers");
    assert_eq!(done, 1);
}
