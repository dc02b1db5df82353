//! What the database itself holds in place.

mod batches;
mod counts;
mod folds;

use tally::domain::{ItemId, NewVote, Outcome, Value, VoterId};

fn vote(item: ItemId, voter: Option<&str>) -> NewVote {
    let voter_id = voter.map(|voter| VoterId::parse(voter.to_owned()).expect("a voter"));
    NewVote {
        item_id: item,
        voter_id,
        value: Value::UP,
    }
}

fn words(outcomes: &[Outcome]) -> Vec<&'static str> {
    outcomes
        .iter()
        .map(|outcome| match outcome {
            Outcome::Accepted(_) => "accepted",
            Outcome::Repeated(_) => "repeated",
            Outcome::UnknownItem => "unknown",
            Outcome::Unread => "unread",
        })
        .collect()
}

async fn item(ledger: &tally::ledger::Ledger) -> ItemId {
    let name = tally::domain::ItemName::parse("x".to_owned()).expect("a name");
    ledger.create_item(&name).await.expect("an item").id
}

/// Makes this many items and returns their ids.
async fn items(pool: &sqlx::PgPool, number: i64) -> Vec<ItemId> {
    let ids: Vec<i64> =
        sqlx::query_scalar("insert into item (name) select 'x' from generate_series(1, $1) returning id")
            .bind(number)
            .fetch_all(pool)
            .await
            .expect("items");
    ids.into_iter().filter_map(ItemId::new).collect()
}
