//! Whether Postgres stores votes.
//!
//! A Postgres that answers may still store none: its disk is full, its tables are locked, or it waits
//! for a synchronous standby that is gone. So a server goes by what became of its votes lately. Without
//! votes it tries a commit of its own: one at a time, and one that has no answer is ended, since a
//! Postgres whose commits wait must not get one connection for each.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sqlx::migrate::{Migrate, MigrateError};
use tokio::time::Instant;

use super::{Migrations, ServerLedger};
use crate::ledger::LedgerError;
use crate::ledger::connect::{Writes, writes};
use crate::ledger::owner::MIGRATIONS;
use crate::ledger::pool::Pool;
use crate::ledger::safe_commit::LIKE_A_VOTE;

/// For this long, the outcome of a batch says whether votes are stored.
pub const OUTCOME_LIMIT_AGE: Duration = Duration::from_secs(5);
/// For this long, a trial says so, too: whoever asks, Postgres gets one trial a second.
pub const TRIAL_LIMIT_AGE: Duration = Duration::from_secs(1);

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

/// Commits as a vote does, and stores nothing.
async fn try_commit(pool: Pool) -> bool {
    pool.commits_safely(LIKE_A_VOTE).await.unwrap_or_else(|error| {
        tracing::debug!(%error, "a trial commit failed");
        false
    })
}

/// Whether Postgres takes writes, and whether the migrations have run.
async fn state_of(pool: Pool) -> Option<(Writes, Migrations)> {
    let state = async { Ok::<_, LedgerError>((writes(&pool).await?, migrations(&pool).await?)) };
    state
        .await
        .inspect_err(|error| tracing::debug!(%error, "Postgres does not say its state"))
        .ok()
}

/// Whether all migrations of this program have run.
async fn migrations(pool: &Pool) -> Result<Migrations, LedgerError> {
    let mut connection = pool.acquire().await?;
    let applied = connection.call(async |connection| connection.list_applied_migrations().await);
    let done = match applied.await {
        Ok(applied) => MIGRATIONS
            .iter()
            .all(|known| applied.iter().any(|one| one.version == known.version)),
        // There is no table of migrations: none has run.
        Err(MigrateError::Execute(sqlx::Error::Database(_))) => false,
        Err(error) => return Err(error.into()),
    };
    Ok(if done {
        Migrations::Done
    } else {
        Migrations::Pending
    })
}

impl ServerLedger {
    /// Whether Postgres stores votes, by the votes of the last [`OUTCOME_LIMIT_AGE`]. Without votes, a
    /// trial says so, which may take as long as Postgres takes for a commit.
    pub async fn stores_votes(&self) -> bool {
        if let Some(are_stored) = self.writers.outcomes().are_stored() {
            return are_stored;
        }
        let trial = self.trials.find(TRIAL_LIMIT_AGE, try_commit(self.probes.clone()));
        trial.await.unwrap_or(false)
    }

    /// Whether the votes of the last [`OUTCOME_LIMIT_AGE`] were stored. `None`: there were none. Asks nobody.
    pub fn stored_lately(&self) -> Option<bool> {
        self.writers.outcomes().are_stored()
    }

    /// Whether Postgres takes writes, and whether all migrations of this program have run; `None`: it
    /// does not answer. However many ask at once, one look at a time answers them: those who ask in
    /// order to keep a server busy take no connection from a trial.
    pub async fn state(&self) -> Option<(Writes, Migrations)> {
        let state = self.states.find(Duration::ZERO, state_of(self.probes.clone()));
        state.await.flatten()
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
