//! Upkeep: adds the samples of histograms to their buckets, even if nobody scrapes.

use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval};

use super::build;

/// How often the samples of histograms are added to their buckets. Until then each takes eight
/// bytes, and a vote makes two. At 60,000 votes per second, a second's samples take 1 MB and some
/// milliseconds to add.
const UPKEEP_EVERY: Duration = Duration::from_secs(1);

/// The task that does the upkeep of a program's metrics. It ends when this is dropped.
#[derive(Debug)]
pub struct Upkeep(JoinHandle<()>);

impl Upkeep {
    /// Starts the task on the current runtime. It runs on a thread for blocking work, so no thread
    /// that serves requests waits for it.
    pub fn start(metrics: PrometheusHandle) -> Self {
        build::show();
        Self(tokio::spawn(async move {
            let mut ticks = interval(UPKEEP_EVERY);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                let metrics = metrics.clone();
                let upkeep = move || {
                    metrics.run_upkeep();
                    // CPU time, memory and open files of this process.
                    metrics_process::Collector::default().collect();
                };
                if let Err(error) = spawn_blocking(upkeep).await {
                    tracing::error!(%error, "the upkeep of the metrics failed");
                }
            }
        }))
    }
}

impl Drop for Upkeep {
    fn drop(&mut self) {
        self.0.abort();
    }
}
