//! Programs whose own clocks are wrong, or step.

use nix::sys::signal::Signal;
use reqwest::StatusCode;
use serde_json::Value;
use testkit::clock::Clock;
use testkit::programs::Program;

use super::processes::{replay, votes};
use crate::helpers::eventually;
use crate::helpers::programs::{start_server_with, start_worker, stop};
use crate::helpers::stores::Stores;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const YEAR: i64 = 365 * 24 * HOUR;
const COOKIE_KEY: &str = "c10cc10cc10cc10cc10cc10cc10cc10cc10cc10cc10cc10cc10cc10cc10cc10c";

/// A clock in a folder of its own beside the stores.
fn clock(stores: &Stores, name: &str) -> Clock {
    let folder = stores.folder().join(name);
    std::fs::create_dir(&folder).expect("a folder");
    Clock::new(&folder).expect("a clock")
}

async fn server(stores: &Stores, name: &str, clock: &Clock) -> (Program, String) {
    let mut settings = vec![
        ("TALLY_COOKIE_KEYS", COOKIE_KEY),
        ("TALLY_OPEN", "anonymous,voters,visitors,admin,report"),
    ];
    let variables = clock.variables();
    settings.extend(
        variables
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str())),
    );
    start_server_with(stores, name, &settings).await
}

async fn metric(base: &str, name: &str) -> Option<f64> {
    let text = reqwest::get(format!("{base}/metrics"))
        .await
        .ok()?
        .text()
        .await
        .ok()?;
    let line = text.lines().find(|line| line.starts_with(&format!("{name} ")))?;
    line.rsplit_once(' ')?.1.parse().ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_votes_once_though_the_clocks_of_the_servers_are_hours_apart() {
    let stores = Stores::start().await;
    let (ahead_clock, behind_clock) = (clock(&stores, "ahead"), clock(&stores, "behind"));
    ahead_clock.step(10 * MINUTE).expect("a file");
    behind_clock.step(-10 * MINUTE).expect("a file");
    let (ahead_server, ahead) = server(&stores, "server-ahead", &ahead_clock).await;
    let (behind_server, behind) = server(&stores, "server-behind", &behind_clock).await;
    let http = reqwest::Client::new();
    let made = http
        .post(format!("{ahead}/v1/items"))
        .json(&serde_json::json!({"name": "x"}));
    let made: Value = made.send().await.expect("an answer").json().await.expect("JSON");
    let votes = format!("/v1/items/{}/votes", made["id"]);
    let given = http
        .post(format!("{ahead}/v1/voter"))
        .send()
        .await
        .expect("an answer");
    assert_eq!(given.status(), StatusCode::CREATED);
    let set = given.headers()["set-cookie"].to_str().expect("text");
    let cookie = set.split(';').next().expect("a cookie").to_owned();
    let vote = async |base: &str| {
        let vote = http.post(format!("{base}{votes}")).header("cookie", &cookie);
        vote.send().await.expect("an answer")
    };
    assert_eq!(vote(&ahead).await.status(), StatusCode::CREATED);
    let differences = [0, 24 * HOUR, -24 * HOUR];
    for by in differences {
        behind_clock.step(by).expect("a file");
        let again = vote(&behind).await;
        assert_eq!(again.status(), StatusCode::OK, "{by}");
        let again: Value = again.json().await.expect("JSON");
        assert_eq!(
            (&again["repeated"], &again["vote_count"]),
            (&true.into(), &1.into()),
            "{by}"
        );
        behind_clock.step(-by).expect("a file");
    }
    // The server says that its clock is wrong, and by how much.
    ahead_server
        .wait_for_line("this server's clock and Postgres' differ")
        .await;
    for (base, minutes) in [(&ahead, 10.0), (&behind, -10.0)] {
        eventually("the metric shows the difference", async || {
            let seconds = metric(base, "tally_clock_ahead_seconds").await?;
            ((seconds / 60.0 - minutes).abs() < 1.0).then_some(())
        })
        .await;
    }
    ahead_clock.step(-10 * MINUTE).expect("a file");
    ahead_server
        .wait_for_line("this server's clock and Postgres' agree again")
        .await;
    stop(ahead_server, Signal::SIGTERM).await;
    stop(behind_server, Signal::SIGTERM).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn audits_and_flushes_go_on_though_the_workers_clock_steps_hours_ahead_and_back() {
    let stores = Stores::start().await;
    let own = clock(&stores, "worker-clock");
    let mut settings = vec![("TALLY_AUDIT_CRON", "* * * * * *")];
    let variables = own.variables();
    settings.extend(
        variables
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str())),
    );
    let worker = start_worker(&stores, "worker", &settings);
    let server_clock = clock(&stores, "server-clock");
    let (mut server, base) = server(&stores, "server", &server_clock).await;
    let pool = stores.pool();
    let audits = async || -> i64 {
        sqlx::query_scalar("select fencing_number from job where name = 'audit'")
            .fetch_one(&pool)
            .await
            .expect("Postgres answers")
    };
    let mut voters = 0;
    for step in [0, HOUR, -HOUR, -3 * HOUR, 3 * HOUR, 48 * HOUR, -48 * HOUR] {
        own.step(step).expect("a file");
        server_clock.step(step).expect("a file");
        let before = audits().await;
        // Two more leases: one may have been taken before the step.
        eventually(&format!("audits go on after a step of {step} s"), async || {
            (audits().await >= before + 2).then_some(())
        })
        .await;
        voters += 1;
        let (code, output) = replay(&stores, &votes(voters, 1), &base).await;
        assert_eq!(code, Some(0), "{output}");
        eventually("the votes are written behind", async || {
            let unsaved: i64 = sqlx::query_scalar(
                "select (select count(*) from vote) - (select coalesce(sum(vote_count), 0) from item)::bigint",
            )
            .fetch_one(&pool)
            .await
            .expect("Postgres answers");
            (unsaved == 0).then_some(())
        })
        .await;
    }
    // Before 1970, the libraries of both programs panic.
    own.step(-100 * YEAR).expect("a file");
    worker.wait_for_line("system time before Unix epoch").await;
    own.step(100 * YEAR).expect("a file");
    let before = audits().await;
    eventually("audits go on after a clock before 1970", async || {
        (audits().await >= before + 2).then_some(())
    })
    .await;
    server_clock.step(-100 * YEAR).expect("a file");
    assert_eq!(server.wait().await, Some(1), "{}", server.output());
    assert!(
        server
            .output()
            .contains("this machine's clock is outside of the years")
    );
    stop(worker, Signal::SIGTERM).await;
}
