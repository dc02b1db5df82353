//! Plays interleavings from a seed on, several at once, until one fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use tally::ledger::{Pacing, ROLL_UP_LIMIT_IDS, WorkerLedger};
use tokio::sync::RwLock;

use crate::helpers::tally::roll_up_lease;

/// How many interleavings run at once, each on items of its own.
pub(super) const PARALLEL: usize = 8;
/// After this many interleavings, the audit moves the watermark beside others.
const ROLL_UP_EVERY: u64 = 25;

/// Plays one interleaving after the other.
pub(super) trait Player: Send + 'static {
    /// Plays the interleaving of this seed.
    /// Returns what is wrong with it, and its steps. While someone reads `roll_ups`, the watermark
    /// stays where it is.
    fn play(&mut self, seed: u64, roll_ups: &RwLock<()>) -> impl Future<Output = Result<(), String>> + Send;
}

/// Plays interleavings until one fails.
/// Returns how many were played, and the failure.
pub(super) async fn search(
    ledger: &WorkerLedger,
    players: Vec<impl Player>,
    limit: u64,
) -> (u64, Option<String>) {
    let first: u64 = std::env::var("TALLY_TEST_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(1);
    let next = Arc::new(AtomicU64::new(0));
    let roll_ups = Arc::new(RwLock::new(()));
    let lease = Arc::new(roll_up_lease(ledger).await);
    let tasks: Vec<_> = players
        .into_iter()
        .map(|mut player| {
            let ledger = ledger.clone();
            let (next, roll_ups, lease) = (Arc::clone(&next), Arc::clone(&roll_ups), Arc::clone(&lease));
            tokio::spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= limit {
                        return None;
                    }
                    if number % ROLL_UP_EVERY == 0 {
                        let _alone = roll_ups.write().await;
                        let safe = ledger.safe_vote_id().await.expect("a safe id");
                        ledger
                            .roll_up_votes(&lease, &safe, ROLL_UP_LIMIT_IDS, Pacing::Spread)
                            .await
                            .expect("a roll-up");
                    }
                    if let Err(failure) = player.play(first + number, &roll_ups).await {
                        next.store(limit, Ordering::Relaxed);
                        return Some((number + 1, failure));
                    }
                }
            })
        })
        .collect();
    let mut found = None;
    for task in tasks {
        found = task.await.expect("no panic").or(found);
    }
    // The next search takes these jobs.
    ledger.give_back_jobs().await.expect("Postgres answers");
    match found {
        Some((played, failure)) => (played, Some(failure)),
        None => (limit, None),
    }
}

/// A connection whose search path begins with a schema that has a table `epoch`.
/// Interleavings run in parallel, so each needs a table of its own.
pub(super) async fn with_its_own_epoch(url: &str, number: usize) -> PgPool {
    let schema = format!("epoch_{number}");
    let options: PgConnectOptions = url.parse().expect("a URL");
    let options = options.options([("search_path", format!("{schema},public"))]);
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .connect_with(options)
        .await
        .expect("Postgres answers");
    for statement in [
        format!("drop schema if exists {schema} cascade"),
        format!("create schema {schema}"),
        format!("create table {schema}.epoch (like public.epoch including all)"),
        format!("insert into {schema}.epoch default values"),
    ] {
        sqlx::query(&statement).execute(&pool).await.expect("a table");
    }
    pool
}

/// How many interleavings a search plays; `ordinary` without the variable.
pub(super) fn limit(ordinary: u64) -> u64 {
    std::env::var("TALLY_TEST_INTERLEAVINGS")
        .ok()
        .map_or(ordinary, |number| {
            number.parse().expect("TALLY_TEST_INTERLEAVINGS takes a number")
        })
}
