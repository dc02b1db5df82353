//! Rules: changes and retractions, limits, numbers, times, polls, receipts and batches.

mod batches;
mod changes;
mod limits;
mod polls;
mod races;
mod receipts;
mod sequences;

use serde_json::json;
use sqlx::PgPool;

use crate::helpers::tally::Tally;

/// See [`testkit::rules::broken`].
async fn assert_rules_hold(pool: &PgPool) {
    let broken = testkit::rules::broken(pool).await.expect("Postgres answers");
    assert_eq!(broken, Vec::<String>::new());
}

/// The check that all races, sequences and `make chaos` rely on.
#[tokio::test(flavor = "multi_thread")]
async fn whatever_breaks_a_rule_is_found_by_sql_alone() {
    let tally = Tally::start().await;
    let item = tally.item_with(json!({ "max_votes": 2, "numbered": true })).await;
    let poll = json!({ "title": "x", "choices": ["a", "b"] });
    let (_, poll) = tally.post("/v1/polls", &poll).await;
    let choices = [0, 1].map(|at| poll["choices"][at]["item_id"].clone());
    tally.vote(item, "ada").await;
    tally
        .post(
            &format!("/v1/items/{}/votes", choices[0]),
            &json!({ "voter_id": "ada" }),
        )
        .await;
    assert_rules_hold(&tally.pool).await;
    let poll = &poll["id"];
    let vote = "insert into vote (item_id, voter_id, value, change_number, poll_id, number) values";
    for (why, statement) in [
        ("places", "update place set taken = 2".to_owned()),
        ("last number", "update place set last_number = 2".to_owned()),
        (
            "turnout",
            format!("update rule set voter_count = 2 where id = {poll}"),
        ),
        (
            "two choices",
            format!("{vote} ({}, 'ada', 1, 0, {poll}, null)", choices[1]),
        ),
        (
            "a change is missing",
            format!("{vote} ({item}, 'bob', -1, 1, null, null)"),
        ),
        (
            "taken back as another value",
            format!("{vote} ({item}, 'ada', 1, 1, null, null)"),
        ),
        ("a gap", format!("{vote} ({item}, 'bob', 1, 0, null, 3)")),
    ] {
        let mut connection = tally.pool.acquire().await.expect("a connection").detach();
        let broken = async {
            sqlx::raw_sql(&format!("begin; {statement}"))
                .execute(&mut connection)
                .await?;
            testkit::rules::broken(&mut connection).await
        };
        assert_ne!(
            broken.await.expect("Postgres answers"),
            Vec::<String>::new(),
            "{why}"
        );
    }
    assert_rules_hold(&tally.pool).await;
}
