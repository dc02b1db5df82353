//! Voidings: votes are taken back with a reason, and cast again.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use sqlx::{Postgres, Transaction};
use tally::domain::{ItemId, VoidingId, VoteFilter};
use tally::ledger::{OperatorLedger, Role};
use tally::votes::{ChunkWriter, Direction};

use super::assert_rules_hold;
use crate::helpers::programs::operator;
use crate::helpers::stores::until_blocked;
use crate::helpers::tally::{Tally, connected, live_counts};

/// Runs `tally void` with these arguments.
/// Returns whether it succeeded, and its answer.
pub async fn void(tally: &Tally, arguments: &[&str]) -> (bool, Value) {
    let (done, mut answers, said) = operator(&tally.stores, &[&["void"], arguments].concat()).await;
    (done, answers.pop().unwrap_or_else(|| json!(said)))
}

#[tokio::test(flavor = "multi_thread")]
async fn votes_of_a_voter_are_voided_and_counts_places_and_polls_follow_and_undo_brings_them_back() {
    let tally = Tally::start().await;
    let plain = tally.item("x").await;
    let limited = tally.item_with(json!({ "max_votes": 2, "numbered": true })).await;
    let (_, poll) = tally
        .post("/v1/polls", &json!({ "title": "x", "choices": ["a", "b"] }))
        .await;
    let poll_path = format!("/v1/polls/{}", poll["id"]);
    let choice = poll["choices"][0]["item_id"].clone();
    for item in [json!(plain), json!(limited), choice.clone()] {
        for voter in ["ada", "bob"] {
            let path = format!("/v1/items/{item}/votes");
            let (status, _) = tally.post(&path, &json!({ "voter_id": voter })).await;
            assert_eq!(status, StatusCode::CREATED);
        }
    }
    // Ada changes her mind on the plain item, and holds -1.
    let ada = format!("/v1/items/{plain}/votes/ada");
    tally.send(Method::PUT, &ada, Some(&json!({ "value": -1 }))).await;

    let (_, keyed) = tally.post("/v1/items", &json!({ "name": "y", "key": "k" })).await;
    assert_eq!(keyed["key"], "k");
    let (done, none) = void(&tally, &["--item", "key:k", "--reason", "a bot"]).await;
    assert!(done && none["votes"] == 0, "{none}");
    let (done, dry) = void(&tally, &["--voter", "ada", "--reason", "a bot"]).await;
    assert!(done, "{dry}");
    assert_eq!((&dry["dry_run"], &dry["votes"]), (&json!(true), &json!(3)));
    assert_eq!(tally.live_count(plain).await, Some(0), "nothing is voided yet");

    let (done, voided) = void(&tally, &["--voter", "ada", "--reason", "a bot", "--apply"]).await;
    assert!(done, "{voided}");
    assert_eq!(
        (&voided["done"], &voided["voided_votes"]),
        (&json!(true), &json!(3))
    );
    let item = tally.get(&format!("/v1/items/{plain}")).await.1;
    assert_eq!((&item["vote_count"], &item["down_count"]), (&json!(1), &json!(0)));
    assert_eq!(tally.get(&ada).await.0, StatusCode::NOT_FOUND);
    let shown = tally.get(&poll_path).await.1;
    assert_eq!(
        (&shown["voter_count"], &shown["choices"][0]["vote_count"]),
        (&json!(1), &json!(1))
    );
    // Safe to run twice: nothing is left to void.
    let (_, again) = void(&tally, &["--voter", "ada", "--reason", "a bot", "--apply"]).await;
    assert_eq!(again["voided_votes"], 0);
    assert_rules_hold(&tally.pool).await;

    // The place is free at once, and the next vote gets a new number.
    let (status, cy) = tally.vote(limited, "cy").await;
    assert_eq!((status, &cy["number"]), (StatusCode::CREATED, &json!(3)));
    // Ada makes another choice in the poll.
    let other = json!({ "items": [poll["choices"][1]["item_id"]] });
    tally
        .send(Method::PUT, &format!("{poll_path}/votes/ada"), Some(&other))
        .await;

    let id = voided["voiding"].to_string();
    let (done, undone) = void(&tally, &["--undo", &id]).await;
    assert!(done, "{undone}");
    assert_eq!(
        (&undone["restored_votes"], &undone["left_void"]),
        (&json!(1), &json!(2)),
        "{undone}"
    );
    assert_eq!(left_void(&tally).await, ["choices", "full"]);
    assert_eq!(tally.get(&ada).await.1["value"], -1);
    let (_, undone) = void(&tally, &["--undo", &id]).await;
    assert_eq!(undone["restored_votes"], 1, "undone once");
    for item in [plain, limited] {
        tally.assert_exact_when_quiescent(item).await;
    }
    assert_rules_hold(&tally.pool).await;
    let (_, last) = void(&tally, &["--list"]).await;
    assert_eq!((&last["voiding"], &last["reason"]), (&json!(1), &json!("a bot")));
}

#[tokio::test(flavor = "multi_thread")]
async fn anonymous_votes_and_votes_with_ballots_are_voided_by_item_and_span_and_undone() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let path = format!("/v1/items/{item}/votes");
    for value in [1, 1, -1] {
        tally.post(&path, &json!({ "value": value })).await;
    }
    let (_, poll) = tally
        .post(
            "/v1/polls",
            &json!({ "title": "x", "choices": ["a", "b"], "by_ballot": true, "secret": true }),
        )
        .await;
    let poll_path = format!("/v1/polls/{}", poll["id"]);
    let (_, made) = tally
        .post(&format!("{poll_path}/ballots"), &json!({ "count": 2 }))
        .await;
    let choice = poll["choices"][0]["item_id"].to_string();
    for ballot in made["ballots"].as_array().expect("ballots") {
        let (status, _) = tally
            .post(&format!("/v1/items/{choice}/votes"), &json!({ "ballot": ballot }))
            .await;
        assert_eq!(status, StatusCode::CREATED);
    }
    let item_text = item.to_string();
    for (arguments, votes) in [
        (vec!["--item", item_text.as_str()], 3),
        (vec!["--item", choice.as_str()], 2),
        (vec!["--from", "2001-01-01T00:00:00Z"], 5),
        (vec!["--from", "2100-01-01T00:00:00Z"], 0),
        (vec!["--until", "2001-01-01T00:00:00Z"], 0),
    ] {
        let (done, dry) = void(&tally, &[arguments, vec!["--reason", "x"]].concat()).await;
        assert!(done, "{dry}");
        assert_eq!(dry["votes"], votes);
    }
    let from = ["--from", "2001-01-01T00:00:00Z", "--reason", "x", "--apply"];
    let (done, voided) = void(&tally, &from).await;
    assert!(done, "{voided}");
    assert_eq!(voided["voided_votes"], 5);
    let shown = tally.get(&format!("/v1/items/{item}")).await.1;
    assert_eq!(
        (&shown["vote_count"], &shown["up_count"], &shown["down_count"]),
        (&json!(0), &json!(0), &json!(0))
    );
    assert_eq!(tally.get(&poll_path).await.1["voter_count"], 0);
    assert_rules_hold(&tally.pool).await;
    let (_, undone) = void(&tally, &["--undo", &voided["voiding"].to_string()]).await;
    assert_eq!(
        (&undone["restored_votes"], &undone["left_void"]),
        (&json!(5), &json!(0))
    );
    let shown = tally.get(&format!("/v1/items/{item}")).await.1;
    assert_eq!(
        (&shown["vote_count"], &shown["down_count"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(tally.get(&poll_path).await.1["voter_count"], 2);
    // A vote that was cast again can be voided again.
    let (_, voided) = void(&tally, &from).await;
    assert_eq!(voided["voided_votes"], 5);
    // The newest comes first. The next page begins after the last one of this page.
    let page = async |query: &str| {
        let (_, list) = tally.get(&format!("/v1/voidings?limit=1{query}")).await;
        let ids: Vec<Value> = list["voidings"]
            .as_array()
            .expect("voidings")
            .iter()
            .map(|one| one["id"].clone())
            .collect();
        (ids, list["next_before"].clone())
    };
    assert_eq!(page("").await, (vec![json!(2)], json!(2)));
    assert_eq!(page("&before=2").await, (vec![json!(1)], json!(1)));
    assert_eq!(page("&before=1").await, (vec![], Value::Null));
    tally.assert_exact_when_quiescent(item).await;
    assert_rules_hold(&tally.pool).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_span_begins_with_a_vote_of_its_first_moment_and_ends_before_one_of_its_last() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    for voter in ["ada", "bob", "eve"] {
        tally.vote(item, voter).await;
    }
    let moments: Vec<String> = sqlx::query_scalar(
        r#"select to_char(created_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') from vote order by id"#,
    )
    .fetch_all(&tally.pool)
    .await
    .expect("votes");
    let span = ["--from", &moments[1], "--until", &moments[2], "--reason", "x"];
    let (done, dry) = void(&tally, &span).await;
    assert!(done, "{dry}");
    assert_eq!(dry["votes"], 1);
    let (done, voided) = void(&tally, &[&span[..], &["--apply"]].concat()).await;
    assert!(done, "{voided}");
    let of_whom: Vec<String> =
        sqlx::query_scalar("select voter_id from voided join vote on vote.id = voided.vote_id")
            .fetch_all(&tally.pool)
            .await
            .expect("voided votes");
    assert_eq!(of_whom, ["bob"]);
    tally.assert_exact_when_quiescent(item).await;
    assert_rules_hold(&tally.pool).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_voiding_is_one_line_and_voids_nothing() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.vote(item, "ada").await;
    let long = "x".repeat(501);
    for (arguments, part) in [
        (vec!["--voter", "ada", "--apply"], "--reason"),
        (vec!["--reason", "x"], "--voter"),
        (vec!["--voter", "ada", "--reason", "", "--apply"], "1 to 500"),
        (vec!["--voter", "ada", "--reason", &long, "--apply"], "1 to 500"),
        (vec!["--voter", "", "--reason", "x"], "voter_id"),
        (vec!["--item", "0", "--reason", "x"], "from 1 to"),
        (vec!["--item", "key:", "--reason", "x"], "key is empty"),
        (vec!["--item", "999", "--reason", "x", "--apply"], "no item 999"),
        (
            vec!["--item", "key:no such", "--reason", "x"],
            "no item key:no such",
        ),
        (
            vec![
                "--from",
                "2026-01-02T00:00:00Z",
                "--until",
                "2026-01-01T00:00:00Z",
                "--reason",
                "x",
            ],
            "not after --from",
        ),
        (vec!["--from", "yesterday", "--reason", "x"], "RFC 3339"),
        (vec!["--resume", "7"], "no voiding 7"),
        (vec!["--undo", "7"], "no voiding 7"),
    ] {
        let (done, said) = void(&tally, &arguments).await;
        assert!(!done, "{arguments:?}: {said}");
        assert!(said.to_string().contains(part), "{arguments:?}: {said}");
    }
    assert_eq!(tally.ledger_sum(item).await, 1);
}

/// Voters under the same rule wait for each chunk.
#[tokio::test(flavor = "multi_thread")]
async fn an_undo_casts_no_more_votes_again_at_a_time_than_it_is_asked_to_and_each_once() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    for _ in 0..2 {
        tally.add(item, 1).await;
    }
    let (ledger, mut voider) = voider(&tally).await;
    let id = create_voiding(&ledger, &of_item(item)).await;
    assert_eq!(run_to_end(&ledger, &mut voider, id, Direction::Void).await, 2);
    let votes: Vec<i64> = sqlx::query_scalar("select vote_id from voided order by vote_id")
        .fetch_all(&tally.pool)
        .await
        .expect("Postgres answers");
    for vote in votes {
        let chunk: (i64, i32) = sqlx::query_as("select up_to, voided_votes from undo_votes($1, 1)")
            .bind(id.0)
            .fetch_one(&tally.pool)
            .await
            .expect("Postgres answers");
        assert_eq!(chunk, (vote, 1));
    }
    assert_eq!(tally.ledger_sum(item).await, 2);
    assert_rules_hold(&tally.pool).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_turnout_follows_a_voiding_and_its_undo_whatever_else_the_voters_hold_or_held() {
    let tally = Tally::start().await;
    let (poll, [first, other]) = poll(&tally, 2).await;
    for (voter, choices) in [
        ("ada", vec![first, other]),
        ("bob", vec![other]),
        ("bob", vec![first]),
        ("cy", vec![first]),
    ] {
        let path = format!("/v1/polls/{poll}/votes/{voter}");
        let (status, answer) = tally
            .send(Method::PUT, &path, Some(&json!({ "items": choices })))
            .await;
        assert_eq!(status, StatusCode::OK, "{answer}");
    }
    assert_eq!(turnout(&tally, &poll).await, 3);
    let (done, voided) = void(
        &tally,
        &["--item", &first.to_string(), "--reason", "x", "--apply"],
    )
    .await;
    assert!(done && voided["voided_votes"] == 3, "{voided}");
    assert_eq!(turnout(&tally, &poll).await, 1, "ada holds the other choice");
    assert_rules_hold(&tally.pool).await;
    let (done, undone) = void(&tally, &["--undo", &voided["voiding"].to_string()]).await;
    assert!(done && undone["restored_votes"] == 3, "{undone}");
    assert_eq!(turnout(&tally, &poll).await, 3);
    assert_rules_hold(&tally.pool).await;
    for choice in [first, other] {
        tally.assert_exact_when_quiescent(choice).await;
    }
}

/// Runs a voiding, or its undo, to the end.
/// Returns how many votes were voided or cast again.
pub(super) async fn run_to_end(
    ledger: &OperatorLedger,
    voider: &mut ChunkWriter,
    id: VoidingId,
    direction: Direction,
) -> i64 {
    let mut votes = 0;
    loop {
        let voiding = ledger
            .voiding(id)
            .await
            .expect("Postgres answers")
            .expect("the voiding");
        let is_whole = match direction {
            Direction::Void => voiding.is_done(),
            Direction::Undo => voiding.is_undone(),
        };
        if is_whole {
            return votes;
        }
        votes += voider
            .voiding_chunk(id, direction)
            .await
            .expect("Postgres answers")
            .votes;
    }
}

/// Opens an operator's ledger, and what voids votes for the operator.
pub(super) async fn voider(tally: &Tally) -> (OperatorLedger, ChunkWriter) {
    let ledger = OperatorLedger::new(tally.stores.login_url(Role::Operator), "test").expect("a URL");
    let live = connected(live_counts(tally)).await;
    let voider = ChunkWriter::new(ledger.as_server().writer(), live);
    (ledger, voider)
}

pub(super) fn of_item(item: ItemId) -> VoteFilter {
    VoteFilter {
        item_id: Some(item),
        ..VoteFilter::default()
    }
}

/// Creates a voiding of all these votes so far, and does not begin it.
pub(super) async fn create_voiding(ledger: &OperatorLedger, filter: &VoteFilter) -> VoidingId {
    let until = ledger.last_vote().await.expect("Postgres answers");
    ledger
        .create_voiding(filter, "x", until)
        .await
        .expect("a voiding")
}

/// How many votes the next chunk voids or casts again.
/// The chunk waits for this transaction's commit.
pub(super) async fn votes_behind(
    tally: &Tally,
    transaction: Transaction<'static, Postgres>,
    voider: &mut ChunkWriter,
    id: VoidingId,
    direction: Direction,
) -> i64 {
    let (chunk, ()) = tokio::join!(voider.voiding_chunk(id, direction), async {
        until_blocked(&tally.pool, r#"select xid as "xid!""#).await;
        transaction.commit().await.expect("a commit");
    });
    chunk.expect("Postgres answers").votes
}

/// Why votes were left void.
pub(super) async fn left_void(tally: &Tally) -> Vec<String> {
    sqlx::query_scalar("select left_void from voided where left_void is not null order by 1")
        .fetch_all(&tally.pool)
        .await
        .expect("Postgres answers")
}

/// A poll of two choices. A voter may hold this many.
pub(super) async fn poll(tally: &Tally, max_choices: i64) -> (Value, [ItemId; 2]) {
    let new = json!({ "title": "x", "choices": ["a", "b"], "max_choices": max_choices });
    let (status, poll) = tally.post("/v1/polls", &new).await;
    assert_eq!(status, StatusCode::CREATED, "{poll}");
    let choice = |at: usize| {
        let id = poll["choices"][at]["item_id"].as_i64().and_then(ItemId::new);
        id.expect("an id")
    };
    (poll["id"].clone(), [choice(0), choice(1)])
}

pub(super) async fn turnout(tally: &Tally, poll: &Value) -> i64 {
    let (_, shown) = tally.get(&format!("/v1/polls/{poll}")).await;
    shown["voter_count"].as_i64().expect("a number")
}
