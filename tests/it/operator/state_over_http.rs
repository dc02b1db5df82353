//! The state over HTTP: workers, audits, the last hour, and the page `/ops`.

use std::time::Duration;

use nix::sys::signal::Signal;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tally::domain::ItemId;
use tally::ledger::{Heartbeat, Role, WORKER_LIMIT_SILENCE, WorkerLedger};
use tally::web::access::Open;

use crate::helpers::eventually;
use crate::helpers::programs::{start_worker, stop};
use crate::helpers::tally::Tally;

/// The workers as `GET /v1/status` shows them.
async fn workers(tally: &Tally) -> Vec<Value> {
    let (status, shown) = tally.get("/v1/status").await;
    assert_eq!(status, StatusCode::OK);
    shown["workers"].as_array().cloned().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_are_shown_while_they_run_and_forgotten_when_they_stop_or_were_killed() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let settings = [("TALLY_FLUSH_EVERY", "50ms"), ("TALLY_AUDIT_CRON", "0 0 0 1 1 *")];
    let mut killed = start_worker(&tally.stores, "killed", &settings);
    tally.add(item, 1).await;
    eventually("a worker with a pass is shown", async || {
        let all = workers(&tally).await;
        let one = all.first()?;
        let is_well = one["alive"] == true
            && one["last_pass"]["outcome"] == "done"
            && one["last_pass"]["took_seconds"].as_f64() > Some(0.0)
            && one["saved_counts"].as_i64() > Some(0);
        (all.len() == 1 && is_well && one["unsaved_counts"] == 0).then_some(())
    })
    .await;
    eventually("its heartbeats are new versions beside the old ones", async || {
        let hot: bool = sqlx::query_scalar(
            "select n_tup_hot_upd > 0 and n_tup_hot_upd = n_tup_upd from pg_stat_user_tables where relname = 'worker'",
        )
        .fetch_one(&tally.pool)
        .await
        .ok()?;
        hot.then_some(())
    })
    .await;
    // An audit that no schedule asks for.
    let (status, asked) = tally.post("/v1/audits", &json!({})).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{asked}");
    eventually("a worker has audited", async || {
        let (_, shown) = tally.get("/v1/status").await;
        let audit = shown["jobs"]
            .as_array()?
            .iter()
            .find(|job| job["name"] == "audit")?;
        let run = &audit["last_run"];
        let is_well = run["outcome"] == "done" && run["details"]["wrong_votes"] == 0;
        (is_well && audit["asked_at"].is_null()).then_some(())
    })
    .await;
    killed.kill().await.expect("it runs");
    assert_eq!(workers(&tally).await.len(), 1, "nobody has noticed yet");
    sqlx::query("update worker set seen_at = seen_at - interval '2 minutes'")
        .execute(&tally.pool)
        .await
        .expect("Postgres answers");
    assert_eq!(workers(&tally).await[0]["alive"], false);
    let other = start_worker(&tally.stores, "other", &settings);
    eventually("the other one has forgotten it", async || {
        let all = workers(&tally).await;
        (all.len() == 1 && all[0]["alive"] == true).then_some(())
    })
    .await;
    stop(other, Signal::SIGTERM).await;
    assert_eq!(
        workers(&tally).await,
        Vec::<Value>::new(),
        "it has stopped in order"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_forgets_others_that_were_silent_for_long_or_are_ahead_of_time_and_nobody_else() {
    let tally = Tally::start().await;
    let worker = |name: &str| WorkerLedger::new(tally.stores.login_url(Role::Worker), name).expect("a URL");
    let [own, other, silent, ahead] = ["own", "other", "silent", "ahead"].map(worker);
    let beat = async |worker: &WorkerLedger, saved_counts| {
        let heartbeat = Heartbeat {
            age: Duration::from_secs(600),
            pass: None,
            unsaved_counts: 0,
            oldest_unsaved: Duration::ZERO,
            saved_counts,
        };
        worker.beat(&heartbeat).await.expect("Postgres answers")
    };
    let shown = async || -> Vec<(String, Option<i64>)> {
        let all = workers(&tally).await;
        let mut all: Vec<_> = all
            .iter()
            .map(|one| {
                let name = one["name"].as_str().expect("a name");
                let (name, _) = name.split_once(' ').expect("what it is, and a part of its own");
                (name.to_owned(), one["saved_counts"].as_i64())
            })
            .collect();
        all.sort();
        all
    };
    let row = |name: &str, saved_counts| (name.to_owned(), Some(saved_counts));
    for one in [&own, &other, &silent, &ahead] {
        assert!(!beat(one, 1).await, "nobody asks for an audit");
    }
    assert_eq!(
        shown().await,
        ["ahead", "other", "own", "silent"].map(|name| row(name, 1))
    );
    let half = WORKER_LIMIT_SILENCE.as_secs() as i64 / 2;
    // The worker itself has been silent for longest, but never forgets its own heartbeat.
    for (worker, seconds) in [(&own, -4), (&other, -1), (&silent, -3), (&ahead, 3)] {
        sqlx::query("update worker set seen_at = seen_at + $2 * interval '1 second' where name = $1")
            .bind(worker.name())
            .bind(seconds * half)
            .execute(&tally.pool)
            .await
            .expect("Postgres answers");
    }
    let (status, _) = tally.post("/v1/audits", &json!({})).await;
    assert_eq!(status, StatusCode::ACCEPTED);
    assert!(beat(&own, 2).await, "someone asks for an audit");
    assert_eq!(shown().await, [row("other", 1), row("own", 2)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_that_fails_fails_no_pass_and_status_answers_without_postgres() {
    let tally = Tally::start().await;
    let item: ItemId = tally.item("x").await;
    let execute = async |statement: &str| {
        let done = sqlx::raw_sql(statement).execute(&tally.pool).await;
        done.expect("a statement");
    };
    execute("alter table worker rename to hidden").await;
    let worker = start_worker(&tally.stores, "worker", &[("TALLY_FLUSH_EVERY", "50ms")]);
    tally.add(item, 1).await;
    eventually("the count is saved", async || {
        (tally.saved_count(item).await == 1).then_some(())
    })
    .await;
    let (status, shown) = tally.get("/v1/status").await;
    assert_eq!((status, &shown["workers"]), (StatusCode::OK, &Value::Null));
    assert_eq!(
        shown["stores"],
        json!({ "postgres": "unavailable", "redis": "ready" })
    );
    execute("alter table hidden rename to worker").await;
    eventually("the next heartbeat comes", async || {
        (workers(&tally).await.len() == 1).then_some(())
    })
    .await;
    stop(worker, Signal::SIGTERM).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_who_comes_later_sees_the_last_hour_and_what_is_normal() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let history = async |after: i64| tally.get(&format!("/v1/status/history?after={after}")).await.1;
    let newest = |history: &Value| {
        history["at"]
            .as_array()
            .expect("times")
            .last()
            .and_then(Value::as_i64)
    };
    // Votes between two samples.
    let found = eventually("votes are in a sample", async || {
        tally.add(item, 1).await;
        let shown = history(0).await;
        let curves = shown["curves"].as_array()?;
        let accepted = curves.iter().find(|curve| curve["name"] == "accepted")?;
        let is_there = accepted["values"]
            .as_array()?
            .iter()
            .any(|rate| rate.as_f64() > Some(0.0));
        is_there.then_some(shown)
    })
    .await;
    let samples = found["at"].as_array().expect("times").len();
    for curve in found["curves"].as_array().expect("curves") {
        assert_eq!(
            curve["values"].as_array().expect("values").len(),
            samples,
            "{curve}"
        );
        let why = curve["normal"]["why"].as_str().expect("a reason");
        assert!(!why.is_empty(), "{curve}");
    }
    let last = newest(&found).expect("a sample");
    let next = eventually("the next sample", async || {
        let next = history(last).await;
        newest(&next).is_some().then_some(next)
    })
    .await;
    assert!(
        next["at"]
            .as_array()
            .expect("times")
            .iter()
            .all(|at| at.as_i64() > Some(last))
    );
    let (_, status) = tally.get("/v1/status").await;
    let accepted = &status["votes"][0];
    assert!(
        accepted["total"].as_f64() > Some(0.0) && accepted["outcome"] == "accepted",
        "{status}"
    );
    assert!(status["latency"]["p50_seconds"].as_f64() > Some(0.0), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_makes_no_markup_of_text_runs_no_inline_script_and_holds_no_data() {
    let tally = Tally::start_with(|options| options.access.open = Open::default()).await;
    let load = async |path: &str| {
        let answer = tally.http.get(format!("{}{path}", tally.base)).send().await;
        let answer = answer.expect("an answer");
        assert_eq!(answer.status(), StatusCode::OK, "{path}, without a key");
        let policy = answer.headers()["content-security-policy"]
            .to_str()
            .expect("text")
            .to_owned();
        (policy, answer.text().await.expect("a text"))
    };
    let (policy, page) = load("/ops").await;
    for part in [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ] {
        assert!(policy.contains(part), "{part}: {policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    for inline in [
        "style=",
        "onclick=",
        "onload=",
        "javascript:",
        "<style",
        "<script>",
    ] {
        assert!(!page.contains(inline), "{inline}");
    }
    assert_eq!(page.matches("<script").count(), 1, "one, from the server itself");
    let (_, script) = load("/assets/ops-00000000.js").await;
    for markup in [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "localStorage",
        ".style",
    ] {
        assert!(!script.contains(markup), "{markup}");
    }
    // Each element that the script names is in the page.
    for named in script.split("by(\"").skip(1) {
        let (id, _) = named.split_once('"').expect("an end");
        assert!(page.contains(&format!("id=\"{id}\"")), "{id}");
    }
    // Each input has its label.
    for input in ["<input id=\"", "<textarea id=\"", "<select id=\""] {
        for named in page.split(input).skip(1) {
            let (id, rest) = named.split_once('"').expect("an end");
            let is_within = rest
                .split_once('>')
                .is_some_and(|(tag, _)| tag.contains("type=\"checkbox\""));
            assert!(is_within || page.contains(&format!("for=\"{id}\"")), "{id}");
        }
    }
}
