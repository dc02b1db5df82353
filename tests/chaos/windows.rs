//! The windows in which a count may be wrong: from the beginning of a fault of a store until
//! all of its traces are repaired. docs/GUARANTEES.md ("What a voter sees") says what a
//! voter may see in them. Outside them every count that is answered must be possible.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tally::app::{self, StoreUrls};
use tally::ledger::WorkerLedger;
use tally::live::KeyPrefix;
use tokio::time::sleep;

use crate::cluster::Cluster;
use crate::quiescence::metrics;

/// How long the system must look repaired, without a break. Longer than a call to Redis may
/// take (`live::SERVER_ANSWER_LIMIT`, 500 ms): a call that the fault has broken has failed
/// by then, and left its suspects.
const REPAIRED_FOR: Duration = Duration::from_secs(1);
/// How often that is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The windows of a round so far.
#[derive(Debug, Default)]
struct State {
    /// When the window began that is open now.
    open: Option<Instant>,
    /// How many faults are under way that open windows.
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

    /// That fault is over; its traces may not be.
    pub fn end(&self) {
        self.with(|state| {
            state.under_way -= 1;
            state.changes += 1;
        });
    }

    /// Whether something that lasted from `began` to `ended` was in a window at any moment.
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

    /// Closes each window once its faults are over and all looks repaired for a while. Runs
    /// until it is dropped.
    pub async fn close_when_repaired(self, cluster: Arc<Cluster>) {
        let http = reqwest::Client::new();
        // The changes before which it looked repaired, and since when.
        let mut repaired: Option<(u64, Instant)> = None;
        loop {
            sleep(LOOK_EVERY).await;
            let Some(changes) =
                self.with(|state| (state.open.is_some() && state.under_way == 0).then_some(state.changes))
            else {
                repaired = None;
                continue;
            };
            let looked = Instant::now();
            if !matches!(is_repaired(&http, &cluster).await, Ok(true)) {
                repaired = None;
                continue;
            }
            match repaired {
                Some((before, since)) if before == changes => {
                    if since.elapsed() >= REPAIRED_FOR {
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
                _ => repaired = Some((changes, looked)),
            }
        }
    }
}

/// Whether every server is ready and has no suspect, the workers have entered the epoch of
/// both stores, and no closed batch writer waits for its recovery.
async fn is_repaired(http: &reqwest::Client, cluster: &Cluster) -> anyhow::Result<bool> {
    for url in &cluster.urls {
        let ready = http.get(format!("{url}/health/ready")).send().await?;
        let metrics = metrics(http, &format!("{url}/metrics")).await?;
        let suspects = metrics.get("tally_suspect_items").map(String::as_str);
        if !ready.text().await?.contains(r#""status":"ready""#) || suspects != Some("0") {
            return Ok(false);
        }
    }
    let redis_url = cluster.redis.lock().await.url();
    let (owner, database_url) = {
        let postgres = cluster.postgres.lock().await;
        (postgres.owner(), postgres.owner_url())
    };
    let counters = app::counters(&StoreUrls {
        database_url: database_url.clone(),
        redis_url,
        key_prefix: KeyPrefix::default(),
    })?;
    let incarnation: Option<String> =
        sqlx::query_scalar("select token from incarnation where xmin = drawn_by::xid")
            .fetch_optional(&owner)
            .await?;
    let Some(incarnation) = incarnation else {
        return Ok(false);
    };
    let current = format!(":{}:{incarnation}", counters.current_epoch().await?);
    let known = counters.known_epoch().await?;
    if known.is_none_or(|known| !known.ends_with(&current)) {
        return Ok(false);
    }
    let ledger = WorkerLedger::new(&database_url, "chaos")?;
    let closed = ledger.closed_writers().await;
    ledger.close().await;
    Ok(closed?.is_empty())
}
