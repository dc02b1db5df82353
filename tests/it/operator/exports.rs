//! `tally export`: tables as files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use sqlx::Connection as _;
use tally::ledger::Role;
use tokio::time::sleep;

use crate::helpers::programs::{TALLY, command_as, run, text};
use crate::helpers::stores::Stores;
use crate::helpers::tally::Tally;

/// Runs `tally export` as this role. Returns whether it succeeded, its output, and what it complains of.
pub async fn export(stores: &Stores, role: Role, arguments: &[&str]) -> (bool, String, String) {
    let mut command = command_as(TALLY, Some((stores, role)));
    command.arg("export").args(arguments);
    let output = run(command).await;
    (
        output.status.success(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// The same for an analyst, who may.
async fn exported(stores: &Stores, arguments: &[&str]) -> String {
    let (done, output, said) = export(stores, Role::Report, arguments).await;
    assert!(done, "{arguments:?}: {said}");
    output
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

/// An export without its first line.
fn rows(text: &str) -> &str {
    text.split_once('\n').expect("a first line").1
}

/// A Tally with this many votes, rolled up.
async fn with_votes(votes: i32) -> Tally {
    let tally = Tally::start().await;
    tally.item("Tea, \"green\", 茶").await;
    sqlx::query(
        "insert into vote (item_id, voter_id, value)
         select 1, case when n % 3 <> 0 then 'voter, \"' || n || '\"' end, case when n % 4 = 0 then -1 else 1 end
         from generate_series(1, $1) as n",
    )
    .bind(votes)
    .execute(&tally.pool)
    .await
    .expect("votes");
    tally.worker().roll_up().await.expect("the stores answer");
    tally
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_that_is_cut_off_anywhere_goes_on_to_the_same_rows() {
    let tally = with_votes(200).await;
    let stores = &tally.stores;
    let folder = stores.folder();
    for (format, lines_before_rows) in [("csv", 2), ("jsonl", 1)] {
        let whole = folder.join(format!("whole.{format}"));
        exported(stores, &["votes", "--format", format, "--out", path(&whole)]).await;
        let expected = std::fs::read_to_string(&whole).expect("a file");
        // Later votes are not of this export.
        tally.item("later").await;
        sqlx::query("insert into vote (item_id) values (1)")
            .execute(&tally.pool)
            .await
            .expect("a vote");
        tally.worker().roll_up().await.expect("the stores answer");
        let out = folder.join(format!("out.{format}"));
        let part = PathBuf::from(format!("{}.part", path(&out)));
        let head = expected.find('\n').expect("a first line") + 1;
        let cuts = (0..12).map(|_| rand::random_range(head..=expected.len()));
        for cut in cuts.chain([head, expected.len()]) {
            std::fs::write(&part, &expected.as_bytes()[..cut]).expect("written");
            exported(
                stores,
                &["votes", "--format", format, "--out", path(&out), "--resume"],
            )
            .await;
            let found = std::fs::read_to_string(&out).expect("a file");
            if rows(&found) != rows(&expected) {
                // Without a whole row, it begins anew, and takes what there is by now.
                let lines = expected[..cut].matches('\n').count();
                assert!(lines <= lines_before_rows, "cut at {cut}: {found}");
            }
            assert!(!part.exists());
            std::fs::remove_file(&out).expect("removed");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exports_that_are_killed_again_and_again_end_with_each_vote_once() {
    const KILLS: u32 = 20;
    let tally = with_votes(30_000).await;
    let stores = &tally.stores;
    let mut kills = 0;
    let mut exports = 0;
    while kills < KILLS {
        let out = stores.folder().join(format!("out-{exports}.csv"));
        let part = PathBuf::from(format!("{}.part", path(&out)));
        loop {
            let mut command = command_as(TALLY, Some((stores, Role::Report)));
            command.args(["export", "votes", "--out", path(&out)]);
            command
                .args(part.exists().then_some("--resume"))
                .kill_on_drop(true);
            let ended = tokio::select! {
                output = run(command) => Some(output),
                () = sleep(Duration::from_millis(rand::random_range(5..400))) => None,
            };
            let Some(output) = ended else {
                kills += 1;
                continue;
            };
            if output.status.success() {
                break;
            }
            // A killed one was done, and only its end was not seen.
            assert!(
                text(&output.stderr).contains("exists"),
                "{}",
                text(&output.stderr)
            );
            break;
        }
        let found = std::fs::read_to_string(&out).expect("a file");
        let mut ids = rows(&found).lines().skip(1).map(|row| row.split(',').next());
        for id in 1..=30_000 {
            assert_eq!(
                ids.next().flatten(),
                Some(id.to_string().as_str()),
                "export {exports}"
            );
        }
        assert_eq!(ids.next(), None, "export {exports}");
        assert!(!part.exists());
        exports += 1;
        assert!(exports < 500, "nothing can be killed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exports_after_each_other_have_each_vote_once_also_one_that_was_committed_late() {
    let tally = with_votes(10).await;
    let stores = &tally.stores;
    let mut connection = sqlx::PgConnection::connect(&stores.database_url)
        .await
        .expect("Postgres");
    let mut late = connection.begin().await.expect("a transaction");
    sqlx::query("insert into vote (item_id, voter_id) values (1, 'late')")
        .execute(&mut *late)
        .await
        .expect("a vote");
    let (mut after, mut seen) = (0, Vec::new());
    let mut late = Some(late);
    for round in 0..4 {
        sqlx::query("insert into vote (item_id) select 1 from generate_series(1, 5)")
            .execute(&tally.pool)
            .await
            .expect("votes");
        if round == 2 {
            let late = late.take().expect("a transaction");
            late.commit().await.expect("a commit");
        }
        // While a transaction with votes is open, a roll-up waits for it: the watermark stays.
        if late.is_none() {
            tally.worker().roll_up().await.expect("the stores answer");
        }
        let text = exported(
            stores,
            &["votes", "--format", "jsonl", "--after", &after.to_string()],
        )
        .await;
        let mut lines = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let head = lines.next().expect("a head");
        assert_eq!(
            (&head["export"], &head["after"]),
            (&json!("votes"), &json!(after))
        );
        after = head["until"].as_i64().expect("a number");
        seen.extend(lines.map(|row| row["id"].as_i64().expect("an id")));
    }
    let all: Vec<i64> = sqlx::query_scalar("select id from vote order by id")
        .fetch_all(&tally.pool)
        .await
        .expect("Postgres answers");
    assert_eq!(seen, all);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_table_is_exported_with_the_rights_that_it_takes_and_no_more() {
    let tally = with_votes(12).await;
    let stores = &tally.stores;
    let poll = json!({ "title": "Lunch, \"today\"", "choices": ["a", "b"], "key": "lunch" });
    tally.post("/v1/polls", &poll).await;
    for (table, has) in [
        ("votes", "\"voter, \"\"1\"\"\""),
        ("items", "\"Tea, \"\"green\"\", 茶\""),
        ("polls", "lunch,\"Lunch, \"\"today\"\"\""),
        ("results", "\"Lunch, \"\"today\"\"\""),
    ] {
        let csv = exported(stores, &[table]).await;
        assert!(csv.starts_with("# {") && csv.contains(has), "{table}: {csv}");
        let bare = exported(stores, &[table, "--no-head"]).await;
        assert_eq!(bare, rows(&csv));
        let names: BTreeSet<&str> = bare.lines().next().expect("names").split(',').collect();
        let json = exported(stores, &[table, "--format", "jsonl"]).await;
        let mut lines = json
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        assert_eq!(lines.next().expect("a head")["export"], table);
        let row = lines.next().expect("a row");
        let fields: BTreeSet<&str> = row
            .as_object()
            .expect("an object")
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(fields, names, "{table}");
    }
    let (done, _, said) = export(stores, Role::Report, &["trail"]).await;
    assert!(
        !done && said.contains("takes a login in the role tally_operator"),
        "{said}"
    );
    let (done, trail, said) = export(stores, Role::Operator, &["trail"]).await;
    assert!(done && trail.contains("poll.create"), "{said}{trail}");
    for role in [Role::Server, Role::Worker] {
        let (done, _, said) = export(stores, role, &["items"]).await;
        assert!(!done && said.contains("permission denied"), "{role:?}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_that_cannot_be_says_why_and_touches_no_file() {
    let tally = with_votes(3).await;
    let stores = &tally.stores;
    let out = stores.folder().join("there");
    let part = stores.folder().join("there.part");
    std::fs::write(&out, "mine").expect("written");
    let missing = stores.folder().join("none/votes.csv");
    for (arguments, words) in [
        (vec!["votes", "--out", path(&out)], "exists; name a new file"),
        (vec!["items", "--after", "5"], "are for votes"),
        (vec!["polls", "--out", "x", "--resume"], "are for votes"),
        (vec!["votes", "--after", "-1"], "it takes the id of a vote"),
        (vec!["votes", "--resume"], "--out"),
        (vec!["votes", "--out", path(&missing)], "cannot write"),
        (vec!["secrets"], "invalid value"),
    ] {
        let (done, output, said) = export(stores, Role::Report, &arguments).await;
        assert!(
            !done && said.contains(words) && output.is_empty(),
            "{arguments:?}: {said}"
        );
    }
    assert_eq!(std::fs::read_to_string(&out).expect("a file"), "mine");
    std::fs::remove_file(&out).expect("removed");
    for (content, words) in [
        ("mine\n", "does not begin as an export of votes does"),
        (
            "# {\"export\":\"votes\",\"tally\":\"other\",\"after\":0,\"until\":9}\nid,item_id\n1,1\n",
            "is of another Tally",
        ),
        (
            "# {\"export\":\"votes\",\"tally\":\"x\",\"after\":0,\"until\":9}\nid,item_id\n10,1\n",
            "which is not of this export",
        ),
    ] {
        std::fs::write(&part, content).expect("written");
        let (done, _, said) = export(stores, Role::Report, &["votes", "--out", path(&out), "--resume"]).await;
        assert!(!done && said.contains(words), "{said}");
        let (done, _, said) = export(stores, Role::Report, &["votes", "--out", path(&out)]).await;
        assert!(!done && said.contains("continue it with --resume"), "{said}");
        assert_eq!(std::fs::read_to_string(&part).expect("a file"), content);
    }
    std::fs::remove_file(&part).expect("removed");
    let (done, _, said) = export(stores, Role::Report, &["votes", "--out", path(&out), "--resume"]).await;
    assert!(!done && said.contains("nothing to continue"), "{said}");
}
