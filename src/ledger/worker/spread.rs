//! Work on many rows, spread over time. Done at once, it would take a core for a tenth of a second,
//! and every voter would wait: one voter in a hundred on 10,000 items waited 27 to 37 ms.

use std::time::Duration;

use tokio::time::sleep;

/// How fast many rows are read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pacing {
    /// A few rows at a time, with rests: voters are at work.
    Spread,
    /// As fast as Postgres can.
    AtOnce,
}

/// The most vote ids of a statement that sums, between rests. 10,000 took Postgres 15 to 25 ms
/// beside voters.
const SPREAD_LIMIT_IDS: u32 = 2500;
/// The same without rests.
const AT_ONCE_LIMIT_IDS: u32 = 100_000;
/// The most rows of a statement that writes, between rests. A gentle flush writes as many at once.
const SPREAD_LIMIT_ROWS: u32 = 250;
/// The same without rests.
const AT_ONCE_LIMIT_ROWS: u32 = 10_000;
/// After a statement, the worker rests this many times as long as it took.
const REST_TIMES: u32 = 3;
/// The longest rest of a worker that sums.
pub(crate) const SUM_REST_LIMIT: Duration = Duration::from_secs(2);
/// How long a transaction that writes rests in all, at most. While it is open, Postgres removes no
/// newer row versions, and other sessions' visibility snapshots name it.
pub(crate) const WRITE_REST_LIMIT: Duration = Duration::from_millis(500);

/// A series of statements of the same kind.
#[derive(Debug)]
pub(super) struct Statements {
    /// The most ids or rows of each.
    limit: u32,
    /// How many statements have not run yet.
    left: u32,
    /// The longest rest after each.
    rest_limit: Duration,
}

impl Statements {
    /// Statements that sum the votes with this many ids.
    pub fn that_sum(ids: u64, pacing: Pacing) -> Self {
        match pacing {
            Pacing::Spread => Self::of(ids, SPREAD_LIMIT_IDS, SUM_REST_LIMIT),
            Pacing::AtOnce => Self::of(ids, AT_ONCE_LIMIT_IDS, Duration::ZERO),
        }
    }

    /// Statements that write this many rows.
    pub fn that_write(rows: usize, pacing: Pacing) -> Self {
        let rows = u64::try_from(rows).unwrap_or(u64::MAX);
        match pacing {
            Pacing::Spread => Self::of(rows, SPREAD_LIMIT_ROWS, WRITE_REST_LIMIT),
            Pacing::AtOnce => Self::of(rows, AT_ONCE_LIMIT_ROWS, Duration::ZERO),
        }
    }

    fn of(all: u64, limit: u32, rest_limit: Duration) -> Self {
        let left = u32::try_from(all.div_ceil(u64::from(limit))).unwrap_or(u32::MAX);
        Self {
            limit,
            left,
            rest_limit: rest_limit.checked_div(left).unwrap_or_default(),
        }
    }

    /// The most vote ids of each.
    pub fn limit_ids(&self) -> i64 {
        i64::from(self.limit)
    }

    /// The most rows of each.
    pub fn limit_rows(&self) -> usize {
        usize::try_from(self.limit).unwrap_or(usize::MAX)
    }

    /// Rests after a statement that took this long, unless it was the last one.
    pub async fn rest_after(&mut self, took: Duration) {
        let rest = self.rest(took);
        if !rest.is_zero() {
            sleep(rest).await;
        }
    }

    fn rest(&mut self, took: Duration) -> Duration {
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            return Duration::ZERO;
        }
        took.saturating_mul(REST_TIMES).min(self.rest_limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    #[test]
    fn the_worker_rests_after_each_statement_but_the_last_and_so_long_in_all_at_the_most() {
        let mut writes = Statements::that_write(501, Pacing::Spread);
        assert_eq!(writes.limit_rows(), 250);
        assert_eq!(writes.rest(2 * MILLISECOND), 6 * MILLISECOND);
        assert_eq!(writes.rest(Duration::MAX), WRITE_REST_LIMIT / 3);
        assert_eq!(writes.rest(2 * MILLISECOND), Duration::ZERO);

        let mut sums = Statements::that_sum(1_000_000, Pacing::Spread);
        assert_eq!(sums.limit_ids(), 2500);
        let rests: Duration = (0..400).map(|_| sums.rest(Duration::from_secs(1))).sum();
        assert_eq!(rests, SUM_REST_LIMIT * 399 / 400);
    }

    #[test]
    fn while_nobody_votes_it_does_not_rest() {
        let mut writes = Statements::that_write(30_000, Pacing::AtOnce);
        assert_eq!(writes.limit_rows(), 10_000);
        assert_eq!(writes.rest(MILLISECOND), Duration::ZERO);
        let mut sums = Statements::that_sum(300_000, Pacing::AtOnce);
        assert_eq!(sums.limit_ids(), 100_000);
        assert_eq!(sums.rest(MILLISECOND), Duration::ZERO);
    }

    #[test]
    fn nothing_to_do_is_no_statement() {
        let mut none = Statements::that_write(0, Pacing::Spread);
        assert_eq!(none.rest(MILLISECOND), Duration::ZERO);
    }
}
