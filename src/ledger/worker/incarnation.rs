//! The incarnation: a token for a Postgres until it crashes or fails over.

use super::WorkerLedger;
use crate::ledger::LedgerError;

/// The most tries to read the token. A try that finds no valid token deletes the invalid one and
/// draws a new one. Workers that do so at the same time agree on one token within two tries.
const INCARNATION_LIMIT_TRIES: u32 = 10;

impl WorkerLedger {
    /// The token of this incarnation. It stays the same until Postgres crashes, fails over, or is
    /// restored from a dump; see migrations/0003_counts.sql.
    ///
    /// # Errors
    /// When others keep replacing the token.
    pub async fn incarnation(&self) -> Result<String, LedgerError> {
        let pool = &self.database.pool;
        for _ in 0..INCARNATION_LIMIT_TRIES {
            let token = sqlx::query_scalar!("select token from incarnation where xmin = drawn_by::xid")
                .fetch_optional(pool)
                .await?;
            if let Some(token) = token {
                return Ok(token);
            }
            sqlx::query!("delete from incarnation where xmin <> drawn_by::xid")
                .execute(pool)
                .await?;
            sqlx::query!("insert into incarnation default values on conflict do nothing")
                .execute(pool)
                .await?;
        }
        Err(LedgerError::Incarnation(INCARNATION_LIMIT_TRIES))
    }
}
