//! `tally doctor` on real installations: a well one, and more than thirty broken ones.

mod addresses;
mod of_postgres;
mod of_redis;

use serde_json::Value;

use crate::helpers::eventually;
use crate::helpers::metrics::samples;
use crate::helpers::programs::{Program, TALLY, command, run, start_server, start_worker, text};
use crate::helpers::stores::Stores;

/// What every test's installation has: each is of one machine, for a short time.
const OF_TESTS: [&str; 4] = [
    "fsync",
    "shows no standby",
    "one worker runs",
    "does not see how long",
];

/// The exit code, and what it says of what is not well, but for what every test's installation has.
async fn doctor(stores: &Stores) -> (Option<i32>, Vec<String>) {
    doctor_with(stores, &[]).await
}

/// The same with these settings instead of the stores'.
async fn doctor_with(stores: &Stores, settings: &[(&str, &str)]) -> (Option<i32>, Vec<String>) {
    let mut doctor = command(TALLY, Some(stores));
    doctor.args(["doctor", "--json"]).envs(settings.iter().copied());
    let said = run(doctor).await;
    let report: Value = serde_json::from_slice(&said.stdout).unwrap_or_else(|error| {
        panic!("{error}: {} {}", text(&said.stdout), text(&said.stderr));
    });
    let findings = report["findings"].as_array().expect("a list").iter();
    let bad = findings.filter(|one| one["level"] != "well");
    let bad = bad.map(|one| {
        assert!(
            one["do"].as_str().is_some_and(|remedy| !remedy.is_empty()),
            "{one}"
        );
        format!("{}: {}", one["level"].as_str().expect("a level"), one["what"])
    });
    let bad = bad.filter(|one| !OF_TESTS.iter().any(|words| one.contains(words)));
    (said.status.code(), bad.collect())
}

/// Waits until it says these words of something that is not well. Something wrong is an exit code of 1.
async fn finds(stores: &Stores, words: &str) {
    finds_with(stores, &[], words).await;
}

async fn finds_with(stores: &Stores, settings: &[(&str, &str)], words: &str) {
    let mut said = Vec::new();
    let found = testkit::until(words, testkit::CONDITION_LIMIT, async || {
        let (code, bad) = doctor_with(stores, settings).await;
        let is_wrong = bad.iter().any(|one| one.starts_with("wrong"));
        assert_eq!(code, Some(i32::from(is_wrong)), "{bad:?}");
        let is_said = bad.iter().any(|one| one.contains(words));
        said = bad;
        is_said.then_some(())
    });
    let found = found.await;
    assert!(found.is_ok(), "it does not say {words:?}, but: {said:#?}");
}

async fn finds_nothing(stores: &Stores) {
    let mut said = Vec::new();
    let well = testkit::until("all is well", testkit::CONDITION_LIMIT, async || {
        said = doctor(stores).await.1;
        said.is_empty().then_some(())
    });
    let well = well.await;
    assert!(well.is_ok(), "something is found: {said:#?}");
}

/// An installation with a server and a worker that audits each second, in which nothing is found.
async fn well_installation() -> (Stores, [Program; 2]) {
    let stores = Stores::start().await;
    let (server, _) = start_server(&stores, "server").await;
    let worker = start_worker(&stores, "worker", &[("TALLY_AUDIT_CRON", "* * * * * *")]);
    finds_nothing(&stores).await;
    (stores, [server, worker])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_doctor_finds_nothing_where_all_is_well_and_says_it_to_people_too() {
    let stores = Stores::start().await;
    finds(&stores, "no worker runs").await;
    finds(&stores, "the job roll_up was never done").await;
    drop(stores);
    let (stores, _programs) = well_installation().await;
    let mut plain = command(TALLY, Some(&stores));
    plain.arg("doctor");
    let plain = run(plain).await;
    let said = text(&plain.stdout);
    // This Postgres has fsync off.
    assert!(
        said.contains("look   fsync") && said.contains("       do: "),
        "{said}"
    );
    assert!(said.contains("well   Postgres archives no WAL itself"), "{said}");
    assert_eq!(plain.status.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_shows_how_much_a_doctor_would_find() {
    let stores = Stores::start().await;
    let port = tally::dev::free_port().expect("a port");
    let address = format!("127.0.0.1:{port}");
    let _worker = start_worker(&stores, "worker", &[("TALLY_WORKER_LISTEN", &address)]);
    let sample = async |name: &str| {
        let shown = samples(&format!("http://{address}")).await?;
        shown.get(name).copied()
    };
    // One worker, no standby, fsync off.
    eventually("the findings are shown", async || {
        (sample("tally_doctor_findings{level=\"look\"}").await? >= 3.0).then_some(())
    })
    .await;
    for (name, least) in [
        ("tally_redis_memory_bytes{state=\"used\"}", 1e5),
        ("tally_postgres_connections{state=\"used\"}", 1.0),
        ("tally_postgres_connections{state=\"limit\"}", 10.0),
        ("tally_postgres_size_bytes", 1e6),
        ("tally_postgres_unfrozen_transactions", 1.0),
    ] {
        assert!(sample(name).await.is_some_and(|value| value >= least), "{name}");
    }
    assert_eq!(
        sample("tally_redis_memory_bytes{state=\"limit\"}").await,
        Some(0.0)
    );
    assert_eq!(
        sample("tally_postgres_prepared_transaction_seconds").await,
        Some(0.0)
    );
    for clock in ["tally_clock_ahead_seconds", "tally_redis_clock_ahead_seconds"] {
        assert!(
            sample(clock).await.is_some_and(|seconds| seconds.abs() < 60.0),
            "{clock}"
        );
    }
}
