//! Places and numbers of one item.

use super::*;
use crate::rules::assert_rules_hold;

/// Checks that all places are taken, by the ledger and by the answers.
async fn assert_all_given(pair: &Pair, item: ItemId, places: usize, history: &[ItemOperation]) {
    assert_eq!(pair.tally.ledger_sum(item).await, places as i64, "item {item}");
    let given = stored(history).len();
    let known = given..=given + unanswered(history);
    assert!(known.contains(&places), "item {item}: {known:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_of_100_gives_exactly_100_places_fifty_times_over() {
    const ROUNDS: u64 = 50;
    const PLACES: usize = 100;
    let pair = Pair::start().await;
    for round in 0..ROUNDS {
        let is_numbered = round % 2 == 0;
        let fields = json!({ "max_votes": PLACES, "numbered": is_numbered });
        let item = pair.tally.item_with(fields).await;
        // Every third client is anonymous. Of the others, two share a voter.
        let request = |client: usize, _: &mut StdRng| Request {
            voter: (!client.is_multiple_of(3)).then_some(client as u32 / 2),
            wants: Wants::Cast(1),
        };
        let history = pair.race(item, round, 2, request).await;
        assert_all_given(&pair, item, PLACES, &history).await;
        if is_numbered {
            assert_without_a_gap(&history);
        }
        pair.assert_linearizable(item, Some(PLACES), is_numbered, &history)
            .await;
        pair.tally.assert_exact_when_quiescent(item).await;
    }
    assert_rules_hold(&pair.tally.pool).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_that_is_given_back_goes_to_one_other_voter() {
    const PLACES: usize = 20;
    let pair = Pair::start().await;
    let fields = json!({ "max_votes": PLACES, "numbered": true });
    let item = pair.tally.item_with(fields).await;
    let request = |client: usize, random: &mut StdRng| any(client as u32, random);
    let history = pair.race(item, 0, 20, request).await;
    assert_without_a_gap(&history);
    assert!(stored(&history).len() > PLACES, "places came back");
    let is_full = |operation: &ItemOperation| operation.answer == Some(Answer::Full);
    assert!(history.iter().any(is_full), "it was full");
    pair.assert_linearizable(item, Some(PLACES), true, &history).await;
    assert_rules_hold(&pair.tally.pool).await;
    pair.tally.assert_exact_when_quiescent(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_are_one_two_three_without_a_gap_in_the_order_of_the_votes() {
    let pair = Pair::start().await;
    let item = pair.tally.item_with(json!({ "numbered": true })).await;
    // Half of the clients are anonymous. Of the others, four share a voter.
    let request = |client: usize, random: &mut StdRng| {
        if client % 4 < 2 {
            return Request {
                voter: None,
                wants: Wants::Cast(1),
            };
        }
        any(client as u32 / 8, random)
    };
    let history = pair.race(item, 0, 20, request).await;
    assert_without_a_gap(&history);
    assert!(stored(&history).len() > CLIENTS);
    pair.assert_linearizable(item, None, true, &history).await;
    assert_rules_hold(&pair.tally.pool).await;
    pair.tally.assert_exact_when_quiescent(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_holds_while_redis_is_gone() {
    const PLACES: usize = 7;
    let pair = Pair::start().await;
    let tally = &pair.tally;
    let item = tally.item_with(json!({ "max_votes": PLACES })).await;
    let mut redis = tally.stores.redis_connection().await;
    let () = redis::cmd("CONFIG")
        .arg(&["SET", "maxmemory", "1"])
        .query_async(&mut redis)
        .await
        .expect("Redis answers");
    let request = |_: usize, _: &mut StdRng| Request {
        voter: None,
        wants: Wants::Cast(1),
    };
    let history = pair.race(item, 0, 1, request).await;
    assert_all_given(&pair, item, PLACES, &history).await;
    pair.assert_linearizable(item, Some(PLACES), false, &history)
        .await;
    let () = redis::cmd("CONFIG")
        .arg(&["SET", "maxmemory", "0"])
        .query_async(&mut redis)
        .await
        .expect("Redis answers");
    tally.wait_until_ready("ready").await;
    assert_rules_hold(&tally.pool).await;
    tally.assert_exact_when_quiescent(item).await;
}
