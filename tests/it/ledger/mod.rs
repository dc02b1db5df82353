//! The ledger: what statements and the database itself guarantee.

mod audit_rows;
mod batches;
mod behind;
mod connections;
mod counts;
mod exact_counts;
mod killed_roll_ups;
mod plans;
mod ranges;
mod retries;
mod roles;
mod roll_ups;
mod schema;
mod vote_ids;

use tally::domain::{ItemId, VoteOutcome};

use crate::helpers::tally::{made_item, vote};

fn words(outcomes: &[VoteOutcome]) -> Vec<&'static str> {
    outcomes
        .iter()
        .map(|outcome| match outcome {
            VoteOutcome::Accepted(_) => "accepted",
            VoteOutcome::Repeated(_) => "repeated",
            VoteOutcome::UnknownItem => "unknown",
            VoteOutcome::UnresolvedRepeat => "unresolved",
            VoteOutcome::NeedsDecision => "needs a decision",
            VoteOutcome::Refused(_) => "refused",
        })
        .collect()
}

async fn item(ledger: &tally::ledger::ServerLedger) -> ItemId {
    made_item(ledger, "x").await
}

/// Creates this many items. Returns their ids.
async fn items(pool: &sqlx::PgPool, number: i64) -> Vec<ItemId> {
    let ids: Vec<i64> =
        sqlx::query_scalar("insert into item (name) select 'x' from generate_series(1, $1) returning id")
            .bind(number)
            .fetch_all(pool)
            .await
            .expect("items");
    ids.into_iter().filter_map(ItemId::new).collect()
}
