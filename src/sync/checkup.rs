//! A worker looks at the stores once a minute, as `tally doctor` does, and shows what it sees as metrics.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use super::Worker;
use crate::doctor::{self, Level, Report, Seen};
use crate::domain::Moment;
use crate::telemetry::name;

/// How often a worker looks at the stores. Nothing that it looks for comes within a minute.
const LOOK_EVERY: Duration = Duration::from_secs(60);

impl Worker {
    /// Looks at the stores again and again. Never ends.
    pub(super) async fn keep_looking(self) {
        let mut ticks = interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.look().await;
        }
    }

    /// Looks at the stores once, and shows what it sees. What a store does not say stays as it was.
    pub async fn look(&self) {
        let report = doctor::look(&self.ledger, self.counters.redis()).await;
        show(&report);
    }
}

fn show(report: &Report) {
    for (level, name) in [(Level::Wrong, "wrong"), (Level::Look, "look")] {
        metrics::gauge!(name::DOCTOR_FINDINGS, "level" => name).set(report.count(level) as f64);
    }
    if let Some(Seen { facts, at }) = &report.redis {
        let show =
            |state, bytes: u64| metrics::gauge!(name::REDIS_MEMORY, "state" => state).set(bytes as f64);
        show("used", facts.used_bytes);
        show("limit", facts.limit_bytes);
        metrics::gauge!(name::REDIS_CLOCK_AHEAD).set(-ahead_seconds(*at, facts.now));
    }
    if let Some(Seen { facts, at }) = &report.postgres {
        let show = |state, number: i64| {
            metrics::gauge!(name::POSTGRES_CONNECTIONS, "state" => state).set(number as f64);
        };
        show("used", facts.connections);
        show("limit", facts.max_connections);
        metrics::gauge!(name::POSTGRES_SIZE).set(facts.size_bytes as f64);
        metrics::gauge!(name::UNFROZEN).set(facts.transaction_age as f64);
        metrics::gauge!(name::PREPARED_SECONDS).set(facts.oldest_prepared.as_secs_f64());
        metrics::gauge!(name::CLOCK_AHEAD).set(ahead_seconds(*at, facts.now));
    }
}

/// How far this machine's clock, which showed `here`, is ahead of the one that showed `there`.
fn ahead_seconds(here: Moment, there: Moment) -> f64 {
    (here.micros() - there.micros()) as f64 / 1e6
}
