//! The status of workers and jobs, and how to ask for an audit.

use std::time::Duration;

use serde_json::Value;

use super::ServerLedger;
use crate::domain::{ActKind, Actor, Moment, NewAct};
use crate::ledger::LedgerError;

/// The longest silence of a worker that counts as alive. It beats once a second.
pub const WORKER_ALIVE_LIMIT: Duration = Duration::from_secs(5);
/// The most workers that are read.
const WORKERS_LIMIT: i64 = 100;

/// A worker, by its last heartbeat.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerStatus {
    pub name: String,
    pub started_at: Moment,
    pub seen_at: Moment,
    /// Whether its last heartbeat came within [`WORKER_ALIVE_LIMIT`].
    pub is_alive: bool,
    /// `None`: no pass has ended yet.
    pub pass: Option<PassStatus>,
    pub unsaved_counts: i64,
    pub oldest_unsaved: Duration,
    pub saved_counts: i64,
}

/// A worker's last pass over what changed.
#[derive(Clone, Debug, PartialEq)]
pub struct PassStatus {
    pub ended_at: Moment,
    pub took: Duration,
    /// done or failed.
    pub outcome: String,
}

/// A job of the workers.
#[derive(Clone, Debug, PartialEq)]
pub struct JobStatus {
    pub name: String,
    /// The worker that is doing it.
    pub holder: Option<String>,
    pub succeeded_at: Option<Moment>,
    /// When someone asked for a run that has not begun yet.
    pub asked_at: Option<Moment>,
    /// Its last run that ended.
    pub last_run: Option<RunStatus>,
}

/// A run of a job that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct RunStatus {
    pub worker: String,
    pub ended_at: Moment,
    /// `None`: the run was stopped.
    pub took: Option<Duration>,
    /// done, failed, lost or stopped.
    pub outcome: String,
    /// What the run did, in numbers.
    pub details: Value,
}

fn duration(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or_default())
}

impl ServerLedger {
    /// The known workers, the oldest first.
    pub async fn workers(&self) -> Result<Vec<WorkerStatus>, LedgerError> {
        let alive_micros = i64::try_from(WORKER_ALIVE_LIMIT.as_micros()).unwrap_or(i64::MAX);
        let rows = sqlx::query_file!("src/ledger/sql/workers.sql", alive_micros, WORKERS_LIMIT)
            .fetch_all(&self.database.pool)
            .await?;
        let workers = rows.into_iter().map(|row| WorkerStatus {
            name: row.name,
            started_at: Moment::from_micros(row.started_at),
            seen_at: Moment::from_micros(row.seen_at),
            is_alive: row.is_alive,
            pass: row
                .pass_ended_at
                .zip(row.pass_took_micros)
                .zip(row.pass_outcome)
                .map(|((ended_at, took), outcome)| PassStatus {
                    ended_at: Moment::from_micros(ended_at),
                    took: duration(took),
                    outcome,
                }),
            unsaved_counts: row.unsaved_counts,
            oldest_unsaved: duration(row.oldest_unsaved_micros),
            saved_counts: row.saved_counts,
        });
        Ok(workers.collect())
    }

    /// The jobs of the workers, by their names.
    pub async fn jobs(&self) -> Result<Vec<JobStatus>, LedgerError> {
        let rows = sqlx::query_file!("src/ledger/sql/jobs.sql")
            .fetch_all(&self.database.pool)
            .await?;
        let jobs =
            rows.into_iter().map(|row| JobStatus {
                name: row.name,
                holder: row.holder,
                succeeded_at: row.succeeded_at.map(Moment::from_micros),
                asked_at: row.asked_at.map(Moment::from_micros),
                last_run: row.worker.zip(row.ended_at).zip(row.outcome).map(
                    |((worker, ended_at), outcome)| RunStatus {
                        worker,
                        ended_at: Moment::from_micros(ended_at),
                        took: row.took_micros.map(duration),
                        outcome,
                        details: row
                            .details
                            .as_deref()
                            .and_then(|text| serde_json::from_str(text).ok())
                            .unwrap_or(Value::Null),
                    },
                ),
            });
        Ok(jobs.collect())
    }

    /// The time now, by Postgres' clock.
    pub async fn now(&self) -> Result<Moment, LedgerError> {
        let micros = sqlx::query_scalar!(
            r#"select (extract(epoch from clock_timestamp()) * 1000000)::bigint as "micros!""#
        );
        Ok(Moment::from_micros(micros.fetch_one(&self.database.pool).await?))
    }

    /// Asks the workers for an audit outside the schedule. It is an administrative act, unless
    /// someone has asked already. Returns when the audit was asked for.
    pub async fn ask_audit(&self, actor: Actor) -> Result<Moment, LedgerError> {
        let act = NewAct::over_http(actor, ActKind::AuditAsk);
        let row = sqlx::query_file!("src/ledger/sql/ask_audit.sql", act.to_json())
            .fetch_one(&self.database.pool)
            .await?;
        Ok(Moment::from_micros(row.asked_at))
    }
}
