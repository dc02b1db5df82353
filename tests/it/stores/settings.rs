//! Settings of sessions that a login, a database or a pooler has, and that Tally cannot work with.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use sqlx::{Executor, PgPool};
use tally::ledger::Role;
use testkit::hostile::{HARMLESS, HOSTILE};

use crate::helpers::eventually;
use crate::helpers::pooler::Pooler;
use crate::helpers::programs::{
    SYNC_WORKER, TALLY, command, run, start_server, start_server_with, start_worker, text,
};
use crate::helpers::stores::Stores;

async fn execute(pool: &PgPool, statement: &str) {
    pool.execute(statement).await.expect("the owner may");
}

/// Notes the settings of each session that stores votes, or a worker's heartbeat.
async fn note_settings(pool: &PgPool) {
    let names: Vec<String> = HOSTILE.iter().map(|(name, ..)| format!("'{name}'")).collect();
    let names = names.join(", ");
    execute(
        pool,
        &format!(
            "create table public.seen (login text, name text, value text);
             create function public.note_settings() returns trigger language plpgsql security definer as $$
             begin
                 insert into public.seen
                 select session_user, name, current_setting(name) from unnest(array[{names}]) as one (name);
                 return null;
             end $$;
             create trigger note_settings after insert on public.vote
                 for each statement execute function public.note_settings();
             create trigger note_settings after insert on public.worker
                 for each statement execute function public.note_settings()"
        ),
    )
    .await;
}

/// The settings that a login's sessions had.
async fn noted(pool: &PgPool, login: &str) -> BTreeMap<String, Vec<String>> {
    let rows: Vec<(String, Vec<String>)> = sqlx::query_as(
        "select name, array_agg(distinct value) from public.seen where login = $1 group by name",
    )
    .bind(login)
    .fetch_all(pool)
    .await
    .expect("Postgres answers");
    rows.into_iter().collect()
}

async fn post(base: &str, path: &str, body: &Value) -> (StatusCode, Value) {
    send(Method::POST, base, path, Some(body)).await
}

async fn send(method: Method, base: &str, path: &str, body: Option<&Value>) -> (StatusCode, Value) {
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let mut request = client.request(method, format!("{base}{path}"));
    if let Some(body) = body {
        request = request.json(body);
    }
    let response = request.send().await.expect("an answer");
    (response.status(), response.json().await.expect("JSON"))
}

/// An id in an answer.
fn id(answer: &Value) -> i64 {
    answer["id"]
        .as_i64()
        .unwrap_or_else(|| panic!("no id in {answer}"))
}

/// Votes of all kinds, what becomes of them, and that each session had the settings that it needs.
async fn assert_all_is_right(stores: &Stores, way: &str) {
    let pool = stores.pool();
    note_settings(&pool).await;
    let (_server, base) = start_server(stores, "server").await;
    let _worker = start_worker(stores, "worker", &[("TALLY_FLUSH_EVERY", "100ms")]);
    let (status, plain) = post(&base, "/v1/items", &json!({ "name": "Crème brûlée" })).await;
    assert_eq!(status, StatusCode::CREATED, "{way}: {plain}");
    let (_, numbered) = post(
        &base,
        "/v1/items",
        &json!({ "name": "y", "max_votes": 3, "numbered": true, "closes_at": "2100-02-01T00:00:00Z" }),
    )
    .await;
    let (status, poll) = post(
        &base,
        "/v1/polls",
        &json!({ "title": "Dessert?", "choices": ["a", "b", "c"], "max_choices": 2 }),
    )
    .await;
    assert_eq!(status, StatusCode::CREATED, "{way}: {poll}");
    let votes_on = |item: i64| format!("/v1/items/{item}/votes");
    for voter in 0..5 {
        let body = json!({ "voter_id": format!("voter {voter} \\ 'é'") });
        let (status, answer) = post(&base, &votes_on(id(&plain)), &body).await;
        assert_eq!(status, StatusCode::CREATED, "{way}: {answer}");
        let (status, answer) = post(&base, &votes_on(id(&plain)), &body).await;
        assert_eq!(status, StatusCode::OK, "{way}: {answer}");
    }
    let (status, answer) = post(&base, &votes_on(id(&plain)), &json!({ "value": -1 })).await;
    assert_eq!(status, StatusCode::CREATED, "{way}: {answer}");
    for number in 1..=3 {
        let (_, answer) = post(&base, &votes_on(id(&numbered)), &json!({})).await;
        assert_eq!(answer["number"], number, "{way}: {answer}");
    }
    let (_, answer) = post(&base, &votes_on(id(&numbered)), &json!({})).await;
    assert!(
        answer["type"].as_str().is_some_and(|kind| kind.ends_with("full")),
        "{way}: {answer}"
    );
    let choices: Vec<i64> = poll["choices"]
        .as_array()
        .expect("choices")
        .iter()
        .map(|one| one["item_id"].as_i64().expect("an id"))
        .collect();
    for (choice, status) in choices.iter().zip([201, 201, 409]) {
        let answer = post(&base, &votes_on(*choice), &json!({ "voter_id": "ada" })).await;
        assert_eq!(answer.0.as_u16(), status, "{way}: {}", answer.1);
    }
    let (_, found) = send(Method::GET, &base, "/v1/items?search=Cr%C3%A8me", None).await;
    assert_eq!(found["items"][0]["id"], id(&plain), "{way}: {found}");
    let saved = "select id, vote_count, down_count from item order by id";
    let expected = [
        (id(&plain), 4, 1),
        (id(&numbered), 3, 0),
        (choices[0], 1, 0),
        (choices[1], 1, 0),
        (choices[2], 0, 0),
    ];
    eventually(&format!("{way}: all is saved and rolled up"), async || {
        let saved: Vec<(i64, i64, i64)> = sqlx::query_as(saved).fetch_all(&pool).await.ok()?;
        let (rolled_up, left): (i64, i64) = sqlx::query_as(
            "select vote_total, (select count(*) from vote where id > vote_id) from watermark",
        )
        .fetch_one(&pool)
        .await
        .ok()?;
        (saved == expected && (rolled_up, left) == (11, 0)).then_some(())
    })
    .await;
    let mut audit = command(TALLY, Some(stores));
    audit.arg("audit");
    let output = run(audit).await;
    assert!(
        output.status.success(),
        "{way}: {}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    for login in ["server", "worker"] {
        let noted = noted(&pool, login).await;
        assert_eq!(noted.len(), HOSTILE.len(), "{way}: {login} has stored something");
        for (name, hostile, _) in HOSTILE {
            assert!(
                !noted[name].contains(&hostile.to_owned()),
                "{way}: {login} has {name} = {hostile}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_of_the_database_change_no_answer() {
    let stores = Stores::start().await;
    let pool = stores.pool();
    for (name, hostile, harmless) in HOSTILE {
        execute(&pool, &format!("alter role tally set {name} = '{harmless}'")).await;
        execute(&pool, &format!("alter database tally set {name} = '{hostile}'")).await;
    }
    for (name, value) in HARMLESS {
        execute(&pool, &format!("alter database tally set {name} = '{value}'")).await;
    }
    pool.close().await;
    assert_all_is_right(&stores, "alter database").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_of_a_login_change_no_answer() {
    let stores = Stores::start().await;
    let pool = stores.pool();
    for login in ["server", "worker"] {
        for (name, hostile, _) in HOSTILE {
            execute(&pool, &format!("alter role {login} set {name} = '{hostile}'")).await;
        }
        for (name, value) in HARMLESS {
            execute(&pool, &format!("alter role {login} set {name} = '{value}'")).await;
        }
    }
    assert_all_is_right(&stores, "alter role").await;
}

/// Under `repeatable read` a decision would not see what was decided before it.
#[tokio::test(flavor = "multi_thread")]
async fn no_voter_holds_too_many_choices_over_a_pooler_that_drops_tallys_settings() {
    for isolation in ["repeatable read", "serializable"] {
        let stores = Stores::start().await;
        let pool = stores.pool();
        let hostile = format!("alter database tally set default_transaction_isolation = '{isolation}'");
        execute(&pool, &hostile).await;
        let pooler = Pooler::start(&stores, "session").await;
        let url = pooler.url(&stores, &stores.login_url(Role::Server));
        let settings = [("DATABASE_URL", url.as_str())];
        let (_first, first) = start_server_with(&stores, "first", &settings).await;
        let (_second, second) = start_server_with(&stores, "second", &settings).await;
        let body = json!({ "title": "x", "choices": ["a", "b", "c", "d"], "max_choices": 2 });
        let poll = eventually("a poll is made", async || {
            let (status, poll) = post(&first, "/v1/polls", &body).await;
            (status == StatusCode::CREATED).then_some(poll)
        })
        .await;
        let choices = poll["choices"].as_array().expect("choices");
        let votes = (0..20).flat_map(|voter| {
            choices
                .iter()
                .zip([&first, &second].into_iter().cycle())
                .map(move |(choice, base)| async move {
                    let path = format!("/v1/items/{}/votes", choice["item_id"]);
                    eventually("a vote is decided", async || {
                        let (status, _) =
                            post(base, &path, &json!({ "voter_id": format!("v{voter}") })).await;
                        (status != StatusCode::SERVICE_UNAVAILABLE).then_some(())
                    })
                    .await;
                })
        });
        join_all(votes).await;
        let held: Vec<i64> = sqlx::query_scalar("select count(*) from vote group by voter_id order by 1")
            .fetch_all(&pool)
            .await
            .expect("Postgres answers");
        assert_eq!(held, [2; 20], "{isolation}");
    }
}

/// Such a session would skip the triggers that guard the ledger, and only a superuser may change that.
#[tokio::test(flavor = "multi_thread")]
async fn no_program_starts_with_a_login_that_replicates() {
    let stores = Stores::start().await;
    let pool = stores.pool();
    execute(
        &pool,
        "alter role worker set session_replication_role = 'replica'",
    )
    .await;
    let output = run(command(SYNC_WORKER, Some(&stores))).await;
    let errors = text(&output.stderr);
    assert!(!output.status.success(), "it starts");
    assert!(
        errors.contains("session_replication_role = replica") && errors.contains("alter role"),
        "{errors}"
    );
}

/// A policy that hides rows would make counts wrong.
#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_hides_votes_fails_a_statement_and_makes_no_count_wrong() {
    let stores = Stores::start().await;
    let pool = stores.pool();
    let (_server, base) = start_server(&stores, "server").await;
    let (_, item) = post(&base, "/v1/items", &json!({ "name": "x" })).await;
    for _ in 0..4 {
        let (status, answer) = post(&base, &format!("/v1/items/{}/votes", id(&item)), &json!({})).await;
        assert_eq!(status, StatusCode::CREATED, "{answer}");
    }
    execute(
        &pool,
        "create policy half on vote for select using (id % 2 = 0);
         create policy stored on vote for insert with check (true);
         alter table vote enable row level security",
    )
    .await;
    let mut audit = command(TALLY, Some(&stores));
    audit.args(["audit", "--repair"]);
    let output = run(audit).await;
    assert!(!output.status.success(), "{}", text(&output.stdout));
    let errors = text(&output.stderr);
    assert!(errors.contains("row-level security"), "{errors}");
    execute(&pool, "alter table vote disable row level security").await;
    let mut audit = command(TALLY, Some(&stores));
    audit.args(["audit", "--repair"]);
    let output = run(audit).await;
    assert!(
        output.status.success(),
        "{}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
}
