//! The repair task invalidates suspects. It closes the circuit breaker when Redis answers again. Each bucket has a task of
//! its own.

use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::state::{Part, State};
use super::suspects::DueSuspects;
use crate::live::any_connection::AnyConnection;
use crate::live::buckets::Bucket;
use crate::live::owner::claim;
use crate::live::permissions;
use crate::live::probe::probe;
use crate::live::scripts::{fresh_token, invalidate};
use crate::live::{Keys, LiveError};
use crate::telemetry::{Program, name};

/// How long the repair task waits before it tries an unavailable Redis again. The first wait, and
/// the longest: each wait is twice the one before.
const RETRY_FIRST: Duration = Duration::from_millis(20);
const RETRY_LAST: Duration = Duration::from_millis(1000);
/// After this many passes over the suspects, the repair task holds callers back. Threads that find
/// the circuit breaker open may add more suspects in a pass than it clears (back-pressure).
const BACK_PRESSURE_AFTER_PASSES: usize = 10;

/// Repairs a bucket again and again. Ends when the last [`LiveCounts`](super::LiveCounts) is gone.
pub(super) async fn run(shared: Weak<State>, bucket: Bucket) {
    let mut retry = RETRY_FIRST;
    let mut is_first = true;
    loop {
        let Some(state) = shared.upgrade() else {
            return;
        };
        let part = state.part(bucket);
        match repair(&state, part).await {
            Ok(next) => {
                retry = RETRY_FIRST;
                // Waits until it is woken or the next suspect is due. Also looks now and then
                // whether the last client is gone.
                tokio::select! {
                    () = part.wake_repair.notified() => {}
                    () = sleep(RETRY_LAST) => {}
                    () = sleep_until(next.unwrap_or_else(|| Instant::now() + RETRY_LAST)) => {}
                }
            }
            Err(error) => {
                if let Some(generation) = part.breaker.generation() {
                    part.breaker.open(generation, &error);
                } else if is_first && bucket == Bucket::FIRST {
                    tracing::warn!(%error, "Redis cannot be used: voting begins without live counts");
                } else {
                    part.breaker.note_still_open(&error);
                }
                let at = Instant::now() + retry;
                retry = (retry * 2).min(RETRY_LAST);
                drop(state);
                sleep_until(at).await;
            }
        }
        is_first = false;
    }
}

/// Tells the workers that this server has come from an old primary to the one with this number, if it has: what the old one
/// counted after it was replaced is missing here, so they count again. A call may still be under way there: its votes are
/// stored, so workers count them as well.
async fn tell_moved(
    part: &Part,
    number: u64,
    connection: &mut AnyConnection,
    keys: &Keys,
) -> Result<(), LiveError> {
    // Once is enough: another token has the workers begin again.
    if !part.has_moved(number) || part.reported_at.load(Ordering::Relaxed) == number {
        return Ok(());
    }
    redis::cmd("SET")
        .arg(keys.moved(part.bucket))
        .arg(fresh_token())
        .exec_async(connection)
        .await?;
    part.reported_at.store(number, Ordering::Relaxed);
    Ok(())
}

/// Invalidates every suspect that is due, and closes the circuit breaker if it is open.
/// Returns when the next suspect is due.
///
/// # Errors
/// When Redis is unavailable: the suspects stay. When Redis has no memory for votes: the suspects
/// that were due are gone.
async fn repair(state: &State, part: &Part) -> Result<Option<Instant>, LiveError> {
    let (bucket, keys) = (part.bucket, state.redis.keys());
    let is_open = || part.breaker.generation().is_none();
    let owner = state.owner().await?;
    // Before the connection: if the primary moves in between, the next look finds it.
    let number = state.redis.number(bucket).await?;
    if !is_open() && part.has_moved(number) {
        // The threads' connections lead to the old primary, which may go on answering.
        return Err(LiveError::PrimaryMoved);
    }
    if is_open() && part.place.is_elsewhere() && !part.has_moved(number) {
        // The next looks need a connection, and this Redis may accept no more.
        part.forget_first();
        return Err(LiveError::CountedElsewhere);
    }
    if !is_open()
        && let DueSuspects::None { next } = part.suspects.ready(|| {})
    {
        // Redis may have been wiped, and another Tally may have claimed it since.
        if let Err(error) = state.redis.claim_bucket(bucket, &owner).await
            && error.is_unfit()
        {
            return Err(error);
        }
        return Ok(next);
    }
    if is_open() {
        // Redis may accept no more connections.
        part.forget_first();
    }
    // A fresh connection each time: an old one may lead to a Redis that is no longer at this
    // address. In a Cluster it is the one to the node, which is kept as long as it answers.
    let mut connection = state.redis.connect(bucket).await?;
    if is_open() {
        permissions::check(&mut connection, keys, bucket, Program::Server).await?;
    }
    // A Redis without memory for votes takes no counts, but it still invalidates: no count that
    // others may read stays wrong.
    let mut probed = match probe(&mut connection, keys, bucket).await {
        Err(error) if !error.is_out_of_memory() => return Err(error),
        probed => probed,
    };
    if let Err(error) = claim(&mut connection, keys, bucket, &owner).await
        && (probed.is_ok() || error.is_unfit())
    {
        return Err(error);
    }
    if probed.is_ok() {
        probed = match tell_moved(part, number, &mut connection, keys).await {
            Err(error) if !error.is_out_of_memory() => return Err(error),
            reported => reported,
        };
    }
    let mut back_pressure = None;
    let mut passes = 0;
    loop {
        // The circuit breaker may open between two passes.
        if passes >= BACK_PRESSURE_AFTER_PASSES && back_pressure.is_none() && is_open() {
            back_pressure = Some(part.back_pressure.write().await);
        }
        // Runs while no suspect can be added. A later suspect wakes the task again.
        let close = || {
            let is_here = || !part.place.is_elsewhere() || part.has_moved(number);
            if probed.is_ok() && is_open() && is_here() {
                // What was seen was of the Redis from before.
                if part.has_moved(number) {
                    part.place.found_here();
                }
                part.counts_at.store(number, Ordering::Relaxed);
                part.close(&connection);
            }
        };
        let ready = match part.suspects.ready(close) {
            DueSuspects::Items(ready) => ready,
            DueSuspects::None { next } => {
                drop(back_pressure);
                return probed.map(|()| next);
            }
        };
        let items: Vec<_> = ready.iter().map(|(item, _)| (*item, None)).collect();
        invalidate(&mut connection, keys, bucket, items.iter().collect()).await?;
        metrics::counter!(name::INVALIDATIONS, "why" => "suspect").increment(items.len() as u64);
        part.note_repairs_at(number);
        part.suspects.forget(&ready);
        passes += 1;
    }
}
