//! One item, and the steps that batches, workers and an entry into another epoch take on it.

use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{Script, Value};
use sqlx::Row;
use sqlx::postgres::PgPool;
use tally::domain::{Count, CountDelta, ExactCount, ItemId, Revision, Snapshot, TransactionId};
use tally::live::Counted;

use super::pieces::{INDEX, Pieces};
use super::{BEGIN_US, LEASE_LIMIT_MS};
use crate::batch::{Batch, Call, Reply, Without};

/// What a worker does next. `epoch` is the number of the epoch that it read first.
#[derive(Clone, Debug)]
pub(super) enum Worker {
    ReadEpoch,
    Read {
        epoch: i64,
    },
    Write {
        epoch: i64,
        count: Count,
        revision: i64,
    },
    Mark {
        count: Count,
        revision: i64,
    },
    /// The item has refused the count of this revision.
    InvalidateUnchanged {
        revision: i64,
    },
    Expire {
        revision: i64,
    },
    ReadExact {
        epoch: i64,
        request: String,
    },
    Claim {
        epoch: i64,
        request: String,
        exact: ExactCount,
    },
    WriteExact {
        epoch: i64,
        request: String,
        exact: ExactCount,
        revision: i64,
    },
    ClearRequest {
        request: String,
    },
}

/// What the worker does next that enters another epoch after a wipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Done,
    RaiseNumber,
    Scan,
    InvalidateScanned,
    /// Compares saved and exact count.
    Compare,
    ReadCounter,
    InvalidateLost,
}

/// What became of a count that was to be saved.
#[derive(PartialEq)]
pub(super) enum Saving {
    Saved,
    Refused,
    EpochEnded,
}

#[derive(Clone, Debug)]
pub(super) struct Fields {
    pub(super) count: Option<(Count, i64)>,
    pub(super) saved: Option<i64>,
    pub(super) rebuild: Option<String>,
}

impl Fields {
    pub(super) fn is_saved(&self) -> bool {
        self.count
            .is_none_or(|(_, revision)| self.saved == Some(revision))
    }
}

/// One item, and everyone who works on it.
pub(super) struct Item {
    pub(super) id: ItemId,
    pub(super) key: String,
    pub(super) pieces: Arc<Pieces>,
    pub(super) redis: MultiplexedConnection,
    pub(super) postgres: PgPool,
    pub(super) tokens: i64,
    pub(super) now: i64,
}

impl Item {
    pub(super) async fn new(pieces: Arc<Pieces>, redis: MultiplexedConnection, postgres: PgPool) -> Self {
        let id: i64 = sqlx::query_scalar("insert into item (name) values ('x') returning id")
            .fetch_one(&postgres)
            .await
            .expect("an item");
        let mut item = Self {
            id: ItemId::new(id).expect("positive"),
            key: format!("tally:{{{id}}}"),
            pieces,
            redis,
            postgres,
            tokens: 0,
            now: 0,
        };
        item.set_clock(BEGIN_US).await;
        item
    }

    pub(super) async fn set_clock(&mut self, now: i64) {
        if now == self.now {
            return;
        }
        self.now = now;
        redis::cmd("HSET")
            .arg(format!("{}:clock", self.key))
            .arg(&[("s", now / 1_000_000), ("us", now % 1_000_000)])
            .exec_async(&mut self.redis)
            .await
            .expect("Redis answers");
    }

    /// Whether the index has the item, if anything of its counter is to be written: the worker
    /// finds no other counters.
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
        let mut call = script(&pieces).key(INDEX);
        call.key(&self.key);
        for argument in arguments {
            call.arg(argument);
        }
        let [reply]: [Value; 1] = call.invoke_async(&mut self.redis).await.expect("the script runs");
        reply
    }

    /// A batch's next step; returns the batch after it.
    pub(super) async fn batch_step(&mut self, batch: &Batch) -> Batch {
        let Some(call) = batch.call() else {
            return batch.clone();
        };
        let reply = match call {
            Call::Commit => Reply::Committed(self.commit(batch.delta()).await),
            Call::Count(transaction, deltas) => {
                let mut replies = Vec::new();
                for delta in deltas {
                    replies.push(self.count(transaction, delta).await);
                }
                Reply::Counted(replies)
            }
            Call::ReadExactCounts(items) => {
                assert_eq!(items, [self.id]);
                Reply::ExactCounts(vec![self.exact().await])
            }
            Call::Seed(seeds) => {
                let mut replies = Vec::new();
                for seed in seeds {
                    replies.push(self.seed(&seed.exact, seed.lease).await);
                }
                Reply::Seeded(replies)
            }
            Call::Invalidate(items) => {
                assert_eq!(items, [self.id]);
                self.invalidate().await;
                Reply::Invalidated
            }
        };
        batch.after(reply)
    }

    /// Without votes it is a repeat: its transaction stores nothing.
    pub(super) async fn commit(&self, delta: Count) -> TransactionId {
        let values = (0..delta.ups()).map(|_| 1).chain((0..delta.downs).map(|_| -1));
        let values: Vec<i16> = values.collect();
        let row = sqlx::query(self.pieces.insert_votes)
            .bind(vec![self.id.get(); values.len()])
            .bind(values)
            .bind(vec![self.id.get()])
            .fetch_one(&self.postgres)
            .await
            .expect("an insert");
        TransactionId(row.get(0))
    }

    pub(super) async fn count(&mut self, TransactionId(xid): TransactionId, delta: CountDelta) -> Counted {
        self.tokens += 1;
        let Count { net, downs } = delta.delta;
        let delta = if downs == 0 {
            net.to_string()
        } else {
            format!("{net},{downs}")
        };
        let [xid, token, limit] = [xid, self.tokens, LEASE_LIMIT_MS].map(|one| one.to_string());
        match self
            .script(|pieces| &pieces.count, &[xid, token, limit, delta])
            .await
        {
            Value::Int(count) => Counted::Count(count.into()),
            Value::Array(parts) if matches!(parts[..], [Value::Int(_), Value::Int(_)]) => {
                let (net, downs) = redis::from_redis_value(Value::Array(parts)).expect("numbers");
                Counted::Count(Count { net, downs })
            }
            miss => {
                let (_, lease): (String, String) = redis::from_redis_value(miss).expect("a miss");
                Counted::Miss { lease }
            }
        }
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

    /// A worker's next step; returns the one after it.
    pub(super) async fn work(&mut self, worker: Worker) -> Worker {
        match worker {
            Worker::ReadEpoch => Worker::Read {
                epoch: self.epoch().await,
            },
            Worker::Read { epoch } => {
                let Fields {
                    count,
                    saved,
                    rebuild,
                } = self.read().await;
                match (count, rebuild) {
                    (Some((_, revision)), _) if saved == Some(revision) => Worker::Expire { revision },
                    (Some((count, revision)), _) => Worker::Write {
                        epoch,
                        count,
                        revision,
                    },
                    (None, Some(request)) => Worker::ReadExact { epoch, request },
                    (None, None) => Worker::ReadEpoch,
                }
            }
            Worker::Write {
                epoch,
                count,
                revision,
            } => match self.save(epoch, count, revision).await {
                Saving::Saved => Worker::Mark { count, revision },
                Saving::Refused => Worker::InvalidateUnchanged { revision },
                Saving::EpochEnded => Worker::ReadEpoch,
            },
            Worker::Mark { count, revision } => {
                let by = if self.pieces.without == Without::Revision {
                    count.net
                } else {
                    revision
                };
                self.script(|pieces| &pieces.mark_saved, &[by.to_string()]).await;
                Worker::ReadEpoch
            }
            Worker::InvalidateUnchanged { revision } => {
                self.invalidate_revision(&revision.to_string()).await;
                Worker::ReadEpoch
            }
            Worker::Expire { revision } => {
                self.script(|pieces| &pieces.expire, &["0".to_owned(), revision.to_string()])
                    .await;
                Worker::ReadEpoch
            }
            Worker::ReadExact { epoch, request } => Worker::Claim {
                epoch,
                request,
                exact: self.exact().await,
            },
            Worker::Claim {
                epoch,
                request,
                exact,
            } => {
                let counted_at = exact.counted_at.map_or(0, Revision::micros);
                let reply = self
                    .script(
                        |pieces| &pieces.claim_rebuild,
                        &[request.clone(), counted_at.to_string()],
                    )
                    .await;
                if !matches!(reply, Value::Array(_)) {
                    return Worker::ReadEpoch;
                }
                let (_, revision): (String, i64) = redis::from_redis_value(reply).expect("a claim");
                Worker::WriteExact {
                    epoch,
                    request,
                    exact,
                    revision,
                }
            }
            Worker::WriteExact {
                epoch,
                request,
                exact,
                revision,
            } => {
                if self.save_rebuilt(epoch, &exact, revision).await {
                    Worker::ClearRequest { request }
                } else {
                    Worker::ReadEpoch
                }
            }
            Worker::ClearRequest { request } => {
                self.script(
                    |pieces| &pieces.clear_rebuild,
                    &[LEASE_LIMIT_MS.to_string(), request],
                )
                .await;
                Worker::ReadEpoch
            }
        }
    }

    /// The next step into another epoch; returns the one after it.
    pub(super) async fn enter(&mut self, entry: Entry) -> Entry {
        match entry {
            Entry::Done => Entry::Done,
            Entry::RaiseNumber => {
                sqlx::query("update epoch set number = number + 1")
                    .execute(&self.postgres)
                    .await
                    .expect("an epoch");
                Entry::Scan
            }
            Entry::Scan => {
                let is_there: bool = redis::cmd("EXISTS")
                    .arg(&self.key)
                    .query_async(&mut self.redis)
                    .await
                    .expect("Redis answers");
                if is_there {
                    Entry::InvalidateScanned
                } else {
                    Entry::Compare
                }
            }
            Entry::InvalidateScanned => {
                self.invalidate().await;
                Entry::Compare
            }
            Entry::Compare => {
                let (saved, exact) = self.truth().await;
                if saved == exact {
                    Entry::Done
                } else {
                    Entry::ReadCounter
                }
            }
            Entry::ReadCounter => {
                let counter = self.read().await;
                if counter.count.is_none() && counter.rebuild.is_none() {
                    Entry::InvalidateLost
                } else {
                    Entry::Done
                }
            }
            Entry::InvalidateLost => {
                self.invalidate().await;
                Entry::Done
            }
        }
    }

    pub(super) async fn epoch(&self) -> i64 {
        sqlx::query_scalar("select number from epoch")
            .fetch_one(&self.postgres)
            .await
            .expect("an epoch")
    }

    pub(super) async fn read(&mut self) -> Fields {
        type Read = (Option<i64>, Option<i64>, Option<i64>, Option<i64>, Option<String>);
        let (net, downs, revision, saved, rebuild): Read = redis::cmd("HMGET")
            .arg(&self.key)
            .arg(&["count", "downs", "rev", "saved", "rebuild"])
            .query_async(&mut self.redis)
            .await
            .expect("Redis answers");
        let count = net.map(|net| Count {
            net,
            downs: downs.unwrap_or_default(),
        });
        Fields {
            count: count.zip(revision),
            saved,
            rebuild,
        }
    }

    pub(super) async fn exact(&self) -> ExactCount {
        let row = sqlx::query(self.pieces.exact_counts)
            .bind(vec![self.id.get()])
            .fetch_one(&self.postgres)
            .await
            .expect("an exact count");
        ExactCount {
            item_id: self.id,
            count: Count {
                net: row.get(1),
                downs: row.get(2),
            },
            counted_at: row.get::<Option<i64>, _>(3).map(Revision::from_micros),
            snapshot: Snapshot::parse(row.get(4)).expect("a snapshot"),
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

    /// Redis removes the key, if it has a time to live.
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

    /// Saved count and the ledger's sum.
    pub(super) async fn truth(&self) -> (Count, Count) {
        let (saved, saved_downs, sum, downs) = sqlx::query_as(
            "select vote_count, down_count,
                    (select coalesce(sum(value), 0)::bigint from vote where item_id = item.id),
                    (select count(*) from vote where item_id = item.id and value < 0)
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
