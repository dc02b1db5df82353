//! Whether Postgres stores votes.
//!
//! A Postgres that answers may still store none: its disk is full, its tables are locked, or it waits
//! for a synchronous standby that is gone. So a server goes by what became of its votes lately. Without
//! votes it tries a commit of its own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::{PgPool, Postgres};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::ServerLedger;
use crate::ledger::safe_commit::{LIKE_A_VOTE, commit_is_safe};

/// For this long, the outcome of a batch says whether votes are stored.
pub const OUTCOME_LIMIT_AGE: Duration = Duration::from_secs(5);
/// For this long, a trial says so, too: whoever asks, Postgres gets one trial a second.
pub const TRIAL_LIMIT_AGE: Duration = Duration::from_secs(1);
/// A trial without an answer is given up after this, and its connection is closed. Until then there
/// is no other trial: a Postgres whose commits wait must not get one connection for each.
const TRIAL_LIMIT: Duration = Duration::from_secs(30);

/// What became of a server's last batches, and when.
#[derive(Debug)]
pub(super) struct Outcomes {
    begun_at: Instant,
    /// In µs since then; 0: never.
    stored_at: AtomicU64,
    failed_at: AtomicU64,
}

impl Default for Outcomes {
    fn default() -> Self {
        Self {
            begun_at: Instant::now(),
            stored_at: AtomicU64::default(),
            failed_at: AtomicU64::default(),
        }
    }
}

impl Outcomes {
    fn now(&self) -> u64 {
        let micros = self.begun_at.elapsed().as_micros();
        u64::try_from(micros).unwrap_or(u64::MAX).max(1)
    }

    /// Notes that votes were stored just now.
    pub fn note_stored(&self) {
        self.stored_at.store(self.now(), Ordering::Relaxed);
    }

    /// Notes that a batch failed just now.
    pub fn note_failed(&self) {
        self.failed_at.store(self.now(), Ordering::Relaxed);
    }

    /// Whether votes are stored; `None`: no batch has said so lately. One batch that is stored is
    /// enough: others may wait for each other.
    fn are_stored(&self) -> Option<bool> {
        self.were_stored(self.now())
    }

    /// The same at another time.
    fn were_stored(&self, now: u64) -> Option<bool> {
        let limit = u64::try_from(OUTCOME_LIMIT_AGE.as_micros()).unwrap_or(u64::MAX);
        let is_recent = |at: &AtomicU64| match at.load(Ordering::Relaxed) {
            0 => false,
            at => now.saturating_sub(at) < limit,
        };
        if is_recent(&self.stored_at) {
            Some(true)
        } else if is_recent(&self.failed_at) {
            Some(false)
        } else {
            None
        }
    }
}

/// The last trial. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Trials(Arc<Mutex<Option<Trial>>>);

/// A trial that runs or has ended: when, and whether a vote could have been stored.
type Trial = watch::Receiver<Option<(Instant, bool)>>;

impl Trials {
    /// The trial that runs, the one that has just ended, or a new one.
    fn current(&self, pool: &PgPool) -> Trial {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(trial) = &*last
            && is_current(trial)
        {
            return trial.clone();
        }
        let (tell, trial) = watch::channel(None);
        let pool = pool.clone();
        tokio::spawn(async move {
            let is_stored = try_commit(&pool).await;
            tell.send_replace(Some((Instant::now(), is_stored)));
        });
        *last = Some(trial.clone());
        trial
    }
}

fn is_current(trial: &Trial) -> bool {
    match *trial.borrow() {
        // Its thread may have ended.
        None => trial.has_changed().is_ok(),
        Some((ended_at, _)) => ended_at.elapsed() < TRIAL_LIMIT_AGE,
    }
}

/// Commits as a vote does, and stores nothing.
async fn try_commit(pool: &PgPool) -> bool {
    let Ok(mut connection) = pool.acquire().await else {
        return false;
    };
    match timeout(TRIAL_LIMIT, commit_is_safe(&mut connection, LIKE_A_VOTE)).await {
        Ok(Ok(is_safe)) => is_safe,
        Ok(Err(error)) => {
            tracing::debug!(%error, "a trial commit failed");
            close(connection);
            false
        }
        Err(_) => {
            close(connection);
            false
        }
    }
}

/// Closes a connection that may be in the middle of a transaction.
fn close(connection: PoolConnection<Postgres>) {
    drop(connection.detach());
}

impl ServerLedger {
    /// Whether Postgres stores votes, by the votes of the last [`OUTCOME_LIMIT_AGE`]. Without votes, a
    /// trial says so, which may take as long as Postgres takes for a commit.
    pub async fn stores_votes(&self) -> bool {
        if let Some(are_stored) = self.writers.outcomes().are_stored() {
            return are_stored;
        }
        let mut trial = self.trials.current(self.probes.unlimited());
        let ended = trial.wait_for(Option::is_some).await;
        ended.is_ok_and(|ended| ended.is_some_and(|(_, is_stored)| is_stored))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_stored_batch_is_enough_and_outcomes_are_forgotten() {
        let outcomes = Outcomes::default();
        assert_eq!(outcomes.are_stored(), None);
        outcomes.note_failed();
        assert_eq!(outcomes.are_stored(), Some(false));
        outcomes.note_stored();
        assert_eq!(outcomes.are_stored(), Some(true));
        let limit = u64::try_from(OUTCOME_LIMIT_AGE.as_micros()).expect("a few seconds");
        outcomes.stored_at.store(1, Ordering::Relaxed);
        outcomes.failed_at.store(limit, Ordering::Relaxed);
        assert_eq!(
            outcomes.were_stored(limit),
            Some(true),
            "others may wait for each other"
        );
        assert_eq!(outcomes.were_stored(limit + 1), Some(false));
        assert_eq!(outcomes.were_stored(2 * limit), None);
    }
}
