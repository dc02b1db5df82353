//! How far this server's clock is from Postgres' clock.

use std::time::Duration;

use tokio::time::timeout;

use super::{ASK_LIMIT, unix_time};
use crate::domain::Moment;
use crate::ledger::ServerLedger;
use crate::telemetry::name;

/// A clock that is further from Postgres' is wrong. Tokens bear 30 s, so there is time to set it right.
const AHEAD_LIMIT: Duration = Duration::from_secs(5);

/// Compares the clocks again and again, and says once that they differ, and once that they agree.
#[derive(Default)]
pub(super) struct ClockWatch {
    is_wrong: bool,
}

impl ClockWatch {
    /// Compares the clocks. Without an answer in time, nothing is known.
    pub async fn look(&mut self, ledger: &ServerLedger) {
        let before = unix_time();
        let Ok(Ok(asked)) = timeout(ASK_LIMIT, ledger.now()).await else {
            return;
        };
        let seconds = ahead_seconds(before, asked, unix_time());
        metrics::gauge!(name::CLOCK_AHEAD).set(seconds);
        let is_wrong = seconds.abs() > AHEAD_LIMIT.as_secs_f64();
        match (self.is_wrong, is_wrong) {
            (false, true) => tracing::warn!(
                ahead_seconds = seconds.round(),
                "this server's clock and Postgres' differ: set the wrong one right (chrony); no count depends on it"
            ),
            (true, false) => tracing::info!("this server's clock and Postgres' agree again"),
            _ => {}
        }
        self.is_wrong = is_wrong;
    }
}

/// Returns how far this clock is ahead. It showed these times before and after Postgres was asked.
fn ahead_seconds(before: Duration, asked: Moment, after: Duration) -> f64 {
    let middle = (before + after).as_secs_f64() / 2.0;
    middle - asked.micros() as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_compared_at_the_middle_of_the_query() {
        let seconds = Duration::from_secs;
        let asked = Moment::from_micros(1_000_000_000);
        assert_eq!(ahead_seconds(seconds(1000), asked, seconds(1000)), 0.0);
        assert_eq!(ahead_seconds(seconds(1599), asked, seconds(1601)), 600.0);
        assert_eq!(ahead_seconds(seconds(399), asked, seconds(401)), -600.0);
    }
}
