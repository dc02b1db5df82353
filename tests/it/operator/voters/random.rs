//! Random votes, changes and retractions between random edits: each voter holds what the edit says, and no rule breaks.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use reqwest::Method;
use serde_json::json;
use sqlx::PgPool;
use tally::domain::ItemId;

use super::{poll, voter};
use crate::helpers::tally::Tally;
use crate::rules::assert_rules_hold;

/// A vote that is held.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    id: i64,
    voter: String,
    item: i64,
    value: i64,
    poll: Option<i64>,
    max_choices: Option<i16>,
}

/// As [`Held`], in its order.
type HeldRow = (i64, String, i64, i64, Option<i64>, Option<i16>);

/// All votes of voters that are held, the oldest first. After a merge, rows with higher ids may stand before the held one.
async fn held(pool: &PgPool) -> Vec<Held> {
    let rows: Vec<HeldRow> = sqlx::query_as(
        "select (array_agg(vote.id order by change_number desc))[1], voter_id, item_id, sum(value), vote.poll_id, rule.max_choices
         from vote left join rule on rule.id = vote.poll_id
         where voter_id is not null
         group by voter_id, item_id, vote.poll_id, rule.max_choices having count(*) % 2 = 1
         order by 1",
    )
    .fetch_all(pool)
    .await
    .expect("Postgres answers");
    let rows = rows.into_iter();
    rows.map(|(id, voter, item, value, poll, max_choices)| Held {
        id,
        voter,
        item,
        value,
        poll,
        max_choices,
    })
    .collect()
}

/// Who holds what.
fn by_voter(held: &[Held]) -> BTreeMap<(String, i64), i64> {
    let entry = |one: &Held| ((one.voter.clone(), one.item), one.value);
    held.iter().map(entry).collect()
}

/// What is held after `from` has become `to`.
fn merged(before: &[Held], from: &str, to: &str) -> Vec<Held> {
    let (own, mut after): (Vec<Held>, Vec<Held>) = before.iter().cloned().partition(|one| one.voter == from);
    for one in own {
        let of_to = || after.iter().filter(|other| other.voter == to);
        let is_held = of_to().any(|other| other.item == one.item);
        let choices = of_to()
            .filter(|other| one.poll.is_some() && other.poll == one.poll)
            .count();
        let fits = one
            .max_choices
            .is_none_or(|most| choices < usize::from(most.unsigned_abs()));
        if !is_held && fits {
            after.push(Held {
                voter: to.to_owned(),
                ..one
            });
        }
    }
    after
}

#[tokio::test(flavor = "multi_thread")]
async fn each_voter_holds_what_the_edits_say_and_no_rule_breaks() {
    let tally = Tally::start().await;
    let seed: u64 = rand::random();
    let mut random = StdRng::seed_from_u64(seed);
    let mut items: Vec<ItemId> = Vec::new();
    for name in ["x", "y"] {
        items.push(tally.item(name).await);
    }
    items.push(tally.item_with(json!({ "max_votes": 3, "numbered": true })).await);
    for max_choices in [1, 2] {
        items.extend(poll(&tally, max_choices).await.1);
    }
    let mut voters: Vec<String> = (0..4).map(|at| format!("v{at}")).collect();
    for round in 0..12 {
        for _ in 0..40 {
            let item = items.choose(&mut random).expect("items");
            let voter = voters.choose(&mut random).expect("voters");
            let path = format!("/v1/items/{item}/votes/{voter}");
            // What a rule refuses is refused.
            if random.random_bool(0.3) {
                tally.send(Method::DELETE, &path, None).await;
            } else {
                let value = if random.random_bool(0.3) { -1 } else { 1 };
                tally
                    .send(Method::PUT, &path, Some(&json!({ "value": value })))
                    .await;
            }
        }
        let before = held(&tally.pool).await;
        let from = voters.choose(&mut random).expect("voters").clone();
        let others: Vec<&String> = voters.iter().filter(|voter| **voter != from).collect();
        let into = (*others.choose(&mut random).expect("voters")).clone();
        let expected = match random.random_range(0..4) {
            0 => {
                let new = format!("n{round}");
                let (done, _, said) = voter(&tally.stores, &["rename", &from, &new, "--apply"]).await;
                assert!(done, "seed {seed}: {said}");
                voters.retain(|voter| *voter != from);
                voters.push(new.clone());
                merged(&before, &from, &new)
            }
            1 => {
                let (done, erased, said) = voter(&tally.stores, &["erase", &from, "--apply"]).await;
                assert!(done, "seed {seed}: {said}");
                let random_id = erased["to"].as_str().expect("a random id");
                merged(&before, &from, random_id)
            }
            _ => {
                let (done, _, said) = voter(&tally.stores, &["merge", &from, &into, "--apply"]).await;
                assert!(done, "seed {seed}: {said}");
                merged(&before, &from, &into)
            }
        };
        let after = held(&tally.pool).await;
        assert_eq!(
            by_voter(&after),
            by_voter(&expected),
            "seed {seed}, round {round}: {from}, {into}"
        );
        assert_rules_hold(&tally.pool).await;
    }
    for item in items {
        tally.assert_exact_when_quiescent(item).await;
    }
}
