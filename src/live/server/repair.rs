//! The repair task: brings a Redis back that was unavailable, and invalidates what is suspect.

use std::sync::Weak;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::live_counts::State;
use super::suspects::Ready;
use crate::domain::ItemId;
use crate::live::LiveError;
use crate::live::scripts::invalidate;
use crate::telemetry::name;

/// How often the repair task tries a Redis that is unavailable: from the first, doubling, to
/// the second.
const RETRY_FIRST: Duration = Duration::from_millis(20);
const RETRY_LAST: Duration = Duration::from_millis(1000);
/// How many passes over the suspects a repair task makes before it has those wait who would add
/// to them: many threads that find the circuit breaker open leave more in a pass than it clears.
const REPAIR_LIMIT_OPEN_PASSES: usize = 10;

/// Closes the circuit breaker when Redis answers, and invalidates what was suspect. Ends
/// when the last [`LiveCounts`](super::LiveCounts) is gone.
pub(super) async fn run(state: Weak<State>) {
    let mut retry = RETRY_FIRST;
    let mut is_first = true;
    loop {
        let Some(live_counts) = state.upgrade() else {
            return;
        };
        match repair(&live_counts).await {
            Ok(next) => {
                retry = RETRY_FIRST;
                // Looks again when told to, when the next suspect is due, and now and then
                // to see whether the live counts' client is gone.
                tokio::select! {
                    () = live_counts.wake_repair.notified() => {}
                    () = sleep(RETRY_LAST) => {}
                    () = sleep_until(next.unwrap_or_else(|| Instant::now() + RETRY_LAST)) => {}
                }
            }
            Err(error) => {
                if let Some(generation) = live_counts.breaker.generation() {
                    live_counts.breaker.open(generation, &error);
                } else if is_first {
                    tracing::warn!(%error, "Redis does not answer: voting begins without live counts");
                } else {
                    tracing::debug!(%error, ?retry, "Redis is still unavailable");
                }
                let at = Instant::now() + retry;
                retry = (retry * 2).min(RETRY_LAST);
                drop(live_counts);
                sleep_until(at).await;
            }
        }
        is_first = false;
    }
}

/// Invalidates all that is due, and closes the circuit breaker if it is open. Returns when the
/// next suspect is due.
async fn repair(state: &State) -> Result<Option<Instant>, LiveError> {
    let is_open = || state.breaker.generation().is_none();
    if !is_open()
        && let Ready::None { next } = state.suspects.ready(|| {})
    {
        return Ok(next);
    }
    // A fresh one each time: one that was kept might be to a Redis that is no longer
    // the one at this address.
    let mut connection = state.redis.connect().await?;
    redis::cmd("PING").exec_async(&mut connection).await?;
    let mut back_pressure = None;
    let mut passes = 0;
    loop {
        // The circuit breaker may open in the meantime.
        if passes >= REPAIR_LIMIT_OPEN_PASSES && back_pressure.is_none() && is_open() {
            back_pressure = Some(state.back_pressure.write().await);
        }
        // Closed while no suspect can slip in. One that comes after it wakes the repair task
        // again.
        let close = || {
            if is_open() {
                state.breaker.close();
            }
        };
        let suspect = match state.suspects.ready(close) {
            Ready::Items(suspect) => suspect,
            Ready::None { next } => {
                drop(back_pressure);
                return Ok(next);
            }
        };
        let items: Vec<ItemId> = suspect.iter().map(|(item, _)| *item).collect();
        invalidate(&mut connection, state.redis.keys(), &items).await?;
        metrics::counter!(name::INVALIDATIONS, "why" => "suspect").increment(items.len() as u64);
        state.suspects.forget(&suspect);
        passes += 1;
    }
}
