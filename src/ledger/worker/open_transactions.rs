//! Which transactions of others are open in this database, as far as they may keep Postgres from
//! removing old row versions.

use super::WorkerLedger;
use crate::ledger::LedgerError;

/// Open transactions that are looked at, at the most: one that is old is enough.
const OPEN_LIMIT_TRANSACTIONS: i64 = 1000;

impl WorkerLedger {
    /// The names of the transactions that have read a table and have not ended, such as a
    /// report's or that of `pg_dump`. No other transaction gets a name again.
    ///
    /// From `pg_locks`, which shows every login all of them; `pg_stat_activity` hides when the
    /// transactions of others began. A vacuum is left out: it holds no old versions; so are
    /// `analyze` and `create index concurrently`, which look alike and do. One that
    /// has read in the isolation level "read committed" and is idle holds none either, and is
    /// taken for one that does.
    ///
    /// # Errors
    /// When Postgres is unavailable.
    pub async fn open_transactions(&self) -> Result<Vec<String>, LedgerError> {
        Ok(sqlx::query_scalar!(
            r#"select virtualtransaction as "name!"
               from pg_locks
               where locktype = 'relation'
                 and database = (select oid from pg_database where datname = current_database())
                 and pid is distinct from pg_backend_pid()
               group by virtualtransaction
               having bool_or(mode = 'AccessShareLock') and not bool_or(mode = 'ShareUpdateExclusiveLock')
               limit $1"#,
            OPEN_LIMIT_TRANSACTIONS
        )
        .fetch_all(&self.database.pool)
        .await?)
    }
}
