//! Settings as the programs take them: secrets from files, and what `tally config` shows.

use std::path::PathBuf;

use nix::sys::signal::Signal;
use tally::ledger::Role;

use crate::helpers::eventually;
use crate::helpers::programs::{TALLY, command, command_as, run, start, stop, text};
use crate::helpers::stores::Stores;

/// Writes a secret to a file beside the stores.
fn secret(stores: &Stores, name: &str, value: &str) -> PathBuf {
    let path = stores.folder().join(name);
    std::fs::write(&path, format!("{value}\n")).expect("a file");
    path
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_reads_its_secrets_from_files() {
    let stores = Stores::start().await;
    let mut serve = command_as(TALLY, Some((&stores, Role::Server)));
    let environment = stores.environment(Role::Server);
    for (variable, value) in environment {
        if ["DATABASE_URL", "REDIS_URL"].contains(&variable) {
            serve.env_remove(variable);
            serve.env(format!("{variable}_FILE"), secret(&stores, variable, &value));
        }
    }
    serve.arg("serve").env("TALLY_LISTEN", "127.0.0.1:0").env(
        "TALLY_COOKIE_KEYS_FILE",
        secret(&stores, "keys", &"ab".repeat(32)),
    );
    let server = start(serve, &stores, "server");
    let line = server.wait_for_line("address=").await;
    let base = format!(
        "http://{}",
        line.split("address=").nth(1).expect("an address").trim()
    );
    eventually("it is ready", async || {
        let answer = reqwest::get(format!("{base}/health/ready")).await.ok()?;
        let text = answer.text().await.ok()?;
        text.contains(r#""status":"ready""#).then_some(())
    })
    .await;
    let output = server.output();
    assert!(!output.contains("_FILE") && !output.contains("abab"), "{output}");
    stop(server, Signal::SIGTERM).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn config_shows_each_setting_with_its_source_and_no_secret() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("url");
    std::fs::write(&file, "redis://tally:hidden-in-a-file@redis/0").expect("a file");
    let mut config = command(TALLY, None);
    config
        .arg("config")
        .env(
            "DATABASE_URL",
            "postgres://tally:hidden-in-a-variable@postgres/tally",
        )
        .env("REDIS_URL_FILE", &file)
        .env("TALLY_LISTEN", "127.0.0.1:9");
    let shown = run(config).await;
    let shown_text = text(&shown.stdout);
    assert!(shown.status.success(), "{}", text(&shown.stderr));
    for line in [
        "# tally serve".to_owned(),
        "# sync-worker".to_owned(),
        "DATABASE_URL\t(secret)\tenvironment".to_owned(),
        format!("REDIS_URL\t(secret)\tfile {}", file.display()),
        "TALLY_LISTEN\t127.0.0.1:9\tenvironment".to_owned(),
        "TALLY_KEY_PREFIX\ttally:\tdefault".to_owned(),
        "TALLY_DRAIN\t-\tnot set".to_owned(),
        "TALLY_CREATE_ITEMS\tfalse\tdefault".to_owned(),
    ] {
        assert!(shown_text.lines().any(|one| one == line), "{line}: {shown_text}");
    }
    assert!(!shown_text.contains("hidden"), "{shown_text}");
    let mut wrong = command(TALLY, None);
    wrong
        .arg("config")
        .env("DATABASE_URL", "postgres://tally:hidden@postgres/tally?a@b")
        .env("REDIS_URL_FILE", &file);
    let wrong = run(wrong).await;
    let said = text(&wrong.stderr);
    assert_eq!(wrong.status.code(), Some(1), "{said}");
    assert!(
        said.contains("DATABASE_URL") && said.lines().count() == 1,
        "{said}"
    );
    assert!(!said.contains("hidden"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn completions_are_shell_and_manual_pages_name_each_command_and_no_secret() {
    let secret = "postgres://tally:hidden@postgres/tally";
    let folder = tempfile::tempdir().expect("a folder");
    for program in ["tally", "sync-worker"] {
        let mut completions = command(TALLY, None);
        completions
            .args(["completions", "bash", "--program", program])
            .env("DATABASE_URL", secret);
        let completions = run(completions).await;
        assert!(completions.status.success(), "{}", text(&completions.stderr));
        let path = folder.path().join(program);
        std::fs::write(&path, &completions.stdout).expect("a file");
        let mut parse = command("bash", None);
        parse.arg("-n").arg(&path);
        assert!(run(parse).await.status.success(), "{program}");
    }
    let mut manual = command(TALLY, None);
    manual.arg("man").arg(folder.path()).env("DATABASE_URL", secret);
    assert!(run(manual).await.status.success());
    for page in ["tally.1", "tally-serve.1", "tally-poll-make.1", "sync-worker.1"] {
        let written = std::fs::read_to_string(folder.path().join(page)).expect(page);
        assert!(
            written.contains(".TH") && !written.contains("hidden"),
            "{page}: {written}"
        );
    }
    let mut nowhere = command(TALLY, None);
    nowhere.arg("man").arg(folder.path().join("missing"));
    let nowhere = run(nowhere).await;
    let said = text(&nowhere.stderr);
    assert!(!nowhere.status.success() && said.lines().count() == 1, "{said}");
}
