//! `tally dev`: all of Tally with one command, and nothing left behind.

use std::path::Path;

use nix::sys::signal::Signal;
use sqlx::Connection as _;
use testkit::programs::until_ready;
use testkit::stores::temporary_folder;
use tokio::process::Command;

use crate::helpers::eventually;
use crate::helpers::programs::{Program, TALLY, command, run, start, stop, text};
use crate::helpers::stores::Stores;

/// `tally dev` with its data in `folder`, on a free port.
fn dev(folder: &Path) -> Command {
    let mut dev = command(TALLY, None);
    dev.arg("dev")
        .arg("--folder")
        .arg(folder.join("data"))
        .env("TALLY_LISTEN", "127.0.0.1:0");
    dev
}

fn start_dev(folder: &Path, name: &str) -> Program {
    Program::start(dev(folder), folder, name).expect("the program starts")
}

async fn start_ready(folder: &Path, name: &str) -> (Program, String) {
    let program = start_dev(folder, name);
    let line = program.wait_for_line("Tally is at").await;
    let base = line.trim_start_matches("Tally is at ").trim_end_matches('/');
    until_ready(base).await.expect("a server that is ready");
    (program, base.to_owned())
}

/// The processes whose command line has this text.
fn processes_with(part: &str) -> Vec<String> {
    let own = std::process::id().to_string();
    std::fs::read_dir("/proc")
        .expect("/proc")
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy() != own)
        .filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
        .map(|bytes| String::from_utf8_lossy(&bytes).replace('\0', " "))
        .filter(|line| line.contains(part))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn dev_serves_keeps_its_data_over_a_restart_and_leaves_no_process_behind() {
    let folder = temporary_folder("dev-").expect("a folder");
    let place = folder.path().to_string_lossy().into_owned();
    let (program, base) = start_ready(folder.path(), "first").await;
    let http = reqwest::Client::new();
    let vote = |base: &str| http.post(format!("{base}/v1/items/1/votes")).body("").send();
    assert_eq!(vote(&base).await.expect("an answer").status(), 201);
    assert!(!processes_with(&place).is_empty());

    // A second `tally dev` in the same folder is refused in one line.
    let second = run(dev(folder.path())).await;
    assert!(!second.status.success());
    assert!(
        text(&second.stderr).contains("another tally dev"),
        "{}",
        text(&second.stderr)
    );

    stop(program, Signal::SIGINT).await;
    assert_eq!(processes_with(&place), Vec::<String>::new());

    let (mut program, base) = start_ready(folder.path(), "second").await;
    let list: serde_json::Value = reqwest::get(format!("{base}/v1/items?choices=false"))
        .await
        .expect("an answer")
        .json()
        .await
        .expect("JSON");
    assert_eq!(
        list["items"].as_array().map(Vec::len),
        Some(4),
        "the demo items, once"
    );
    assert_eq!(list["items"][0]["vote_count"], 1);

    // Even a killed `tally dev`, which cannot clean up, takes its stores with it.
    program.kill().await.expect("it runs");
    eventually("no process is left", async || {
        processes_with(&place).is_empty().then_some(())
    })
    .await;
}

/// What Postgres notes in this line of the file of its process: 0 its id, 3 its port.
fn noted(data: &Path, line: usize) -> Option<String> {
    let note = std::fs::read_to_string(data.join("postmaster.pid")).ok()?;
    note.lines().nth(line).map(|text| text.trim().to_owned())
}

async fn start_topology(folder: &Path, topology: &str, name: &str) -> (Program, String) {
    let mut dev = dev(folder);
    dev.args(["--topology", topology]);
    let program = Program::start(dev, folder, name).expect("the program starts");
    let line = program.wait_for_line("Tally is at").await;
    let base = line
        .trim_start_matches("Tally is at ")
        .trim_end_matches('/')
        .to_owned();
    until_ready(&base).await.expect("a server that is ready");
    (program, base)
}

/// The addresses that the greeting has.
fn addresses(program: &Program) -> Vec<String> {
    let output = program.output();
    let line = output
        .lines()
        .find(|line| line.contains("servers: http") || line.contains("Further servers"));
    let words = line.unwrap_or_default().split([' ', ',']);
    let found = words.filter(|word| word.starts_with("http"));
    found.map(|word| word.trim_end_matches('.').to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn dev_with_a_topology_has_two_of_each_program_and_outlives_the_primary_of_postgres_also_over_a_restart()
 {
    let folder = temporary_folder("dev-").expect("a folder");
    let place = folder.path().to_string_lossy().into_owned();
    let data = |name: &str| folder.path().join("data").join(name).join("data");
    let http = reqwest::Client::new();
    let vote = async |base: &str| {
        let sent = http
            .post(format!("{base}/v1/items/1/votes"))
            .body("")
            .send()
            .await;
        sent.expect("an answer").status().as_u16()
    };
    let (program, base) = start_topology(folder.path(), "sentinel", "first").await;
    let output = program.output();
    assert!(output.contains("Sentinels name the primary of Redis"), "{output}");
    // Behind HAProxy, or beside each other.
    let servers = addresses(&program);
    assert_eq!(
        servers.len() + usize::from(output.contains("Further")),
        2,
        "{output}"
    );
    for server in [&base].into_iter().chain(&servers) {
        // HAProxy may have looked at a server just before it was ready, and looks again a second later.
        eventually(&format!("{server} takes a vote"), async || {
            (vote(server).await == 201).then_some(())
        })
        .await;
    }
    let secret = std::fs::read_to_string(folder.path().join("data/secret")).expect("a password");
    let port = noted(&data("postgres-standby"), 3).expect("a standby");
    let url = format!("postgres://tally:{}@127.0.0.1:{port}/tally", secret.trim());
    let number = async |query: &'static str| -> i64 {
        let mut standby = sqlx::PgConnection::connect(&url).await.expect("a standby");
        sqlx::query_scalar(query)
            .fetch_one(&mut standby)
            .await
            .expect("an answer")
    };
    let votes = 1 + i64::try_from(servers.len()).expect("a few");
    eventually(
        "the standby has the votes, and there are two workers",
        async || {
            let found = (
                number("select count(*) from vote").await,
                number("select count(*) from worker").await,
            );
            (found.0 >= votes && found.1 == 2).then_some(())
        },
    )
    .await;

    let primary = noted(&data("postgres"), 0).expect("a primary");
    let primary = nix::unistd::Pid::from_raw(primary.parse().expect("a number"));
    nix::sys::signal::kill(primary, Signal::SIGQUIT).expect("it runs");
    assert_eq!(number("select pg_promote()::int::bigint").await, 1);
    eventually("votes are stored again", async || {
        (vote(&base).await == 201).then_some(())
    })
    .await;
    let votes = number("select count(*) from vote").await;
    stop(program, Signal::SIGINT).await;
    assert_eq!(processes_with(&place), Vec::<String>::new());

    // Also with one Postgres and one Redis.
    for topology in ["sentinel", "single"] {
        let (program, base) = start_topology(folder.path(), topology, topology).await;
        let item = reqwest::get(format!("{base}/v1/items/1"))
            .await
            .expect("an answer");
        let item: serde_json::Value = item.json().await.expect("JSON");
        assert_eq!(item["vote_count"], votes, "{topology}");
        stop(program, Signal::SIGINT).await;
        assert_eq!(processes_with(&place), Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dev_with_a_topology_at_an_address_that_another_program_has_says_so_in_one_line() {
    let folder = temporary_folder("dev-").expect("a folder");
    let place = folder.path().to_string_lossy().into_owned();
    let other = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = other.local_addr().expect("an address").to_string();
    let mut dev = dev(folder.path());
    dev.args(["--topology", "sentinel"]).env("TALLY_LISTEN", &taken);
    let output = run(dev).await;
    let errors = text(&output.stderr);
    assert!(!output.status.success());
    let says = |line: &&str| line.contains("TALLY_LISTEN") && line.contains(&taken);
    assert_eq!(errors.trim().lines().filter(says).count(), 1, "{errors}");
    assert_eq!(processes_with(&place), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn dev_with_the_topology_cluster_counts_and_leaves_no_process_behind_even_killed() {
    let folder = temporary_folder("dev-").expect("a folder");
    let place = folder.path().to_string_lossy().into_owned();
    let (mut program, base) = start_topology(folder.path(), "cluster", "first").await;
    let http = reqwest::Client::new();
    eventually("a vote is counted", async || {
        let sent = http
            .post(format!("{base}/v1/items/1/votes"))
            .body("")
            .send()
            .await;
        let answer = sent.expect("an answer");
        let is_stored = answer.status() == 201;
        let answer: serde_json::Value = answer.json().await.unwrap_or_default();
        (is_stored && answer["vote_count"].is_number()).then_some(())
    })
    .await;
    assert!(processes_with(&place).iter().any(|line| line.contains("cluster")));
    program.kill().await.expect("it runs");
    eventually("no process is left", async || {
        processes_with(&place).is_empty().then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dev_stopped_while_it_starts_can_be_started_again() {
    let folder = temporary_folder("dev-").expect("a folder");
    let place = folder.path().to_string_lossy().into_owned();
    let data = folder.path().join("data");
    // Three stages of the first start: initdb has begun, initdb has ended, Redis has its folder.
    // The first may be over before the test sees it.
    for stage in [
        &["postgres/data.new", "postgres/data"][..],
        &["postgres/data"],
        &["redis"],
    ] {
        // An earlier start may have got this far.
        let _ = std::fs::remove_dir_all(data.join("redis"));
        let program = start_dev(folder.path(), "stopped");
        eventually(&format!("{stage:?} exists"), async || {
            stage.iter().any(|one| data.join(one).exists()).then_some(())
        })
        .await;
        stop(program, Signal::SIGINT).await;
        eventually("no process is left", async || {
            processes_with(&place).is_empty().then_some(())
        })
        .await;
    }
    let (program, _) = start_ready(folder.path(), "last").await;
    stop(program, Signal::SIGINT).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dev_uses_given_stores_instead_of_its_own() {
    let stores = Stores::start().await;
    let mut dev = dev(stores.folder());
    // It also migrates, so it gets the owner's login.
    dev.env("DATABASE_URL", &stores.database_url)
        .env("REDIS_URL", stores.redis_url());
    let program = start(dev, &stores, "dev");
    program.wait_for_line("Tally is at").await;
    assert!(!stores.folder().join("data").exists());
    let items: i64 = sqlx::query_scalar("select count(*) from item")
        .fetch_one(&stores.pool())
        .await
        .expect("Postgres");
    assert_eq!(items, 7, "four items and the three choices of a poll");
    stop(program, Signal::SIGTERM).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dev_with_one_store_given_asks_for_the_other() {
    let mut dev = command(TALLY, None);
    dev.arg("dev").env("DATABASE_URL", "postgres://127.0.0.1:1/x");
    let output = run(dev).await;
    let errors = text(&output.stderr);
    assert!(
        !output.status.success() && errors.contains("redis-url"),
        "{errors}"
    );
    assert_eq!(errors.trim().lines().count(), 1, "{errors}");
}

/// The command lines that the greeting prints.
fn calls(program: &Program) -> Vec<String> {
    let output = program.output();
    let lines = output.lines().map(str::trim);
    lines
        .filter(|line| line.starts_with("curl "))
        .map(str::to_owned)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_dev_says_so_and_prints_a_key_with_which_its_calls_work_also_after_a_restart() {
    let folder = temporary_folder("dev-").expect("a folder");
    let mut keys = Vec::new();
    for (name, open, said) in [
        ("closed", "", "It is closed"),
        ("again", "", "It is closed"),
        ("admin", "admin", "what TALLY_OPEN has: admin."),
    ] {
        let mut dev = dev(folder.path());
        dev.env("TALLY_OPEN", open);
        let program = Program::start(dev, folder.path(), name).expect("the program starts");
        program.wait_for_line("Ctrl-C stops everything").await;
        let output = program.output();
        assert!(output.contains(said), "{output}");
        let key = output
            .split_once("This API key may do everything else: ")
            .and_then(|(_, rest)| rest.lines().next());
        keys.push(key.expect("a key").to_owned());
        let calls = calls(&program);
        assert_eq!(calls.len(), 3, "{output}");
        for call in calls {
            let answer = std::process::Command::new("sh")
                .args(["-c", &format!("{call} --fail-with-body")])
                .output()
                .expect("curl runs");
            assert!(answer.status.success(), "{call}: {}", text(&answer.stdout));
        }
        stop(program, Signal::SIGINT).await;
    }
    // The key is kept, so that whoever has set it may go on.
    assert_eq!(keys[0], keys[1]);
    assert_eq!(keys[0], keys[2]);
}
