//! The state of the server, now and in the last hour, for people.
//!
//! - `clock`: how far the server's clock is from Postgres'.
//! - `figures`: the metrics at one moment.
//! - `curves`: the curves over time, and what is normal.
//! - `history`: the samples of the last hour.

mod clock;
mod curves;
mod figures;
mod history;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use metrics_exporter_prometheus::PrometheusHandle;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use clock::ClockWatch;
pub use curves::CURVES;
use curves::{Surroundings, Workers};
pub use figures::{Figures, Histogram};
pub use history::{SAMPLE_EVERY_SECONDS, SAMPLES_LIMIT, Sample};

use crate::domain::Moment;
use crate::ledger::{JobStatus, LedgerError, ServerLedger, WorkerStatus};
use crate::live::LiveCounts;

/// The longest wait for what Postgres knows of the workers.
pub const ASK_LIMIT: Duration = Duration::from_secs(2);

/// The state of a server, now and in the last hour. Cheap to clone: its threads share it.
#[derive(Clone)]
pub struct Status(Arc<Inner>);

struct Inner {
    started_at: Moment,
    began: Instant,
    metrics: PrometheusHandle,
    history: Mutex<history::History>,
}

/// What has been added in the last minute, or since the start.
pub struct Lately {
    pub now: Figures,
    /// `None`: no sample has been taken yet.
    pub before: Option<Figures>,
    pub seconds: f64,
}

/// Returns the seconds since 1970, by the system's clock.
fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

impl Status {
    /// Makes the status of a server that starts now and has these metrics.
    pub fn new(metrics: PrometheusHandle) -> Self {
        Self(Arc::new(Inner {
            started_at: Moment::now(),
            began: Instant::now(),
            metrics,
            history: Mutex::default(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, history::History> {
        self.0.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when the server started, by this machine's clock.
    pub fn started_at(&self) -> Moment {
        self.0.started_at
    }

    /// Returns the samples after this time (seconds since 1970), oldest first.
    pub fn samples_after(&self, at: u32) -> Vec<Sample> {
        self.lock().after(at)
    }

    /// Returns the metrics now, and those of a minute ago.
    pub fn lately(&self) -> Lately {
        let now = Figures::read(&self.0.metrics.render());
        let clock = self.0.began.elapsed().as_secs_f64();
        let history = self.lock();
        let before = history.lately();
        Lately {
            now,
            seconds: before.map_or(clock, |(at, _)| clock - at),
            before: before.map(|(_, figures)| figures.clone()),
        }
    }

    /// Takes a sample every [`SAMPLE_EVERY_SECONDS`]. Never ends. No thread that serves waits for it.
    pub async fn keep_sampling(self, ledger: ServerLedger, live_counts: LiveCounts) {
        let mut ticks = interval(Duration::from_secs(SAMPLE_EVERY_SECONDS.into()));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut clock_watch = ClockWatch::default();
        loop {
            ticks.tick().await;
            clock_watch.look(&ledger).await;
            let around = surroundings(&ledger, &live_counts).await;
            let metrics = self.0.metrics.clone();
            let figures = spawn_blocking(move || Figures::read(&metrics.render())).await;
            let Ok(figures) = figures else { continue };
            let at = u32::try_from(unix_time().as_secs()).unwrap_or(u32::MAX);
            let clock = self.0.began.elapsed().as_secs_f64();
            self.lock().add(at, clock, figures, &around);
        }
    }
}

/// Returns what the ledger knows of the workers and their jobs. `None`: it does not answer in time.
pub async fn workers_and_jobs(ledger: &ServerLedger) -> Option<(Vec<WorkerStatus>, Vec<JobStatus>)> {
    let asked = async { Ok::<_, LedgerError>((ledger.workers().await?, ledger.jobs().await?)) };
    match timeout(ASK_LIMIT, asked).await {
        Ok(Ok(answer)) => Some(answer),
        Ok(Err(error)) => {
            tracing::debug!(%error, "Postgres does not say how the workers are");
            None
        }
        Err(_) => None,
    }
}

async fn surroundings(ledger: &ServerLedger, live_counts: &LiveCounts) -> Surroundings {
    let asked = workers_and_jobs(ledger).await;
    Surroundings {
        has_postgres: asked.is_some(),
        has_redis: live_counts.answers(),
        suspects: live_counts.suspect_total() as f64,
        workers: asked.map(|(workers, jobs)| together(&workers, &jobs)),
    }
}

/// Combines what the workers report.
fn together(workers: &[WorkerStatus], jobs: &[JobStatus]) -> Workers {
    let alive = || workers.iter().filter(|worker| worker.is_alive);
    let ages = alive().map(|worker| worker.oldest_unsaved);
    Workers {
        alive: alive().count() as f64,
        unsaved_counts: alive().map(|worker| worker.unsaved_counts as f64).sum(),
        oldest_unsaved_seconds: ages.max().unwrap_or_default().as_secs_f64(),
        drift_votes: drift(jobs),
    }
}

/// Returns how many votes the last audit found wrong. `None`: no audit has reported.
pub fn drift(jobs: &[JobStatus]) -> Option<f64> {
    let audit = jobs.iter().find(|job| job.name == "audit")?;
    audit.last_run.as_ref()?.details["wrong_votes"].as_f64()
}
