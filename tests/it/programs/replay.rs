//! `tally replay`, as an operator runs it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use tally::domain::{Count, ItemId};

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
    let wanted = format!("{word} {number}");
    report
        .lines()
        .any(|line| line.split_whitespace().eq(wanted.split_whitespace()))
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
        has(&report, "new", 500) && has(&report, "failed", 0) && report.contains("p99"),
        "{report}"
    );
    let (code, report, _) = replay(&tally, &file, &[]).await;
    assert!(
        code == Some(0) && has(&report, "new", 0) && has(&report, "repeated", 500),
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
    assert!(has(&report, "new", 2), "{report}");
}

/// What every voter holds after these lines, in order.
/// Also how many lines were new, changed, taken back and repeated.
fn after(lines: &[(String, String, i16)]) -> (BTreeMap<(String, String), i16>, [u32; 4]) {
    let mut held = BTreeMap::new();
    let mut times = [0; 4];
    for (voter, item, rating) in lines {
        let key = (voter.clone(), item.clone());
        let value = rating.signum();
        let before = if value == 0 {
            held.remove(&key)
        } else {
            held.insert(key, value)
        };
        times[match (before, value) {
            (None, 0) => 3,
            (None, _) => 0,
            (Some(_), 0) => 2,
            (Some(before), _) if before == value => 3,
            (Some(_), _) => 1,
        }] += 1;
    }
    (held, times)
}

/// What every voter holds, by the ledger.
async fn held(tally: &Tally) -> BTreeMap<(String, String), i16> {
    let rows: Vec<(String, String, i16)> = sqlx::query_as(
        "select voter_id, name, sum(value)::smallint from vote join item on item.id = item_id
         group by voter_id, name having sum(value) <> 0",
    )
    .fetch_all(&tally.pool)
    .await
    .expect("Postgres answers");
    rows.into_iter()
        .map(|(voter, item, value)| ((voter, item), value))
        .collect()
}

/// Checks ledger, saved counts and live counts, and that rows are consistent.
async fn assert_counts(tally: &Tally, held: &BTreeMap<(String, String), i16>) {
    let items: Vec<(i64, String)> = sqlx::query_as("select id, name from item")
        .fetch_all(&tally.pool)
        .await
        .expect("Postgres answers");
    for (id, name) in items {
        let id = ItemId::new(id).expect("positive");
        tally.assert_exact_when_quiescent(id).await;
        let values = held.iter().filter(|((_, item), _)| *item == name);
        let count = values.fold(Count::default(), |count, (_, value)| Count {
            net: count.net + i64::from(*value),
            downs: count.downs + i64::from(*value < 0),
        });
        assert_eq!(tally.saved(id).await.saved_count, count, "{name}");
        let counter = tally.counters.read(&[id]).await.expect("Redis answers").remove(0);
        assert_eq!(counter.count.map(|(live, _)| live), Some(count), "{name}");
    }
    let broken = testkit::rules::broken(&tally.pool).await;
    assert_eq!(broken.expect("Postgres answers"), Vec::<String>::new());
}

fn file(lines: &[(String, String, i16)]) -> String {
    let line = |(voter, item, rating): &(String, String, i16)| format!("{voter},{item},{rating}\n");
    lines.iter().map(line).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn ratings_are_cast_changed_and_taken_back_in_the_order_of_the_file_over_two_servers() {
    let tally = Tally::start().await;
    let both = format!("{},{}", tally.base, tally.another_server().await);
    let mut random = SmallRng::seed_from_u64(13);
    // Few voters and items: most lines have an earlier one right before them.
    let lines: Vec<(String, String, i16)> = (0..500)
        .map(|_| {
            // Names that a URL must encode.
            let voter = format!("vöter /{}?", random.random_range(0..5));
            let item = format!("item {}", random.random_range(0..4));
            (voter, item, random.random_range(-2..=2))
        })
        .collect();
    let options = ["--rating", "3", "--url", &both, "--connections", "32"];
    let (code, report, errors) = replay(&tally, &file(&lines), &options).await;
    assert_eq!(code, Some(0), "{report}{errors}");
    let (end, [new, changed, taken_back, repeated]) = after(&lines);
    for (word, times) in [
        ("new", new),
        ("changed", changed),
        ("taken back", taken_back),
        ("repeated", repeated),
        ("refused", 0),
        ("failed", 0),
    ] {
        assert!(has(&report, word, times), "{word} {times}: {report}");
    }
    assert!(
        report.contains("4 of 4 items have the counts of the file"),
        "{report}"
    );
    assert_eq!(held(&tally).await, end);
    assert_counts(&tally, &end).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rating_is_compared_with_the_neutral_one_and_items_that_were_there_may_hold_other_votes() {
    let tally = Tally::start().await;
    let old = tally.item("old").await;
    tally.vote(old, "eve").await;
    let file = "rating,voter,item\n4.5,ada,old\n3,bob,new\n0.5,cyd,new\n2,ada,new\n3,ada,new\n";
    let options = ["--rating", "1", "--voter", "2", "--item", "3", "--neutral", "3"];
    let (code, report, errors) = replay(&tally, file, &options).await;
    assert_eq!(code, Some(1), "the first line holds names: {report}");
    assert!(errors.contains("line 1: rating is \"rating\""), "{errors}");
    assert!(
        has(&report, "new", 3) && has(&report, "taken back", 1) && has(&report, "repeated", 1),
        "{report}"
    );
    assert!(
        report.contains("The file leaves 1 up-votes and 1 down-votes of 2 voters.")
            && report.contains("1 of 2 items have the counts of the file.")
            && report.contains("2 up and 0 down; by the file 1 and 0; it was there before"),
        "{report}"
    );
    let file = file.split_once('\n').expect("lines").1;
    let (code, report, errors) = replay(&tally, file, &options).await;
    assert_eq!(code, Some(0), "the same lines end the same: {report}{errors}");
}

/// The poll's counts by name, and its turnout.
async fn poll(tally: &Tally) -> (BTreeMap<String, i64>, i64) {
    let (_, poll) = tally.get("/v1/polls/1").await;
    let counts = poll["choices"].as_array().expect("choices").iter().map(|one| {
        let name = one["name"].as_str().expect("a name").to_owned();
        (name, one["vote_count"].as_i64().expect("a count"))
    });
    (counts.collect(), poll["voter_count"].as_i64().expect("a turnout"))
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_poll_with_one_choice_each_line_moves_the_voters_vote() {
    let tally = Tally::start().await;
    let both = format!("{},{}", tally.base, tally.another_server().await);
    let mut random = SmallRng::seed_from_u64(17);
    let mut end: BTreeMap<String, String> = BTreeMap::new();
    let (mut file, mut moved, mut repeated) = (String::new(), 0, 0);
    for _ in 0..500 {
        let voter = format!("voter{}", random.random_range(0..7));
        let choice = format!("choice{}", random.random_range(0..3));
        file += &format!("{voter} {choice}\n");
        match end.insert(voter, choice.clone()) {
            Some(before) if before == choice => repeated += 1,
            Some(_) => moved += 1,
            None => {}
        }
    }
    let options = ["--poll", "Lunch?", "--url", &both, "--connections", "32"];
    let (code, report, errors) = replay(&tally, &file, &options).await;
    assert_eq!(code, Some(0), "{report}{errors}");
    assert!(
        has(&report, "new", 7) && has(&report, "changed", moved) && has(&report, "repeated", repeated),
        "{moved} {repeated}: {report}"
    );
    assert!(
        report.contains("poll 1: Lunch?") && report.contains("The results are those of the file."),
        "{report}"
    );
    let mut counts: BTreeMap<String, i64> = (0..3).map(|at| (format!("choice{at}"), 0)).collect();
    for choice in end.values() {
        *counts.get_mut(choice).expect("a choice") += 1;
    }
    assert_eq!(poll(&tally).await, (counts, 7));
    let end = end.into_iter().map(|key| (key, 1)).collect();
    assert_eq!(held(&tally).await, end);
    assert_counts(&tally, &end).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_poll_a_choice_too_many_is_refused_and_a_rating_takes_a_choice_back() {
    let tally = Tally::start().await;
    let file = "ada x 1\nada y 2\nada z 1\nada y -1\nada y 0\nada w 1\nbob z 1\nbob z 0\n";
    let options = ["--poll", "Lunch?", "--max-choices", "2", "--rating", "3"];
    let (code, report, _) = replay(&tally, file, &options).await;
    assert_eq!(code, Some(1), "not every line took effect");
    for (word, times) in [
        ("new", 4),
        ("changed", 0),
        ("taken back", 2),
        ("repeated", 1),
        ("refused", 1),
    ] {
        assert!(has(&report, word, times), "{word}: {report}");
    }
    assert!(
        report.contains("1 × refused: 409") && report.contains("The results are those of the file."),
        "{report}"
    );
    let counts = [("w", 1), ("x", 1), ("y", 0), ("z", 0)].map(|(name, count)| (name.to_owned(), count));
    assert_eq!(poll(&tally).await, (counts.into(), 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn results_and_counts_that_are_not_those_of_the_file_are_shown_and_are_a_failure() {
    let tally = Tally::start().await;
    // Every item begins with a vote that is in no file.
    sqlx::raw_sql(
        "create function meddle() returns trigger security definer language plpgsql as $$
         begin
             insert into vote (item_id, voter_id, value, poll_id) values (new.id, 'eve', 1, new.rule_id);
             return null;
         end $$;
         create trigger meddle after insert on item for each row execute function meddle()",
    )
    .execute(&tally.pool)
    .await
    .expect("a trigger");
    let (code, report, _) = replay(&tally, "ada x\n", &["--poll", "Lunch?"]).await;
    assert_eq!(code, Some(1), "{report}");
    assert!(
        report.contains("x (by the file: 1)") && report.contains("The results are NOT those of the file."),
        "{report}"
    );
    let (code, report, _) = replay(&tally, "ada y -1\n", &["--rating", "3"]).await;
    assert_eq!(code, Some(1), "{report}");
    assert!(
        report.contains("0 of 1 items have the counts of the file.")
            && report.contains("1 up and 1 down; by the file 0 and 1"),
        "{report}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_with_too_many_items_for_a_poll_is_refused_in_one_line_and_nothing_is_made() {
    let tally = Tally::start().await;
    let file: String = (0..101).map(|item| format!("ada item{item}\n")).collect();
    let (code, _, errors) = replay(&tally, &file, &["--poll", "Lunch?"]).await;
    assert_eq!(code, Some(1));
    assert!(
        errors.lines().count() == 1
            && errors.contains("101 different items; a poll takes at most 100 choices"),
        "{errors}"
    );
    let items = tally.get("/v1/items").await.1;
    assert_eq!(items["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn options_that_contradict_each_other_are_refused_in_one_line_that_names_them() {
    for (options, named) in [
        (vec!["--value", "3", "--rating", "3"], "--rating"),
        (vec!["--value", "3", "--poll", "x"], "--poll"),
        (vec!["--neutral", "3"], "--rating"),
        (vec!["--max-choices", "2"], "--poll"),
        (vec!["--rating", "3", "--voter", "0"], "--voter"),
        (vec!["--poll", "x", "--voter", "0"], "--voter"),
        (vec!["--rating", "0"], "--rating"),
        (vec!["--rating", "3", "--neutral", "nan"], "--neutral"),
        (vec!["--poll", " "], "--poll"),
        (vec!["--poll", "x", "--max-choices", "101"], "--max-choices"),
        (vec!["--poll", "x", "--max-choices=-1"], "--max-choices"),
    ] {
        let mut replay = command(TALLY, None);
        replay.args(["replay", "/dev/null"]).args(&options);
        let output = run(replay).await;
        let errors = text(&output.stderr);
        assert!(!output.status.success(), "{options:?}");
        assert!(
            errors.lines().count() == 1 && errors.contains(named),
            "{options:?}: {errors}"
        );
    }
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
