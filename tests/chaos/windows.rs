//! The windows in which a count may be wrong: from the loss of data in Redis, or a crash of
//! Postgres, until a worker has entered the epoch. docs/guarantees.md ("What a voter sees") says
//! what a voter may see in them. Outside of them, every answered count must be possible.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tally::app::{self, StoreUrls};
use tally::live::KeyPrefix;
use tokio::time::sleep;

use crate::cluster::Cluster;

/// How often the epoch is read while a window is open.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The windows of a round so far.
#[derive(Debug, Default)]
struct State {
    /// When the open window began.
    open: Option<Instant>,
    /// How many faults that open windows are under way.
    under_way: usize,
    /// How many of them have begun or ended.
    changes: u64,
    closed: Vec<(Instant, Instant)>,
}

/// The windows of a round, shared by its faults and the task that closes them.
#[derive(Clone, Debug, Default)]
pub struct Windows(Arc<Mutex<State>>);

impl Windows {
    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A fault begins.
    pub fn begin(&self) {
        let now = Instant::now();
        self.with(|state| {
            state.open.get_or_insert(now);
            state.under_way += 1;
            state.changes += 1;
        });
    }

    /// That fault is over; the epoch is not entered yet.
    pub fn end(&self) {
        self.with(|state| {
            state.under_way -= 1;
            state.changes += 1;
        });
    }

    /// Whether a window was open at any moment from `began` to `ended`.
    pub fn overlap(&self, began: Instant, ended: Instant) -> bool {
        self.with(|state| {
            let open = state.open.is_some_and(|open| ended >= open);
            open || state
                .closed
                .iter()
                .any(|(from, to)| began <= *to && ended >= *from)
        })
    }

    /// For how long windows were open, up to now.
    pub fn open_for(&self) -> Duration {
        self.with(|state| {
            let closed: Duration = state.closed.iter().map(|(from, to)| *to - *from).sum();
            closed + state.open.map_or(Duration::ZERO, |open| open.elapsed())
        })
    }

    /// Closes each window once its faults are over and the epoch is entered. Runs until it is
    /// dropped.
    pub async fn close_when_repaired(self, cluster: Arc<Cluster>) {
        loop {
            sleep(LOOK_EVERY).await;
            let Some(changes) =
                self.with(|state| (state.open.is_some() && state.under_way == 0).then_some(state.changes))
            else {
                continue;
            };
            if !matches!(is_epoch_entered(&cluster).await, Ok(true)) {
                continue;
            }
            self.with(|state| {
                // No fault has begun since.
                if state.changes == changes
                    && let Some(from) = state.open.take()
                {
                    state.closed.push((from, Instant::now()));
                }
            });
        }
    }
}

/// Whether the workers have entered the epoch of both stores.
async fn is_epoch_entered(cluster: &Cluster) -> anyhow::Result<bool> {
    let redis_url = cluster.redis.lock().await.url();
    let (owner, database_url) = {
        let postgres = cluster.postgres.lock().await;
        (postgres.owner(), postgres.owner_url())
    };
    let counters = app::counters(&StoreUrls {
        database_url: database_url.into(),
        redis_url: redis_url.into(),
        key_prefix: KeyPrefix::default(),
    })?;
    let incarnation: Option<String> =
        sqlx::query_scalar("select token from incarnation where xmin = drawn_by::xid")
            .fetch_optional(&owner)
            .await?;
    let Some(incarnation) = incarnation else {
        return Ok(false);
    };
    let epochs = counters.epochs().await?.all()?;
    Ok(epochs.into_iter().all(|one| {
        let current = format!(":{}:{incarnation}", one.current);
        one.known.is_some_and(|known| known.ends_with(&current))
    }))
}
