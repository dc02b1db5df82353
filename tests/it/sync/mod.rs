//! The sync worker: each step by itself, and in races.

mod audits;
mod crashed_writers;
mod damage;
mod epochs;
mod flush;
mod jobs;
mod roll_ups;
mod scan;
mod takeovers;
mod webhooks;

use sqlx::PgConnection;
use tally::domain::{CountToSave, ItemId};
use tally::ledger::EpochNumber;

use crate::helpers::tally::Tally;

async fn command(tally: &Tally, words: &[&str]) {
    let mut redis = tally.stores.redis_connection().await;
    let mut command = redis::cmd(words[0]);
    for word in &words[1..] {
        command.arg(*word);
    }
    let _: redis::Value = command.query_async(&mut redis).await.expect("Redis answers");
}

async fn unsaved(tally: &Tally, item: ItemId) -> CountToSave {
    let counter = tally
        .counters
        .read(&[item])
        .await
        .expect("Redis answers")
        .remove(0);
    let (count, revision) = counter.unsaved().expect("an unsaved count");
    CountToSave {
        item_id: item,
        count,
        revision,
    }
}

async fn epoch(tally: &Tally) -> EpochNumber {
    tally.ledger.epoch_number().await.expect("Postgres answers")
}

/// A batch writer that has stored a vote on this item and does not count it.
/// The writer lives as long as its connection.
async fn writer_that_counts_not(tally: &Tally, item: ItemId) -> PgConnection {
    let pool = tally.stores.pool();
    let mut writer = pool.acquire().await.expect("a connection").detach();
    sqlx::raw_sql(&format!(
        "set application_name = 'tally writer that counts not';
         insert into writer_connection (name, counted_vote_id)
         select 'tally writer that counts not', last_value from vote_id_seq;
         insert into vote (item_id) values ({item})"
    ))
    .execute(&mut writer)
    .await
    .expect("a vote that is not counted");
    writer
}
