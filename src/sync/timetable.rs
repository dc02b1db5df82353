//! The times of audits, as a cron expression says: right also after the clock stepped.
//!
//! The scheduler (tokio-cron-scheduler 0.15) computes a job's next time once, when the last one has come. If
//! the clock is then an hour ahead and is set right, the job waits for more than an hour. So each second the
//! next time is computed anew. If it is earlier than the scheduler's, the job is scheduled again.

use std::time::Duration;

use tokio::time::sleep;
use tokio_cron_scheduler::{Job, JobScheduler, JobSchedulerError};
use uuid::Uuid;

use super::schedule::Audits;

/// How long after a step of the clock the next audit may have its old time.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// The audits of a worker, each in its time.
pub(super) struct Timetable {
    scheduler: JobScheduler,
    audits: Audits,
    /// Six cron fields, seconds first, UTC.
    cron: String,
    job: Uuid,
}

impl Timetable {
    /// Begins to audit at these times.
    ///
    /// # Errors
    /// When the expression is not valid, or the scheduler does not start.
    pub async fn begin(audits: Audits, cron: String) -> Result<Self, JobSchedulerError> {
        let scheduler = JobScheduler::new().await?;
        let job = scheduler.add(job(&audits, &cron)?).await?;
        scheduler.start().await?;
        Ok(Self {
            scheduler,
            audits,
            cron,
            job,
        })
    }

    /// Keeps the times right until `stop` resolves, then ends the scheduler.
    pub async fn keep_until(mut self, stop: impl Future<Output = ()>) {
        let keeping = async {
            loop {
                sleep(CHECK_EVERY).await;
                if let Err(error) = self.check().await {
                    tracing::warn!(%error, "the time of the next audit cannot be checked; trying again");
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
        let mut anew = job(&self.audits, &self.cron)?;
        let right = anew.job_data()?.next_tick;
        let scheduled = self.scheduler.next_tick_for_job(self.job).await?;
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

fn job(audits: &Audits, cron: &str) -> Result<Job, JobSchedulerError> {
    let audits = audits.clone();
    Job::new_async(cron, move |_, _| {
        let audits = audits.clone();
        Box::pin(async move { audits.in_its_time().await })
    })
}
