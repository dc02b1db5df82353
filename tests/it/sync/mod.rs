//! The steps of the sync worker, each by itself and in races.

mod audits;
mod epochs;
mod flush;
mod jobs;
mod recovery;

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
