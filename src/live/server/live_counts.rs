//! The server's Redis client. It has a connection for each thread, and one circuit breaker for all
//! threads, which opens when a call fails. In a Redis Cluster it has a connection to each node, and a circuit breaker for
//! each bucket.
//!
//! Redis may have applied a call that failed, so the client never sends it again. Its items become
//! suspects, and the repair task invalidates them before the circuit breaker closes.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::breaker::Generation;
use super::repair_suspects;
use super::state::State;
use super::suspects::SUSPECTS_LIMIT_ITEMS;
use super::warm_items::Seeding;
use crate::domain::{Count, CountDelta, ExactCount, ItemId, Owner, Revision, TransactionId};
use crate::live::cluster::NodeConnections;
use crate::live::counter::{CounterParts, READ_LIMIT_KEYS, read_values, values};
use crate::live::groups::{Group, groups, in_order};
use crate::live::scripts::{self, fresh_token, text};
use crate::live::{Keys, LEASE_LIMIT_MS, LiveError, Redis, Refusal};

/// The longest time that a caller waits for the end of back-pressure. Then it goes on without
/// Redis.
pub(crate) const BACK_PRESSURE_LIMIT: Duration = Duration::from_millis(250);
/// The time between two looks of [`LiveCounts::repaired`].
const REPAIRED_EVERY: Duration = Duration::from_millis(20);

/// What `lua/count.lua` answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CountReply {
    /// The live count, with the batch in it.
    Count(Count),
    /// There is no live count. The holder of this lease may seed one.
    Miss { lease: String },
    /// There is no live count, and none is to be made: the item is cold. The roll-up saves its count.
    Cold,
    /// Nobody knows: the node of the Redis Cluster that has it failed. The item is suspect, unless nothing was to be added.
    Unavailable,
}

/// What a missing live count is seeded with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Seed {
    /// The exact count, read after the lease was taken.
    pub exact: ExactCount,
    pub lease: String,
}

/// A live count, as a reader sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveCount {
    pub count: Count,
    /// The revision under which this count is saved in its item. `None`: it is not marked as saved.
    pub saved: Option<Revision>,
}

/// What Redis knows of an item's count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LiveRead {
    Count(LiveCount),
    /// There is no live count, and the saved count may be behind: a rebuild is requested.
    Rebuilding,
    /// There is no live count, and the saved count may be behind: there were votes on cold items lately.
    Cold,
    /// There is no live count: the saved count is right.
    Absent,
    /// Nobody knows: the node of the Redis Cluster that has it failed.
    Unavailable,
}

/// A call without a reply.
pub(super) struct FailedCall {
    /// The generation in which the call failed; `None`: the circuit breaker was open.
    pub(super) generation: Option<Generation>,
    pub(super) error: LiveError,
}

/// What each group of a call's entries got.
pub(super) type OfGroups<Reply> = Vec<Result<Reply, FailedCall>>;

/// A connection, and the circuit breaker's generation in which it was made. `None`: there is none
/// yet.
pub(super) type KeptConnection = Option<(Generation, MultiplexedConnection)>;

/// The live counts, for the server. Cheap to clone; clones share a connection. Every call fails
/// when Redis is unavailable or answers with an error.
#[derive(Clone)]
pub struct LiveCounts {
    pub(super) state: Arc<State>,
    /// Shared by the tasks of one thread. Their commands travel together, and no task wakes another
    /// thread.
    pub(super) kept: Arc<tokio::sync::Mutex<KeptConnection>>,
    /// The same for the nodes of a Redis Cluster; `None`: it is none.
    pub(super) connections: Option<Arc<NodeConnections>>,
}

impl LiveCounts {
    /// Starts the repair task, which ends with the last clone or the runtime. The circuit breaker
    /// stays open until the task has reached Redis and `owner` says which Tally this is, and as
    /// long as the keys in Redis belong to another Tally.
    pub fn open(
        owner: watch::Receiver<Option<Owner>>,
        redis: Redis,
        suspects_limit_items: usize,
        seeding: Seeding,
    ) -> Self {
        Self::start(owner, redis, suspects_limit_items, seeding, true)
    }

    /// The same beside a server's own, with its own suspects. The metrics do not show them.
    pub fn open_beside(owner: watch::Receiver<Option<Owner>>, redis: Redis) -> Self {
        Self::start(owner, redis, SUSPECTS_LIMIT_ITEMS, Seeding::Warm, false)
    }

    fn start(
        owner: watch::Receiver<Option<Owner>>,
        redis: Redis,
        suspects_limit_items: usize,
        seeding: Seeding,
        is_shown: bool,
    ) -> Self {
        let state = Arc::new(State::new(redis, owner, suspects_limit_items, seeding, is_shown));
        for part in state.parts() {
            tokio::spawn(repair_suspects::run(Arc::downgrade(&state), part.bucket));
        }
        Self::of(state)
    }

    fn of(state: Arc<State>) -> Self {
        let connections = state.redis.own_connections();
        Self {
            state,
            kept: Arc::default(),
            connections,
        }
    }

    /// The same live counts over another connection. The runtime that first uses the handle
    /// drives that connection.
    #[must_use]
    pub fn with_own_connection(&self) -> Self {
        Self::of(Arc::clone(&self.state))
    }

    /// Whether the circuit breaker is closed, in a Cluster that of each bucket: Redis answered the last call.
    pub fn answers(&self) -> bool {
        self.state.breakers.are_closed()
    }

    /// Why Redis refuses to be used, while it does and says so.
    pub fn refusal(&self) -> Option<Refusal> {
        self.state.parts().iter().find_map(|part| part.breaker.refusal())
    }

    /// Whether workers count in another Redis, so that counts here are not shown. In a Cluster, those of some bucket.
    pub fn are_elsewhere(&self) -> bool {
        self.state.parts().iter().any(|part| part.place.is_elsewhere())
    }

    /// Adds a batch to the live counts of its items. Each item may be given once. Returns a reply
    /// for each delta, in order.
    ///
    /// # Errors
    /// When Redis is unavailable or answers with an error. The items with a delta then become
    /// suspects, and the circuit breaker opens. When only some nodes of a Cluster fail, the replies say so.
    pub async fn count(
        &self,
        deltas: &[CountDelta],
        transaction: TransactionId,
    ) -> Result<Vec<CountReply>, LiveError> {
        let nonce = fresh_token();
        let warm = self
            .state
            .warm_items
            .among(deltas.iter().map(|one| one.item_id), Instant::now());
        let groups = groups(self.keys(), deltas, |one| one.item_id);
        let replies = self.call_script(
            &scripts::COUNT,
            &groups,
            |one| one.item_id,
            |command| {
                command.arg(transaction.0).arg(&nonce);
                if warm.is_all() {
                    command.arg(format!("{LEASE_LIMIT_MS}!"));
                } else {
                    command.arg(LEASE_LIMIT_MS);
                }
            },
            |command, one| {
                let Count { net, downs } = one.delta;
                match (downs, !warm.is_all() && warm.contains(one.item_id)) {
                    (0, false) => command.arg(net),
                    (downs, false) => command.arg(format!("{net},{downs}")),
                    (downs, true) => command.arg(format!("{net},{downs}!")),
                };
            },
            counted,
        );
        let counted = replies.await;
        for (group, counted) in groups.iter().zip(&counted) {
            if counted.is_err() {
                let changed = group.entries.iter().filter(|one| one.delta != Count::ZERO);
                // Before the circuit breaker opens, so that it does not close again without them.
                let suspects = &self.state.part(group.bucket).suspects;
                suspects.add(changed.map(|one| one.item_id), Instant::now());
            }
        }
        let counted = self.replies(&groups, counted, || CountReply::Unavailable)?;
        let now = Instant::now();
        let replies = deltas.iter().zip(&counted);
        let cold = replies.filter(|(_, reply)| **reply == CountReply::Cold);
        self.state
            .warm_items
            .note(cold.map(|(delta, _)| delta.item_id), now);
        let leased = counted
            .iter()
            .filter(|reply| matches!(reply, CountReply::Miss { .. }));
        self.state.warm_items.note_seeds(leased.count(), now);
        Ok(counted)
    }

    /// Seeds missing live counts under their leases. Returns for each whether it was seeded. If
    /// not, call [`LiveCounts::count`] again, which also says whether a node of a Cluster has failed.
    ///
    /// # Errors
    /// When Redis is unavailable or answers with an error. No item becomes suspect: a seed that is
    /// applied late still needs its lease.
    pub async fn seed(&self, seeds: &[Seed]) -> Result<Vec<bool>, LiveError> {
        let groups = groups(self.keys(), seeds, |seed| seed.exact.item_id);
        let replies = self.call_script(
            &scripts::SEED,
            &groups,
            |seed| seed.exact.item_id,
            |_| {},
            |command, Seed { exact, lease }| {
                command
                    .arg(exact.count.net)
                    .arg(exact.count.downs)
                    .arg(exact.snapshot.compact().as_ref())
                    .arg(lease)
                    .arg(exact.counted_at.map_or(0, Revision::micros));
            },
            seeded,
        );
        let seeded = replies.await;
        self.replies(&groups, seeded, || false)
    }

    /// What Redis knows of the counts of these items, in their order.
    ///
    /// # Errors
    /// When Redis is unavailable or answers with an error. When only some nodes of a Cluster fail, the replies say so.
    pub async fn read(&self, items: &[ItemId]) -> Result<Vec<LiveRead>, LiveError> {
        let groups = groups(self.keys(), items, |item| *item);
        let replies = self.send(
            &groups,
            |group| self.commands_to_read(group),
            |group, replies| self.read_group(group, replies),
        );
        let read = replies.await;
        let reads = self.replies(&groups, read, || LiveRead::Unavailable)?;
        self.state
            .warm_items
            .note(without_count(items, &reads), Instant::now());
        Ok(reads)
    }

    /// Notes that someone asked for the counts of just these items, of which this was read. Returns those that have
    /// no live count, and are asked for often enough to be worth its seed.
    pub fn note_reads(&self, items: &[ItemId], reads: &[LiveRead]) -> Vec<ItemId> {
        let without = without_count(items, reads);
        self.state.read_items.note(without, Instant::now())
    }

    fn commands_to_read(&self, group: &Group<'_, ItemId>) -> Vec<Cmd> {
        let keys = self.keys();
        let mut commands: Vec<Cmd> = group
            .entries
            .chunks(READ_LIMIT_KEYS)
            .map(|items| read_values(keys, items))
            .collect();
        // Not before the counters: whoever clears the token has saved the counts before.
        if let Some(last) = commands.last_mut() {
            last.arg(keys.cold(group.bucket));
        }
        commands
    }

    fn read_group(&self, group: &Group<'_, ItemId>, replies: Vec<Value>) -> Result<Vec<LiveRead>, LiveError> {
        let items = group.entries.as_slice();
        let values = replies.into_iter().map(values).collect::<Result<Vec<_>, _>>()?;
        let mut read: Vec<_> = values.into_iter().flatten().collect();
        let without_count = match read.pop().flatten() {
            Some(_) => LiveRead::Cold,
            None => LiveRead::Absent,
        };
        let mut unreadable = Vec::new();
        let mut reads = Vec::with_capacity(items.len());
        for (item, value) in items.iter().zip(read) {
            reads.push(match value.as_deref().map(CounterParts::read) {
                None => without_count,
                Some(Some(parts)) => live_read(&parts, without_count),
                // Someone else has written this counter. It is invalidated; the others are well.
                Some(None) => {
                    unreadable.push(**item);
                    LiveRead::Rebuilding
                }
            });
        }
        if !unreadable.is_empty() {
            self.suspect(unreadable);
        }
        Ok(reads)
    }

    /// The replies to all groups' calls, in order. Opens the circuit breakers of the buckets whose call failed; their
    /// entries get `failed`.
    ///
    /// # Errors
    /// When all have failed.
    fn replies<Entry, Reply>(
        &self,
        groups: &[Group<'_, Entry>],
        replies: OfGroups<Vec<Reply>>,
        failed: impl Fn() -> Reply,
    ) -> Result<Vec<Reply>, LiveError> {
        let mut failure = None;
        let mut has_replies = groups.is_empty();
        let mut known = Vec::with_capacity(groups.len());
        for (group, replies) in groups.iter().zip(replies) {
            known.push(match replies {
                Ok(replies) => {
                    has_replies = true;
                    replies
                }
                Err(error) => {
                    failure = Some(self.open_breaker(group.bucket, error));
                    group.entries.iter().map(|_| failed()).collect()
                }
            });
        }
        match failure {
            Some(error) if !has_replies => Err(error),
            _ => Ok(in_order(groups, known)),
        }
    }

    /// Makes these items suspect: they are invalidated once Redis answers.
    pub fn suspect(&self, items: impl IntoIterator<Item = ItemId>) {
        self.suspect_later(items, Instant::now());
    }

    /// Makes these items suspect because of a change that may come until `due`. They are
    /// invalidated then.
    pub fn suspect_later(&self, items: impl IntoIterator<Item = ItemId>, due: Instant) {
        if let [part] = self.state.parts() {
            part.suspects.add(items, due);
            part.wake_repair.notify_one();
            return;
        }
        for item in items {
            let part = self.state.part_of(item);
            part.suspects.add([item], due);
            part.wake_repair.notify_one();
        }
    }

    /// Waits until no item is suspect, but for those whose counts workers keep elsewhere: these are left to recovery.
    pub async fn repaired(&self) {
        let has_suspects = || {
            let mut here = self
                .state
                .parts()
                .iter()
                .filter(|part| !part.place.is_elsewhere());
            here.any(|part| part.suspects.total() > 0)
        };
        while has_suspects() {
            sleep(REPAIRED_EVERY).await;
        }
    }

    /// Whether too many suspects came since the last call, and some were dropped. Their counts may
    /// be wrong, and this server no longer knows which they are.
    pub fn take_dropped(&self) -> bool {
        let parts = self.state.parts().iter();
        // Of each one, so that none is left for the next call.
        parts.fold(false, |has_dropped, part| {
            part.suspects.take_dropped() | has_dropped
        })
    }

    /// How many items are suspect.
    pub fn suspect_total(&self) -> usize {
        self.state.parts().iter().map(|part| part.suspects.total()).sum()
    }

    /// The Redis that the calls go to.
    pub(super) fn redis(&self) -> &Redis {
        &self.state.redis
    }

    /// The names of Tally's keys.
    pub(super) fn keys(&self) -> &Keys {
        self.state.redis.keys()
    }
}

/// Those of these items, of which this was read, that have no live count and no rebuild request.
fn without_count(items: &[ItemId], reads: &[LiveRead]) -> impl Iterator<Item = ItemId> {
    let is_without = |read: LiveRead| matches!(read, LiveRead::Cold | LiveRead::Absent);
    let without = items
        .iter()
        .zip(reads)
        .filter(move |(_, read)| is_without(**read));
    without.map(|(item, _)| *item)
}

fn counted(reply: Value) -> Result<CountReply, LiveError> {
    let counted = match &reply {
        Value::Int(net) => Some(CountReply::Count((*net).into())),
        kind if text(kind) == Some("COLD") => Some(CountReply::Cold),
        Value::Array(parts) => match parts.as_slice() {
            [Value::Int(net), Value::Int(downs)] => Some(CountReply::Count(Count {
                net: *net,
                downs: *downs,
            })),
            [kind, lease] if text(kind) == Some("MISS") => text(lease).map(|lease| CountReply::Miss {
                lease: lease.to_owned(),
            }),
            _ => None,
        },
        _ => None,
    };
    counted.ok_or_else(|| scripts::COUNT.unexpected(reply))
}

/// What a counter says; `without_count`: if it holds neither a live count nor a rebuild request.
fn live_read(parts: &CounterParts, without_count: LiveRead) -> LiveRead {
    match parts.live() {
        Some(count) => LiveRead::Count(LiveCount {
            count,
            saved: (parts.saved == parts.revision).then(|| Revision::from_micros(parts.saved)),
        }),
        None if parts.request.is_empty() => without_count,
        None => LiveRead::Rebuilding,
    }
}

fn seeded(reply: Value) -> Result<bool, LiveError> {
    match text(&reply) {
        Some("SEEDED") => Ok(true),
        Some("RETRY") => Ok(false),
        _ => Err(scripts::SEED.unexpected(reply)),
    }
}
