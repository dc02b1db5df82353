//! Edits of voters beside what these voters do at the same time.

use reqwest::{Method, StatusCode};
use serde_json::json;
use sqlx::PgPool;

use super::held;
use crate::helpers::eventually;
use crate::helpers::stores::blocker;
use crate::helpers::tally::Tally;
use crate::rules::assert_rules_hold;

/// Waits until a statement that contains this waits for a lock.
async fn until_one_waits(pool: &PgPool, part: &str) {
    eventually(&format!("{part} waits for a lock"), async || {
        let waits: bool = sqlx::query_scalar(
            "select exists (select from pg_stat_activity
                            where wait_event_type = 'Lock' and strpos(query, $1) > 0 and pid <> pg_backend_pid())",
        )
        .bind(part)
        .fetch_one(pool)
        .await
        .ok()?;
        waits.then_some(())
    })
    .await;
}

/// Creates an edit, and runs it in a transaction that is not committed.
async fn editing(tally: &Tally) -> sqlx::Transaction<'static, sqlx::Postgres> {
    create(tally).await;
    blocker(&tally.pool, "select edit_voter(1, 50000, 500)").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_voter_who_votes_otherwise_meanwhile_waits_and_is_somebody_new_then() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.vote(item, "ada").await;
    let edit = editing(&tally).await;
    let path = format!("/v1/items/{item}/votes/ada");
    let body = json!({ "value": -1 });
    let (answer, ()) = tokio::join!(tally.send(Method::PUT, &path, Some(&body)), async {
        until_one_waits(&tally.pool, "cast_votes").await;
        edit.commit().await.expect("a commit");
    });
    assert!(answer.0.is_success(), "{}", answer.1);
    assert_eq!(
        held(&tally.pool).await,
        [format!("{item}: ada -1"), format!("{item}: ada2 1")]
    );
    assert_rules_hold(&tally.pool).await;
    tally.assert_exact_when_quiescent(item).await;
}

/// Creates an edit, which nobody has begun.
async fn create(tally: &Tally) {
    sqlx::raw_sql("select create_voter_edit('merge', 'ada', 'ada2', (select max(id) from vote), null)")
        .execute(&tally.pool)
        .await
        .expect("an edit");
}

/// Has a server do what is left of an edit, once it waits for this transaction, which then commits.
async fn edit_behind(tally: &Tally, id: i64, transaction: sqlx::Transaction<'static, sqlx::Postgres>) {
    let path = format!("/v1/voter-edits/{id}");
    let (status, said) = tally.send(Method::POST, &format!("{path}/resume"), None).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{said}");
    until_one_waits(&tally.pool, "edit_voter").await;
    transaction.commit().await.expect("a commit");
    eventually("the edit is done", async || {
        let (_, edit) = tally.get(&path).await;
        (edit["state"] == "done" && edit["under_way"] == false).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_waits_for_a_change_that_is_being_stored_and_then_looks_again() {
    let tally = Tally::start().await;
    let plain = tally.item("x").await;
    let limited = tally.item_with(json!({ "max_votes": 2 })).await;
    for (id, item) in [(1, plain), (2, limited)] {
        tally.vote(item, "ada").await;
        create(&tally).await;
        // She takes her vote back.
        let deciding = format!(
            "select cast_votes('{{1}}', '{{null}}', array[{item}::bigint], '{{ada}}', '{{0}}', '{{f}}', '{{f}}')"
        );
        let deciding = blocker(&tally.pool, &deciding).await;
        edit_behind(&tally, id, deciding).await;
        assert_eq!(held(&tally.pool).await, Vec::<String>::new());
        assert_rules_hold(&tally.pool).await;
        let rows: i64 = sqlx::query_scalar("select count(*) from vote where voter_id = 'ada'")
            .fetch_one(&tally.pool)
            .await
            .expect("Postgres answers");
        assert_eq!(rows, 0);
    }
}

/// The vote's transaction begins after the edit has chosen its last vote, and is not committed when the edit looks.
#[tokio::test(flavor = "multi_thread")]
async fn a_chunk_that_meets_a_vote_that_is_being_stored_is_tried_again() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.vote(item, "ada").await;
    create(&tally).await;
    let voting = format!("insert into vote (item_id, voter_id) values ({item}, 'ada2')");
    let voting = blocker(&tally.pool, &voting).await;
    edit_behind(&tally, 1, voting).await;
    assert_eq!(held(&tally.pool).await, [format!("{item}: ada2 1")]);
    assert_rules_hold(&tally.pool).await;
}
