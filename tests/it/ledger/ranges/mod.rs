//! A ledger that is split into ranges of ids.

mod kept;
mod splitting;
mod switch;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use reqwest::{Method, StatusCode};
use serde_json::json;
use sqlx::PgPool;
use tally::domain::ItemId;
use tally::ledger::{OwnerLedger, Partitioned, RANGE_LEAST_IDS};

use crate::helpers::tally::Tally;

/// Splits the ledger, unless all tests have one in ranges.
async fn split(tally: &Tally) {
    let owner = OwnerLedger::new(&tally.stores.database_url, "test").expect("a URL");
    let done = owner
        .partition(RANGE_LEAST_IDS, |_, _| {})
        .await
        .expect("a split");
    assert!(matches!(done, Partitioned::Done { .. }), "{done:?}");
    assert_eq!(
        owner
            .partition(RANGE_LEAST_IDS, |_, _| {})
            .await
            .expect("an answer"),
        Partitioned::Already
    );
}

/// The first id behind this range.
async fn end_of(pool: &PgPool, range: i32) -> i64 {
    sqlx::query_scalar("select end_vote_id from vote_range where number = $1")
        .bind(range)
        .fetch_one(pool)
        .await
        .expect("ranges")
}

/// The next vote gets the id behind this one.
async fn draw(pool: &PgPool, id: i64) {
    sqlx::query("select setval('vote_id_seq', $1)")
        .bind(id)
        .execute(pool)
        .await
        .expect("the owner may");
}

/// The tables that have rows of votes, each once.
async fn tables(pool: &PgPool) -> Vec<String> {
    sqlx::query_scalar("select distinct tableoid::regclass::text from vote order by 1")
        .fetch_all(pool)
        .await
        .expect("Postgres answers")
}

/// Rows of voters that are in one of the two tables alone, or differ.
async fn differences(pool: &PgPool) -> i64 {
    sqlx::query_scalar(
        "select count(*)
         from (select * from vote where voter_id is not null) as one full join vote_of_voter as other on other.id = one.id
         where (one.item_id, one.created_at, one.value, one.change_number, one.voter_id, one.poll_id, one.number)
             is distinct from (other.item_id, other.created_at, other.value, other.change_number, other.voter_id,
                               other.poll_id, other.number)",
    )
    .fetch_one(pool)
    .await
    .expect("Postgres answers")
}

async fn number(pool: &PgPool, query: &str) -> i64 {
    sqlx::query_scalar(query)
        .fetch_one(pool)
        .await
        .expect("Postgres answers")
}

/// Votes, changes and retractions of a few voters and of nobody, until it is to end.
/// Returns how many rows were acknowledged as new.
async fn vote_at_random(tally: Arc<Tally>, items: Vec<ItemId>, seed: u64, ends: Arc<AtomicBool>) -> usize {
    let mut random = StdRng::seed_from_u64(seed);
    let mut created = 0;
    while !ends.load(Ordering::Relaxed) {
        let item = items[random.random_range(0..items.len())];
        let voter = format!("voter{}", random.random_range(0..40));
        let of_voter = format!("/v1/items/{item}/votes/{voter}");
        let value = if random.random_bool(0.5) { 1 } else { -1 };
        let (method, path, body) = match random.random_range(0..6) {
            0 | 1 => (Method::POST, format!("/v1/items/{item}/votes"), Some(json!({}))),
            2 | 3 => (
                Method::POST,
                format!("/v1/items/{item}/votes"),
                Some(json!({ "voter_id": voter })),
            ),
            4 => (Method::PUT, of_voter, Some(json!({ "value": value }))),
            _ => (Method::DELETE, of_voter, None),
        };
        let (status, said) = tally.send(method, &path, body.as_ref()).await;
        assert!(status.is_success(), "{path}: {status} {said}");
        created += usize::from(status == StatusCode::CREATED);
    }
    created
}
