//! Rules: changes, limits, numbers, times, polls, choices, ballots, batches, and voiding.
//! Also receipts and idempotency keys.

mod ballots;
mod batches;
mod changes;
mod choices;
mod decisions;
mod first_votes;
mod full;
mod idempotency;
mod idempotency_owners;
mod limits;
mod polls;
mod races;
mod receipts;
mod sequences;
pub mod voiding;
mod voiding_faults;
mod voiding_filters;
mod voiding_races;

use reqwest::Method;
use serde_json::json;
use sqlx::{PgExecutor, PgPool};

use crate::helpers::programs::{TALLY, command, run, text};
use crate::helpers::tally::Tally;

/// Checks [`testkit::rules::broken`], and that `tally audit` finds the same.
pub async fn assert_rules_hold(pool: &PgPool) {
    let broken = testkit::rules::broken(pool).await.expect("Postgres answers");
    assert_eq!(broken, Vec::<String>::new());
    assert_eq!(found_by_audit(pool).await, Vec::<String>::new());
}

/// What the functions of the audit find.
async fn found_by_audit(owner: impl PgExecutor<'_>) -> Vec<String> {
    sqlx::query_scalar(
        "select unnest(one.faults || other.faults)
         from broken_rules(0, 1000) as one, broken_changes(0, 1000) as other",
    )
    .fetch_all(owner)
    .await
    .expect("Postgres answers")
}

/// Tests the check on which all races, sequences and `make chaos` rely.
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
        assert_ne!(
            found_by_audit(&mut connection).await,
            Vec::<String>::new(),
            "{why}"
        );
    }
    assert_rules_hold(&tally.pool).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_on_the_command_line_proves_the_rules_and_shows_what_is_broken() {
    let tally = Tally::start().await;
    let item = tally.item_with(json!({ "max_votes": 2 })).await;
    tally.vote(item, "ada").await;
    tally
        .send(
            Method::PUT,
            &format!("/v1/items/{item}/votes/ada"),
            Some(&json!({ "value": -1 })),
        )
        .await;
    let audit = async || {
        let mut command = command(TALLY, Some(&tally.stores));
        command.arg("audit");
        let output = run(command).await;
        (output.status.success(), text(&output.stdout))
    };
    let (is_right, said) = audit().await;
    assert!(is_right && said.contains("0 faults in places"), "{said}");
    for (statement, part) in [
        (
            "update place set taken = 2",
            "2 places are taken, and 1 votes are held",
        ),
        (
            "update place set taken = 1; insert into vote (item_id, voter_id, change_number, value) values (1, 'bob', 1, -1)",
            "its change number is 1",
        ),
    ] {
        sqlx::raw_sql(statement)
            .execute(&tally.pool)
            .await
            .expect("a statement");
        let (is_right, said) = audit().await;
        assert!(!is_right && said.contains(part), "{said}");
        assert!(
            !said.contains("ada") && !said.contains("bob"),
            "nobody is named: {said}"
        );
    }
}
