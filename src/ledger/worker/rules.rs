//! Whether what the rules store besides the votes agrees with the votes.

use super::WorkerLedger;
use crate::ledger::LedgerError;

/// The most rules that one statement looks at. Each statement reads the whole ledger once.
const PAGE_RULES: i32 = 1000;
/// The most changes and retractions that one statement looks at.
const PAGE_CHANGES: i32 = 10_000;

/// The faults found in a page, and where the next page begins.
#[derive(Debug)]
pub struct BrokenPage {
    /// The last id that was looked at; `None`: there were no more.
    pub last: Option<i64>,
    /// What is wrong, in words. No voter is named.
    pub faults: Vec<String>,
}

impl WorkerLedger {
    /// What is wrong with the next rules after `after`. Looks at places, numbers, choices, turnout
    /// and ballots.
    pub async fn broken_rules(&self, after: i64) -> Result<BrokenPage, LedgerError> {
        let page = sqlx::query!(
            r#"select last, faults as "faults!: Vec<String>" from broken_rules($1, $2)"#,
            after,
            PAGE_RULES
        )
        .fetch_one(&self.database.pool)
        .await?;
        Ok(BrokenPage {
            last: page.last,
            faults: page.faults,
        })
    }

    /// What is wrong with the next changes and retractions after the vote `after`.
    pub async fn broken_changes(&self, after: i64) -> Result<BrokenPage, LedgerError> {
        let page = sqlx::query!(
            r#"select last, faults as "faults!: Vec<String>" from broken_changes($1, $2)"#,
            after,
            PAGE_CHANGES
        )
        .fetch_one(&self.database.pool)
        .await?;
        Ok(BrokenPage {
            last: page.last,
            faults: page.faults,
        })
    }
}
