//! The server's link to Redis: a connection for each thread, a circuit that opens for
//! all of them when one fails, the doubts that are left behind, and the healer that
//! closes it.
//!
//! A call that failed may have been applied. It is never sent again: its items go
//! into the doubts, and the healer invalidates them before the circuit closes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::counters::{fresh_token, invalidate};
use super::keys::CounterKey;
use super::scripts::{self, text};
use super::{LEASE_LIMIT_MS, LiveError, Redis};
use crate::domain::{CountDelta, ExactCount, ItemId, TransactionId};
use crate::telemetry::name;

/// How often the healer tries a Redis that is away: from the first, doubling, to
/// the second.
const RETRY_FIRST: Duration = Duration::from_millis(20);
const RETRY_LAST: Duration = Duration::from_millis(1000);
/// How many doubts one pipeline invalidates.
const HEAL_LIMIT_ITEMS: usize = 1000;
/// How many passes over the doubts a healer makes before it has those wait who would add
/// to them: many threads that find the circuit open leave more in a pass than it clears.
const HEAL_LIMIT_OPEN_PASSES: usize = 10;
/// How long they wait at the most; then they go on without Redis.
const GATE_LIMIT: Duration = Duration::from_millis(250);
/// How many doubts are kept. Beyond it they are dropped, said so in the log, and
/// left for the epoch check or the audit to find.
pub const DOUBTS_LIMIT_ITEMS: usize = 1_000_000;

/// What `lua/count.lua` answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Counted {
    /// The live count, the batch in it.
    Count(i64),
    /// There is no live count; this lease entitles to seed one.
    Miss { lease: String },
}

/// Items whose live count may be wrong, each with the time from when on
/// invalidating it helps.
#[derive(Debug, Default)]
pub struct Doubts {
    due: HashMap<ItemId, Instant>,
}

impl Doubts {
    fn add(&mut self, items: impl IntoIterator<Item = ItemId>, due: Instant) {
        for item in items {
            if self.due.len() >= DOUBTS_LIMIT_ITEMS && !self.due.contains_key(&item) {
                tracing::error!(
                    limit = DOUBTS_LIMIT_ITEMS,
                    "too many doubtful items: left for the audit"
                );
                metrics::counter!(name::DOUBTS_DROPPED).increment(1);
                continue;
            }
            let entry = self.due.entry(item).or_insert(due);
            *entry = (*entry).max(due);
        }
    }

    fn ready(&self, now: Instant) -> Vec<ItemId> {
        self.due
            .iter()
            .filter(|(_, due)| **due <= now)
            .map(|(item, _)| *item)
            .take(HEAL_LIMIT_ITEMS)
            .collect()
    }

    fn next_due(&self) -> Option<Instant> {
        self.due.values().min().copied()
    }
}

struct State {
    /// While Redis answers: how often the circuit had been closed before. A connection
    /// of an earlier generation is not used again. `None`: the circuit is open.
    generation: RwLock<Option<u64>>,
    /// The next generation.
    next_generation: AtomicU64,
    doubts: Mutex<Doubts>,
    wake_healer: Notify,
    /// Held by a healer that does not come to an end of the doubts: until the circuit is
    /// closed, whoever finds it open waits here instead of leaving further ones.
    gate: tokio::sync::RwLock<()>,
    redis: Redis,
}

impl State {
    fn generation(&self) -> Option<u64> {
        *self.generation.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_generation(&self, generation: Option<u64>) {
        *self.generation.write().unwrap_or_else(PoisonError::into_inner) = generation;
    }
}

/// Why a call has no reply, and in which generation it failed; `None`: it found the
/// circuit open.
struct Failed {
    generation: Option<u64>,
    error: LiveError,
}

/// A connection, and the generation of the circuit that it was made in.
type Own = Option<(u64, MultiplexedConnection)>;

/// The link. Cheap to clone; clones share a connection.
#[derive(Clone)]
pub struct Link {
    state: Arc<State>,
    /// Shared by the tasks of one thread: what they write travels together, and none
    /// of them has to wake another thread for it.
    own: Arc<tokio::sync::Mutex<Own>>,
}

impl Link {
    /// Opens the link and starts its healer, which ends with the runtime.
    pub fn open(redis: Redis) -> Self {
        // Until the healer has been there, Redis counts as away.
        metrics::gauge!(name::REDIS_AVAILABLE).set(0.0);
        let state = Arc::new(State {
            generation: RwLock::new(None),
            next_generation: AtomicU64::new(0),
            doubts: Mutex::default(),
            wake_healer: Notify::new(),
            gate: tokio::sync::RwLock::default(),
            redis,
        });
        tokio::spawn(heal(Arc::downgrade(&state)));
        Self {
            state,
            own: Arc::default(),
        }
    }

    /// The same link, over a connection of its own. Whichever runtime first uses it
    /// drives that connection.
    #[must_use]
    pub fn with_own_connection(&self) -> Self {
        Self {
            state: Arc::clone(&self.state),
            own: Arc::default(),
        }
    }

    /// Whether the circuit is closed: Redis answered when it was last asked.
    pub fn answers(&self) -> bool {
        self.state.generation().is_some()
    }

    /// Adds a batch to its items' live counts; each item may be given once. On any
    /// failure the items are doubted and the circuit opens.
    ///
    /// # Errors
    /// When Redis is away or answers with an error.
    pub async fn count(
        &self,
        deltas: &[CountDelta],
        transaction: TransactionId,
    ) -> Result<Vec<Counted>, LiveError> {
        let nonce = fresh_token();
        let items = || deltas.iter().filter(|one| one.delta != 0).map(|one| one.item_id);
        let counted = self.call(async |mut connection| {
            let replies = scripts::COUNT.call(
                &mut connection,
                deltas,
                |one| CounterKey(one.item_id),
                |command| {
                    command.arg(transaction.0).arg(&nonce).arg(LEASE_LIMIT_MS);
                },
                |command, one| {
                    command.arg(one.delta);
                },
            );
            replies.await?.into_iter().map(counted).collect()
        });
        counted.await.map_err(|failed| {
            // Before the circuit opens, so that it does not close without them.
            self.doubts().add(items(), Instant::now());
            self.open_circuit(failed)
        })
    }

    /// Seeds missing live counts under their leases. Returns for each whether it
    /// was seeded; where not, go back to [`Link::count`].
    ///
    /// # Errors
    /// When Redis is away or answers with an error. The items are not doubted: a
    /// late seed is still bound to its lease.
    pub async fn seed(&self, seeds: &[(ExactCount, String)]) -> Result<Vec<bool>, LiveError> {
        let seeded = self.call(async |mut connection| {
            let replies = scripts::SEED.call(
                &mut connection,
                seeds,
                |(exact, _)| CounterKey(exact.item_id),
                |_| {},
                |command, (exact, lease)| {
                    command
                        .arg(exact.count)
                        .arg(exact.snapshot.fence())
                        .arg(lease)
                        .arg(exact.counted_at.micros());
                },
            );
            replies.await?.into_iter().map(seeded).collect()
        });
        seeded.await.map_err(|failed| self.open_circuit(failed))
    }

    /// The live counts of these items, `None` where there is none.
    ///
    /// # Errors
    /// When Redis is away or answers with an error.
    pub async fn read(&self, items: &[ItemId]) -> Result<Vec<Option<i64>>, LiveError> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let mut pipeline = redis::Pipeline::with_capacity(items.len());
        for item in items {
            pipeline.hget(CounterKey(*item), "count");
        }
        let counts = self.call(async |mut connection| Ok(pipeline.query_async(&mut connection).await?));
        counts.await.map_err(|failed| self.open_circuit(failed))
    }

    /// Doubts these items: they will be invalidated as soon as Redis answers.
    pub fn doubt(&self, items: impl IntoIterator<Item = ItemId>) {
        self.doubt_from(items, Instant::now());
    }

    /// Doubts these items from a time on, for a change that may come until then.
    pub fn doubt_from(&self, items: impl IntoIterator<Item = ItemId>, due: Instant) {
        self.doubts().add(items, due);
        self.state.wake_healer.notify_one();
    }

    /// Waits until no item is doubted.
    pub async fn settled(&self) {
        while self.doubt_total() > 0 {
            sleep(RETRY_FIRST).await;
        }
    }

    /// How many items are doubted.
    pub fn doubt_total(&self) -> usize {
        self.doubts().due.len()
    }

    fn doubts(&self) -> MutexGuard<'_, Doubts> {
        lock(&self.state.doubts)
    }

    /// Calls Redis over this handle's connection.
    async fn call<Reply>(
        &self,
        call: impl AsyncFnOnce(MultiplexedConnection) -> Result<Reply, LiveError>,
    ) -> Result<Reply, Failed> {
        let (generation, connection) = self.connection().await?;
        call(connection).await.map_err(|error| Failed {
            generation: Some(generation),
            error,
        })
    }

    /// This handle's connection and its generation; a new one if the circuit was open
    /// since it was made.
    async fn connection(&self) -> Result<(u64, MultiplexedConnection), Failed> {
        if self.state.generation().is_none() {
            // Whether the gate opened or the time is over shows below.
            let _ = timeout(GATE_LIMIT, self.state.gate.read()).await;
        }
        // Held while it connects: whoever comes meanwhile uses the same connection. The
        // generation is asked for after that, so that they do not all try one by one
        // what has just failed.
        let mut own = self.own.lock().await;
        let generation = self.state.generation();
        let away = Failed {
            generation,
            error: LiveError::Away,
        };
        let current = generation.ok_or(away)?;
        if let Some((of, connection)) = &*own
            && *of == current
        {
            return Ok((current, connection.clone()));
        }
        // Given up first: there may be no room for both.
        *own = None;
        match self.state.redis.connect().await {
            Ok(connection) => {
                *own = Some((current, connection.clone()));
                Ok((current, connection))
            }
            Err(error) => Err(Failed {
                generation,
                error: error.into(),
            }),
        }
    }

    fn open_circuit(&self, Failed { generation, error }: Failed) -> LiveError {
        open_circuit(&self.state, generation, &error);
        error
    }
}

/// Opens the circuit of this generation, if it is still closed: a call that fails late
/// says nothing of a connection that was made since.
fn open_circuit(state: &State, generation: Option<u64>, error: &LiveError) {
    let was_closed = {
        let mut closed = state.generation.write().unwrap_or_else(PoisonError::into_inner);
        generation.is_some() && *closed == generation && closed.take().is_some()
    };
    if was_closed {
        tracing::warn!(%error, "Redis failed: voting goes on without live counts");
        metrics::gauge!(name::REDIS_AVAILABLE).set(0.0);
        metrics::counter!(name::REDIS_FAILURES).increment(1);
    }
    state.wake_healer.notify_one();
}

/// Closes the circuit when Redis answers, and invalidates what was doubted. Ends
/// when the last [`Link`] is gone.
async fn heal(state: std::sync::Weak<State>) {
    let mut retry = RETRY_FIRST;
    loop {
        let Some(link) = state.upgrade() else { return };
        let next = match heal_once(&link).await {
            Ok(next) => {
                retry = RETRY_FIRST;
                next
            }
            Err(error) => {
                open_circuit(&link, link.generation(), &error);
                tracing::debug!(%error, ?retry, "Redis is still away");
                let at = Instant::now() + retry;
                retry = (retry * 2).min(RETRY_LAST);
                drop(link);
                sleep_until(at).await;
                continue;
            }
        };
        // Looks again when told to, when the next doubt is due, and now and then
        // to see whether the link is gone.
        let idle = sleep(RETRY_LAST);
        let wake = link.wake_healer.notified();
        tokio::select! {
            () = wake => {}
            () = idle => {}
            () = sleep_until(next.unwrap_or_else(|| Instant::now() + RETRY_LAST)) => {}
        }
    }
}

/// Returns when the next doubt is due.
async fn heal_once(state: &State) -> Result<Option<Instant>, LiveError> {
    let is_closed = state.generation().is_some();
    if is_closed {
        let doubts = lock(&state.doubts);
        if doubts.ready(Instant::now()).is_empty() {
            return Ok(doubts.next_due());
        }
    }
    // A fresh one each time: one that was kept might be to a Redis that is no longer
    // the one at this address.
    let mut connection = state.redis.connect().await?;
    redis::cmd("PING").exec_async(&mut connection).await?;
    let mut gate = None;
    let mut passes = 0;
    loop {
        if passes == HEAL_LIMIT_OPEN_PASSES && !is_closed {
            gate = Some(state.gate.write().await);
        }
        let taken: Vec<(ItemId, Instant)> = {
            let doubts = lock(&state.doubts);
            let ready = doubts.ready(Instant::now());
            if ready.is_empty() {
                // Still under the lock, so no doubt slips in between. One that comes
                // after it wakes the healer again.
                if !is_closed {
                    let generation = state.next_generation.fetch_add(1, Ordering::Relaxed);
                    state.set_generation(Some(generation));
                    metrics::gauge!(name::REDIS_AVAILABLE).set(1.0);
                    tracing::info!("Redis answers: live counts are back");
                }
                drop(gate);
                return Ok(doubts.next_due());
            }
            ready.iter().map(|item| (*item, doubts.due[item])).collect()
        };
        let items: Vec<ItemId> = taken.iter().map(|(item, _)| *item).collect();
        invalidate(&mut connection, &items).await?;
        metrics::counter!(name::INVALIDATIONS, "why" => "doubt").increment(items.len() as u64);
        let mut doubts = lock(&state.doubts);
        for (item, due) in taken {
            // A doubt that was renewed while its item was being invalidated stays.
            if doubts.due.get(&item) == Some(&due) {
                doubts.due.remove(&item);
            }
        }
        passes += 1;
    }
}

fn counted(reply: Value) -> Result<Counted, LiveError> {
    match &reply {
        Value::Int(count) => Ok(Counted::Count(*count)),
        Value::Array(parts) => match (parts.first().and_then(text), parts.get(1).and_then(text)) {
            (Some("MISS"), Some(lease)) => Ok(Counted::Miss {
                lease: lease.to_owned(),
            }),
            _ => Err(scripts::COUNT.unexpected(reply)),
        },
        _ => Err(scripts::COUNT.unexpected(reply)),
    }
}

fn seeded(reply: Value) -> Result<bool, LiveError> {
    match text(&reply) {
        Some("SEEDED") => Ok(true),
        Some("RETRY") => Ok(false),
        _ => Err(scripts::SEED.unexpected(reply)),
    }
}

// A panic while one of these was held cannot leave them half changed, so the
// poison carries no news.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
