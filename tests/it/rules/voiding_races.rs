//! Voidings and undos beside voters: who waits for whom, and whose act counts.

use reqwest::StatusCode;
use serde_json::json;
use tally::domain::{ItemId, VoteFilter, VoterId};
use tally::votes::Direction;
use tokio::task::JoinSet;

use super::assert_rules_hold;
use super::voiding::{create_voiding, left_void, of_item, poll, run_to_end, turnout, voider, votes_behind};
use crate::helpers::stores::blocker;
use crate::helpers::tally::Tally;

/// On an item without a rule, nobody waits for a voiding.
#[tokio::test(flavor = "multi_thread")]
async fn a_vote_that_its_voter_is_first_to_take_back_or_to_cast_again_is_left_to_the_voter() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let (ledger, mut voider) = voider(&tally).await;
    let change = async |voter: &str, change_number: i64, value: i64| {
        let row = format!(
            "insert into vote (item_id, voter_id, change_number, value)
             values ({item}, '{voter}', {change_number}, {value})"
        );
        blocker(&tally.pool, &row).await
    };
    tally.vote(item, "ada").await;
    let id = create_voiding(&ledger, &of_item(item)).await;
    let taking_back = change("ada", 1, -1).await;
    assert_eq!(
        votes_behind(&tally, taking_back, &mut voider, id, Direction::Void).await,
        0
    );

    tally.vote(item, "bob").await;
    let id = create_voiding(&ledger, &of_item(item)).await;
    assert_eq!(run_to_end(&ledger, &mut voider, id, Direction::Void).await, 1);
    let casting_again = change("bob", 2, 1).await;
    assert_eq!(
        votes_behind(&tally, casting_again, &mut voider, id, Direction::Undo).await,
        0
    );
    assert_eq!(left_void(&tally).await, ["changed"]);
    assert_eq!(tally.ledger_sum(item).await, 1);
    assert_rules_hold(&tally.pool).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_voiding_and_its_undo_wait_for_a_choice_that_is_being_stored_and_then_look_again() {
    let tally = Tally::start().await;
    let (ledger, mut voider) = voider(&tally).await;
    let choose = async |voter: &str, choice: ItemId| {
        let decide = format!(
            "select cast_votes('{{1}}', '{{null}}', array[{choice}::bigint], array['{voter}'], '{{1}}', '{{f}}', '{{f}}')"
        );
        blocker(&tally.pool, &decide).await
    };
    // Ada still votes in the poll, by her other choice.
    let (poll, [first, other]) = poll(&tally, 2).await;
    tally.vote(first, "ada").await;
    let id = create_voiding(&ledger, &of_item(first)).await;
    let choosing = choose("ada", other).await;
    assert_eq!(
        votes_behind(&tally, choosing, &mut voider, id, Direction::Void).await,
        1
    );
    assert_eq!(turnout(&tally, &poll).await, 1);
    assert_rules_hold(&tally.pool).await;

    // Bob's other choice is the only one that he may have.
    let (poll, [first, other]) = self::poll(&tally, 1).await;
    tally.vote(first, "bob").await;
    let id = create_voiding(&ledger, &of_item(first)).await;
    assert_eq!(run_to_end(&ledger, &mut voider, id, Direction::Void).await, 1);
    let choosing = choose("bob", other).await;
    assert_eq!(
        votes_behind(&tally, choosing, &mut voider, id, Direction::Undo).await,
        0
    );
    assert_eq!(left_void(&tally).await, ["choices"]);
    assert_eq!(turnout(&tally, &poll).await, 1);
    assert_rules_hold(&tally.pool).await;
}

/// A batch of votes waits in the same way.
#[tokio::test(flavor = "multi_thread")]
async fn a_voiding_and_its_undo_wait_for_whoever_decides_under_their_rule_and_for_nobody_else() {
    let tally = Tally::start().await;
    let (ledger, mut voider) = voider(&tally).await;
    let item = tally.item_with(json!({ "max_votes": 2 })).await;
    let other = tally.item_with(json!({ "max_votes": 2 })).await;
    for (item, voter) in [(item, "ada"), (other, "bob")] {
        assert_eq!(tally.vote(item, voter).await.0, StatusCode::CREATED);
    }
    let id = create_voiding(&ledger, &of_item(item)).await;
    for (direction, chunk) in [
        (Direction::Void, "select void_votes($1, 1000, 50000)"),
        (Direction::Undo, "select undo_votes($1, 1000)"),
    ] {
        for (of, waits) in [(item, true), (other, false)] {
            let rule = format!(
                "select from rule where id = (select rule_id from item where id = {of}) for no key update"
            );
            let locked = blocker(&tally.pool, &rule).await;
            let mut transaction = tally.pool.begin().await.expect("a transaction");
            sqlx::query("set local lock_timeout = '100ms'")
                .execute(&mut *transaction)
                .await
                .expect("a setting");
            match sqlx::query(chunk).bind(id.0).execute(&mut *transaction).await {
                // 55P03: the chunk would have waited for the lock.
                Err(sqlx::Error::Database(error)) if waits => {
                    assert_eq!(error.code().as_deref(), Some("55P03"), "{direction:?}");
                }
                Ok(_) if !waits => {}
                ended => panic!("{direction:?}, {of}: {ended:?}"),
            }
            transaction.rollback().await.expect("an end");
            locked.rollback().await.expect("an end");
        }
        assert_eq!(run_to_end(&ledger, &mut voider, id, direction).await, 1);
    }
    for item in [item, other] {
        tally.assert_exact_when_quiescent(item).await;
    }
    assert_rules_hold(&tally.pool).await;
}

/// Voters vote, change and take back on the same items, on two servers.
#[tokio::test(flavor = "multi_thread")]
async fn a_voiding_in_the_midst_of_voting_is_exact() {
    let tally = Tally::start().await;
    let plain = tally.item("x").await;
    let limited = tally.item_with(json!({ "max_votes": 15 })).await;
    let bases = [tally.base.clone(), tally.another_server().await];
    let mut voting = JoinSet::new();
    for voter in 0..20 {
        let http = tally.http.clone();
        let base = bases[voter % 2].clone();
        voting.spawn(async move {
            for turn in 0..15 {
                let item = [plain, limited][turn % 2];
                let url = format!("{base}/v1/items/{item}/votes/v{voter}");
                let sent = match turn % 5 {
                    4 => http.delete(&url).send().await,
                    3 => http.put(&url).json(&json!({ "value": -1 })).send().await,
                    _ => http.put(&url).json(&json!({ "value": 1 })).send().await,
                };
                let status = sent.expect("an answer").status();
                assert!([200, 201, 409].contains(&status.as_u16()), "{status}");
            }
        });
    }
    let (ledger, mut voider) = voider(&tally).await;
    let mut voided = 0;
    // The voters may finish before the first look finds a vote.
    while !voting.is_empty() || voided == 0 {
        for voter in ["v0", "v1", "v2", "v3"] {
            let filter = VoteFilter {
                voter_id: Some(VoterId::parse(voter.to_owned()).expect("a voter")),
                ..VoteFilter::default()
            };
            let id = create_voiding(&ledger, &filter).await;
            voided += run_to_end(&ledger, &mut voider, id, Direction::Void).await;
            run_to_end(&ledger, &mut voider, id, Direction::Undo).await;
        }
        while voting.try_join_next().is_some() {}
    }
    assert!(voided > 0);
    for item in [plain, limited] {
        tally.assert_exact_when_quiescent(item).await;
    }
    assert_rules_hold(&tally.pool).await;
}
