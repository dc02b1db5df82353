//! Which votes are decided: committed, or never to be.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::WorkerLedger;
use crate::domain::VoteId;
use crate::ledger::LedgerError;

/// How long the audit waits for the transactions that are writing votes to end.
pub const DECIDE_LIMIT: Duration = Duration::from_secs(30);
/// How often it looks whether they have ended.
const DECIDE_EVERY: Duration = Duration::from_millis(5);

impl WorkerLedger {
    /// A vote id up to which every id is decided: committed, or never to be.
    ///
    /// The sequence is read first. A transaction takes a lock on `vote` before it draws an id.
    /// So when all transactions that hold the lock now have ended, every id up to the
    /// sequence's last value is decided. Blocks nobody.
    ///
    /// # Errors
    /// When Postgres is unavailable, or a transaction does not end in time.
    pub async fn safe_vote_id(&self) -> Result<VoteId, LedgerError> {
        let last = sqlx::query!("select last_value, is_called from vote_id_seq")
            .fetch_one(&self.database.pool)
            .await?;
        let safe = if last.is_called {
            last.last_value
        } else {
            last.last_value - 1
        };
        self.wait_for_writers().await?;
        Ok(VoteId::new(safe))
    }

    /// Waits until every transaction that is writing votes now has ended.
    ///
    /// # Errors
    /// When Postgres is unavailable, or a transaction does not end in time.
    pub async fn wait_for_writers(&self) -> Result<(), LedgerError> {
        let deadline = Instant::now() + DECIDE_LIMIT;
        let mut writers = self.writers().await?;
        while !writers.is_empty() {
            if Instant::now() >= deadline {
                return Err(LedgerError::Undecided(DECIDE_LIMIT));
            }
            sleep(DECIDE_EVERY).await;
            let still = self.writers().await?;
            writers.retain(|writer| still.contains(writer));
        }
        Ok(())
    }

    /// The transactions that hold the lock that every insert into `vote` takes.
    async fn writers(&self) -> Result<Vec<String>, LedgerError> {
        Ok(sqlx::query_scalar!(
            r#"select distinct virtualtransaction as "writer!"
               from pg_locks
               where locktype = 'relation' and relation = 'vote'::regclass
                 and database = (select oid from pg_database where datname = current_database())
                 and mode = 'RowExclusiveLock' and granted"#
        )
        .fetch_all(&self.database.pool)
        .await?)
    }
}
