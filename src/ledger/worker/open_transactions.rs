//! Open transactions of others that may keep Postgres from removing old row versions.

use super::WorkerLedger;
use crate::ledger::LedgerError;

/// The most open transactions that are read: one that is old is enough.
const OPEN_LIMIT_TRANSACTIONS: i64 = 1000;

impl WorkerLedger {
    /// The names of open transactions that have read a table. Examples are a report's and that of
    /// `pg_dump`. No two transactions have the same name.
    ///
    /// The names come from `pg_locks`, which shows all of them to every login. `pg_stat_activity`
    /// hides when the transactions of others began. A vacuum is left out: it holds no old versions.
    /// `analyze` and `create index concurrently` look alike and do hold some, but are left out too.
    /// A transaction in "read committed" that has read and is idle holds none, but counts as one
    /// that does.
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
