//! Throttles without Redis: each server counts for itself.

use futures_util::future::join_all;
use reqwest::{Response, StatusCode};
use serde_json::json;
use tally::domain::{ItemId, Scope};

use super::throttles::{start, statuses, vote, with_another};
use crate::helpers::tally::Tally;
use crate::web::access::api_key;

#[tokio::test(flavor = "multi_thread")]
async fn without_redis_each_server_counts_for_itself() {
    let (mut tally, bases) = with_another("voter:3/1h").await;
    let item = tally.item("x").await;
    let first = vote(&tally, &bases[0], item, Some("ada")).await;
    assert_eq!(first.status(), StatusCode::CREATED);
    tally.stores.redis.crash().await;
    for base in &bases {
        let votes = (0..20).map(|_| vote(&tally, base, item, Some("ada")));
        assert_eq!(statuses(join_all(votes).await).await, (3, 17), "{base}");
    }
    tally.stores.redis.start().await.expect("Redis starts");
    // Each server remembers its own full window until it ends, even when Redis has lost it.
    tally.wait_until_ready("ready").await;
    let votes = (0..20).map(|client| vote(&tally, &bases[client % 2], item, Some("ada")));
    assert_eq!(statuses(join_all(votes).await).await, (0, 20));
    assert_eq!(tally.ledger_sum(item).await, 1, "one voter holds one vote");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_redis_killed_in_the_middle_no_more_are_admitted_than_redis_and_each_server_take() {
    const LIMIT: usize = 30;
    let (mut tally, bases) = with_another(&format!("item:{LIMIT}/1h")).await;
    let item = tally.item("x").await;
    let before = (0..20).map(|client| vote(&tally, &bases[client % 2], item, None));
    assert_eq!(statuses(join_all(before).await).await, (20, 0));
    let voting = (0..200).map(|client| {
        let request = tally
            .http
            .post(format!("{}/v1/items/{item}/votes", bases[client % 2]));
        tokio::spawn(async move { request.send().await.expect("an answer") })
    });
    let voting: Vec<_> = voting.collect();
    tally.stores.redis.crash().await;
    let answers = join_all(voting).await;
    let (admitted, refused) = statuses(answers.into_iter().map(|answer| answer.expect("an answer"))).await;
    assert_eq!(admitted + refused, 200);
    assert!((10..=10 + 2 * LIMIT).contains(&admitted), "{admitted}");
    let held = i64::try_from(20 + admitted).expect("a number");
    assert_eq!(
        tally.ledger_sum(item).await,
        held,
        "what is admitted is stored, and nothing else"
    );
}

/// The throttle that refused an attempt, as the answer names it. `None`: the vote is stored.
fn refused_by(answer: &Response) -> Option<String> {
    match answer.status() {
        StatusCode::CREATED => None,
        StatusCode::TOO_MANY_REQUESTS => {
            let policy = answer.headers()["ratelimit-policy"].to_str().expect("a text");
            Some(policy.to_owned())
        }
        other => panic!("{other}"),
    }
}

/// Ten votes, one after the other, each by its voter and on its item.
async fn ten(
    tally: &Tally,
    item: impl Fn(usize) -> ItemId,
    voter: impl Fn(usize) -> Option<String>,
    key: Option<&str>,
) -> Vec<Option<String>> {
    let mut ended = Vec::new();
    for at in 0..10 {
        let mut request = tally
            .http
            .post(format!("{}/v1/items/{}/votes", tally.base, item(at)));
        if let Some(key) = key {
            request = request.bearer_auth(key);
        }
        let request = request.json(&json!({ "voter_id": voter(at) }));
        ended.push(refused_by(&request.send().await.expect("an answer")));
    }
    ended
}

#[tokio::test(flavor = "multi_thread")]
async fn without_redis_a_throttle_that_does_not_look_at_a_vote_leaves_the_others_their_limits() {
    let mut tally = start("voter:1000/1s,address:3/1h,item:5/2h").await;
    let mut items = Vec::new();
    for name in 0..13 {
        items.push(tally.item(&name.to_string()).await);
    }
    let (_, key) = api_key(&tally, &[Scope::Vote]).await;
    tally.stores.redis.crash().await;
    let after = |taken: usize, policy: &str| -> Vec<Option<String>> {
        let refused = |at: usize| (at >= taken).then(|| policy.to_owned());
        (0..10).map(refused).collect()
    };
    // An anonymous vote has an address and an item.
    let anonymous = ten(&tally, |at| items[at], |_| None, None).await;
    assert_eq!(anonymous, after(3, "\"address:3/3600s\";q=3;w=3600"));
    // A backend's anonymous vote has an item alone.
    let backend = Some(key.as_str());
    let of_item = after(5, "\"item:5/7200s\";q=5;w=7200");
    let anonymous = ten(&tally, |_| items[10], |_| None, backend).await;
    assert_eq!(anonymous, of_item);
    // A backend's vote has a voter and an item.
    let named = ten(&tally, |_| items[11], |at| Some(at.to_string()), backend).await;
    assert_eq!(named, of_item);
    // What was refused without Redis was the right window, so nothing else is full with Redis.
    tally.stores.redis.start().await.expect("Redis starts");
    tally.wait_until_ready("ready").await;
    let again = ten(&tally, |_| items[12], |_| None, backend).await;
    assert_eq!(again, of_item);
    assert_eq!(tally.ledger_sum(items[12]).await, 5);
}
