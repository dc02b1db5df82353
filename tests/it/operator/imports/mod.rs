//! `tally import`: files as votes, items and polls.

mod files;

use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use sqlx::PgPool;
use tally::ledger::Role;
use tokio::time::sleep;

use crate::helpers::eventually;
use crate::helpers::programs::{Program, TALLY, command, command_as, run, start_worker, text};
use crate::helpers::stores::Stores;
use crate::helpers::tally::Tally;
use crate::operator::exports::export;
use crate::reports::random_ledger;

/// Runs `tally import` as an operator. Returns whether every line is stored, the result, and what it complains of.
async fn import(stores: &Stores, arguments: &[&str]) -> (bool, Value, String) {
    let mut command = command_as(TALLY, Some((stores, Role::Operator)));
    command.arg("import").args(arguments).arg("--json");
    let output = run(command).await;
    let result = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (output.status.success(), result, text(&output.stderr))
}

/// A new file with this content.
fn file(stores: &Stores, name: &str, content: &str) -> PathBuf {
    let path = stores.folder().join(name);
    std::fs::write(&path, content).expect("written");
    path
}

fn shown(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

async fn number(pool: &PgPool, query: &str) -> i64 {
    sqlx::query_scalar(query)
        .fetch_one(pool)
        .await
        .expect("Postgres answers")
}

/// A Tally with a sync worker.
async fn start() -> (Tally, Program) {
    let tally = Tally::start().await;
    let worker = start_worker(&tally.stores, "worker", &[]);
    (tally, worker)
}

/// Every count is right and every rule holds, as `tally audit` sees them.
pub async fn assert_exact(tally: &Tally) {
    eventually("all counts are exact", async || {
        let mut audit = command(TALLY, Some(&tally.stores));
        audit.arg("audit");
        let output = run(audit).await;
        let said = text(&output.stdout);
        assert!(
            said.contains("wrong              0 items") && said.contains("rules              0 faults"),
            "{said}"
        );
        (said.contains("in flight          0 items") && said.contains("rebuilding         0 items"))
            .then_some(())
    })
    .await;
}

/// Exports a table to a file, as another Tally would: all Tallys of the tests are copies of one.
async fn export_of_other(stores: &Stores, path: &Path, arguments: &[&str]) {
    let arguments = [arguments, &["--out", shown(path)]].concat();
    let (done, _, said) = export(stores, Role::Report, &arguments).await;
    assert!(done, "{said}");
    let identity: String = sqlx::query_scalar("select id from identity")
        .fetch_one(&stores.pool())
        .await
        .expect("Postgres answers");
    let content = std::fs::read_to_string(path).expect("a file");
    assert!(content.contains(&identity), "{}", &content[..200]);
    std::fs::write(path, content.replace(&identity, "another Tally")).expect("written");
}

/// Waits until every vote so far is rolled up.
async fn roll_up(tally: &Tally) {
    eventually("no vote is in flight", async || {
        let left = number(
            &tally.pool,
            "select last_value - vote_id from vote_id_seq, watermark",
        )
        .await;
        (left == 0).then_some(())
    })
    .await;
}

/// What must be the same after an export and an import: counts; who holds what; places, numbers, turnouts.
async fn state(pool: &PgPool) -> Vec<String> {
    sqlx::query_scalar(
        "select format('item %s %s: %s, %s down', item.id, item.name, coalesce(sum(value), 0),
                       count(value) filter (where value < 0 and change_number % 2 = 0)
                       - count(value) filter (where value > 0 and change_number % 2 = 1)) as line
         from item left join vote on item_id = item.id group by item.id
         union all
         select format('%s holds %s on %s', voter_id, sum(value), item_id) from vote
         where voter_id is not null and voter_id not like 'import %' group by item_id, voter_id having sum(value) <> 0
         union all
         select format('item %s: %s of %s places, number %s', item_id, taken, max_votes, last_number) from place
         union all
         select format('number %s on %s of %s at %s', number, item_id, voter_id, created_at) from vote
         where number is not null
         union all
         select format('poll %s %s: %s voters, %s', id, title, voter_count, (is_hidden, is_secret, by_ballot, max_choices))
         from rule
         order by line",
    )
    .fetch_all(pool)
    .await
    .expect("Postgres answers")
}

#[tokio::test(flavor = "multi_thread")]
async fn all_that_is_exported_and_imported_into_an_empty_tally_is_the_same() {
    let from = Tally::start().await;
    let ((to, _worker), (other, _other_worker)) = (start().await, start().await);
    let seed: f64 = rand::random_range(-1.0..1.0);
    random_ledger(&from.stores, 6000, seed).await;
    let _from_worker = start_worker(&from.stores, "from-worker", &[]);
    // The script gives each item as many places as it needs at the end.
    sqlx::raw_sql("update place set max_votes = max_votes + 1000")
        .execute(&from.pool)
        .await
        .expect("the owner may");
    let numbered = from
        .item_with(json!({ "name": "numbered, \"x\"", "key": "n/1", "numbered": true, "max_votes": 9 }))
        .await;
    for voter in ["ada", "bob", "cyd"] {
        from.vote(numbered, voter).await;
    }
    // A selection takes back and casts several choices at once.
    let poll = json!({ "title": "of two", "choices": ["a", "b", "c"], "max_choices": 2 });
    let (_, poll) = from.post("/v1/polls", &poll).await;
    // Its id is beyond those of other items, too.
    from.item("between").await;
    let path = format!("/v1/polls/{}/choices", poll["id"]);
    let (_, poll) = from.post(&path, &json!({ "name": "d" })).await;
    let choice = |at: usize| poll["choices"][at]["item_id"].clone();
    let path = format!("/v1/polls/{}/votes/w1", poll["id"]);
    for held in [[choice(0), choice(1)], [choice(2), choice(3)]] {
        let (status, said) = from
            .send(Method::PUT, &path, Some(&json!({ "items": held })))
            .await;
        assert_eq!(status, StatusCode::OK, "{said}");
    }
    // What an undo casts again has no number of its own. The seed alone may void no anonymous vote.
    let of_nobody = from.item("of nobody").await;
    from.add(of_nobody, 1).await;
    let of_nobody = of_nobody.to_string();
    for arguments in [
        &["--item", "key:n/1", "--reason", "x", "--apply"][..],
        &["--undo", "20"],
        &["--item", &of_nobody, "--reason", "x", "--apply"],
    ] {
        let mut void = command_as(TALLY, Some((&from.stores, Role::Operator)));
        void.arg("void").args(arguments);
        let output = run(void).await;
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    from.vote(numbered, "later").await;
    roll_up(&from).await;
    for (format, to) in [("csv", &to), ("jsonl", &other)] {
        for table in ["polls", "items", "votes"] {
            let path = to.stores.folder().join(table);
            export_of_other(&from.stores, &path, &[table, "--format", format]).await;
            let (done, result, said) = import(&to.stores, &[table, shown(&path), "--format", format]).await;
            assert!(done, "seed {seed}: {table}: {said} {result}");
        }
        assert_eq!(state(&to.pool).await, state(&from.pool).await, "seed {seed}");
        assert_exact(to).await;
    }
    // What was cast, changed and taken back since.
    let until = number(&from.pool, "select vote_id from watermark")
        .await
        .to_string();
    from.vote(numbered, "last").await;
    for (method, held) in [
        (Method::PUT, json!({ "items": [choice(0)] })),
        (Method::DELETE, json!({})),
    ] {
        let (status, said) = from.send(method, &path, Some(&held)).await;
        assert_eq!(status, StatusCode::OK, "{said}");
    }
    roll_up(&from).await;
    let rest = to.stores.folder().join("rest");
    export_of_other(&from.stores, &rest, &["votes", "--after", &until]).await;
    let (done, result, said) = import(&to.stores, &["votes", shown(&rest)]).await;
    assert!(done, "{said} {result}");
    assert_eq!(state(&to.pool).await, state(&from.pool).await, "seed {seed}");
    let anonymous = number(&to.pool, "select count(*) from vote where voter_id is null").await;
    let voided = number(
        &to.pool,
        "select count(*) from vote where starts_with(voter_id, 'import 1, voided')",
    )
    .await;
    assert!(anonymous > 100 && voided > 0, "{anonymous}, {voided}");
    // The same votes in another file are not imported again, nor where they are from.
    let again = to.stores.folder().join("again");
    export_of_other(&from.stores, &again, &["votes", "--format", "jsonl"]).await;
    let (done, _, said) = import(&to.stores, &["votes", shown(&again), "--format", "jsonl"]).await;
    assert!(
        !done && said.contains("were imported before, as import 2; export those above"),
        "{said}"
    );
    let own = to.stores.folder().join("own");
    let (done, _, said) = export(&from.stores, Role::Report, &["votes", "--out", shown(&own)]).await;
    assert!(done, "{said}");
    let (done, _, said) = import(&from.stores, &["votes", shown(&own)]).await;
    assert!(!done && said.contains("an export of this very Tally"), "{said}");
    // New items and polls get ids of their own.
    let item = to.item("new").await;
    assert!(item.get() > numbered.get());
    let (_, poll) = to
        .post("/v1/polls", &json!({ "title": "x", "choices": ["a", "b"] }))
        .await;
    assert!(
        poll["id"].as_i64() > Some(number(&from.pool, "select max(id) from rule").await),
        "{poll}"
    );
}

/// Lines of votes without a voter, and of voters, on three items.
fn many_lines(lines: usize) -> String {
    let mut text = "item_key,voter_id,value\n".to_owned();
    for line in 0..lines {
        let voter = if line % 3 == 0 {
            String::new()
        } else {
            format!("v{line}")
        };
        let value = if line % 5 == 0 { "-1" } else { "1" };
        text += &format!("k{},{voter},{value}\n", line % 3);
    }
    text
}

/// Ups and downs of an item of [`many_lines`], by the file.
fn truth(lines: usize, item: usize) -> (i64, i64) {
    let values = (0..lines)
        .filter(|line| line % 3 == item)
        .map(|line| line % 5 == 0);
    values.fold((0, 0), |(ups, downs), is_down| {
        (ups + i64::from(!is_down), downs + i64::from(is_down))
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_that_is_killed_again_and_again_stores_each_line_once_and_counts_it() {
    const LINES: usize = 60_000;
    let (tally, _worker) = start().await;
    let path = file(&tally.stores, "votes.csv", &many_lines(LINES));
    let arguments = ["import", "votes", shown(&path), "--make-items", "--json"];
    let mut kills = 0;
    let done = async || {
        let done = "select coalesce(max(done_line), 0) from import";
        number(&tally.pool, done).await
    };
    loop {
        let before = done().await;
        let killed = async {
            // Most get on by a chunk; each fourth is killed at any moment.
            if kills % 4 < 3 {
                eventually("a chunk is stored", async || {
                    (done().await > before).then_some(())
                })
                .await;
            }
            // The moment within the next chunk, or within the start.
            sleep(Duration::from_millis(rand::random_range(0..200))).await;
        };
        let mut command = command_as(TALLY, Some((&tally.stores, Role::Operator)));
        command.args(arguments).kill_on_drop(true);
        let ended = tokio::select! {
            output = run(command) => Some(output),
            // Two at once, at times: each line is stored once all the same.
            () = killed => None,
        };
        match ended {
            Some(output) if output.status.success() => break,
            Some(output) => assert!(
                text(&output.stderr).contains("run the same command again"),
                "{}",
                text(&output.stderr)
            ),
            None => kills += 1,
        }
        assert!(kills < 40, "it never ends");
    }
    let stored = number(&tally.pool, "select stored_votes from import").await;
    assert_eq!(
        (stored, number(&tally.pool, "select count(*) from vote").await),
        (60_000, 60_000)
    );
    let (done, result, said) = import(&tally.stores, &arguments[1..4]).await;
    assert!(
        done && said.contains("nothing is stored again"),
        "{result} {said}"
    );
    for item in 0..3 {
        let (ups, downs) = truth(LINES, item);
        eventually("the live count is right", async || {
            let (_, shown) = tally.get(&format!("/v1/items/key:k{item}")).await;
            (shown["current"] == true && shown["up_count"] == ups && shown["down_count"] == downs)
                .then_some(())
        })
        .await;
    }
    assert_exact(&tally).await;
    assert!(kills > 0, "nothing was killed");
}

#[tokio::test(flavor = "multi_thread")]
async fn voters_who_vote_while_their_votes_are_imported_vote_once() {
    const VOTERS: usize = 3000;
    let (tally, _worker) = start().await;
    let item = tally
        .item_with(json!({ "name": "x", "key": "k", "max_votes": 5000 }))
        .await;
    let plain = tally.item_with(json!({ "name": "y", "key": "p" })).await;
    let mut content = "item_key,voter_id\n".to_owned();
    for voter in 0..VOTERS {
        content += &format!("k,v{voter}\np,v{voter}\n");
    }
    let path = file(&tally.stores, "votes.csv", &content);
    let voting = async {
        for voter in (0..VOTERS).rev().step_by(7) {
            for item in [item, plain] {
                let (status, said) = tally.vote(item, &format!("v{voter}")).await;
                assert!(status.is_success(), "{said}");
            }
        }
    };
    let arguments = ["votes", shown(&path)];
    let ((done, result, said), ()) = tokio::join!(import(&tally.stores, &arguments), voting);
    assert!(done, "{result} {said}");
    let all = i64::try_from(2 * VOTERS).expect("a few");
    assert_eq!(number(&tally.pool, "select count(*) from vote").await, all);
    let sum = result["stored_votes"]
        .as_i64()
        .zip(result["repeated_votes"].as_i64());
    assert_eq!(sum.map(|(stored, repeated)| stored + repeated), Some(all));
    assert_exact(&tally).await;
}
