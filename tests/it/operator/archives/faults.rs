//! Archives whose check fails, and what must not be archived.

use serde_json::json;
use tally::ledger::Role;

use super::{
    archive, audit, close, execute, faults, lines, number, numbered, operator, shown, until_rolled_up,
};
use crate::helpers::programs::{TALLY, command_as, run, start_worker, text};
use crate::helpers::stores::{refuse, refuse_no_more};
use crate::helpers::tally::Tally;

/// Runs `tally archive`, which must fail with these words.
async fn refused(tally: &Tally, arguments: &[&str], words: &str) {
    let (done, _, said) = operator(&tally.stores, &[&["archive"], arguments].concat()).await;
    assert!(!done && said.contains(words), "{arguments:?}: {said}");
}

async fn votes(tally: &Tally) -> i64 {
    number(&tally.pool, "select count(*) from vote").await
}

#[tokio::test(flavor = "multi_thread")]
async fn no_vote_is_dropped_that_the_file_does_not_have() {
    let tally = Tally::start().await;
    let stores = &tally.stores;
    let _worker = start_worker(stores, "worker", &[]);
    let (item, _) = numbered(&tally).await;
    close(&tally.pool, "true").await;
    until_rolled_up(&tally).await;
    let all = votes(&tally).await;
    let folder = stores.folder().to_owned();
    let out = shown(&folder).to_owned();
    let whole = [
        "run",
        "--closed-before",
        "2999-01-01T00:00:00Z",
        "--out",
        &out,
        "--apply",
    ];

    // The disk is full: a limit of the file's size says so at the same place.
    let mut limited = tokio::process::Command::new("sh");
    let tally_with = command_as(TALLY, Some((stores, Role::Operator)));
    limited.envs(
        tally_with
            .as_std()
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    limited.args([
        "-c",
        "trap '' XFSZ; ulimit -f 0; exec \"$@\"",
        "sh",
        TALLY,
        "archive",
    ]);
    limited.args(whole);
    let output = run(limited).await;
    let said = text(&output.stderr);
    assert!(
        !output.status.success() && said.contains("File too large"),
        "{said}"
    );
    assert!(said.contains("tally archive resume 1 --out"), "{said}");
    assert_eq!(
        (votes(&tally).await, folder.join("archive-1.csv").exists()),
        (all, false)
    );

    // Another file is in its place.
    let file = folder.join("archive-1.csv");
    std::fs::write(
        &file,
        "# {}\nid,item_id,created_at,value,change_number\n1,1,t,1,0\n",
    )
    .expect("written");
    refused(
        &tally,
        &["resume", "1", "--out", &out],
        "is not what the ledger has; nothing is dropped",
    )
    .await;
    assert_eq!(votes(&tally).await, all);
    refused(&tally, &["verify", shown(&file)], "").await;

    // It is given up. Its votes can be voided again.
    refused(&tally, &whole, "archive 1 is not finished").await;
    let cancelled = archive(stores, &["cancel", "1"]).await;
    assert_eq!(cancelled["state"], "cancelled");
    refused(&tally, &["cancel", "1"], "is cancelled already").await;
    refused(&tally, &["resume", "1", "--out", &out], "was cancelled").await;
    let (done, result, said) = operator(
        stores,
        &[
            "void", "--item", "key:n", "--voter", "ada", "--reason", "x", "--apply",
        ],
    )
    .await;
    assert!(done && result[0]["voided_votes"] == 1, "{result:?} {said}");
    until_rolled_up(&tally).await;
    let all = votes(&tally).await;

    // The file is changed after it was checked.
    refuse(&tally.pool, "delete on vote").await;
    refused(&tally, &whole, "tally archive resume 2 --out").await;
    assert_eq!(
        lines(
            &tally.pool,
            "select (checked_at is not null)::text from archive where id = 2"
        )
        .await,
        ["true"]
    );
    refuse_no_more(&tally.pool).await;
    let file = folder.join("archive-2.csv");
    let content = std::fs::read_to_string(&file).expect("a file");
    for changed in [
        content.replace("ada", "eve"),
        content[..content.len() - 1].to_owned(),
        String::new(),
    ] {
        std::fs::write(&file, changed).expect("written");
        let (done, results, _) = operator(stores, &["archive", "verify", shown(&file)]).await;
        assert!(!done && results[0]["ok"] == json!(false), "{results:?}");
        let (done, _, said) = operator(stores, &["archive", "resume", "2", "--out", &out]).await;
        assert!(!done && said.contains("archive-2.csv"), "{said}");
    }
    refused(&tally, &["resume", "2", "--out", "/"], "archive-2.csv").await;
    assert_eq!(votes(&tally).await, all);
    std::fs::write(&file, content).expect("written");
    let done = archive(stores, &["resume", "2", "--out", &out]).await;
    assert_eq!(
        (&done["state"], &done["dropped_votes"]),
        (&json!("dropped"), &json!(all))
    );
    assert_eq!(votes(&tally).await, 0);
    // Again, it does nothing.
    let again = archive(stores, &["resume", "2", "--out", &out]).await;
    assert_eq!(again["state"], "dropped");
    refused(&tally, &["cancel", "2"], "its file alone has them").await;
    assert_eq!(faults(&tally.pool).await, [""; 0]);
    let (_, shown) = tally.get(&format!("/v1/items/{item}")).await;
    assert_eq!(shown["vote_count"], 1, "{shown}");
    audit(&tally).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_deletes_a_vote_that_no_checked_archive_has() {
    let tally = Tally::start().await;
    let _worker = start_worker(&tally.stores, "worker", &[]);
    numbered(&tally).await;
    let open = tally.item("open").await;
    tally.vote(open, "ada").await;
    until_rolled_up(&tally).await;
    close(&tally.pool, "true").await;
    let delete = async |statement: &str| {
        let ended = sqlx::query(statement).execute(&tally.pool).await;
        ended
            .map(|done| done.rows_affected())
            .map_err(|error| error.to_string())
    };
    let of_archive = "delete from vote where item_id in (select item_id from archived_item)";
    refuse(&tally.pool, "delete on vote_address").await;
    let out = shown(tally.stores.folder());
    let whole = [
        "run",
        "--closed-before",
        "2999-01-01T00:00:00Z",
        "--out",
        out,
        "--apply",
    ];
    let is_refused = |ended: Result<u64, String>| ended.expect_err("it may not").contains("append-only");
    assert!(is_refused(delete("delete from vote").await));
    // The first chunk is stored as a whole or not at all.
    refused(&tally, &whole, "not finished").await;
    assert_eq!(number(&tally.pool, "select dropped_total from archive").await, 0);
    for statement in [
        "delete from vote".to_owned(),
        format!("delete from vote where item_id = {open}"),
        "truncate vote".to_owned(),
        "update vote set voter_id = 'x'".to_owned(),
    ] {
        assert!(is_refused(delete(&statement).await), "{statement}");
    }
    // Before its file is checked, and after it has ended.
    execute(&tally.pool, "create table noted as select * from archive;
                          update archive set checked_at = null, file_hash = null, file_bytes = null, vote_total = null, net_total = null").await;
    assert!(is_refused(delete(of_archive).await));
    execute(&tally.pool, "update archive set checked_at = noted.checked_at, file_hash = noted.file_hash,
                              file_bytes = noted.file_bytes, vote_total = noted.vote_total, net_total = noted.net_total
                          from noted; update archive set ended_at = now()").await;
    assert!(is_refused(delete(of_archive).await));
    execute(&tally.pool, "update archive set ended_at = null").await;
    refuse_no_more(&tally.pool).await;
    archive(&tally.stores, &["resume", "1", "--out", out]).await;
    assert_eq!(votes(&tally).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_open_or_being_voided_is_not_archived_and_each_refusal_says_why() {
    let tally = Tally::start().await;
    let stores = &tally.stores;
    let _worker = start_worker(stores, "worker", &[]);
    let (item, poll) = numbered(&tally).await;
    let plain = tally.item("plain").await;
    until_rolled_up(&tally).await;
    let choice = number(
        &tally.pool,
        &format!("select min(id) from item where rule_id = {poll}"),
    )
    .await;
    let (plain, choice) = (plain.to_string(), choice.to_string());
    for (arguments, words) in [
        (vec!["run", "--item", "key:n", "--dry-run"], "has no closing time"),
        (vec!["run", "--item", &plain, "--dry-run"], "has no closing time"),
        (
            vec!["run", "--item", &choice, "--dry-run"],
            "archive the poll: --poll",
        ),
        (
            vec!["run", "--item", "99999", "--dry-run"],
            "there is no item 99999",
        ),
        (
            vec!["run", "--poll", "key:none", "--dry-run"],
            "there is no poll key:none",
        ),
        (vec!["run", "--dry-run"], "--closed-before"),
        (vec!["run", "--item", "key:n", "--apply"], "--out"),
        (vec!["resume", "7", "--out", "/tmp"], "there is no archive 7"),
        (vec!["cancel", "x"], "it takes an archive's id"),
        (vec!["verify", "/nowhere.csv"], ""),
    ] {
        refused(&tally, &arguments, words).await;
    }
    execute(
        &tally.pool,
        "update rule set closes_at = now() - interval '59 minutes'",
    )
    .await;
    refused(
        &tally,
        &["run", "--item", "key:n", "--dry-run"],
        "it can be archived an hour later",
    )
    .await;
    close(&tally.pool, "true").await;
    let nowhere = ["run", "--item", "key:n", "--out", "/nowhere", "--apply"];
    refused(&tally, &nowhere, "/nowhere is no folder").await;
    let out = shown(stores.folder());
    let of_item = ["run", "--item", "key:n", "--out", out, "--apply"];
    // A voiding that was interrupted: of the item, and of another one.
    execute(
        &tally.pool,
        &format!("insert into voiding (item_id, reason, until_vote_id) values ({item}, 'x', 5)"),
    )
    .await;
    refused(&tally, &of_item, "tally void --resume 1").await;
    execute(&tally.pool, &format!("update voiding set item_id = {plain}")).await;
    archive(stores, &["run", "--item", "key:n", "--dry-run"]).await;
    // An undo that was interrupted.
    execute(&tally.pool, &format!("update voiding set item_id = null, voter_id = 'x', done_vote_id = 5, undone_vote_id = 0;
        insert into voided (vote_id, voiding_id, by_vote_id) select min(id), 1, max(id) from vote where item_id = {item}")).await;
    refused(&tally, &of_item, "tally void --resume 1").await;
    execute(
        &tally.pool,
        "update voiding set undone_vote_id = 5; delete from voided",
    )
    .await;
    assert_eq!(number(&tally.pool, "select count(*) from archive").await, 0);
    let noted = lines(
        &tally.pool,
        "select what || ' ' || outcome from act where what like 'archive%' order by id",
    )
    .await;
    assert_eq!(
        noted,
        [
            "archive.run refused",
            "archive.run refused",
            "archive.run refused",
            "archive.run refused"
        ][..noted.len()]
    );
    archive(stores, &of_item).await;
    let noted = lines(&tally.pool, "select format('%s %s %s', what, target, outcome) from act where what like 'archive%' order by id desc limit 4").await;
    assert_eq!(
        noted,
        [
            "archive.drop archive:1 done",
            "archive.drop archive:1 begun",
            "archive.run archive:1 done",
            "archive.run archive:1 begun"
        ]
    );
}
