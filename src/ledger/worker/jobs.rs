//! Jobs: what one worker at a time does, under a lease with a fencing token.
//!
//! Each statement that writes for a job checks that the lease is still the job's last one. For that
//! it locks the job's row, so nobody takes the job over before its write is committed.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;
use sqlx::PgExecutor;

use super::WorkerLedger;
use crate::domain::Moment;
use crate::ledger::{LedgerError, Overtaken};

/// How long a lease lives unless it is renewed. A worker that is killed or stalls keeps the job
/// from others for this long.
pub const JOB_LEASE_LIFE: Duration = Duration::from_secs(10);
/// How many runs of each job are kept.
const RUNS_KEPT: i64 = 100;

/// A job of the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Job {
    /// Moves the watermark, and merges recent changes.
    RollUp,
    /// Compares all counts, and requests rebuilds of wrong ones.
    Audit,
    /// Deletes old idempotency keys.
    DeleteKeys,
    /// Deletes old hashes of client addresses.
    DeleteAddresses,
    /// Sends events to the webhook, makes those of polls that close, and deletes old ones.
    DeliverEvents,
}

impl Job {
    /// Its name in the ledger and in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::RollUp => "roll_up",
            Self::Audit => "audit",
            Self::DeleteKeys => "delete_keys",
            Self::DeleteAddresses => "delete_addresses",
            Self::DeliverEvents => "deliver_events",
        }
    }
}

impl fmt::Display for Job {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// A lease of a job. Its holder may do the job until the lease ends, is lost or is given back.
#[derive(Debug)]
pub struct JobLease {
    job: Job,
    /// The holder, besides the number. After a failover to a Postgres that lagged, a number may be
    /// given twice.
    holder: String,
    number: i64,
    is_lost: AtomicBool,
}

impl JobLease {
    /// The job.
    pub fn job(&self) -> Job {
        self.job
    }

    /// Its number: greater than that of each earlier lease of the job.
    pub fn number(&self) -> i64 {
        self.number
    }

    /// Who holds it.
    pub(super) fn holder(&self) -> &str {
        &self.holder
    }

    /// Fails if the lease is known to be lost, which ends the holder's work.
    ///
    /// # Errors
    /// When the lease was lost.
    pub fn check(&self) -> Result<(), LedgerError> {
        if self.is_lost.load(Ordering::Relaxed) {
            return Err(LedgerError::Overtaken(Overtaken::LeaseLost(self.job.name())));
        }
        Ok(())
    }

    /// The error that another worker has taken the job over.
    pub(super) fn lost(&self) -> LedgerError {
        self.is_lost.store(true, Ordering::Relaxed);
        LedgerError::Overtaken(Overtaken::LeaseLost(self.job.name()))
    }
}

/// What a worker gets that wants to do a job.
#[derive(Debug)]
pub struct JobAttempt {
    /// `None`: another worker is doing it.
    pub lease: Option<JobLease>,
    /// Who is doing it, as far as is known.
    pub holder: Option<String>,
    /// When a run of the job last ended well, by Postgres' clock.
    pub succeeded_at: Option<Moment>,
}

/// How a run of a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunOutcome {
    Done,
    Failed,
    /// Another worker had taken the job over.
    Lost,
}

impl RunOutcome {
    /// Its name in the ledger and in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Lost => "lost",
        }
    }
}

pub(super) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

impl WorkerLedger {
    /// Takes the lease of a job if it is free: nobody holds it, or it has run out. Notes that a run
    /// begins, and deletes runs beyond the last [`RUNS_KEPT`].
    pub async fn take_job(&self, job: Job) -> Result<JobAttempt, LedgerError> {
        let row = sqlx::query_file!(
            "src/ledger/sql/take_job.sql",
            job.name(),
            &*self.name,
            micros(JOB_LEASE_LIFE),
            RUNS_KEPT
        )
        .fetch_one(&self.database.pool)
        .await?;
        Ok(JobAttempt {
            lease: row.number.map(|number| JobLease {
                job,
                holder: self.name.to_string(),
                number,
                is_lost: AtomicBool::new(false),
            }),
            holder: row.holder,
            succeeded_at: row.succeeded_at.map(Moment::from_micros),
        })
    }

    /// When a run of each job last ended well, on any worker, by Postgres' clock. Jobs that never did are left out.
    pub async fn job_successes(&self) -> Result<Vec<(String, Moment)>, LedgerError> {
        let rows = sqlx::query!(
            r#"select name, (extract(epoch from succeeded_at) * 1000000)::bigint as "micros!"
               from job where succeeded_at is not null"#
        )
        .fetch_all(&self.database.pool)
        .await?;
        let successes = rows.into_iter();
        Ok(successes
            .map(|row| (row.name, Moment::from_micros(row.micros)))
            .collect())
    }

    /// Renews a lease, from now on.
    ///
    /// # Errors
    /// When the lease is lost ([`Overtaken::LeaseLost`]). When a write under the lease is under way
    /// for too long: then nobody can take the job over either.
    pub async fn renew_job(&self, lease: &JobLease) -> Result<(), LedgerError> {
        let renewed = sqlx::query!(
            "update job
             set lease_until = clock_timestamp() + $4::bigint / 1000000 * interval '1 second'
                               + $4::bigint % 1000000 * interval '1 microsecond'
             where name = $1 and fencing_number = $2 and holder = $3",
            lease.job.name(),
            lease.number,
            lease.holder,
            micros(JOB_LEASE_LIFE)
        )
        .execute(&self.database.pool)
        .await?;
        if renewed.rows_affected() == 0 {
            return Err(lease.lost());
        }
        Ok(())
    }

    /// Checks that a lease is still the job's last one, before work outside Postgres.
    ///
    /// # Errors
    /// When the lease is lost.
    pub async fn check_job(&self, lease: &JobLease) -> Result<(), LedgerError> {
        hold(&self.database.pool, lease).await
    }

    /// Notes how a run ended, and gives its lease back. Returns how it ended: a lease that another
    /// worker took over is lost, whatever the run says.
    pub async fn end_job(
        &self,
        lease: &JobLease,
        outcome: RunOutcome,
        took: Duration,
        details: &Value,
    ) -> Result<RunOutcome, LedgerError> {
        let is_held = sqlx::query_file_scalar!(
            "src/ledger/sql/end_job.sql",
            lease.job.name(),
            lease.number,
            lease.holder,
            outcome.name(),
            micros(took),
            details.to_string()
        )
        .fetch_one(&self.database.pool)
        .await?;
        Ok(if is_held { outcome } else { RunOutcome::Lost })
    }

    /// Gives the leases of this worker back, because it stops. If Postgres is unavailable, they run
    /// out by themselves. Returns how many it still has, since it is writing under them.
    pub async fn give_back_jobs(&self) -> Result<i64, LedgerError> {
        let left = sqlx::query_file_scalar!("src/ledger/sql/give_back_jobs.sql", &*self.name)
            .fetch_one(&self.database.pool)
            .await?;
        Ok(left)
    }
}

/// Keeps others from taking the job over until the transaction ends.
///
/// # Errors
/// When the lease is lost.
pub(super) async fn hold(executor: impl PgExecutor<'_>, lease: &JobLease) -> Result<(), LedgerError> {
    let is_held = sqlx::query_scalar!(
        r#"select true as "is_held!" from job
           where name = $1 and fencing_number = $2 and holder = $3
           for share"#,
        lease.job.name(),
        lease.number,
        lease.holder
    )
    .fetch_optional(executor)
    .await?;
    match is_held {
        Some(_) => Ok(()),
        None => Err(lease.lost()),
    }
}
