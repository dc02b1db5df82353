//! Heartbeats: a worker says how it is, besides its passes. It also learns whether someone asks for
//! an audit.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval, timeout};

use super::Worker;
use super::timetable::Audits;

/// How often a worker says how it is: one small statement that waits for no disk.
pub(crate) const BEAT_EVERY: Duration = Duration::from_secs(1);
/// How long one heartbeat may take. Then the next one takes over.
const BEAT_LIMIT: Duration = Duration::from_secs(5);

impl Worker {
    /// Sends heartbeats again and again, and does the audits that are asked for. Never ends. The
    /// next heartbeat retries what failed, and no pass depends on it.
    pub(super) async fn keep_beating(self, audits: Audits) {
        let mut ticks = interval(BEAT_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut has_shown = false;
        loop {
            ticks.tick().await;
            // One that is left behind in another Redis does not work, and must keep no other one from working.
            if self.seen_entries.check_place().is_err() {
                continue;
            }
            has_shown = has_shown || matches!(timeout(BEAT_LIMIT, self.show_successes()).await, Ok(Ok(())));
            match timeout(BEAT_LIMIT, self.ledger.beat(&self.watch.heartbeat())).await {
                Ok(Ok(true)) if !self.is_stopping() => {
                    let audits = audits.clone();
                    tokio::spawn(async move { audits.asked().await });
                }
                Ok(Ok(_)) => {}
                // The part that saves counts has logged it as well.
                Ok(Err(error)) => tracing::debug!(%error, "a heartbeat was not noted"),
                Err(_) => tracing::debug!(limit = ?BEAT_LIMIT, "a heartbeat was not noted in time"),
            }
        }
    }

    /// Takes this worker off the list, because it stops.
    pub(super) async fn stop_beating(&self) {
        match timeout(BEAT_LIMIT, self.ledger.forget_worker()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "another worker will note that this one has stopped"),
            Err(_) => tracing::debug!("another worker will note that this one has stopped"),
        }
    }
}
