//! One item, and the steps of batches, workers and an entry into another epoch.

use std::sync::Arc;

use redis::Value;
use redis::aio::MultiplexedConnection;
use sqlx::postgres::PgPool;
use tally::domain::{Count, ExactCount, ItemId, Revision};

use super::pieces::Pieces;
use super::{BEGIN_US, LEASE_LIMIT_MS};
use crate::proofs::one_vote_batch::{Batch, Call, Reply, Without};

/// What a worker does next. It read the epoch's number `epoch` first.
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
    /// The item refused the count with this revision.
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

/// What the worker that enters another epoch after a wipe does next.
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

/// What became of a save.
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
        let id = ItemId::new(id).expect("positive");
        Self::existing(id, pieces, redis, postgres).await
    }

    /// An item that is in the database already.
    pub(super) async fn existing(
        id: ItemId,
        pieces: Arc<Pieces>,
        redis: MultiplexedConnection,
        postgres: PgPool,
    ) -> Self {
        let mut item = Self {
            id,
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

    /// Takes a batch's next step. Returns the batch after it.
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

    /// Takes a worker's next step. Returns the worker's state after it.
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

    /// Takes the next step into another epoch. Returns the step after it.
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
}
