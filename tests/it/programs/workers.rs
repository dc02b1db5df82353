//! Workers and servers as processes: flushes, audits, signals, kills, races.

use nix::sys::signal::Signal;
use reqwest::StatusCode;
use serde_json::json;

use super::processes::{replay, saved, votes};
use crate::helpers::eventually;
use crate::helpers::programs::{
    SYNC_WORKER, TALLY, command, run, start_server, start_server_with, start_worker, stop, text,
};
use crate::helpers::stores::{Stores, blocker, until_blocked};

async fn rows(stores: &Stores) -> i64 {
    sqlx::query_scalar("select count(*) from vote")
        .fetch_one(&stores.pool())
        .await
        .expect("Postgres answers")
}

async fn audit(stores: &Stores, arguments: &[&str]) -> (Option<i32>, String) {
    let mut audit = command(TALLY, Some(stores));
    audit.arg("audit").args(arguments);
    let output = run(audit).await;
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn once_flushes_and_audits_and_exits_with_0_only_when_nothing_was_wrong() {
    let stores = Stores::start().await;
    // A count of a cold item that still has votes to be saved is put right by that save, not by the audit.
    let (_server, base) = start_server_with(&stores, "server", &[("TALLY_SEED", "all")]).await;
    let (code, output) = replay(&stores, &votes(20, 5), &base).await;
    assert_eq!(code, Some(0), "{output}");
    let once = || {
        let mut command = command(SYNC_WORKER, Some(&stores));
        command.arg("--once");
        run(command)
    };
    let output = once().await;
    assert!(
        output.status.success(),
        "{}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    assert_eq!(saved(&stores).await, (5, 100));
    sqlx::query("update item set vote_count = 7 where name = 'item3'")
        .execute(&stores.pool())
        .await
        .expect("an update");
    assert_eq!(
        audit(&stores, &[]).await.0,
        Some(1),
        "audit alone repairs nothing"
    );
    let output = once().await;
    assert_eq!(output.status.code(), Some(1), "--once reports and repairs");
    assert_eq!(saved(&stores).await, (5, 100));
    assert_eq!(audit(&stores, &[]).await.0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_with_repair_repairs_what_is_wrong() {
    let stores = Stores::start().await;
    let (_server, base) = start_server_with(&stores, "server", &[("TALLY_SEED", "all")]).await;
    replay(&stores, &votes(10, 3), &base).await;
    let mut redis = stores.redis_connection().await;
    testkit::counters::change(&mut redis, "tally:{1}", |parts| parts.count += 5)
        .await
        .expect("Redis");
    let short = [];
    let (code, report) = audit(&stores, &short).await;
    assert!(code == Some(1) && report.contains("by 5 votes"), "{report}");
    // The value that is wrong stands in the log, between the two that are right.
    let named = report.lines().find(|line| line.contains("a count is wrong"));
    assert!(
        named.is_some_and(
            |line| line.contains("item=1 by=5 exact=10 (10 up, 0 down) live=15 (15 up, 0 down) saved=")
        ),
        "{report}"
    );
    let (code, report) = audit(&stores, &["--repair"]).await;
    assert_eq!(code, Some(1), "{report}");
    assert_eq!(
        saved(&stores).await,
        (3, 30),
        "it does not leave the rebuild to a worker"
    );
    assert_eq!(audit(&stores, &short).await.0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_worker_flushes_at_sigterm_and_exits_with_0() {
    let stores = Stores::start().await;
    // All votes make live counts: what is cold is saved by each roll-up.
    let (_server, base) = start_server_with(&stores, "server", &[("TALLY_SEED", "all")]).await;
    // Its flushes are an hour apart, so only its last flush can have saved the counts.
    let worker = start_worker(&stores, "worker", &[("TALLY_FLUSH_EVERY", "1h")]);
    worker.wait_for_line("syncing").await;
    eventually("its first scan is over", async || {
        let mut redis = stores.redis_connection().await;
        redis::cmd("EXISTS")
            .arg("tally:unsaved_scan")
            .query_async::<bool>(&mut redis)
            .await
            .ok()?
            .then_some(())
    })
    .await;
    replay(&stores, &votes(10, 3), &base).await;
    assert_eq!(saved(&stores).await, (3, 0));
    stop(worker, Signal::SIGTERM).await;
    assert_eq!(saved(&stores).await, (3, 30));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_worker_stops_at_sigterm_in_the_middle_of_a_long_scan() {
    let stores = Stores::start().await;
    // All votes make live counts, which the scan saves.
    let (_server, base) = start_server_with(&stores, "server", &[("TALLY_SEED", "all")]).await;
    // The worker's scan is to be met, not its first entry into the epoch.
    let entered = run({
        let mut command = command(SYNC_WORKER, Some(&stores));
        command.arg("--once");
        command
    })
    .await;
    assert!(entered.status.success(), "{}", text(&entered.stderr));
    let items = 10_000;
    let (code, output) = replay(&stores, &votes(1, items), &base).await;
    assert_eq!(code, Some(0), "{output}");
    // A page is one counter, so the scan is long. The last flush has almost no time.
    let settings = [
        ("TALLY_FLUSH_PAGE", "1"),
        ("TALLY_LAST_FLUSH_LIMIT", "1ms"),
        ("TALLY_AUDIT_CRON", "0 0 0 1 1 *"),
    ];
    let mut worker = start_worker(&stores, "worker", &settings);
    eventually("some counts are saved", async || {
        (saved(&stores).await.1 > 0).then_some(())
    })
    .await;
    worker.signal(Signal::SIGTERM).expect("it runs");
    worker.wait_for_line("terminated").await;
    assert_eq!(worker.wait().await, Some(0));
    let (_, written) = saved(&stores).await;
    assert!(written < i64::try_from(items).expect("a number"), "{written}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_worker_stops_at_sigterm_while_it_enters_an_epoch_and_the_next_one_ends_what_it_began() {
    const ITEMS: usize = 5000;
    let stores = Stores::start().await;
    // All votes make live counts, which each first worker invalidates.
    let (_server, base) = start_server_with(&stores, "server", &[("TALLY_SEED", "all")]).await;
    let (code, output) = replay(&stores, &votes(1, ITEMS), &base).await;
    assert_eq!(code, Some(0), "{output}");
    let mut redis = stores.redis_connection().await;
    let live = async |redis: &mut _| {
        let mut live = 0;
        for item in 1..=ITEMS {
            let parts = testkit::counters::parts(redis, &format!("tally:{{{item}}}")).await;
            live += usize::from(parts.expect("Redis").live().is_some());
        }
        live
    };
    assert_eq!(live(&mut redis).await, ITEMS);
    // A page is one counter, so the entry is long.
    let settings = [("TALLY_FLUSH_PAGE", "1"), ("TALLY_AUDIT_CRON", "0 0 0 1 1 *")];
    let mut worker = start_worker(&stores, "worker", &settings);
    eventually("it enters the epoch", async || {
        let keys: Vec<String> = redis::cmd("KEYS")
            .arg("tally:entering*")
            .query_async(&mut redis.clone())
            .await
            .ok()?;
        (!keys.is_empty()).then_some(())
    })
    .await;
    worker.signal(Signal::SIGTERM).expect("it runs");
    worker.wait_for_line("terminated").await;
    assert_eq!(worker.wait().await, Some(0));
    assert!(live(&mut redis).await > 0, "some counts are left as they were");
    assert_eq!(
        saved(&stores).await.1,
        0,
        "and none is saved, since none is certain"
    );
    let _next = start_worker(&stores, "next", &[("TALLY_AUDIT_CRON", "0 0 0 1 1 *")]);
    let votes = i64::try_from(ITEMS).expect("a number");
    eventually("the next worker saves all votes", async || {
        (saved(&stores).await == (votes, votes)).then_some(())
    })
    .await;
    assert_eq!(audit(&stores, &[]).await.0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_servers_and_two_workers_are_exact_through_wipes_kills_and_expiry() {
    let stores = Stores::start().await;
    let (mut first, one) = start_server(&stores, "server1").await;
    let (_second, other) = start_server(&stores, "server2").await;
    let settings = [
        ("TALLY_FLUSH_EVERY", "20ms"),
        ("TALLY_RETENTION", "1ms"),
        ("TALLY_SCAN_EVERY", "50ms"),
        ("TALLY_AUDIT_CRON", "* * * * * *"),
    ];
    let mut worker = start_worker(&stores, "worker1", &settings);
    let _other_worker = start_worker(&stores, "worker2", &settings);
    let (voters, items) = (400, 20);
    let file = votes(voters, items);
    let both = format!("{one},{other}");
    let disturb = async {
        // Meanwhile Redis loses everything, twice, and a worker dies.
        for part in [1, 2] {
            eventually("some votes are cast", async || {
                (rows(&stores).await > part * 1000).then_some(())
            })
            .await;
            let mut redis = stores.redis_connection().await;
            let () = redis::cmd("FLUSHALL")
                .query_async(&mut redis)
                .await
                .expect("Redis answers");
        }
        worker.kill().await.expect("it runs");
    };
    let ((code, output), ()) = tokio::join!(replay(&stores, &file, &both), disturb);
    assert_eq!(code, Some(0), "{output}");
    let total = i64::try_from(voters * items).expect("a number");
    assert_eq!(rows(&stores).await, total);
    eventually("the items have all votes", async || {
        (saved(&stores).await == (20, total)).then_some(())
    })
    .await;
    // A server dies, too. Every vote that it acknowledged is stored.
    first.kill().await.expect("it runs");
    let (code, output) = replay(&stores, &file, &other).await;
    assert!(
        code == Some(0) && output.contains(&format!("repeated {total:>12}")),
        "{output}"
    );
    assert_eq!(rows(&stores).await, total);
    let (code, report) = audit(&stores, &[]).await;
    assert_eq!(code, Some(0), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_frozen_in_the_middle_of_an_audit_does_not_stop_the_others() {
    let stores = Stores::start().await;
    let (_server, base) = start_server(&stores, "server").await;
    replay(&stores, "ada item\nbob item\n", &base).await;
    // The worker's audit is about to move the watermark, and waits for the item's audited count.
    let pool = stores.pool();
    let blocker = blocker(&pool, "insert into audited_count values (1, 0, 0)").await;
    let settings = [("TALLY_AUDIT_CRON", "* * * * * *"), ("TALLY_FLUSH_EVERY", "1h")];
    let stopped = start_worker(&stores, "stopped", &settings);
    until_blocked(&pool, "-- Adds sums of votes").await;
    stopped.freeze().await.expect("it runs");
    blocker.rollback().await.expect("a rollback");
    // It has locked the rows now, in a transaction that does not go on.
    let _other = start_worker(&stores, "other", &[("TALLY_FLUSH_EVERY", "50ms")]);
    replay(&stores, "eve item\n", &base).await;
    eventually("the other worker flushes", async || {
        (saved(&stores).await == (1, 3)).then_some(())
    })
    .await;
    stopped.signal(Signal::SIGCONT).expect("it runs");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stored_but_uncounted_votes_of_a_killed_server_are_counted_once_its_connection_is_gone() {
    let stores = Stores::start().await;
    let (mut server, base) = start_server(&stores, "server").await;
    let http = reqwest::Client::new();
    let made = http
        .post(format!("{base}/v1/items"))
        .json(&json!({ "name": "item" }))
        .send()
        .await
        .expect("an answer");
    assert_eq!(made.status(), StatusCode::CREATED);
    let votes = format!("{base}/v1/items/1/votes");
    let vote = || http.post(&votes).json(&json!({ "voter_id": "ada" })).send();
    // A new epoch would rebuild everything anyway. So the first epoch is entered now.
    let mut once = command(SYNC_WORKER, Some(&stores));
    once.arg("--once");
    assert!(run(once).await.status.success());
    // The vote waits for another transaction with the same voter. Meanwhile the server is frozen.
    // So the vote is committed, and the server dies before it can count the vote.
    let pool = stores.pool();
    let blocker = blocker(&pool, "insert into vote (item_id, voter_id) values (1, 'ada')").await;
    let waiting = tokio::spawn(vote());
    until_blocked(&pool, "").await;
    server.freeze().await.expect("it runs");
    blocker.rollback().await.expect("a rollback");
    eventually("the vote is stored", async || {
        (rows(&stores).await == 1).then_some(())
    })
    .await;
    server.kill().await.expect("it runs");
    assert!(waiting.await.expect("no panic").is_err(), "never acknowledged");
    // No audit repairs the count.
    let settings = [("TALLY_AUDIT_CRON", "0 0 0 1 1 *")];
    let _worker = start_worker(&stores, "worker", &settings);
    eventually("the item has the vote", async || {
        (saved(&stores).await == (1, 1)).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_workers_metrics_can_be_read() {
    let stores = Stores::start().await;
    let port = tally::dev::free_port().expect("a port");
    let listen = format!("127.0.0.1:{port}");
    let _worker = start_worker(
        &stores,
        "worker",
        &[
            ("TALLY_WORKER_LISTEN", &listen),
            ("TALLY_AUDIT_CRON", "* * * * * *"),
        ],
    );
    eventually("the metrics show an audit", async || {
        let text = reqwest::get(format!("http://{listen}/metrics"))
            .await
            .ok()?
            .text()
            .await
            .ok()?;
        (text.contains("tally_audit_wrong_items_total 0")
            && text.contains("tally_oldest_unsaved_seconds")
            && text.contains("tally_audit_seconds_count 1"))
        .then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_is_ready_while_its_work_goes_well_and_live_all_the_time() {
    let mut stores = Stores::start().await;
    let port = tally::dev::free_port().expect("a port");
    let listen = format!("127.0.0.1:{port}");
    let settings = [("TALLY_WORKER_LISTEN", listen.as_str())];
    let worker = start_worker(&stores, "worker", &settings);
    let get = async |path: &str| {
        let answer = reqwest::get(format!("http://{listen}{path}")).await.ok()?;
        let status = answer.status();
        Some((status, answer.text().await.ok()?))
    };
    let until = async |status: StatusCode, says: &str| {
        eventually(&format!("ready says {says}"), async || {
            let (is, body) = get("/health/ready").await?;
            (is == status && body.contains(says)).then_some(())
        })
        .await;
    };
    until(StatusCode::OK, r#""status":"ready""#).await;
    stores.postgres.stop().await;
    let not_ready = StatusCode::SERVICE_UNAVAILABLE;
    until(not_ready, "Postgres is unavailable").await;
    let live = get("/health/live").await.expect("an answer");
    assert_eq!(live, (StatusCode::OK, r#"{"status":"live"}"#.to_owned()));
    stores.postgres.start().await.expect("Postgres starts");
    until(StatusCode::OK, r#""flush":"ready","roll_up":"ready""#).await;
    stores.redis.stop().await;
    until(not_ready, "Redis is unavailable").await;
    stores.redis.start().await.expect("Redis starts");
    until(StatusCode::OK, r#""status":"ready""#).await;
    // What hangs is not well either, but that takes a minute to say: see `sync::health`.
    let (status, body) = get("/whatever").await.expect("an answer");
    assert_eq!(status, StatusCode::NOT_FOUND, "{body}");
    let posted = reqwest::Client::new().post(format!("http://{listen}/health/live"));
    let posted = posted.send().await.expect("an answer");
    assert_eq!(posted.status(), StatusCode::METHOD_NOT_ALLOWED);
    stop(worker, Signal::SIGTERM).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_was_started_again_shows_when_each_job_last_ended_well() {
    let stores = Stores::start().await;
    let once = {
        let mut command = command(SYNC_WORKER, Some(&stores));
        command.arg("--once");
        run(command).await
    };
    assert!(once.status.success(), "{}", text(&once.stderr));
    let port = tally::dev::free_port().expect("a port");
    let listen = format!("127.0.0.1:{port}");
    // It does no audit of its own for long.
    let settings = [
        ("TALLY_WORKER_LISTEN", listen.as_str()),
        ("TALLY_AUDIT_CRON", "0 0 0 1 1 *"),
    ];
    let worker = start_worker(&stores, "worker", &settings);
    eventually("the metrics show the audit of another worker", async || {
        let answer = reqwest::get(format!("http://{listen}/metrics")).await.ok()?;
        let text = answer.text().await.ok()?;
        let shown = text
            .lines()
            .find_map(|line| line.strip_prefix(r#"tally_job_success_timestamp_seconds{job_name="audit"} "#));
        shown?.parse::<f64>().ok().filter(|seconds| *seconds > 1e9)
    })
    .await;
    stop(worker, Signal::SIGTERM).await;
}
