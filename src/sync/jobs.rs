//! Jobs: what one worker at a time does. A worker takes the job's lease, renews it while it works,
//! and gives it back. Each write checks the lease's number, so a worker that stalls past its lease
//! no longer writes anything.

use std::time::Duration;

use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use super::{SyncError, Worker};
use crate::domain::Moment;
use crate::ledger::{Job, JobLease, LedgerError, Overtaken, RunOutcome};
use crate::telemetry::{Span, name};

/// How often a lease is renewed while its job runs: two renewals in a row may fail.
pub(crate) const RENEW_EVERY: Duration = Duration::from_millis(2500);
/// How long a lease is renewed at most: a pass that hangs must not keep the job for ever.
pub(crate) const RENEW_LIMIT: Duration = Duration::from_secs(3600);
/// How long a command waits for another worker to end its job.
pub(crate) const JOB_WAIT_LIMIT: Duration = Duration::from_secs(60);
/// How often a command looks whether the job is free.
const JOB_LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long a worker that stops tries to give its leases back.
const GIVE_BACK_LIMIT: Duration = Duration::from_secs(2);
/// How often it looks at those under which it is writing.
const GIVE_BACK_EVERY: Duration = Duration::from_millis(20);

/// A run of a job, under its lease.
pub(super) struct Run<'a> {
    worker: &'a Worker,
    lease: JobLease,
    started: Instant,
}

impl Worker {
    /// Begins a run of a job; `None`: another worker is doing it, or this one has given its leases back.
    ///
    /// # Errors
    /// When the counts are in another Redis than this worker's.
    pub(super) async fn begin_job(&self, job: Job) -> Result<Option<Run<'_>>, SyncError> {
        self.seen_entries.check_place()?;
        // Held until Postgres has answered: no lease is taken behind the last one that is given back.
        let has_given_back = self.has_given_back_jobs.read().await;
        if *has_given_back {
            return Ok(None);
        }
        let taken = self.ledger.take_job(job).await?;
        drop(has_given_back);
        if let Some(time) = taken.succeeded_at {
            show_success(job.name(), time);
        }
        let Some(lease) = taken.lease else {
            tracing::debug!(%job, holder = ?taken.holder, "another worker is at this job");
            return Ok(None);
        };
        Ok(Some(Run {
            worker: self,
            lease,
            started: Instant::now(),
        }))
    }

    /// The same for a command: waits for another worker to end the job.
    ///
    /// # Errors
    /// When the other worker does not end within [`JOB_WAIT_LIMIT`].
    pub(super) async fn begin_job_when_free(&self, job: Job) -> Result<Run<'_>, SyncError> {
        let free = async {
            loop {
                if let Some(run) = self.begin_job(job).await? {
                    return Ok(run);
                }
                sleep(JOB_LOOK_EVERY).await;
            }
        };
        match timeout(JOB_WAIT_LIMIT, free).await {
            Ok(begun) => begun,
            Err(_) => Err(SyncError::JobTaken(job, JOB_WAIT_LIMIT)),
        }
    }

    /// Shows when each job last ended well, so that a worker that was started again does not seem to know nothing.
    pub(super) async fn show_successes(&self) -> Result<(), SyncError> {
        for (job, time) in self.ledger.job_successes().await? {
            show_success(&job, time);
        }
        Ok(())
    }

    /// Gives back the leases that this worker still has, so that others need not wait. It takes no more.
    pub(super) async fn give_back_jobs(&self) {
        let giving_back = async {
            *self.has_given_back_jobs.write().await = true;
            while self.ledger.give_back_jobs().await? > 0 {
                sleep(GIVE_BACK_EVERY).await;
            }
            Ok::<(), LedgerError>(())
        };
        match timeout(GIVE_BACK_LIMIT, giving_back).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "leases of jobs were not given back: they run out"),
            Err(_) => tracing::debug!("leases of jobs were not given back in time: they run out"),
        }
    }
}

impl Run<'_> {
    /// The lease, for writing under it.
    pub fn lease(&self) -> &JobLease {
        &self.lease
    }

    /// Does the work of the run, renewing its lease meanwhile, and ends the run. The work returns
    /// what it did, in numbers. It is never cut off: what it writes after the lease is lost changes
    /// nothing.
    ///
    /// # Errors
    /// The errors of the work.
    pub async fn end_with<T>(
        &self,
        work: impl Future<Output = Result<(T, Value), SyncError>>,
    ) -> Result<T, SyncError> {
        let mut span = Span::begin(self.lease.job().name());
        let is_done = Notify::new();
        let working = async {
            let ended = work.await;
            is_done.notify_one();
            ended
        };
        let (ended, ()) = tokio::join!(working, self.keep_renewing(&is_done));
        if let Err(error) = &ended {
            span.fail(error);
        }
        drop(span);
        let job = self.lease.job();
        let took = self.started.elapsed();
        let (said, details) = match &ended {
            Ok((_, details)) => (RunOutcome::Done, details),
            Err(SyncError::Ledger(LedgerError::Overtaken(Overtaken::LeaseLost(_)))) => {
                (RunOutcome::Lost, &Value::Null)
            }
            Err(_) => (RunOutcome::Failed, &Value::Null),
        };
        let noted = self.worker.ledger.end_job(&self.lease, said, took, details);
        let outcome = match noted.await {
            Ok(outcome) => outcome,
            Err(error) => {
                tracing::debug!(%error, %job, "the end of a job was not noted: its lease runs out");
                said
            }
        };
        if outcome == RunOutcome::Lost {
            tracing::warn!(
                %job, number = self.lease.number(),
                "this worker stalled, and another one took its job over: nothing more is written for it"
            );
        }
        let (job, ended_as) = (job.name(), outcome.name());
        metrics::counter!(name::JOB_RUNS, "job_name" => job, "outcome" => ended_as).increment(1);
        metrics::histogram!(name::JOB_SECONDS, "job_name" => job).record(took.as_secs_f64());
        if outcome == RunOutcome::Done {
            let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
            metrics::gauge!(name::JOB_SUCCESS, "job_name" => job).set(now.as_secs_f64());
        }
        ended.map(|(result, _)| result)
    }

    async fn keep_renewing(&self, is_done: &Notify) {
        loop {
            if timeout(RENEW_EVERY, is_done.notified()).await.is_ok() || self.started.elapsed() >= RENEW_LIMIT
            {
                return;
            }
            match self.worker.ledger.renew_job(&self.lease).await {
                Ok(()) => {}
                Err(LedgerError::Overtaken(Overtaken::LeaseLost(_))) => return,
                // A write under the lease is under way, or Postgres is unavailable.
                Err(error) => tracing::debug!(%error, job = %self.lease.job(), "a lease was not renewed"),
            }
        }
    }
}

/// Shows when a run of the job with this name last ended well, on any worker.
fn show_success(job: &str, time: Moment) {
    let seconds = Duration::from_micros(time.micros().unsigned_abs()).as_secs_f64();
    metrics::gauge!(name::JOB_SUCCESS, "job_name" => job.to_owned()).set(seconds);
}
