//! `tally dev`: everything with one command, and nothing left behind.

use std::path::Path;

use nix::sys::signal::Signal;
use tally::dev::usable_folder;

use crate::helpers::eventually;
use crate::helpers::programs::{Program, TALLY, command, run, text};
use crate::helpers::stores::Stores;

fn folder() -> tempfile::TempDir {
    let base = Path::new(env!("CARGO_TARGET_TMPDIR"));
    std::fs::create_dir_all(base).expect("a folder");
    let base = usable_folder(&base.canonicalize().expect("a folder")).expect("a folder");
    let folder = tempfile::Builder::new()
        .prefix("dev-")
        .tempdir_in(base)
        .expect("a folder");
    let open = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).expect("permissions");
    folder
}

async fn start(folder: &Path, name: &str) -> (Program, String) {
    let mut dev = command(TALLY, None);
    dev.arg("dev")
        .arg("--folder")
        .arg(folder.join("data"))
        .env("TALLY_LISTEN", "127.0.0.1:0");
    let program = Program::start(dev, folder, name);
    let line = program.wait_for_line("Tally is at").await;
    let base = line
        .trim_start_matches("Tally is at ")
        .trim_end_matches('/')
        .to_owned();
    eventually("it is ready", async || {
        let answer = reqwest::get(format!("{base}/health/ready")).await.ok()?;
        let body: serde_json::Value = answer.json().await.ok()?;
        (body["status"] == "ready").then_some(())
    })
    .await;
    (program, base)
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
    let folder = folder();
    let mark = folder.path().to_string_lossy().into_owned();
    let (program, base) = start(folder.path(), "first.log").await;
    let http = reqwest::Client::new();
    let vote = |base: &str| http.post(format!("{base}/v1/items/1/votes")).body("").send();
    assert_eq!(vote(&base).await.expect("an answer").status(), 201);
    assert!(!processes_with(&mark).is_empty());

    // A second one in the same folder is turned away in one line.
    let mut second = command(TALLY, None);
    second
        .arg("dev")
        .arg("--folder")
        .arg(folder.path().join("data"))
        .env("TALLY_LISTEN", "127.0.0.1:0");
    let second = run(second).await;
    assert!(!second.status.success());
    assert!(
        text(&second.stderr).contains("another tally dev"),
        "{}",
        text(&second.stderr)
    );

    program.signal(Signal::SIGINT);
    assert_eq!(program.wait().await, Some(0));
    assert_eq!(processes_with(&mark), Vec::<String>::new());

    let (program, base) = start(folder.path(), "second.log").await;
    let list: serde_json::Value = reqwest::get(format!("{base}/v1/items"))
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

    // Killed without a chance to clean up, it takes its stores with it all the same.
    program.kill().await;
    eventually("no process is left", async || {
        processes_with(&mark).is_empty().then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dev_stopped_while_it_starts_leaves_nothing_that_a_next_start_minds() {
    let folder = folder();
    let mark = folder.path().to_string_lossy().into_owned();
    let data = folder.path().join("data");
    // At three stages of the first start: initdb has begun, is done, Redis is there.
    // What is looked for may be over before it is seen, but for the last.
    for stage in [
        &["postgres/data.new", "postgres/data"][..],
        &["postgres/data"],
        &["redis"],
    ] {
        // An earlier start may have come as far.
        let _ = std::fs::remove_dir_all(data.join("redis"));
        let mut dev = command(TALLY, None);
        dev.arg("dev")
            .arg("--folder")
            .arg(&data)
            .env("TALLY_LISTEN", "127.0.0.1:0");
        let program = Program::start(dev, folder.path(), "stopped.log");
        eventually(&format!("{stage:?} is there"), async || {
            stage.iter().any(|one| data.join(one).exists()).then_some(())
        })
        .await;
        program.signal(Signal::SIGINT);
        assert_eq!(program.wait().await, Some(0));
        eventually("no process is left", async || {
            processes_with(&mark).is_empty().then_some(())
        })
        .await;
    }
    let (program, _) = start(folder.path(), "last.log").await;
    program.signal(Signal::SIGINT);
    assert_eq!(program.wait().await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn dev_uses_given_stores_instead_of_its_own() {
    let stores = Stores::start().await;
    let mut dev = command(TALLY, Some(&stores));
    let data = stores.folder().join("data");
    dev.arg("dev")
        .arg("--folder")
        .arg(&data)
        // It migrates as well, so it is given the owner's login.
        .env("DATABASE_URL", &stores.database_url)
        .env("TALLY_LISTEN", "127.0.0.1:0");
    let program = Program::start(dev, stores.folder(), "dev.log");
    program.wait_for_line("Tally is at").await;
    assert!(!data.exists());
    let items: i64 = sqlx::query_scalar("select count(*) from item")
        .fetch_one(&stores.pool())
        .await
        .expect("Postgres");
    assert_eq!(items, 4);
    program.signal(Signal::SIGTERM);
    assert_eq!(program.wait().await, Some(0));
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
