//! The audits of a worker, and their times, as a cron expression says: right also after the clock stepped.
//!
//! The scheduler (tokio-cron-scheduler 0.15) computes a job's next time once, when the last one has come. If
//! the clock is then an hour ahead and is set right, the job waits for more than an hour. So each second the
//! next time is computed anew. If it is earlier than the scheduler's, the job is scheduled again.
//!
//! While the clock is before 1970, the time library (chrono 0.4) panics, and the scheduler's own task ends with
//! that. So a scheduler that lets a time pass is replaced.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::Mutex;
use tokio::time::sleep;
use tokio_cron_scheduler::{Job, JobScheduler, JobSchedulerError};
use uuid::Uuid;

use super::{AuditReport, Worker};
use crate::telemetry::{name, trouble};

/// How long after a step of the clock the next audit may have its old time.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// A scheduler that has let a time pass for so many checks has ended.
const PASSED_LIMIT_CHECKS: u32 = 5;

/// The longest wait of an audit, so that several workers do not begin at once.
const AUDIT_SPREAD: Duration = Duration::from_secs(5);

/// The audits of a worker, one at a time. Cheap to clone.
#[derive(Clone)]
pub(super) struct Audits {
    worker: Worker,
    /// The scheduler lets a slow job overlap itself, and someone may ask for an audit meanwhile.
    /// This lock prevents both.
    running: Arc<Mutex<()>>,
}

impl Audits {
    pub fn of(worker: &Worker) -> Self {
        Self {
            worker: worker.clone(),
            running: Arc::default(),
        }
    }

    /// Audits because the schedule says so.
    pub async fn in_its_time(&self) {
        let Ok(_guard) = self.running.try_lock() else {
            tracing::warn!("the last audit is still running: this one is skipped");
            return;
        };
        sleep(AUDIT_SPREAD.mul_f64(rand::random_range(0.0..1.0))).await;
        self.audit().await;
    }

    /// Audits because someone asked. Does nothing while an audit is under way.
    pub async fn asked(&self) {
        if let Ok(_guard) = self.running.try_lock() {
            self.audit().await;
        }
    }

    async fn audit(&self) {
        let _pass = self.worker.watch.begin("audit");
        match self.worker.audit_unless_taken().await {
            Ok(Some(report)) => log_audit(&report),
            // Another worker is at it.
            Ok(None) => {}
            Err(error) => {
                metrics::counter!(name::JOB_FAILURES, "job_name" => "audit").increment(1);
                trouble!(warn, %error; "the audit failed; the next one comes as scheduled");
            }
        }
    }
}

fn log_audit(report: &AuditReport) {
    if report.wrong_items == 0 {
        tracing::debug!(?report, "audited");
    } else {
        tracing::error!(?report, "the audit found wrong counts, and had them rebuilt");
    }
}

/// The audits of a worker, each in its time.
pub(super) struct Timetable {
    scheduler: JobScheduler,
    audits: Audits,
    /// Six cron fields, seconds first, UTC.
    cron: String,
    job: Uuid,
    /// For how many checks the scheduler's next time has passed.
    passed_checks: u32,
}

impl Timetable {
    /// Begins to audit at these times.
    ///
    /// # Errors
    /// When the expression is not valid, or the scheduler does not start.
    pub async fn begin(audits: Audits, cron: String) -> Result<Self, JobSchedulerError> {
        let (scheduler, job) = scheduled(job(&audits, &cron)?).await?;
        Ok(Self {
            scheduler,
            audits,
            cron,
            job,
            passed_checks: 0,
        })
    }

    /// Keeps the times right until `stop` resolves, then ends the scheduler.
    pub async fn keep_until(mut self, stop: impl Future<Output = ()>) {
        let keeping = async {
            loop {
                sleep(CHECK_EVERY).await;
                if let Err(error) = self.check().await {
                    trouble!(warn, %error; "the time of the next audit cannot be checked; trying again");
                }
            }
        };
        tokio::select! {
            () = stop => {}
            () = keeping => {}
        }
        if let Err(error) = self.scheduler.shutdown().await {
            tracing::warn!(%error, "the schedule did not end");
        }
    }

    async fn check(&mut self) -> Result<(), JobSchedulerError> {
        let Ok(now) = SystemTime::now().duration_since(UNIX_EPOCH) else {
            return Ok(());
        };
        let mut anew = job(&self.audits, &self.cron)?;
        let right = anew.job_data()?.next_tick;
        let scheduled = self.scheduler.next_tick_for_job(self.job).await?;
        let has_passed =
            scheduled.is_some_and(|at| u64::try_from(at.timestamp()).is_ok_and(|at| at < now.as_secs()));
        self.passed_checks = if has_passed { self.passed_checks + 1 } else { 0 };
        if self.passed_checks > PASSED_LIMIT_CHECKS {
            tracing::warn!(
                "the scheduler of audits has ended, as it does when the clock is before 1970: it begins again"
            );
            let (scheduler, job) = self::scheduled(anew).await?;
            let mut before = std::mem::replace(&mut self.scheduler, scheduler);
            self.job = job;
            self.passed_checks = 0;
            return before.shutdown().await;
        }
        // While an audit is due, the scheduler's time is the earlier one.
        // Zero: the expression has no next time.
        let is_late =
            right != 0 && scheduled.is_none_or(|at| u64::try_from(at.timestamp()).is_ok_and(|at| at > right));
        if is_late {
            tracing::info!("the clock was set back: the next audit is scheduled again");
            let before = std::mem::replace(&mut self.job, self.scheduler.add(anew).await?);
            self.scheduler.remove(&before).await?;
        }
        Ok(())
    }
}

/// A scheduler that has begun, with this job.
async fn scheduled(job: Job) -> Result<(JobScheduler, Uuid), JobSchedulerError> {
    let scheduler = JobScheduler::new().await?;
    let job = scheduler.add(job).await?;
    scheduler.start().await?;
    Ok((scheduler, job))
}

fn job(audits: &Audits, cron: &str) -> Result<Job, JobSchedulerError> {
    let audits = audits.clone();
    Job::new_async(cron, move |_, _| {
        let audits = audits.clone();
        Box::pin(async move { audits.in_its_time().await })
    })
}
