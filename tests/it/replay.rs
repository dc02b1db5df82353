//! `tally replay`, run as by an operator.

use std::path::PathBuf;

use crate::helpers::programs::{TALLY, command, run, text};
use crate::helpers::tally::Tally;

async fn replay(tally: &Tally, file: &str, options: &[&str]) -> (Option<i32>, String, String) {
    let path: PathBuf = tally.stores.folder().join("votes.txt");
    std::fs::write(&path, file).expect("a file");
    let mut command = command(TALLY, None);
    command
        .arg("replay")
        .arg(&path)
        .args(["--url", &tally.base])
        .args(options);
    let output = run(command).await;
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn has(report: &str, word: &str, number: u32) -> bool {
    report
        .lines()
        .any(|line| line.split_whitespace().eq([word, &number.to_string()]))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_cast_once_and_the_second_time_is_all_repeats() {
    let tally = Tally::start().await;
    let file: String = (0..500)
        .map(|vote| format!("voter{}\titem{}\n", vote / 10, vote % 10))
        .collect();
    let (code, report, errors) = replay(&tally, &file, &["--connections", "8"]).await;
    assert_eq!(code, Some(0), "{report}{errors}");
    assert!(
        has(&report, "accepted", 500) && has(&report, "failed", 0) && report.contains("p99"),
        "{report}"
    );
    let (code, report, _) = replay(&tally, &file, &[]).await;
    assert!(
        code == Some(0) && has(&report, "accepted", 0) && has(&report, "repeated", 500),
        "{report}"
    );
    tally.worker().flush_until_quiescent().await.expect("a flush");
    let (items, votes): (i64, i64) = sqlx::query_as("select count(*), sum(vote_count)::bigint from item")
        .fetch_one(&tally.pool)
        .await
        .expect("Postgres answers");
    assert_eq!((items, votes), (10, 500));
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_values_and_a_fixed_rate_are_chosen_by_option() {
    let tally = Tally::start().await;
    let file = "x,1,ada\nx,-1,bob\ny,-1,ada\n";
    let options = ["--item", "1", "--value", "2", "--voter", "3", "--rate", "1000"];
    let (code, report, errors) = replay(&tally, file, &options).await;
    assert_eq!(code, Some(0), "{report}{errors}");
    let sums: Vec<(String, i64)> = sqlx::query_as(
        "select name, sum(value)::bigint from item join vote on item_id = item.id group by name order by name",
    )
    .fetch_all(&tally.pool)
    .await
    .expect("Postgres answers");
    assert_eq!(sums, [("x".to_owned(), 0), ("y".to_owned(), -1)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_lines_are_named_and_the_other_lines_are_cast() {
    let tally = Tally::start().await;
    let (code, report, errors) = replay(&tally, "ada x\nbob\neve x\n", &[]).await;
    assert_eq!(code, Some(1), "not every line became a vote");
    assert!(errors.contains("line 2:"), "{errors}");
    assert!(has(&report, "accepted", 2), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_server_or_a_file_it_says_so_in_one_line() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), "ada x\n").expect("a file");
    let mut nowhere = command(TALLY, None);
    nowhere
        .arg("replay")
        .arg(file.path())
        .args(["--url", "http://127.0.0.1:1"]);
    let output = run(nowhere).await;
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        errors.lines().count() == 1 && errors.contains("http://127.0.0.1:1"),
        "{errors}"
    );
    let mut missing = command(TALLY, None);
    missing.args(["replay", "/nowhere/votes.txt"]);
    let output = run(missing).await;
    let errors = text(&output.stderr);
    assert!(
        output.status.code() == Some(1) && errors.lines().count() == 1,
        "{errors}"
    );
}
