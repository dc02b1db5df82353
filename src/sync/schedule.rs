//! The schedule: when the worker takes which step.

use std::pin::pin;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use super::flush_interval::FlushInterval;
use super::roll_up::ROLL_UP_EVERY;
use super::timetable::{Audits, Timetable};
use super::{AuditReport, FlushReport, Repair, SyncError, Webhook, WebhookOptions, Worker};
use crate::telemetry::{Span, name, trouble};

/// The most scans that `--once` makes until the system is quiescent. A rebuild in one scan may
/// leave work for the next, and votes that keep coming leave work for ever.
const ONCE_LIMIT_SCANS: usize = 10;

/// How long the scan over all counters waits after a failure.
const SCAN_RETRY: Duration = Duration::from_secs(1);

/// How long a worker that stops waits for answers of the webhook.
const LAST_DELIVERY_LIMIT: Duration = Duration::from_secs(2);

/// When a worker does what.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// How often live counts are written behind. Less often while thousands of them change.
    pub flush_every: Duration,
    /// About how long one scan over all counters takes.
    pub scan_every: Duration,
    /// When to audit: six cron fields, seconds first, UTC.
    pub audit_cron: String,
    /// How long hashes of client addresses are kept.
    pub address_retention: Duration,
    /// How long the last flush may take.
    pub last_flush_limit: Duration,
    /// Where events are sent to. `None`: this worker wants none.
    pub webhook: Option<WebhookOptions>,
}

/// Runs the worker until `stop` resolves, then flushes a last time.
///
/// # Errors
/// When the schedule cannot be set up. The worker waits for a store that is unavailable.
pub async fn run(worker: Worker, schedule: &Schedule, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
    // The name by which the tables of jobs call it.
    tracing::info!(worker = worker.ledger.name(), "working");
    worker.seen_entries.move_counts();
    // No task saves anything before the first look at epochs has ended.
    worker.entered.look_begins();
    let webhook = schedule.webhook.as_ref().map(Webhook::new).transpose()?;
    let audits = Audits::of(&worker);
    let timetable = Timetable::begin(audits.clone(), schedule.audit_cron.clone()).await?;
    let (no_more_audits, is_stopped) = oneshot::channel::<()>();
    let auditing = tokio::spawn(timetable.keep_until(async {
        let _ = is_stopped.await;
    }));

    let mut stop = pin!(stop);
    // Not the scheduler's ticks: it polls its jobs twice a second at best.
    let mut ticks = interval(schedule.flush_every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut flushes = FlushInterval::new(schedule.flush_every);
    // Besides the passes, one of which may hang.
    let showing = tokio::spawn(worker.watch.clone().keep_showing());
    let looking = tokio::spawn(worker.clone().keep_looking());
    let promotions = tokio::spawn(worker.ledger.clone().keep_finding_promotions());
    // Besides the passes, too.
    let beating = tokio::spawn(worker.clone().keep_beating(audits));
    // A task of its own: it waits for transactions that write votes.
    tokio::spawn({
        let worker = worker.clone();
        async move { keep_rolling_up(&worker).await }
    });
    tokio::spawn({
        let (worker, scan_every) = (worker.clone(), schedule.scan_every);
        async move { keep_scanning(&worker, scan_every).await }
    });
    tokio::spawn({
        let (worker, retention) = (worker.clone(), schedule.address_retention);
        async move { worker.keep_deleting(retention).await }
    });
    tokio::spawn({
        let worker = worker.clone();
        async move { worker.keep_adding_ranges().await }
    });
    // A webhook that hangs holds up nothing else.
    let delivering = tokio::spawn({
        let worker = worker.clone();
        async move {
            if let Some(webhook) = webhook {
                worker.keep_delivering(&webhook).await;
            }
        }
    });
    loop {
        tokio::select! {
            () = &mut stop => break,
            _ = ticks.tick() => {}
        }
        let began = Instant::now();
        let mut passing = pin!(traced(pass(&worker, &mut flushes)));
        let passed = tokio::select! {
            passed = &mut passing => passed,
            () = &mut stop => {
                // A pass is never cut off in a page. It might be between its write and its mark. Or
                // it might be beginning a transaction, and would leave its connection in one (sqlx
                // issue 4385) for the last flush.
                worker.stop();
                note(&worker, &passing.await);
                break;
            }
        };
        match &passed {
            Ok(Some(report)) => worker.watch.pass_ended(began, Some(report)),
            // Nothing is saved that was not: saved counts are as old as the last flush.
            Ok(None) => {}
            Err(_) => worker.watch.pass_ended(began, None),
        }
        note(&worker, &passed);
    }
    worker.stop();
    drop(no_more_audits);
    let _ = auditing.await;
    let last_flush = async {
        worker.check_owner().await?;
        // This worker may have been stopped as it entered an epoch, or before.
        worker.look_at_entered().await?;
        worker.give_up_entries().await;
        worker.flush_entered().await
    };
    let began = Instant::now();
    match timeout(schedule.last_flush_limit, last_flush).await {
        Ok(Ok(report)) => tracing::info!(flushed = report.flushed, "flushed a last time"),
        Ok(Err(error)) => {
            tracing::warn!(%error, "the last flush failed: another worker, or the next start, will do it")
        }
        Err(_) => {
            tracing::warn!(limit = ?schedule.last_flush_limit, "the last flush took too long and was given up")
        }
    }
    let save_cold = async {
        if worker.is_behind_cold_votes().await? {
            worker.roll_up_when_free().await?;
        }
        Ok::<(), SyncError>(())
    };
    let left = schedule.last_flush_limit.saturating_sub(began.elapsed());
    match timeout(left, save_cold).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::warn!(%error, "counts of cold items are not saved: another worker, or the next start, will do it")
        }
        Err(_) => tracing::warn!(
            "there was no time to save counts of cold items: another worker, or the next start, will do it"
        ),
    }
    // What is sent but not noted would be sent again.
    if timeout(LAST_DELIVERY_LIMIT, delivering).await.is_err() {
        tracing::debug!("the webhook has not answered yet: a worker sends the event again");
    }
    worker.give_back_jobs().await;
    showing.abort();
    looking.abort();
    promotions.abort();
    beating.abort();
    // After the last heartbeat.
    let _ = beating.await;
    worker.stop_beating().await;
    Ok(())
}

/// A pass, with its span.
async fn traced(
    pass: impl Future<Output = Result<Option<FlushReport>, SyncError>>,
) -> Result<Option<FlushReport>, SyncError> {
    let mut span = Span::begin("flush");
    let passed = pass.await;
    match &passed {
        Ok(report) => span.set_number("tally.counts", report.map_or(0, |report| report.flushed)),
        Err(error) => span.fail(error),
    }
    passed
}

/// What the worker does at each tick. `None`: it did not flush, since that is not due yet, or the
/// live counts are not certain.
async fn pass(worker: &Worker, flushes: &mut FlushInterval) -> Result<Option<FlushReport>, SyncError> {
    let _pass = worker.watch.begin("flush");
    // First, since in another epoch no live count is certain.
    let entered = worker.go_on_entering().await;
    if worker.entered.is_empty() {
        entered?;
        return Ok(None);
    }
    // Items that an epoch or a recovery has to be rebuilt do not wait.
    if matches!(entered, Ok(Some(_))) {
        flushes.hurry();
    }
    let began = Instant::now();
    let is_due = flushes.is_due(began);
    let flush = async {
        match is_due {
            true => worker.flush_shared().await.map(Some),
            false => Ok(None),
        }
    };
    // Neither waits for the other. Without some nodes of a Cluster, the counts of the others are saved.
    let (recovered, flushed) = tokio::join!(worker.go_on_recovering(), flush);
    match &flushed {
        Ok(Some(report)) => flushes.ended(began, report),
        Ok(None) => {}
        Err(_) => flushes.hurry(),
    }
    if matches!(recovered, Ok(Some(_))) {
        flushes.hurry();
    }
    entered?;
    recovered?;
    flushed
}

/// Rolls up again and again, until the worker stops. Never cancelled: a transaction that is cut off
/// as it begins spoils its connection (sqlx issue 4385).
async fn keep_rolling_up(worker: &Worker) {
    while !worker.is_stopping() {
        worker.until_roll_up(ROLL_UP_EVERY).await;
        if worker.is_stopping() {
            return;
        }
        let rolled_up = {
            let _pass = worker.watch.begin("roll_up");
            worker.roll_up().await
        };
        worker.watch.ended("roll_up", &rolled_up);
        if let Err(error) = rolled_up {
            metrics::counter!(name::JOB_FAILURES, "job_name" => "roll_up").increment(1);
            trouble!(warn, %error; "votes cannot be rolled up; trying again");
        }
    }
}

/// Scans over all counters again and again, page by page, until the worker stops. At full speed, a
/// million idle counters took most of a core.
async fn keep_scanning(worker: &Worker, scan_every: Duration) {
    while !worker.is_stopping() {
        let step = async {
            worker.seen_entries.check_place()?;
            sleep(worker.scan_pause(scan_every).await?).await;
            let _pass = worker.watch.begin("scan");
            worker.scan_page().await
        };
        if let Err(error) = step.await {
            metrics::counter!(name::JOB_FAILURES, "job_name" => "scan").increment(1);
            trouble!(warn, %error; "counters cannot be scanned; trying again");
            sleep(SCAN_RETRY).await;
        }
    }
}

/// Notes how a pass ended. Logs that a store is gone, and that it is back.
fn note(worker: &Worker, passed: &Result<Option<FlushReport>, SyncError>) {
    if let Some(after) = worker.watch.ended("flush", passed) {
        tracing::info!(?after, "flushing again");
    }
    if let Err(error) = passed {
        metrics::counter!(name::JOB_FAILURES, "job_name" => "flush").increment(1);
        trouble!(warn, %error; "a flush failed; trying again at each tick");
    }
}

impl Worker {
    /// For cron and tests: flushes until nothing is left, then audits and repairs.
    pub async fn once(&self) -> Result<(FlushReport, AuditReport), SyncError> {
        self.enter_epoch().await?;
        // The audit would do it as well, but leave the rebuilds to a later scan.
        self.recover_crashed_writers().await?;
        let mut total = self.flush_until_quiescent().await?;
        // The audit saves no cold items, and does not wait for a worker that was killed and still has the job.
        Self::unless_votes_stay(self.roll_up_until_saved().await)?;
        let audit = self.audit(Repair::Yes).await?;
        if audit.repaired_items > 0 {
            total.add(&self.flush_until_quiescent().await?);
        }
        Ok((total, audit))
    }

    /// Scans until a scan finds nothing to do.
    pub async fn flush_until_quiescent(&self) -> Result<FlushReport, SyncError> {
        let mut total = FlushReport::default();
        for _ in 0..ONCE_LIMIT_SCANS {
            let report = self.flush().await?;
            total.add(&report);
            if report.is_quiescent() {
                break;
            }
        }
        Ok(total)
    }
}
