//! The server's live counts' client to Redis: a connection for each thread, a circuit breaker that opens for
//! all of them when one fails, the suspects that are left behind, and the repair task that
//! closes it.
//!
//! A call that failed may have been applied. It is never sent again: its items go
//! into the suspects, and the repair task invalidates them before the circuit breaker closes.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use super::breaker::{CircuitBreaker, Generation};
use super::repair;
use super::suspects::Suspects;
use crate::domain::{CountDelta, ExactCount, ItemId, Revision, TransactionId};
use crate::live::scripts::{self, fresh_token, text};
use crate::live::{LEASE_LIMIT_MS, LiveError, Redis};

/// How long those wait at the most whom a repair task keeps from leaving further suspects; then
/// they go on without Redis.
const BACK_PRESSURE_LIMIT: Duration = Duration::from_millis(250);
/// How often it is looked whether the suspects are finalized.
const QUIESCENT_EVERY: Duration = Duration::from_millis(20);

/// What `lua/count.lua` answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Counted {
    /// The live count, the batch in it.
    Count(i64),
    /// There is no live count; this lease entitles to seed one.
    Miss { lease: String },
}

/// A missing live count, and what entitles to seed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seed {
    /// Read after the lease was taken.
    pub exact: ExactCount,
    pub lease: String,
}

/// A live count, as a reader sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveCount {
    pub count: i64,
    /// The revision under which exactly this count stands in its item; `None` if it is not
    /// marked as saved.
    pub saved: Option<Revision>,
}

/// What all handles of a live counts' client share.
pub(super) struct State {
    pub breaker: CircuitBreaker,
    pub suspects: Suspects,
    pub wake_repair: Notify,
    /// Held by a repair task that does not come to an end of the suspects: until the circuit breaker is
    /// closed, whoever finds it open waits here instead of leaving further ones.
    pub back_pressure: tokio::sync::RwLock<()>,
    pub redis: Redis,
}

/// Why a call has no reply, and in which generation it failed; `None`: it found the
/// circuit breaker open.
struct Failed {
    generation: Option<Generation>,
    error: LiveError,
}

/// A connection, and the generation of the circuit breaker that it was made in.
type Own = Option<(Generation, MultiplexedConnection)>;

/// The live counts' client. Cheap to clone; clones share a connection.
#[derive(Clone)]
pub struct LiveCounts {
    state: Arc<State>,
    /// Shared by the tasks of one thread: what they write travels together, and none
    /// of them has to wake another thread for it.
    own: Arc<tokio::sync::Mutex<Own>>,
}

impl LiveCounts {
    /// Opens the live counts' client and starts its repair task, which ends with the runtime.
    pub fn open(redis: Redis) -> Self {
        let state = Arc::new(State {
            // Until the repair task has been there, Redis counts as unavailable.
            breaker: CircuitBreaker::new(),
            suspects: Suspects::default(),
            wake_repair: Notify::new(),
            back_pressure: tokio::sync::RwLock::default(),
            redis,
        });
        tokio::spawn(repair::run(Arc::downgrade(&state)));
        Self {
            state,
            own: Arc::default(),
        }
    }

    /// The same live counts' client, over a connection of its own. Whichever runtime first uses it
    /// drives that connection.
    #[must_use]
    pub fn with_own_connection(&self) -> Self {
        Self {
            state: Arc::clone(&self.state),
            own: Arc::default(),
        }
    }

    /// Whether the circuit breaker is closed: Redis answered when it was last asked.
    pub fn answers(&self) -> bool {
        self.state.breaker.generation().is_some()
    }

    /// Adds a batch to its items' live counts; each item may be given once. On any
    /// failure the items are suspect and the circuit breaker opens.
    ///
    /// # Errors
    /// When Redis is unavailable or answers with an error.
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
                |one| self.state.redis.keys().counter(one.item_id),
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
            // Before the circuit breaker opens, so that it does not close without them.
            self.state.suspects.add(items(), Instant::now());
            self.open_breaker(failed)
        })
    }

    /// Seeds missing live counts under their leases. Returns for each whether it
    /// was seeded; where not, go back to [`LiveCounts::count`].
    ///
    /// # Errors
    /// When Redis is unavailable or answers with an error. The items are not suspect: a
    /// late seed is still bound to its lease.
    pub async fn seed(&self, seeds: &[Seed]) -> Result<Vec<bool>, LiveError> {
        let seeded = self.call(async |mut connection| {
            let replies = scripts::SEED.call(
                &mut connection,
                seeds,
                |seed| self.state.redis.keys().counter(seed.exact.item_id),
                |_| {},
                |command, Seed { exact, lease }| {
                    command
                        .arg(exact.count)
                        .arg(exact.snapshot.compact())
                        .arg(lease)
                        .arg(exact.counted_at.map_or(0, Revision::micros));
                },
            );
            replies.await?.into_iter().map(seeded).collect()
        });
        seeded.await.map_err(|failed| self.open_breaker(failed))
    }

    /// The live counts of these items, `None` where there is none.
    ///
    /// # Errors
    /// When Redis is unavailable or answers with an error.
    pub async fn read(&self, items: &[ItemId]) -> Result<Vec<Option<LiveCount>>, LiveError> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let mut pipeline = redis::Pipeline::with_capacity(items.len());
        for item in items {
            pipeline
                .cmd("HMGET")
                .arg(self.state.redis.keys().counter(*item))
                .arg(&["count", "rev", "saved"]);
        }
        let fields = self.call(async |mut connection| Ok(pipeline.query_async(&mut connection).await?));
        let fields: Vec<[Option<i64>; 3]> = fields.await.map_err(|failed| self.open_breaker(failed))?;
        let counts = fields.into_iter().map(|[count, revision, saved]| {
            Some(LiveCount {
                count: count?,
                saved: saved
                    .filter(|saved| revision == Some(*saved))
                    .map(Revision::from_micros),
            })
        });
        Ok(counts.collect())
    }

    /// Suspects these items: they will be invalidated as soon as Redis answers.
    pub fn suspect(&self, items: impl IntoIterator<Item = ItemId>) {
        self.suspect_from(items, Instant::now());
    }

    /// Suspects these items from a time on, for a change that may come until then.
    pub fn suspect_from(&self, items: impl IntoIterator<Item = ItemId>, due: Instant) {
        self.state.suspects.add(items, due);
        self.state.wake_repair.notify_one();
    }

    /// Waits until no item is suspect.
    pub async fn repaired(&self) {
        while self.suspect_total() > 0 {
            sleep(QUIESCENT_EVERY).await;
        }
    }

    /// How many items are suspect.
    pub fn suspect_total(&self) -> usize {
        self.state.suspects.total()
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

    /// This handle's connection and its generation; a new one if the circuit breaker was open
    /// since it was made.
    async fn connection(&self) -> Result<(Generation, MultiplexedConnection), Failed> {
        if self.state.breaker.generation().is_none() {
            // Whether the back-pressure opened or the time is over shows below.
            let _ = timeout(BACK_PRESSURE_LIMIT, self.state.back_pressure.read()).await;
        }
        // Held while it connects: whoever comes meanwhile uses the same connection. The
        // generation is asked for after that, so that they do not all try one by one
        // what has just failed.
        let mut own = self.own.lock().await;
        let generation = self.state.breaker.generation();
        let away = Failed {
            generation,
            error: LiveError::Unavailable,
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

    fn open_breaker(&self, Failed { generation, error }: Failed) -> LiveError {
        if let Some(generation) = generation {
            self.state.breaker.open(generation, &error);
        }
        self.state.wake_repair.notify_one();
        error
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
