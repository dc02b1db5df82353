//! The roll-up: moves the watermark, has the counts of cold items saved, and merges recent changes, at a pace
//! that leaves most of the time to voters.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::cold_items::{COLD_ROLL_UP_EVERY, Cold};
use super::{SyncError, Worker};
use crate::ledger::{Job, JobLease, Pacing, ROLL_UP_LIMIT_IDS};
use crate::telemetry::name;

/// About how often votes are rolled up. Each server that seeds reads the votes above the watermark once,
/// and each page of an audit all of them, so there should be few. Rolling up more often would write hot
/// items more often.
pub(crate) const ROLL_UP_EVERY: Duration = Duration::from_secs(5);
/// The next roll-up comes early when this many more vote ids wait. The number counts ids beyond the
/// watermark that the last roll-up did not leave there. So exact counts have few votes to read even
/// where many come.
const ROLL_UP_EARLY_IDS: i64 = 50_000;
/// How often a worker looks at how many ids are beyond the watermark.
const LAG_LOOK_EVERY: Duration = Duration::from_millis(500);

/// At this many vote ids a second, voters count as being at work. Each vote takes about 40 µs of
/// CPU time from all parts together, so below this rate both have time.
const VOTING_LIMIT_IDS_PER_SECOND: f64 = 1000.0;
/// How many vote ids a chunk has while voters are at work. It also has as many until it is known
/// whether they are. In one statement such a chunk took about 0.05 s of CPU time.
pub(crate) const VOTING_CHUNK_IDS: i64 = 100_000;
/// This far behind, a chunk is rolled up at once, even while voters are at work. The limit is in
/// vote ids beyond the watermark. Spread over time, votes may come faster than they are rolled up,
/// and exact counts get slow. While voters used all of the machine, up to 107,000 ids were beyond
/// the watermark (`long_tail` of the bench).
const FAR_BEHIND_IDS: i64 = 250_000;
/// After such a chunk, the roll-up rests this many times as long as the chunk took. On two cores,
/// voters kept two thirds of their rate while nothing rested. After a chunk that is spread over
/// time it rests once as long: that chunk has rested for most of its time.
const FAR_BEHIND_REST_TIMES: u32 = 6;
/// The longest rest: a chunk that took long may have waited for a lock.
const REST_LIMIT: Duration = Duration::from_secs(1);

/// After a statement that merges recent changes, the worker rests this many times as long as it took.
const MERGE_REST_TIMES: u32 = 4;
/// How long a roll-up merges recent changes, with its rests. The next one continues.
const MERGE_LIMIT: Duration = Duration::from_secs(2);

/// Whether a roll-up has cold items saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SaveCold {
    Yes,
    No,
}

impl Worker {
    /// Waits until the next roll-up, about `every`, so that several workers do not come at once.
    /// Waits less if 50,000 more vote ids are beyond the watermark than after the last roll-up, or if saved
    /// counts lack votes on cold items.
    pub async fn until_roll_up(&self, every: Duration) {
        let began = Instant::now();
        let due = began + every.mul_f64(rand::random_range(0.75..1.25));
        while Instant::now() < due && !self.is_stopping() {
            let lag = {
                // A look that hangs counts as a roll-up that hangs.
                let _pass = self.watch.begin("roll_up");
                self.ledger.watermark_lag().await
            };
            // Without Postgres this waits for its time: the roll-up reports what fails.
            if let Ok(lag) = lag {
                // Also while roll-ups fail.
                metrics::gauge!(name::WATERMARK_LAG).set(lag as f64);
                if has_grown(lag, &self.left_ids) {
                    return;
                }
            }
            // Without Redis, too: each roll-up tries to save what is cold.
            let is_behind = self.is_behind_cold_votes().await.unwrap_or(false);
            if is_behind && began.elapsed() >= COLD_ROLL_UP_EVERY {
                return;
            }
            sleep(LAG_LOOK_EVERY.min(due.saturating_duration_since(Instant::now()))).await;
        }
    }

    /// Moves the watermark up to the votes that may still be in flight. Leaves most of the time to
    /// voters at work.
    ///
    /// One worker at a time: while another one is doing it, this does nothing.
    ///
    /// # Errors
    /// When another worker has taken the job over.
    pub async fn roll_up(&self) -> Result<(), SyncError> {
        self.roll_up_and(SaveCold::Yes).await
    }

    /// The same, but saves no cold items: an audit must find the saved counts as they are.
    pub(super) async fn roll_up_for_audit(&self) -> Result<(), SyncError> {
        self.roll_up_and(SaveCold::No).await
    }

    async fn roll_up_and(&self, save: SaveCold) -> Result<(), SyncError> {
        if let Some(run) = self.begin_job(Job::RollUp).await? {
            run.end_with(self.roll_up_under(run.lease(), save)).await?;
        }
        self.note_lag().await
    }

    /// The same for a command: waits for another worker to end its roll-up.
    ///
    /// # Errors
    /// As [`Worker::roll_up`]. When the other worker does not end in time.
    pub(super) async fn roll_up_when_free(&self) -> Result<(), SyncError> {
        let run = self.begin_job_when_free(Job::RollUp).await?;
        run.end_with(self.roll_up_under(run.lease(), SaveCold::Yes))
            .await?;
        self.note_lag().await
    }

    /// The same, again and again, until all cold items of the votes that the first roll-up took are saved: one alone
    /// does so for a limited time. Ends, too, if a roll-up saves none: then the log says why.
    ///
    /// # Errors
    /// As [`Worker::roll_up_when_free`].
    pub(super) async fn roll_up_until_saved(&self) -> Result<(), SyncError> {
        self.roll_up_when_free().await?;
        let mut progress = self.ledger.saving_progress().await?;
        let rolled_up = progress.watermark;
        while progress.saved < rolled_up {
            self.roll_up_when_free().await?;
            let before = progress.saved;
            progress = self.ledger.saving_progress().await?;
            if progress.saved <= before {
                break;
            }
        }
        Ok(())
    }

    async fn note_lag(&self) -> Result<(), SyncError> {
        let lag = self.ledger.watermark_lag().await?;
        metrics::gauge!(name::WATERMARK_LAG).set(lag as f64);
        self.left_ids.store(lag, Ordering::Relaxed);
        Ok(())
    }

    async fn roll_up_under(&self, lease: &JobLease, save: SaveCold) -> Result<((), Value), SyncError> {
        let (mut votes, mut chunks) = (None, 0);
        let mut looked = Instant::now();
        // Both before the safe id: a later vote was drawn after them.
        let time = self.counters.time().await.ok();
        let epoch = self.epoch_number().await?;
        let before = self.ledger.saved_state().await?;
        let safe = self.ledger.safe_vote_id().await?;
        self.cold_votes.rolls_up(before, &safe);
        // Votes in flight stay beyond the watermark. Read after the safe id: a batch writer that
        // connects now only has votes above the safe id.
        let safe = safe.up_to(self.in_flight_after().await?);
        // After all of these votes have asked Redis.
        let progress = self.ledger.saving_progress().await?;
        let cold = self.cold_votes_since(time, progress).await;
        let mut after = progress.watermark;
        let may_save = save == SaveCold::Yes || matches!(cold, Cold::No);
        let mut is_saved = may_save && progress.saved >= after;
        let mut drawn = safe.vote_id;
        let (mut chunk_ids, mut pacing) = (VOTING_CHUNK_IDS, pacing_of(self.ledger.watermark_lag().await?));
        loop {
            let started = Instant::now();
            let rolled_up = self.ledger.roll_up_votes(lease, &safe, chunk_ids, pacing).await?;
            let Some(rolled_up) = rolled_up else { break };
            (votes, chunks) = (Some(rolled_up.votes), chunks + 1);
            self.watch.progressed("roll_up");
            tracing::debug!(
                watermark = %rolled_up.watermark,
                votes = rolled_up.votes,
                "the watermark moved"
            );
            // Not after a chunk that is not saved: the next roll-up begins there.
            if is_saved {
                let ids = (after, rolled_up.watermark);
                is_saved = self
                    .save_sums(&rolled_up.sums, cold, lease, &safe, epoch, ids)
                    .await?;
            }
            after = rolled_up.watermark;
            if rolled_up.watermark >= safe.vote_id {
                break;
            }
            let lag = (rolled_up.drawn.get() - rolled_up.watermark.get()).max(0);
            metrics::gauge!(name::WATERMARK_LAG).set(lag as f64);
            let pace = pace(
                lag,
                rolled_up.drawn.get() - drawn.get(),
                looked.elapsed(),
                started.elapsed(),
            );
            (drawn, looked) = (rolled_up.drawn, Instant::now());
            (chunk_ids, pacing) = (pace.chunk_ids, pace.pacing);
            sleep(pace.rest).await;
        }
        if save == SaveCold::Yes {
            self.save_left(lease, &safe, epoch).await?;
        }
        self.merge_recent(lease).await?;
        Ok(((), json!({ "chunks": chunks, "vote_total": votes })))
    }

    /// Merges recent changes that are older than an hour. They become old all at once, each hour.
    async fn merge_recent(&self, lease: &JobLease) -> Result<(), SyncError> {
        let began = Instant::now();
        loop {
            let started = Instant::now();
            let is_more = self.ledger.merge_changes(lease).await?;
            if !is_more || self.is_stopping() || began.elapsed() >= MERGE_LIMIT {
                return Ok(());
            }
            sleep((started.elapsed() * MERGE_REST_TIMES).min(REST_LIMIT)).await;
        }
    }
}

/// Whether the next roll-up comes early. It does if many more ids are beyond the watermark than the
/// last roll-up left there. Ids that a roll-up could not pass, such as the votes of a writer that
/// stalls, do not bring the next one on again. A roll-up that fails comes early again only when as
/// many more ids wait. `left_ids` follows other workers' roll-ups.
fn has_grown(lag_ids: i64, left_ids: &AtomicI64) -> bool {
    let left = left_ids.fetch_min(lag_ids, Ordering::Relaxed).min(lag_ids);
    let has_grown = lag_ids - left >= ROLL_UP_EARLY_IDS;
    if has_grown {
        left_ids.store(lag_ids, Ordering::Relaxed);
    }
    has_grown
}

/// How a chunk is rolled up while voters are at work.
fn pacing_of(lag_ids: i64) -> Pacing {
    if lag_ids > FAR_BEHIND_IDS {
        Pacing::AtOnce
    } else {
        Pacing::Spread
    }
}

/// How the roll-up goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pace {
    /// How many vote ids the next chunk has.
    chunk_ids: i64,
    pacing: Pacing,
    /// How long to wait before the next chunk.
    rest: Duration,
}

/// Pure: how to go on after a chunk. The chunk `took` this long, and voters drew `drawn_ids` vote
/// ids in the time `over`.
fn pace(lag_ids: i64, drawn_ids: i64, over: Duration, took: Duration) -> Pace {
    let is_voting = drawn_ids as f64 > VOTING_LIMIT_IDS_PER_SECOND * over.as_secs_f64();
    if is_voting {
        let pacing = pacing_of(lag_ids);
        let rest_times = match pacing {
            Pacing::AtOnce => FAR_BEHIND_REST_TIMES,
            Pacing::Spread => 1,
        };
        Pace {
            chunk_ids: VOTING_CHUNK_IDS,
            pacing,
            rest: took.saturating_mul(rest_times).min(REST_LIMIT),
        }
    } else {
        Pace {
            chunk_ids: ROLL_UP_LIMIT_IDS,
            pacing: Pacing::AtOnce,
            rest: Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_roll_up_comes_early_when_many_more_votes_wait_than_after_the_last_one() {
        // A writer that stalls holds 80,000 back.
        let left = AtomicI64::new(80_000);
        let looks = |lags: &[i64]| -> Vec<bool> { lags.iter().map(|lag| has_grown(*lag, &left)).collect() };
        assert_eq!(looks(&[80_000, 90_000, 129_999]), [false; 3]);
        assert_eq!(looks(&[130_000]), [true]);
        // The roll-up failed, and waits for its time until as many more wait.
        assert_eq!(looks(&[130_001, 179_999, 180_000]), [false, false, true]);
        // Another worker rolled up.
        assert_eq!(looks(&[10, 50_009, 50_010]), [false, false, true]);
    }

    #[test]
    fn the_roll_up_rests_in_proportion_while_voters_are_at_work_and_not_at_all_without_them() {
        let (over, took) = (Duration::from_millis(500), Duration::from_millis(100));
        let near = FAR_BEHIND_IDS;
        let busy = pace(near, 501, over, took);
        assert_eq!(busy.rest, took);
        assert!(busy.chunk_ids < ROLL_UP_LIMIT_IDS);
        assert_eq!(pace(near, 501, over, Duration::from_secs(60)).rest, REST_LIMIT);
        for drawn in [0, 1, 500] {
            let idle = pace(near, drawn, over, took);
            assert_eq!((idle.rest, idle.chunk_ids), (Duration::ZERO, ROLL_UP_LIMIT_IDS));
        }
        // Postgres went back to an older state.
        assert_eq!(pace(near, -1, over, took).rest, Duration::ZERO);
        // Votes come faster than they are rolled up.
        assert_eq!(busy.pacing, Pacing::Spread);
        let behind = pace(near + 1, 501, over, took);
        assert_eq!(
            (behind.pacing, behind.rest),
            (Pacing::AtOnce, took * FAR_BEHIND_REST_TIMES)
        );
    }
}
