//! What the server's client of Redis and its repair task share.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{Notify, watch};

use super::breaker::CircuitBreaker;
use super::suspects::Suspects;
use super::warm_items::WarmItems;
use crate::domain::Owner;
use crate::live::{LiveError, Redis};

/// What all clones of [`LiveCounts`](super::LiveCounts) share, and the repair task with them.
pub(super) struct State {
    pub breaker: CircuitBreaker,
    pub suspects: Suspects,
    pub warm_items: WarmItems,
    pub wake_repair: Notify,
    /// The repair task holds this when suspects come faster than it clears them. Until the circuit
    /// breaker closes, a caller that finds it open waits here and adds no suspects.
    pub back_pressure: tokio::sync::RwLock<()>,
    pub redis: Redis,
    /// [`Redis::number`] when the circuit breaker closed last; 0: it never has.
    pub closed_at: AtomicU64,
    /// Which Tally this is, once Postgres has said so.
    pub owner: watch::Receiver<Option<Owner>>,
}

impl State {
    /// Whether connections that are kept lead to another Redis than this one.
    pub fn has_moved(&self, number: u64) -> bool {
        let known = self.closed_at.load(Ordering::Relaxed);
        known != 0 && known != number
    }

    /// Which Tally this is. Waits until Postgres says so: without Postgres there are no votes to
    /// count.
    ///
    /// # Errors
    /// When the sender is gone: the server stops.
    pub async fn owner(&self) -> Result<Owner, LiveError> {
        let mut owner = self.owner.clone();
        let owner = owner.wait_for(Option::is_some).await.ok();
        owner
            .and_then(|owner| owner.clone())
            .ok_or(LiveError::OwnerUnknown)
    }
}
