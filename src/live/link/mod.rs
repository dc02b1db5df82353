//! The server's link to Redis: a connection for each thread, a circuit that opens for
//! all of them when one fails, the doubts that are left behind, and the healer that
//! closes it.
//!
//! A call that failed may have been applied. It is never sent again: its items go
//! into the doubts, and the healer invalidates them before the circuit closes.

mod circuit;
mod doubts;
mod healer;

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use super::counters::fresh_token;
use super::keys::CounterKey;
use super::scripts::{self, text};
use super::{LEASE_LIMIT_MS, LiveError, Redis};
use crate::domain::{CountDelta, ExactCount, ItemId, Rev, TransactionId};
use circuit::{Circuit, Generation};
pub use doubts::DOUBTS_LIMIT_ITEMS;
use doubts::Doubts;

/// How long those wait at the most whom a healer keeps from leaving further doubts; then
/// they go on without Redis.
const GATE_LIMIT: Duration = Duration::from_millis(250);
/// How often it is looked whether the doubts are settled.
const SETTLED_EVERY: Duration = Duration::from_millis(20);

/// What `lua/count.lua` answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Counted {
    /// The live count, the batch in it.
    Count(i64),
    /// There is no live count; this lease entitles to seed one.
    Miss { lease: String },
}

/// A live count, as a reader sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveCount {
    pub count: i64,
    /// The rev under which exactly this count stands in its item; `None` if it is not
    /// marked as saved.
    pub saved: Option<Rev>,
}

/// What all handles of a link share.
struct State {
    circuit: Circuit,
    doubts: Doubts,
    wake_healer: Notify,
    /// Held by a healer that does not come to an end of the doubts: until the circuit is
    /// closed, whoever finds it open waits here instead of leaving further ones.
    gate: tokio::sync::RwLock<()>,
    redis: Redis,
}

/// Why a call has no reply, and in which generation it failed; `None`: it found the
/// circuit open.
struct Failed {
    generation: Option<Generation>,
    error: LiveError,
}

/// A connection, and the generation of the circuit that it was made in.
type Own = Option<(Generation, MultiplexedConnection)>;

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
        let state = Arc::new(State {
            // Until the healer has been there, Redis counts as away.
            circuit: Circuit::new(),
            doubts: Doubts::default(),
            wake_healer: Notify::new(),
            gate: tokio::sync::RwLock::default(),
            redis,
        });
        tokio::spawn(healer::run(Arc::downgrade(&state)));
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
        self.state.circuit.generation().is_some()
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
            self.state.doubts.add(items(), Instant::now());
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
    pub async fn read(&self, items: &[ItemId]) -> Result<Vec<Option<LiveCount>>, LiveError> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let mut pipeline = redis::Pipeline::with_capacity(items.len());
        for item in items {
            pipeline
                .cmd("HMGET")
                .arg(CounterKey(*item))
                .arg(&["count", "rev", "saved"]);
        }
        let fields = self.call(async |mut connection| Ok(pipeline.query_async(&mut connection).await?));
        let fields: Vec<[Option<i64>; 3]> = fields.await.map_err(|failed| self.open_circuit(failed))?;
        let counts = fields.into_iter().map(|[count, rev, saved]| {
            Some(LiveCount {
                count: count?,
                saved: saved.filter(|saved| rev == Some(*saved)).map(Rev::from_micros),
            })
        });
        Ok(counts.collect())
    }

    /// Doubts these items: they will be invalidated as soon as Redis answers.
    pub fn doubt(&self, items: impl IntoIterator<Item = ItemId>) {
        self.doubt_from(items, Instant::now());
    }

    /// Doubts these items from a time on, for a change that may come until then.
    pub fn doubt_from(&self, items: impl IntoIterator<Item = ItemId>, due: Instant) {
        self.state.doubts.add(items, due);
        self.state.wake_healer.notify_one();
    }

    /// Waits until no item is doubted.
    pub async fn settled(&self) {
        while self.doubt_total() > 0 {
            sleep(SETTLED_EVERY).await;
        }
    }

    /// How many items are doubted.
    pub fn doubt_total(&self) -> usize {
        self.state.doubts.total()
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
    async fn connection(&self) -> Result<(Generation, MultiplexedConnection), Failed> {
        if self.state.circuit.generation().is_none() {
            // Whether the gate opened or the time is over shows below.
            let _ = timeout(GATE_LIMIT, self.state.gate.read()).await;
        }
        // Held while it connects: whoever comes meanwhile uses the same connection. The
        // generation is asked for after that, so that they do not all try one by one
        // what has just failed.
        let mut own = self.own.lock().await;
        let generation = self.state.circuit.generation();
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
        if let Some(generation) = generation {
            self.state.circuit.open(generation, &error);
        }
        self.state.wake_healer.notify_one();
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
