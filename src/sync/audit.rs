//! The audit: proves the counts against the ledger.
//!
//! The audit first moves the watermark, then compares page by page. It reads the live counts, then
//! the exact counts under one snapshot. Every vote in a live count was committed when the count was
//! read. So the count may differ from the exact count only by votes in flight, which are stored but
//! not counted yet. A count outside of what its votes in flight allow is certainly wrong.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::audit_verdict::{Finding, Looks, Verdict, verdict};
use super::{SyncError, Worker};
use crate::domain::{ActKind, ActOutcome, Count, ItemId, NewAct};
use crate::ledger::{AuditRow, Job, JobLease, LedgerError, Losses, UnfitDatabase};
use crate::live::Counter;
use crate::telemetry::{name, trouble};

/// How often the audit looks again at counts that votes in flight may explain. The audit waits in
/// between. On a quiescent system the first look finds them right.
const LOOKS_LIMIT: usize = 5;
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How many wrong items the log names one by one.
const NAMED_LIMIT_ITEMS: usize = 20;

/// What to do with what is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// Only reports it.
    No,
    /// Invalidates it: the next scan rebuilds it.
    Yes,
}

/// What an audit found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuditReport {
    /// Items compared.
    pub items: usize,
    /// Votes in the ledger, and archived ones.
    pub votes: i64,
    /// Votes of these that are in files of `tally archive` alone. Of what they were on, only sums are left to
    /// compare with.
    pub archived_votes: i64,
    /// Items whose live and saved counts are right. They are exact, or will be once unsaved counts
    /// are flushed and suspects rebuilt.
    pub right_items: usize,
    /// Items that differ by no more than their votes in flight.
    pub in_flight_items: usize,
    /// Items with a rebuild request already.
    pub rebuilding_items: usize,
    /// Items whose live or saved count is wrong.
    pub wrong_items: usize,
    /// By how many votes the counts are wrong, without signs.
    pub wrong_votes: u64,
    /// Wrong items that were invalidated.
    pub repaired_items: usize,
}

/// An item at one look.
struct Compared {
    row: AuditRow,
    /// Its live count in Redis.
    live: Option<Count>,
    verdict: Verdict,
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
            "rebuilding{:>10} items: a sync worker rebuilds their counts",
            self.rebuilding_items
        )?;
        writeln!(
            out,
            "wrong     {:>10} items, by {} votes",
            self.wrong_items, self.wrong_votes
        )?;
        writeln!(out, "repaired  {:>10} items", self.repaired_items)?;
        if self.archived_votes > 0 {
            writeln!(
                out,
                "archived  {:>10} votes are in files alone: nothing here proves them, and what they were on is compared \
                 with their sums; tally archive verify looks at the files",
                self.archived_votes
            )?;
        }
        Ok(())
    }
}

impl Worker {
    /// What servers found missing after a failover or a restore. No audit can tell: counts are right without it.
    ///
    /// # Errors
    /// When Postgres is unavailable.
    pub async fn losses(&self) -> Result<Losses, SyncError> {
        Ok(self.ledger.losses().await?)
    }

    /// One full audit. An audit that repairs is a job of one worker at a time, and waits for
    /// another worker's.
    ///
    /// # Errors
    /// When a store is unavailable, Redis hides its identity, the keys are another Tally's, or
    /// another worker's audit does not end within [`super::JOB_WAIT_LIMIT`]. The watermark stays
    /// where it is by then.
    pub async fn audit(&self, repair: Repair) -> Result<AuditReport, SyncError> {
        match repair {
            Repair::No => self.audit_under(None).await,
            Repair::Yes => {
                let run = self.begin_job_when_free(Job::Audit).await?;
                run.end_with(self.repair_under(run.lease())).await
            }
        }
    }

    /// One full audit that repairs; `None`: another worker is doing one.
    ///
    /// # Errors
    /// As [`Worker::audit`].
    pub(super) async fn audit_unless_taken(&self) -> Result<Option<AuditReport>, SyncError> {
        let Some(run) = self.begin_job(Job::Audit).await? else {
            return Ok(None);
        };
        run.end_with(self.repair_under(run.lease())).await.map(Some)
    }

    async fn repair_under(&self, lease: &JobLease) -> Result<(AuditReport, Value), SyncError> {
        let report = self.audit_under(Some(lease)).await?;
        let details = json!({
            "items": report.items,
            "votes": report.votes,
            "wrong_items": report.wrong_items,
            "wrong_votes": report.wrong_votes,
            "repaired_items": report.repaired_items,
            "archived_votes": report.archived_votes,
        });
        Ok((report, details))
    }

    /// One full audit. With a lease it repairs; without one it only reports.
    async fn audit_under(&self, lease: Option<&JobLease>) -> Result<AuditReport, SyncError> {
        let started = Instant::now();
        // Without Redis there is nothing to compare with. The same holds for another Tally's Redis,
        // and for one that may have been replaced unseen.
        self.counters.epochs().await?.all()?;
        self.check_owner().await?;
        self.look_at_place().await?;
        // In a Redis that the counts were not in last, nothing can be recovered: whoever enters it counts all again.
        if !self.seen_entries.are_left() {
            self.recover_crashed_writers().await?;
        }
        Self::unless_votes_stay(self.roll_up_for_audit().await)?;
        let mut report = AuditReport {
            votes: self.ledger.vote_total().await?,
            archived_votes: self.ledger.archived_total().await?,
            ..AuditReport::default()
        };
        let mut after = 0;
        loop {
            let limit = i64::try_from(self.options.audit_page).unwrap_or(i64::MAX);
            let items = self.ledger.item_ids(after, limit).await?;
            let Some(last) = items.last() else { break };
            after = last.get();
            if let Some(lease) = lease {
                lease.check()?;
            }
            self.audit_page(items, lease, &mut report).await?;
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
        metrics::gauge!(name::ARCHIVED_VOTES).set(report.archived_votes as f64);
        Ok(report)
    }

    /// How a roll-up ended before an audit, which does not need the watermark to move.
    pub(super) fn unless_votes_stay(rolled_up: Result<(), SyncError>) -> Result<(), SyncError> {
        match rolled_up {
            Err(SyncError::Ledger(error)) if error.is_lock_timeout() => {
                trouble!(warn, %error; "votes were not rolled up: someone has locked what a roll-up writes");
                Ok(())
            }
            Err(SyncError::Ledger(error @ LedgerError::Unfit(UnfitDatabase::Sequence(_)))) => {
                trouble!(warn, %error; "votes were not rolled up");
                Ok(())
            }
            ended => ended,
        }
    }

    /// One full audit that repairs, and the rebuilds. It is an administrative act of the program
    /// with this name.
    ///
    /// # Errors
    /// As [`Worker::audit`]. When the act cannot be noted, nothing is done.
    pub async fn audit_and_note(&self, tool: &str) -> Result<AuditReport, SyncError> {
        let act = NewAct::with(ActKind::AuditRepair, tool);
        // The audit takes many transactions, so its beginning is noted before the first of them.
        let begun = act.clone().outcome(ActOutcome::Begun, None);
        let begun_id = self.ledger.note_act(&begun).await?;
        let act = act.of(Some(begun_id));
        let ended = async {
            let report = self.audit(Repair::Yes).await?;
            if report.repaired_items > 0 {
                self.flush_until_quiescent().await?;
            }
            Ok(report)
        };
        let ended: Result<AuditReport, SyncError> = ended.await;
        let act = match &ended {
            Ok(report) => act.details(json!({
                "items": report.items,
                "wrong_items": report.wrong_items,
                "repaired_items": report.repaired_items,
            })),
            Err(_) => act.outcome(ActOutcome::Failed, None),
        };
        if let Err(error) = self.ledger.note_act(&act).await {
            tracing::warn!(%error, "the outcome of the audit is not in the trail");
        }
        ended
    }

    async fn audit_page(
        &self,
        mut items: Vec<ItemId>,
        lease: Option<&JobLease>,
        report: &mut AuditReport,
    ) -> Result<(), SyncError> {
        report.items += items.len();
        let mut wrong = Vec::new();
        let mut looks = Looks::default();
        for look in 1..=LOOKS_LIMIT {
            let compared = self.compare(&items).await?;
            let mut again = Vec::new();
            for Compared { row, live, verdict } in compared {
                match looks.finding(row.item_id, verdict) {
                    Finding::Right => report.right_items += 1,
                    Finding::Rebuilding => report.rebuilding_items += 1,
                    Finding::Open => again.push(row.item_id),
                    Finding::Wrong { by } => {
                        report.wrong_votes += by;
                        wrong.push((row, live, by));
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
        for (row, live, by) in wrong.iter().take(NAMED_LIMIT_ITEMS) {
            let live = live.map_or_else(|| "none".to_owned(), |count| count.to_string());
            tracing::error!(
                item = %row.item_id, by, exact = %row.exact_count, %live, saved = %row.saved_count, "a count is wrong"
            );
        }
        if let (Some(lease), false) = (lease, wrong.is_empty()) {
            // Redis does not know the lease. What comes after this check does no harm: invalidating
            // is always safe.
            self.ledger.check_job(lease).await?;
            let items: Vec<ItemId> = wrong.iter().map(|(row, ..)| row.item_id).collect();
            // First: once they are invalidated, no later audit finds them.
            let wrong_votes = wrong.iter().map(|(_, _, by)| by).sum();
            self.ledger.make_drift_event(&items, wrong_votes).await?;
            self.counters.invalidate(&items).await?;
            metrics::counter!(name::INVALIDATIONS, "why" => "audit").increment(items.len() as u64);
            report.repaired_items += items.len();
        }
        Ok(())
    }

    /// Compares items with their counters. The counters are read first.
    async fn compare(&self, items: &[ItemId]) -> Result<Vec<Compared>, SyncError> {
        let in_flight_after = self.in_flight_after().await?;
        let counters = self.counters.read(items).await?;
        // If someone deleted the index, its items would wait for the slow scan.
        let to_be_written = counters.iter().filter(|one| one.is_to_be_written());
        let to_be_written: Vec<ItemId> = to_be_written.map(|one| one.item_id).collect();
        self.counters.add_unsaved(&to_be_written).await?;
        let rows = self.ledger.audit_page(items, in_flight_after).await?;
        // By their ids: Postgres may lack one of the items, after a failover to an older standby.
        let counters: HashMap<ItemId, Counter> = counters.into_iter().map(|one| (one.item_id, one)).collect();
        let compared = rows.into_iter().filter_map(|row| {
            let counter = counters.get(&row.item_id)?;
            Some(Compared {
                row,
                live: counter.count.map(|(count, _)| count),
                verdict: verdict(&row, counter),
            })
        });
        Ok(compared.collect())
    }
}
