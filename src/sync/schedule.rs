//! When the worker does what.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_cron_scheduler::{Job, JobScheduler};

use super::{AuditReport, FlushReport, Limits, Repair, SyncError, Worker};
use crate::config;
use crate::telemetry::name;

/// How many walks `--once` takes to come to rest: a recount that a walk finds may
/// leave work for the next, and votes that go on coming leave work for ever.
const ONCE_LIMIT_WALKS: usize = 10;

/// Runs the worker until `stop` resolves, then flushes a last time.
///
/// # Errors
/// When the schedule cannot be set up. A store that is away is waited for.
pub async fn run(
    worker: Worker,
    settings: &config::Worker,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let mut scheduler = JobScheduler::new().await?;
    scheduler.add(audit_job(worker.clone(), settings)?).await?;
    scheduler.start().await?;

    let mut stop = pin!(stop);
    // Not the scheduler's: it looks at its jobs twice a second at best.
    let mut ticks = interval(settings.flush_every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut failing_since = None;
    loop {
        tokio::select! {
            () = &mut stop => break,
            _ = ticks.tick() => {}
        }
        let mut passing = pin!(pass(&worker));
        let passed = tokio::select! {
            passed = &mut passing => passed,
            () = &mut stop => {
                // A pass is never cut off in a page: not between its write and its
                // mark, and not in the making of a transaction, which would leave its
                // connection in one (sqlx issue 4385) for the last flush.
                worker.stop();
                note(passing.await, &mut failing_since);
                break;
            }
        };
        note(passed, &mut failing_since);
    }
    if let Err(error) = scheduler.shutdown().await {
        tracing::warn!(%error, "the schedule did not end");
    }
    match timeout(settings.last_flush_limit, worker.flush()).await {
        Ok(Ok(report)) => tracing::info!(flushed = report.flushed, "flushed a last time"),
        Ok(Err(error)) => {
            tracing::warn!(%error, "the last flush failed: another worker, or the next start, will do it")
        }
        Err(_) => {
            tracing::warn!(limit = ?settings.last_flush_limit, "the last flush took too long and was left")
        }
    }
    Ok(())
}

/// What the worker does at each tick.
async fn pass(worker: &Worker) -> Result<FlushReport, SyncError> {
    worker.enter_epoch().await?;
    worker.settle_departures().await?;
    worker.flush_shared().await
}

/// Logs a store's absence once, and its return once.
fn note(passed: Result<FlushReport, SyncError>, failing_since: &mut Option<Instant>) {
    match (passed, *failing_since) {
        (Ok(_), None) => {}
        (Ok(_), Some(since)) => {
            tracing::info!(after = ?since.elapsed(), "flushing again");
            *failing_since = None;
        }
        (Err(error), since) => {
            metrics::counter!(name::JOB_FAILURES, "job" => "flush").increment(1);
            let since = since.unwrap_or_else(|| {
                tracing::warn!(%error, "nothing can be flushed; trying again at each tick");
                Instant::now()
            });
            *failing_since = Some(since);
            // While no walk comes through, unsaved counts are at least this old.
            metrics::gauge!(name::OLDEST_UNSAVED_SECONDS).set(since.elapsed().as_secs_f64());
        }
    }
}

fn audit_job(worker: Worker, settings: &config::Worker) -> anyhow::Result<Job> {
    // The scheduler lets a slow job overlap itself; this lock does not.
    let running = Arc::new(Mutex::new(()));
    Ok(Job::new_async(settings.audit_cron.as_str(), move |_, _| {
        let (worker, running) = (worker.clone(), Arc::clone(&running));
        Box::pin(async move {
            let Ok(_guard) = running.try_lock() else {
                tracing::warn!("the audit before is still running: this one is left out");
                return;
            };
            match worker.audit(Repair::Yes).await {
                Ok(report) => log_audit(&report),
                Err(error) => {
                    metrics::counter!(name::JOB_FAILURES, "job" => "audit").increment(1);
                    tracing::warn!(%error, "the audit failed; it comes again in its time");
                }
            }
        })
    })?)
}

fn log_audit(report: &AuditReport) {
    if report.wrong_items == 0 {
        tracing::debug!(?report, "audited");
    } else {
        tracing::error!(
            ?report,
            "the audit found wrong counts, and had them counted afresh"
        );
    }
}

impl Worker {
    /// For cron and tests: flushes until nothing is left to flush, then audits,
    /// repairing what is wrong.
    ///
    /// # Errors
    /// When a store is away.
    pub async fn once(&self) -> Result<(FlushReport, AuditReport), SyncError> {
        self.enter_epoch().await?;
        // The audit would do it as well, and leave the recounts to a next walk.
        self.settle_departures().await?;
        let mut total = self.flush_to_rest().await?;
        let audit = self.audit(Repair::Yes).await?;
        if audit.repaired_items > 0 {
            total.add(&self.flush_to_rest().await?);
        }
        Ok((total, audit))
    }

    /// Walks until a walk finds nothing to do.
    ///
    /// # Errors
    /// When a store is away.
    pub async fn flush_to_rest(&self) -> Result<FlushReport, SyncError> {
        let mut total = FlushReport::default();
        for _ in 0..ONCE_LIMIT_WALKS {
            let report = self.flush().await?;
            total.add(&report);
            if report.is_at_rest() {
                break;
            }
        }
        Ok(total)
    }
}

/// The limits, for a caller that audits without a schedule.
impl From<&config::Audit> for Limits {
    fn from(settings: &config::Audit) -> Self {
        Self {
            flush_page: 1000,
            retention: Duration::MAX,
            max_age: Duration::MAX,
            in_flight_limit: settings.in_flight_limit,
            audit_page: settings.audit_page,
        }
    }
}
