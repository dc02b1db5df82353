//! What the server's client of Redis and its repair task share.

use tokio::sync::Notify;

use super::breaker::CircuitBreaker;
use super::suspects::Suspects;
use crate::live::Redis;

/// What all clones of [`LiveCounts`](super::LiveCounts) share, and the repair task with them.
pub(super) struct State {
    pub breaker: CircuitBreaker,
    pub suspects: Suspects,
    pub wake_repair: Notify,
    /// The repair task holds this when suspects come faster than it clears them: until the
    /// circuit breaker closes, a caller that finds it open waits here and adds no suspects.
    pub back_pressure: tokio::sync::RwLock<()>,
    pub redis: Redis,
}
