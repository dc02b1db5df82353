//! The ranges of a ledger that is in ranges.

use super::WorkerLedger;
use crate::ledger::LedgerError;

impl WorkerLedger {
    /// Makes the next range of the ledger, if it is time. Returns how many it made; 0 also if the ledger is one table.
    ///
    /// # Errors
    /// When Postgres is unavailable or too slow. Then votes go on as long as the last range has ids.
    pub async fn add_ranges(&self) -> Result<i32, LedgerError> {
        Ok(sqlx::query_scalar!(r#"select add_ranges() as "made!""#)
            .fetch_one(&self.database.pool)
            .await?)
    }
}
