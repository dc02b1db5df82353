//! The items of an interleaving, and the calls of its writers.
//! These are the real statements and scripts. One call has all items of a batch.

use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{Script, Value};
use tally::domain::{Count, CountDelta, ItemId, Revision, TransactionId, VoteId, VoteOutcome, VoteRequest};
use tally::ledger::{Decision, InsertError, LedgerError, ServerLedger, VoteWriter, WorkerLedger};
use tally::live::{CountReply, CounterParts, Seed};

use super::answers::Answers;
use super::drawn::Batch;
use super::pieces::Without;
use crate::proofs::drawn_orders::LEASE_LIMIT_MS;
use crate::proofs::drawn_orders::calls::{counted, delta_argument};
use crate::proofs::drawn_orders::item::Item;
use crate::proofs::drawn_orders::pieces::{COLD, INDEX, Pieces};

/// How often a busy Postgres is tried again.
const TRIES_LIMIT: u32 = 30;

pub(super) struct Items {
    pub all: Vec<Item>,
    pub redis: MultiplexedConnection,
    /// Redis' time, µs.
    pub now: i64,
    pub answers: Answers,
    pub server: ServerLedger,
    pub worker: WorkerLedger,
    pub without: Without,
    /// How many leases and requests were drawn.
    pub tokens: i64,
    /// The steps so far, and their results.
    pub trace: Vec<String>,
}

/// A stored batch.
pub(super) struct Stored {
    pub transaction: TransactionId,
    pub deltas: Vec<CountDelta>,
    pub again: Vec<VoteRequest>,
}

impl Items {
    fn item(&mut self, id: ItemId) -> &mut Item {
        let item = self.all.iter_mut().find(|item| item.id == id);
        item.expect("an item of the interleaving")
    }

    pub(super) async fn set_clock(&mut self, now: i64) {
        if now == self.now {
            return;
        }
        self.now = now;
        let mut set = redis::pipe();
        for item in &self.all {
            let time = [("s", now / 1_000_000), ("us", now % 1_000_000)];
            set.cmd("HSET")
                .arg(format!("{}:clock", item.key))
                .arg(&time)
                .ignore();
        }
        set.exec_async(&mut self.redis).await.expect("Redis answers");
    }

    /// An item that is unsaved and not in the index: no worker would find it.
    pub(super) async fn lost(&mut self) -> Option<ItemId> {
        let mut read = redis::pipe();
        for item in &self.all {
            read.cmd("GET").arg(&item.key);
            read.cmd("SISMEMBER").arg(INDEX).arg(&item.key);
        }
        let replies: Vec<Value> = read.query_async(&mut self.redis).await.expect("Redis answers");
        let is_lost = |reply: &[Value]| {
            let value: Option<Vec<u8>> = redis::from_redis_value(reply[0].clone()).expect("a value");
            let parts = value.map_or_else(CounterParts::default, |value| {
                CounterParts::read(&value).expect("a counter")
            });
            let is_unsaved = parts.live().is_some() && parts.saved != parts.revision;
            (is_unsaved || !parts.request.is_empty()) && reply[1] == Value::Int(0)
        };
        let mut replies = self.all.iter().zip(replies.chunks(2));
        replies.find(|(_, reply)| is_lost(reply)).map(|(item, _)| item.id)
    }

    /// The last drawn vote id.
    pub(super) async fn last_vote_id(&self) -> VoteId {
        answer(|| self.server.last_vote_id()).await.0
    }

    /// Stores a batch in one statement. An impossible answer is an error.
    pub(super) async fn store(&mut self, writer: &mut VoteWriter, batch: &Batch) -> Result<Stored, String> {
        let (transaction, mut deltas, again) = match batch {
            Batch::Decide(requests) => {
                let mut decided = writer.decide(requests, &[]).await;
                while is_not_stored_for_load(&decided) {
                    decided = writer.decide(requests, &[]).await;
                }
                let decided = decided.map_err(|error| format!("{requests:?}: {error}"))?;
                self.trace.push(format!("decided: {:?}", decided.decisions));
                let again = self.answers.decided(requests, &decided.decisions)?;
                let mut deltas = decided.deltas();
                if self.without == Without::TakingBackCountedOnce {
                    let rows = decided.decisions.iter().flat_map(Decision::stored);
                    deltas.extend(rows.filter(|row| !row.is_cast()).map(|row| CountDelta {
                        item_id: row.item_id,
                        delta: Count::of_row(row.value, row.change_number),
                    }));
                }
                // Answers have their item's count.
                let answered = requests.iter().zip(&decided.decisions);
                let answered = answered
                    .filter(|(_, decision)| matches!(decision, Decision::Stored(_) | Decision::Repeated(_)));
                deltas.extend(answered.filter_map(|(request, _)| match request {
                    VoteRequest::Cast(vote) | VoteRequest::CastOnce { vote, .. } => Some(read(vote.item_id)),
                    VoteRequest::Set { item_id, .. } => Some(read(*item_id)),
                    VoteRequest::Select { .. } => None,
                }));
                (decided.transaction, deltas, again)
            }
            Batch::Insert(votes) => {
                let mut inserted = writer.insert(votes, &[]).await;
                while is_not_stored_for_load(&inserted) {
                    inserted = writer.insert(votes, &[]).await;
                }
                let inserted = inserted.map_err(|error| format!("{votes:?}: {error}"))?;
                self.trace.push(format!("inserted: {:?}", inserted.outcomes));
                let again = self.answers.inserted(votes, &inserted.outcomes)?;
                let deltas = votes
                    .iter()
                    .zip(&inserted.outcomes)
                    .map(|(vote, outcome)| match outcome {
                        VoteOutcome::Accepted(stored) => CountDelta {
                            item_id: vote.item_id,
                            delta: Count::of_row(stored.value, 0),
                        },
                        _ => read(vote.item_id),
                    });
                (inserted.transaction, deltas.collect(), again)
            }
        };
        CountDelta::merge(&mut deltas);
        if self.without == Without::DownVotesOfADelta {
            for one in &mut deltas {
                one.delta.downs = 0;
            }
        }
        Ok(Stored {
            transaction,
            deltas,
            again,
        })
    }

    /// One call of a script for several items.
    async fn script(
        &mut self,
        script: fn(&Pieces) -> &Script,
        items: impl Iterator<Item = ItemId>,
        arguments: Vec<String>,
    ) -> Vec<Value> {
        let pieces = Arc::clone(&self.all[0].pieces);
        let script = script(&pieces);
        let mut call = script.key(INDEX);
        for id in items {
            call.key(&self.item(id).key);
        }
        if std::ptr::eq(script, &pieces.count) {
            call.key(COLD);
        }
        for argument in arguments {
            call.arg(argument);
        }
        call.invoke_async(&mut self.redis).await.expect("the script runs")
    }

    pub(super) async fn count(
        &mut self,
        TransactionId(xid): TransactionId,
        deltas: &[CountDelta],
    ) -> Vec<CountReply> {
        self.tokens += 1;
        let mut arguments = [xid, self.tokens, LEASE_LIMIT_MS]
            .map(|one| one.to_string())
            .to_vec();
        arguments.extend(deltas.iter().map(|one| delta_argument(one.delta)));
        let items = deltas.iter().map(|one| one.item_id);
        let replies = self.script(|pieces| &pieces.count, items, arguments).await;
        replies.into_iter().map(counted).collect()
    }

    pub(super) async fn seed(&mut self, seeds: &[Seed]) -> Vec<bool> {
        let arguments = seeds.iter().flat_map(|Seed { exact, lease }| {
            [
                exact.count.net.to_string(),
                exact.count.downs.to_string(),
                exact.snapshot.compact().into_owned(),
                lease.clone(),
                exact.counted_at.map_or(0, Revision::micros).to_string(),
            ]
        });
        let arguments = arguments.collect();
        let items = seeds.iter().map(|seed| seed.exact.item_id);
        let replies = self.script(|pieces| &pieces.seed, items, arguments).await;
        let words: Vec<String> = replies
            .into_iter()
            .map(|reply| redis::from_redis_value(reply).expect("a word"))
            .collect();
        self.trace.push(format!("seed: {words:?}"));
        words.iter().map(|word| word == "SEEDED").collect()
    }

    /// Invalidates these items, if they belong to the interleaving.
    pub(super) async fn invalidate(&mut self, items: &[ItemId]) {
        for item in &mut self.all {
            if items.contains(&item.id) {
                item.invalidate().await;
            }
        }
    }
}

/// A delta that only reads the count.
fn read(item_id: ItemId) -> CountDelta {
    CountDelta {
        item_id,
        delta: Count::ZERO,
    }
}

/// An answer of Postgres, also on a busy machine.
/// There, a connection may take longer than programs wait for it.
pub(super) async fn answer<Answer, Asked>(mut ask: impl FnMut() -> Asked) -> Answer
where
    Asked: Future<Output = Result<Answer, LedgerError>>,
{
    let mut tries = 0;
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) if is_load(&error) && tries < TRIES_LIMIT => tries += 1,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Whether only a busy machine causes this error.
fn is_load(error: &LedgerError) -> bool {
    matches!(
        error,
        LedgerError::Timeout(_) | LedgerError::Postgres(sqlx::Error::PoolTimedOut)
    )
}

/// Whether a batch must be sent again.
/// Nothing of it is stored, and only a busy machine causes that.
fn is_not_stored_for_load<Stored>(stored: &Result<Stored, InsertError>) -> bool {
    matches!(stored, Err(InsertError::NotStored(error)) if is_load(error))
}
