//! The calls on one item: the real scripts and SQL, and their answers.

use std::sync::Arc;

use redis::{Script, Value};
use sqlx::Row;
use tally::domain::{Count, CountDelta, ExactCount, Revision, Snapshot, TransactionId};
use tally::live::CountReply;
use testkit::counters;

use super::LEASE_LIMIT_MS;
use super::item::{Fields, Item, Saving};
use super::pieces::{COLD, INDEX, Pieces};

impl Item {
    /// Whether the index has the item, if its counter must be written.
    /// The worker finds no other counters.
    pub(super) async fn is_found(&mut self) -> bool {
        let read = self.read().await;
        let is_in_index: bool = redis::cmd("SISMEMBER")
            .arg(INDEX)
            .arg(&self.key)
            .query_async(&mut self.redis)
            .await
            .expect("Redis answers");
        is_in_index || (read.is_saved() && read.rebuild.is_none())
    }

    /// A script's reply for the item's key.
    pub(super) async fn script(&mut self, script: fn(&Pieces) -> &Script, arguments: &[String]) -> Value {
        let pieces = Arc::clone(&self.pieces);
        let script = script(&pieces);
        let mut call = script.key(INDEX);
        call.key(&self.key);
        if std::ptr::eq(script, &pieces.count) {
            call.key(COLD);
        }
        for argument in arguments {
            call.arg(argument);
        }
        let [reply]: [Value; 1] = call.invoke_async(&mut self.redis).await.expect("the script runs");
        reply
    }

    /// Commits the batch.
    /// A batch without votes is a repeat, whose transaction stores nothing.
    pub(super) async fn commit(&self, delta: Count) -> TransactionId {
        let values = (0..delta.ups()).map(|_| 1).chain((0..delta.downs).map(|_| -1));
        let values: Vec<i16> = values.collect();
        let row = sqlx::query(self.pieces.insert_anonymous_votes)
            .bind(vec![self.id.get(); values.len()])
            .bind(values)
            .bind(vec![self.id.get()])
            // An API key, as of most votes.
            .bind(1_i64)
            .fetch_one(&self.postgres)
            .await
            .expect("an insert");
        TransactionId(row.get(0))
    }

    pub(super) async fn count(&mut self, TransactionId(xid): TransactionId, delta: CountDelta) -> CountReply {
        self.tokens += 1;
        let delta = delta_argument(delta.delta);
        let [xid, token, limit] = [xid, self.tokens, LEASE_LIMIT_MS].map(|one| one.to_string());
        let reply = self
            .script(|pieces| &pieces.count, &[xid, token, limit, delta])
            .await;
        counted(reply)
    }

    pub(super) async fn seed(&mut self, exact: &ExactCount, lease: String) -> bool {
        let arguments = [
            exact.count.net.to_string(),
            exact.count.downs.to_string(),
            exact.snapshot.compact().into_owned(),
            lease,
            exact.counted_at.map_or(0, Revision::micros).to_string(),
        ];
        let reply = self.script(|pieces| &pieces.seed, &arguments).await;
        let word: String = redis::from_redis_value(reply).expect("a word");
        word == "SEEDED"
    }

    pub(super) async fn epoch(&self) -> i64 {
        sqlx::query_scalar("select number from epoch")
            .fetch_one(&self.postgres)
            .await
            .expect("an epoch")
    }

    pub(super) async fn read(&mut self) -> Fields {
        let parts = counters::parts(&mut self.redis, &self.key).await;
        let parts = parts.expect("Redis answers");
        Fields {
            count: parts.live().map(|count| (count, parts.revision)),
            saved: (parts.saved > 0).then_some(parts.saved),
            rebuild: Some(parts.request).filter(|request| !request.is_empty()),
        }
    }

    pub(super) async fn exact(&self) -> ExactCount {
        // Nothing was read before: the statement reads all votes beyond the watermark.
        let row = sqlx::query(self.pieces.exact_counts)
            .bind(vec![self.id.get()])
            .bind(0_i64)
            .bind(Vec::<i64>::new())
            .bind(i64::MAX)
            .bind(vec![self.id.get()])
            .fetch_one(&self.postgres)
            .await
            .expect("an exact count");
        let of_item = |column: &str| row.get::<Vec<i64>, _>(column)[0];
        let mut count = Count {
            net: of_item("vote_counts"),
            downs: of_item("down_counts"),
        };
        let items: Option<Vec<i64>> = row.get("vote_items");
        let values: Option<Vec<i16>> = row.get("vote_values");
        let changes: Option<Vec<i16>> = row.get("vote_changes");
        let votes = items.iter().flatten().zip(values.iter().flatten());
        for ((item, value), change) in votes.zip(changes.iter().flatten()) {
            if *item == self.id.get() {
                count += Count::of_row(*value, *change);
            }
        }
        let counted_at: Vec<Option<i64>> = row.get("counted_at: Vec<Option<i64>>");
        ExactCount {
            item_id: self.id,
            count,
            counted_at: counted_at[0].map(Revision::from_micros),
            snapshot: Snapshot::parse(row.get("snapshot!")).expect("a snapshot"),
        }
    }

    pub(super) async fn save(&self, epoch: i64, count: Count, revision: i64) -> Saving {
        let row = sqlx::query(&self.pieces.save_counts)
            .bind(vec![self.id.get()])
            .bind(vec![count.net])
            .bind(vec![revision])
            .bind(epoch)
            .bind(vec![count.downs])
            .fetch_one(&self.postgres)
            .await
            .expect("a save");
        let refused: Option<Vec<i64>> = row.get(0);
        match (row.get(1), refused) {
            (false, _) => Saving::EpochEnded,
            (true, None) => Saving::Saved,
            (true, Some(_)) => Saving::Refused,
        }
    }

    /// Whether the exact count was written.
    pub(super) async fn save_rebuilt(&self, epoch: i64, exact: &ExactCount, revision: i64) -> bool {
        let row = sqlx::query(self.pieces.save_rebuilt_counts)
            .bind(vec![self.id.get()])
            .bind(vec![exact.count.net])
            .bind(vec![revision])
            .bind(vec![exact.counted_at.map(Revision::micros)])
            .bind(epoch)
            .bind(vec![exact.count.downs])
            .fetch_one(&self.postgres)
            .await
            .expect("a save");
        let written: Vec<i64> = row.get(0);
        !written.is_empty()
    }

    pub(super) async fn invalidate(&mut self) {
        self.invalidate_revision("").await;
    }

    pub(super) async fn invalidate_revision(&mut self, revision: &str) {
        self.tokens += 1;
        let token = format!("token {}", self.tokens);
        self.script(|pieces| &pieces.invalidate, &[token, revision.to_owned()])
            .await;
    }

    /// Redis removes the key, if the key expires.
    pub(super) async fn time_out(&mut self) {
        let left_ms: i64 = redis::cmd("PTTL")
            .arg(&self.key)
            .query_async(&mut self.redis)
            .await
            .expect("Redis answers");
        if left_ms > 0 {
            self.wipe().await;
        }
    }

    pub(super) async fn wipe(&mut self) {
        redis::cmd("DEL")
            .arg(&self.key)
            .exec_async(&mut self.redis)
            .await
            .expect("Redis answers");
    }

    /// The saved count and the ledger's sum.
    pub(super) async fn truth(&self) -> (Count, Count) {
        let (saved, saved_downs, sum, downs) = sqlx::query_as(
            "select vote_count, down_count,
                    (select coalesce(sum(value), 0)::bigint from vote where item_id = item.id),
                    (select count(*) filter (where value < 0 and change_number % 2 = 0)
                          - count(*) filter (where value > 0 and change_number % 2 = 1)
                     from vote where item_id = item.id)
             from item where id = $1",
        )
        .bind(self.id.get())
        .fetch_one(&self.postgres)
        .await
        .expect("the item");
        let count = |net, downs| Count { net, downs };
        (count(saved, saved_downs), count(sum, downs))
    }
}

/// A delta as an argument of `lua/count.lua`, of a warm item.
pub(super) fn delta_argument(delta: Count) -> String {
    if delta == Count::ZERO {
        "0".to_owned()
    } else {
        format!("{},{}!", delta.net, delta.downs)
    }
}

/// What `lua/count.lua` replies for one key.
pub(super) fn counted(reply: Value) -> CountReply {
    match reply {
        Value::Int(count) => CountReply::Count(count.into()),
        Value::Array(parts) if matches!(parts[..], [Value::Int(_), Value::Int(_)]) => {
            let (net, downs) = redis::from_redis_value(Value::Array(parts)).expect("numbers");
            CountReply::Count(Count { net, downs })
        }
        miss => {
            let (_, lease): (String, String) = redis::from_redis_value(miss).expect("a miss");
            CountReply::Miss { lease }
        }
    }
}
