//! A worker looks at the stores once a minute, as `tally doctor` does, and shows what it sees as metrics.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use super::Worker;
use crate::doctor::{self, Level, Report, Seen};
use crate::domain::Moment;
use crate::live::RedisFacts;
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
        let fullest = facts
            .iter()
            .max_by(|one, other| share(one).total_cmp(&share(other)));
        if let Some(fullest) = fullest {
            show("used", fullest.used_bytes);
            show("limit", fullest.limit_bytes);
        }
        let ahead = facts.iter().map(|one| -ahead_seconds(*at, one.now));
        if let Some(most) = ahead.max_by(|one, other| one.abs().total_cmp(&other.abs())) {
            metrics::gauge!(name::REDIS_CLOCK_AHEAD).set(most);
        }
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

/// How full a Redis is. Without a limit it is never full, but has the more in it.
fn share(facts: &RedisFacts) -> f64 {
    match facts.limit_bytes {
        0 => facts.used_bytes as f64 / f64::MAX,
        limit => facts.used_bytes as f64 / limit as f64,
    }
}

/// How far this machine's clock, which showed `here`, is ahead of the one that showed `there`.
fn ahead_seconds(here: Moment, there: Moment) -> f64 {
    (here.micros() - there.micros()) as f64 / 1e6
}
