//! One voter's requests from all clients.

use super::*;
use crate::rules::assert_rules_hold;

const VOTER: u32 = 0;

#[tokio::test(flavor = "multi_thread")]
async fn one_voters_requests_on_a_plain_item_end_in_one_of_the_values_sent() {
    one_voter(json!({}), None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_voters_requests_on_an_item_with_a_rule_end_in_one_of_the_values_sent() {
    one_voter(json!({ "max_votes": 1 }), Some(1)).await;
}

async fn one_voter(fields: Value, max_votes: Option<usize>) {
    const ROUNDS: u64 = 4;
    const REQUESTS: usize = 5;
    let pair = Pair::start().await;
    for round in 0..ROUNDS {
        let item = pair.tally.item_with(fields.clone()).await;
        let request = |_: usize, random: &mut StdRng| any(VOTER, random);
        let mut history = pair.race(item, round, REQUESTS, request).await;
        let last = Request {
            voter: Some(VOTER),
            wants: Wants::Read,
        };
        let last = pair.ask(0, item, last).await;
        let held = match last.answer {
            Some(Answer::Holds(cast)) => cast.value,
            _ => 0,
        };
        history.push(last);
        assert_eq!(pair.tally.ledger_sum(item).await, held);
        let stored = rows::of_items(&pair.tally.pool, &[item.get()])
            .await
            .expect("rows");
        let effects = rows::of_voter(&stored, item.get(), VOTER);
        let checked = items::check(max_votes, false, &effects, &history);
        checked.unwrap_or_else(|why| panic!("round {round}: {why}"));
        pair.tally.assert_exact_when_quiescent(item).await;
    }
    assert_rules_hold(&pair.tally.pool).await;
}
