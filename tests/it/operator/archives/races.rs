//! Archives beside what changes votes.

use serde_json::json;
use sqlx::Connection as _;

use super::{archive, audit, close, execute, faults, lines, number, operator, shown, until_rolled_up};
use crate::helpers::programs::start_worker;
use crate::helpers::stores::{blocker, until_blocked};
use crate::helpers::tally::Tally;

/// How often a voiding and an archive begin at once.
const ROUNDS: usize = 6;

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_has_the_votes_that_were_granted_before_it_began_and_waits_for_their_commit() {
    let tally = Tally::start().await;
    let _worker = start_worker(&tally.stores, "worker", &[]);
    let item = tally.item_with(json!({ "key": "n", "max_votes": 9 })).await;
    tally.vote(item, "ada").await;
    until_rolled_up(&tally).await;
    close(&tally.pool, "true").await;
    let mut connection = sqlx::PgConnection::connect(&tally.stores.database_url)
        .await
        .expect("Postgres");
    let mut late = connection.begin().await.expect("a transaction");
    // As cast_votes does it.
    for statement in [
        "select from rule for no key update".to_owned(),
        format!("insert into vote (item_id, voter_id) values ({item}, 'late')"),
        "update place set taken = taken + 1".to_owned(),
    ] {
        sqlx::query(&statement)
            .execute(&mut *late)
            .await
            .expect("the owner may");
    }
    let out = shown(tally.stores.folder()).to_owned();
    let arguments = ["run", "--item", "key:n", "--out", &out, "--apply"];
    let archiving = archive(&tally.stores, &arguments);
    let committing = async {
        until_blocked(&tally.pool, "select new_id").await;
        late.commit().await.expect("a commit");
    };
    let (done, ()) = tokio::join!(archiving, committing);
    assert_eq!((&done["votes"], &done["state"]), (&json!(2), &json!("dropped")));
    let content = std::fs::read_to_string(tally.stores.folder().join("archive-1.csv")).expect("a file");
    assert!(content.contains(",late,"), "{content}");
    until_rolled_up(&tally).await;
    assert_eq!(faults(&tally.pool).await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_voiding_and_an_archive_of_the_same_votes_take_turns() {
    let tally = Tally::start().await;
    let stores = &tally.stores;
    let _worker = start_worker(stores, "worker", &[]);
    let out = shown(stores.folder()).to_owned();
    // While a chunk of a voiding is stored, no archive begins.
    let voiding = blocker(&tally.pool, "select pg_advisory_xact_lock(7416153282)").await;
    tally.item_with(json!({ "key": "first", "max_votes": 9 })).await;
    close(&tally.pool, "true").await;
    let first = ["run", "--item", "key:first", "--out", &out, "--apply"];
    let ending = async {
        until_blocked(&tally.pool, "select new_id").await;
        voiding.rollback().await.expect("an end");
    };
    tokio::join!(archive(stores, &first), ending);
    let (mut voided, mut left) = (0, 0);
    for round in 0..ROUNDS {
        let key = format!("k{round}");
        let item = tally.item_with(json!({ "key": key, "max_votes": 2000 })).await;
        execute(
            &tally.pool,
            &format!(
                "insert into vote (item_id, voter_id) select {item}, 'v' || n from generate_series(1, 1500) as n;
                 update place set taken = 1500 where item_id = {item}"
            ),
        )
        .await;
        until_rolled_up(&tally).await;
        close(
            &tally.pool,
            &format!("id = (select rule_id from item where id = {item})"),
        )
        .await;
        let key = format!("key:{key}");
        let void = ["void", "--item", &key, "--reason", "x", "--apply"];
        let whole = ["archive", "run", "--item", &key, "--out", &out, "--apply"];
        let ((is_voided, _, of_void), (is_archived, _, of_archive)) =
            tokio::join!(operator(stores, &void), operator(stores, &whole));
        assert!(is_voided || of_void.contains("are in archive"), "{of_void}");
        assert!(
            is_archived || of_archive.contains("is not finished"),
            "{of_archive}"
        );
        if !is_archived {
            until_rolled_up(&tally).await;
            archive(stores, &whole[1..]).await;
        }
        until_rolled_up(&tally).await;
        let sum = number(
            &tally.pool,
            &format!("select vote_count from archived_item where item_id = {item}"),
        )
        .await;
        // A voiding that came first has voided all of them; one that came later, none.
        assert!(sum == 0 || sum == 1500, "round {round}: {sum}");
        voided += usize::from(sum == 0);
        left += usize::from(sum == 1500);
        let open = lines(
            &tally.pool,
            "select id::text from voiding where done_vote_id < until_vote_id",
        )
        .await;
        assert_eq!(open, [""; 0]);
        assert_eq!(faults(&tally.pool).await, [""; 0], "round {round}");
    }
    println!("{voided} voidings came first, {left} archives");
    let mut repair = crate::helpers::programs::command(crate::helpers::programs::TALLY, Some(stores));
    repair.args(["audit", "--repair"]);
    crate::helpers::programs::run(repair).await;
    audit(&tally).await;
}
