//! Heartbeats: how a worker is, for people who look. Nothing depends on them.

use std::time::Duration;

use super::WorkerLedger;
use super::jobs::micros;
use crate::ledger::LedgerError;

/// After this silence, another worker forgets a worker: it was killed, or is cut off.
pub const WORKER_LIMIT_SILENCE: Duration = Duration::from_secs(60);

/// How a worker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// How long it has run.
    pub age: Duration,
    /// Its last pass over what changed; `None`: none has ended yet.
    pub pass: Option<EndedPass>,
    /// Counts that this pass left unsaved.
    pub unsaved_counts: u64,
    /// How long the oldest unsaved count has been unsaved, as far as the worker knows.
    pub oldest_unsaved: Duration,
    /// Counts that its passes wrote to their items: flushed or rebuilt.
    pub saved_counts: u64,
}

/// A pass that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedPass {
    /// How long ago it ended.
    pub ended: Duration,
    pub took: Duration,
    /// Whether both stores answered.
    pub is_done: bool,
}

fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl WorkerLedger {
    /// Notes how this worker is, and forgets silent ones. Those have been silent for
    /// [`WORKER_LIMIT_SILENCE`]. Returns whether someone asked for an audit.
    pub async fn beat(&self, heartbeat: &Heartbeat) -> Result<bool, LedgerError> {
        let pass = heartbeat.pass;
        let is_asked = sqlx::query_file_scalar!(
            "src/ledger/sql/beat.sql",
            &*self.name,
            micros(heartbeat.age),
            pass.map(|pass| micros(pass.ended)),
            pass.map(|pass| micros(pass.took)),
            pass.map(|pass| if pass.is_done { "done" } else { "failed" }),
            number(heartbeat.unsaved_counts),
            micros(heartbeat.oldest_unsaved),
            number(heartbeat.saved_counts),
            micros(WORKER_LIMIT_SILENCE)
        )
        .fetch_one(&self.database.pool)
        .await?;
        Ok(is_asked)
    }

    /// Forgets this worker, because it stops. If Postgres is unavailable, another worker does it.
    pub async fn forget_worker(&self) -> Result<(), LedgerError> {
        sqlx::query!("delete from worker where name = $1", &*self.name)
            .execute(&self.database.pool)
            .await?;
        Ok(())
    }
}
