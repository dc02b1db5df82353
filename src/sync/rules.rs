//! Proves what the rules store against the ledger.

use std::fmt;

use super::{SyncError, Worker};
use crate::ledger::BrokenPage;
use crate::telemetry::Plain;

/// How many faults are shown. The rest are counted.
const SHOWN_LIMIT_FAULTS: usize = 20;

/// What a check of the rules found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RulesReport {
    /// The first faults, in words.
    pub shown: Vec<String>,
    /// How many faults there are.
    pub faults: usize,
}

impl fmt::Display for RulesReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            out,
            "rules     {:>10} faults in places, numbers, choices, turnouts, ballots and changes",
            self.faults
        )?;
        for fault in &self.shown {
            writeln!(out, "  {}", Plain(fault))?;
        }
        Ok(())
    }
}

impl RulesReport {
    /// Adds a page's faults. Returns where the next page begins.
    fn add(&mut self, page: BrokenPage) -> Option<i64> {
        self.faults += page.faults.len();
        let left = SHOWN_LIMIT_FAULTS - self.shown.len();
        self.shown.extend(page.faults.into_iter().take(left));
        page.last
    }
}

impl Worker {
    /// Recomputes what the rules store, from all votes. That is places, numbers, choices, turnouts
    /// and ballots. Also checks that each change follows the row before it. Reads all votes under
    /// rules, so the audits of each minute do not include it.
    pub async fn check_rules(&self) -> Result<RulesReport, SyncError> {
        let mut report = RulesReport::default();
        let mut after = Some(0);
        while let Some(last) = after {
            after = report.add(self.ledger.broken_rules(last).await?);
        }
        let mut after = Some(0);
        while let Some(last) = after {
            after = report.add(self.ledger.broken_changes(last).await?);
        }
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_faults_are_shown_and_all_are_counted() {
        let mut report = RulesReport::default();
        for page in 0..3 {
            let faults = (0..15).map(|fault| format!("{page}, {fault}")).collect();
            let last = (page < 2).then_some(page);
            assert_eq!(report.add(BrokenPage { last, faults }), last);
        }
        assert_eq!((report.faults, report.shown.len()), (45, SHOWN_LIMIT_FAULTS));
        assert_eq!(report.shown.last().map(String::as_str), Some("1, 4"));
    }
}
