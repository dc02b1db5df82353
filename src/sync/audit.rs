//! Proving the counts against the ledger.
//!
//! The audit first moves the watermark, then compares page by page: it reads the
//! live counts, then reads the exact counts under one snapshot. Whatever a live
//! count held when it was read was committed by then, so it may differ from the
//! exact count only by votes in flight: stored, but not counted yet. Those are
//! in-flight. A count outside what its in-flight votes allow is wrong for certain.

use std::cmp::Ordering::{Equal, Greater, Less};
use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{SyncError, Worker};
use crate::domain::{ItemId, Revision};
use crate::ledger::{AuditRow, ROLL_UP_LIMIT_IDS};
use crate::live::Counter;
use crate::telemetry::name;

/// How often the audit looks again at counts that votes in flight may explain,
/// and how long it waits in between. On a system when quiescent they come right at once.
const LOOKS_LIMIT: usize = 5;
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// From how many vote ids a second on voters count as being at work. Each vote takes
/// some 40 µs of CPU time from all parts together: below this there is room for both.
const VOTING_LIMIT_IDS_PER_SECOND: f64 = 1000.0;
/// How many vote ids a chunk has while voters are at work, and until it is known
/// whether they are: it takes about 0.05 s of CPU time.
const VOTING_CHUNK_IDS: i64 = 100_000;
/// How many times as long as a chunk took the audit rests after it while voters are
/// at work. On two cores they kept two thirds of their rate while an audit did not rest.
const REST_TIMES: u32 = 6;
/// How long it rests at the most: what took long may have waited for a lock.
const REST_LIMIT: Duration = Duration::from_secs(1);
/// How many wrong items the log names one by one.
const NAMED_LIMIT_ITEMS: usize = 20;

/// What to do with what is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// Only report it.
    No,
    /// Invalidate it: the next scan rebuilds it.
    Yes,
}

/// What an audit found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuditReport {
    /// Items compared.
    pub items: usize,
    /// Votes in the ledger.
    pub votes: i64,
    /// Items whose live and saved counts are exact, or will be once what is
    /// unsaved is flushed and what is suspect rebuilt.
    pub right_items: usize,
    /// Items that differ by no more than their votes in flight.
    pub in_flight_items: usize,
    /// Items that a rebuild is asked for already.
    pub rebuilding_items: usize,
    /// Items whose live or saved count is wrong.
    pub wrong_items: usize,
    /// By how many votes they are wrong, without signs.
    pub wrong_votes: u64,
    /// Items that were invalidated for it.
    pub repaired_items: usize,
}

impl fmt::Display for AuditReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "checked   {:>10} items, {} votes", self.items, self.votes)?;
        writeln!(out, "right     {:>10} items", self.right_items)?;
        writeln!(
            out,
            "in flight {:>10} items: they differ by no more than votes on their way",
            self.in_flight_items
        )?;
        writeln!(
            out,
            "suspect   {:>10} items: a sync worker will rebuild them",
            self.rebuilding_items
        )?;
        writeln!(
            out,
            "wrong     {:>10} items, by {} votes",
            self.wrong_items, self.wrong_votes
        )?;
        writeln!(out, "repaired  {:>10} items", self.repaired_items)
    }
}

/// What the comparison says of one item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Right,
    InFlight,
    Rebuilding,
    /// The item was written with a later revision than that of the count that is marked as
    /// saved: since the read, unless the next look finds the same.
    Ahead {
        of: Revision,
        by: u64,
    },
    Wrong {
        by: u64,
    },
}

impl Worker {
    /// One full audit.
    ///
    /// # Errors
    /// When a store is unavailable. The watermark keeps what it was moved.
    pub async fn audit(&self, repair: Repair) -> Result<AuditReport, SyncError> {
        let started = Instant::now();
        // Crashed-writer recovery look for votes beyond the watermark only. So it does not move while
        // there is no Redis to have them rebuilt in, or to compare them with.
        self.counters.known_epoch().await?;
        self.recover_crashed_writers().await?;
        self.roll_up().await?;
        let mut report = AuditReport {
            votes: self.ledger.vote_total().await?,
            ..AuditReport::default()
        };
        let mut after = 0;
        loop {
            let limit = i64::try_from(self.options.audit_page).unwrap_or(i64::MAX);
            let items = self.ledger.item_ids(after, limit).await?;
            let Some(last) = items.last() else { break };
            after = last.get();
            self.audit_page(items, repair, &mut report).await?;
        }
        metrics::histogram!(name::AUDIT_SECONDS).record(started.elapsed().as_secs_f64());
        metrics::counter!(name::AUDIT_WRONG_ITEMS).increment(report.wrong_items as u64);
        metrics::counter!(name::AUDIT_WRONG_VOTES).increment(report.wrong_votes);
        for (verdict, items) in [
            ("right", report.right_items),
            ("in_flight", report.in_flight_items),
            ("rebuilding", report.rebuilding_items),
            ("wrong", report.wrong_items),
        ] {
            metrics::gauge!(name::AUDIT_ITEMS, "verdict" => verdict).set(items as f64);
        }
        metrics::gauge!(name::AUDIT_DRIFT).set(report.wrong_votes as f64);
        let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
        metrics::gauge!(name::AUDIT_LAST).set(now.as_secs_f64());
        Ok(report)
    }

    /// Moves the watermark up to the votes that may still be in flight. Leaves most of
    /// the time to voters that are at work.
    async fn roll_up(&self) -> Result<(), SyncError> {
        let mut looked = Instant::now();
        let safe = self.ledger.safe_vote_id().await?;
        let mut drawn = safe;
        let mut chunk_ids = VOTING_CHUNK_IDS;
        loop {
            let started = Instant::now();
            let rolled_up = self
                .ledger
                .roll_up_votes(safe, self.options.in_flight_limit, chunk_ids)
                .await?;
            let Some(rolled_up) = rolled_up else { break };
            tracing::debug!(
                watermark = %rolled_up.watermark,
                votes = rolled_up.votes,
                "the watermark moved"
            );
            if rolled_up.is_next_in_flight || rolled_up.watermark >= safe {
                break;
            }
            let pace = pace(
                rolled_up.drawn.get() - drawn.get(),
                looked.elapsed(),
                started.elapsed(),
            );
            (drawn, looked) = (rolled_up.drawn, Instant::now());
            chunk_ids = pace.chunk_ids;
            sleep(pace.rest).await;
        }
        Ok(())
    }

    async fn audit_page(
        &self,
        mut items: Vec<ItemId>,
        repair: Repair,
        report: &mut AuditReport,
    ) -> Result<(), SyncError> {
        report.items += items.len();
        let mut wrong = Vec::new();
        let mut ahead: HashMap<ItemId, Revision> = HashMap::new();
        for look in 1..=LOOKS_LIMIT {
            let compared = self.compare(&items).await?;
            let mut again = Vec::new();
            for (row, verdict) in compared {
                match verdict {
                    Verdict::Right => report.right_items += 1,
                    Verdict::Rebuilding => report.rebuilding_items += 1,
                    Verdict::InFlight => again.push(row.item_id),
                    Verdict::Ahead { of, .. } if ahead.insert(row.item_id, of) != Some(of) => {
                        again.push(row.item_id);
                    }
                    // Ahead for the second time, nothing was under way: a worker's late
                    // write of a count from before a failover to a slower clock.
                    Verdict::Ahead { by, .. } | Verdict::Wrong { by } => {
                        report.wrong_votes += by;
                        wrong.push((row, by));
                    }
                }
            }
            items = again;
            if items.is_empty() {
                break;
            }
            if look < LOOKS_LIMIT {
                sleep(LOOK_EVERY).await;
            }
        }
        report.in_flight_items += items.len();
        report.wrong_items += wrong.len();
        for (row, by) in wrong.iter().take(NAMED_LIMIT_ITEMS) {
            tracing::error!(item = %row.item_id, by, exact = row.exact_count, saved = row.saved_count, "a count is wrong");
        }
        if repair == Repair::Yes && !wrong.is_empty() {
            let items: Vec<ItemId> = wrong.iter().map(|(row, _)| row.item_id).collect();
            self.counters.invalidate(&items).await?;
            metrics::counter!(name::INVALIDATIONS, "why" => "audit").increment(items.len() as u64);
            report.repaired_items += items.len();
        }
        Ok(())
    }

    /// Compares items with their counters. The counters are read first.
    async fn compare(&self, items: &[ItemId]) -> Result<Vec<(AuditRow, Verdict)>, SyncError> {
        let counters = self.counters.read(items).await?;
        let rows = self
            .ledger
            .audit_page(items, self.options.in_flight_limit)
            .await?;
        // Both come in the order of ids; items are never deleted, so they pair up.
        Ok(rows
            .into_iter()
            .zip(&counters)
            .map(|(row, counter)| (row, verdict(&row, counter)))
            .collect())
    }
}

/// How the roll-up goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pace {
    /// How many vote ids the next chunk has.
    chunk_ids: i64,
    /// How long to wait before it.
    rest: Duration,
}

/// Pure: how to go on after a chunk that `took` so long, when voters have drawn
/// `drawn_ids` vote ids in the time `over`.
fn pace(drawn_ids: i64, over: Duration, took: Duration) -> Pace {
    if drawn_ids as f64 > VOTING_LIMIT_IDS_PER_SECOND * over.as_secs_f64() {
        Pace {
            chunk_ids: VOTING_CHUNK_IDS,
            rest: took.saturating_mul(REST_TIMES).min(REST_LIMIT),
        }
    } else {
        Pace {
            chunk_ids: ROLL_UP_LIMIT_IDS,
            rest: Duration::ZERO,
        }
    }
}

/// Pure: what a row and a counter that was read before it say.
fn verdict(row: &AuditRow, counter: &Counter) -> Verdict {
    let exact = row.exact_count;
    // What a count may be while its in-flight votes are on their way.
    let plausible = exact - row.in_flight_up..=exact + row.in_flight_down;
    let judge = |count: i64| {
        if count == exact {
            Verdict::Right
        } else if plausible.contains(&count) {
            Verdict::InFlight
        } else {
            Verdict::Wrong {
                by: count.abs_diff(exact),
            }
        }
    };
    match counter.count {
        // A rebuild will write the item; there is no count that could be wrong.
        None if counter.rebuild.is_some() => Verdict::Rebuilding,
        // Without a live count the saved count is the count.
        None => judge(row.saved_count),
        Some((count, revision)) => match judge(count) {
            // What is marked as saved must be what the item holds.
            Verdict::Right if counter.saved == Some(revision) => {
                let by = row.saved_count.abs_diff(count);
                match row.counted_at.cmp(&Some(revision)) {
                    Equal | Greater if by == 0 => Verdict::Right,
                    Greater => Verdict::Ahead { of: revision, by },
                    // Or the item went back behind what was saved: Postgres was restored.
                    Equal | Less => Verdict::Wrong { by },
                }
            }
            verdict => verdict,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::RedisTime;

    fn row(exact_count: i64, saved_count: i64, counted_at: i64, in_flight: (i64, i64)) -> AuditRow {
        AuditRow {
            item_id: ItemId::new(1).expect("positive"),
            saved_count,
            counted_at: (counted_at > 0).then(|| Revision::from_micros(counted_at)),
            exact_count,
            in_flight_up: in_flight.0,
            in_flight_down: in_flight.1,
        }
    }

    fn counter(count: Option<(i64, i64)>, saved: Option<i64>, rebuild: bool) -> Counter {
        Counter {
            item_id: ItemId::new(1).expect("positive"),
            now: RedisTime::from_micros(1000),
            count: count.map(|(count, revision)| (count, Revision::from_micros(revision))),
            saved: saved.map(Revision::from_micros),
            seeded: count.map(|_| RedisTime::from_micros(1)),
            rebuild: rebuild.then(|| "token".to_owned()),
        }
    }

    #[test]
    fn the_fold_rests_in_proportion_while_voters_are_at_work_and_not_at_all_without_them() {
        let (over, took) = (Duration::from_millis(500), Duration::from_millis(100));
        let busy = pace(501, over, took);
        assert_eq!(busy.rest, took * REST_TIMES);
        assert!(busy.chunk_ids < ROLL_UP_LIMIT_IDS);
        assert_eq!(pace(501, over, Duration::from_secs(60)).rest, REST_LIMIT);
        for drawn in [0, 1, 500] {
            let idle = pace(drawn, over, took);
            assert_eq!((idle.rest, idle.chunk_ids), (Duration::ZERO, ROLL_UP_LIMIT_IDS));
        }
        // A Postgres that went back to an older state.
        assert_eq!(pace(-1, over, took).rest, Duration::ZERO);
    }

    #[test]
    fn a_live_count_may_differ_only_by_its_votes_in_flight() {
        let live = |count| counter(Some((count, 10)), None, false);
        // 10 in the ledger, of which 3 up and 1 down are in-flight.
        let row = row(10, 0, 0, (3, 1));
        assert_eq!(verdict(&row, &live(10)), Verdict::Right);
        for count in [7, 8, 9, 11] {
            assert_eq!(verdict(&row, &live(count)), Verdict::InFlight, "{count}");
        }
        assert_eq!(verdict(&row, &live(6)), Verdict::Wrong { by: 4 });
        assert_eq!(verdict(&row, &live(12)), Verdict::Wrong { by: 2 });
    }

    #[test]
    fn without_a_live_count_the_saved_count_must_be_exact() {
        let none = counter(None, None, false);
        assert_eq!(verdict(&row(10, 10, 5, (0, 0)), &none), Verdict::Right);
        assert_eq!(verdict(&row(10, 9, 5, (1, 0)), &none), Verdict::InFlight);
        assert_eq!(verdict(&row(10, 9, 5, (0, 0)), &none), Verdict::Wrong { by: 1 });
        assert_eq!(
            verdict(&row(10, 9, 5, (0, 0)), &counter(None, None, true)),
            Verdict::Rebuilding
        );
    }

    #[test]
    fn what_is_marked_as_saved_must_stand_in_the_item() {
        let saved = counter(Some((10, 20)), Some(20), false);
        assert_eq!(verdict(&row(10, 10, 20, (0, 0)), &saved), Verdict::Right);
        assert_eq!(verdict(&row(10, 7, 20, (0, 0)), &saved), Verdict::Wrong { by: 3 });
        // The item went back behind what was saved: Postgres was restored, say.
        assert_eq!(verdict(&row(10, 7, 19, (0, 0)), &saved), Verdict::Wrong { by: 3 });
        // The item was written since the read, or late.
        assert_eq!(
            verdict(&row(10, 7, 21, (0, 0)), &saved),
            Verdict::Ahead {
                of: Revision::from_micros(20),
                by: 3
            }
        );
        assert_eq!(verdict(&row(10, 10, 21, (0, 0)), &saved), Verdict::Right);
        // An unsaved count says nothing of the item yet.
        let unsaved = counter(Some((10, 20)), Some(15), false);
        assert_eq!(verdict(&row(10, 7, 15, (0, 0)), &unsaved), Verdict::Right);
    }
}
