//! The healer: brings a Redis back that was away, and invalidates what is doubted.

use std::sync::Weak;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::State;
use super::doubts::Ready;
use crate::domain::ItemId;
use crate::live::LiveError;
use crate::live::counters::invalidate;
use crate::telemetry::name;

/// How often the healer tries a Redis that is away: from the first, doubling, to
/// the second.
const RETRY_FIRST: Duration = Duration::from_millis(20);
const RETRY_LAST: Duration = Duration::from_millis(1000);
/// How many passes over the doubts a healer makes before it has those wait who would add
/// to them: many threads that find the circuit open leave more in a pass than it clears.
const HEAL_LIMIT_OPEN_PASSES: usize = 10;

/// Closes the circuit when Redis answers, and invalidates what was doubted. Ends
/// when the last [`Link`](super::Link) is gone.
pub(super) async fn run(state: Weak<State>) {
    let mut retry = RETRY_FIRST;
    let mut is_first = true;
    loop {
        let Some(link) = state.upgrade() else { return };
        match heal(&link).await {
            Ok(next) => {
                retry = RETRY_FIRST;
                // Looks again when told to, when the next doubt is due, and now and then
                // to see whether the link is gone.
                tokio::select! {
                    () = link.wake_healer.notified() => {}
                    () = sleep(RETRY_LAST) => {}
                    () = sleep_until(next.unwrap_or_else(|| Instant::now() + RETRY_LAST)) => {}
                }
            }
            Err(error) => {
                if let Some(generation) = link.circuit.generation() {
                    link.circuit.open(generation, &error);
                } else if is_first {
                    tracing::warn!(%error, "Redis does not answer: voting begins without live counts");
                } else {
                    tracing::debug!(%error, ?retry, "Redis is still away");
                }
                let at = Instant::now() + retry;
                retry = (retry * 2).min(RETRY_LAST);
                drop(link);
                sleep_until(at).await;
            }
        }
        is_first = false;
    }
}

/// Invalidates all that is due, and closes the circuit if it is open. Returns when the
/// next doubt is due.
async fn heal(state: &State) -> Result<Option<Instant>, LiveError> {
    let is_open = || state.circuit.generation().is_none();
    if !is_open()
        && let Ready::None { next } = state.doubts.ready(|| {})
    {
        return Ok(next);
    }
    // A fresh one each time: one that was kept might be to a Redis that is no longer
    // the one at this address.
    let mut connection = state.redis.connect().await?;
    redis::cmd("PING").exec_async(&mut connection).await?;
    let mut gate = None;
    let mut passes = 0;
    loop {
        // The circuit may open in the meantime.
        if passes >= HEAL_LIMIT_OPEN_PASSES && gate.is_none() && is_open() {
            gate = Some(state.gate.write().await);
        }
        // Closed while no doubt can slip in. One that comes after it wakes the healer
        // again.
        let close = || {
            if is_open() {
                state.circuit.close();
            }
        };
        let doubted = match state.doubts.ready(close) {
            Ready::Items(doubted) => doubted,
            Ready::None { next } => {
                drop(gate);
                return Ok(next);
            }
        };
        let items: Vec<ItemId> = doubted.iter().map(|(item, _)| *item).collect();
        invalidate(&mut connection, &items).await?;
        metrics::counter!(name::INVALIDATIONS, "why" => "doubt").increment(items.len() as u64);
        state.doubts.forget(&doubted);
        passes += 1;
    }
}
