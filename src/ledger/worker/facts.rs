//! What an installation's Postgres is like, for `tally doctor`.

use std::net::IpAddr;
use std::time::Duration;

use super::WorkerLedger;
use super::jobs::micros;
use crate::domain::Moment;
use crate::ledger::{LedgerError, WORKER_ALIVE_LIMIT};

/// What a login sees of its Postgres. `None`: it may not see it, or there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresFacts {
    /// As `server_version_num` has it: 150018 is 15.18.
    pub version: i32,
    pub login: String,
    pub is_standby: bool,
    pub is_read_only: bool,
    pub fsync: bool,
    pub full_page_writes: bool,
    pub synchronous_commit: String,
    pub synchronous_standby_names: String,
    pub standbys: i64,
    pub synchronous_standbys: Option<i64>,
    /// Of the standby that is furthest behind.
    pub standby_lag_bytes: Option<i64>,
    /// Whether WAL goes to an archive, for a restore to any time.
    pub archives: bool,
    /// Whether a file of WAL was archived since the statistics were reset.
    pub has_archived: bool,
    /// Whether the last try to archive a file of WAL failed.
    pub archiving_fails: bool,
    /// Addresses beyond this machine on which Postgres listens, and encrypts nothing.
    pub plain_listeners: Option<String>,
    /// Whether this login's connection crosses a network in plain text.
    pub is_plain: bool,
    pub idle_slots: Option<String>,
    pub slot_keeps_bytes: i64,
    pub prepared: i64,
    pub oldest_prepared: Duration,
    /// `None`: this login does not see the sessions of others.
    pub oldest_transaction: Option<Duration>,
    /// Settings of logins with which votes are lost or not stored.
    pub harmful_settings: Option<String>,
    /// Sessions that wait for a lock of a table.
    pub waiting_for_tables: i64,
    /// Strong locks on Tally's own tables.
    pub table_locks: i64,
    pub autovacuum: bool,
    pub vacuum_is_off: bool,
    /// Transaction ids since the oldest one that is not frozen.
    pub transaction_age: i64,
    /// Dead rows for each live one, in thousandths, of the table that has most.
    pub dead_rows_per_mille: i64,
    pub connections: i64,
    pub max_connections: i64,
    /// Goes up by one with each promotion and each restore to an earlier time. `None`: a standby.
    pub timeline: Option<i32>,
    pub is_mighty: bool,
    pub owns_tables: bool,
    /// Logins of other running programs that may do more than these need.
    pub mighty_logins: Option<String>,
    /// Tables on which every login has a right.
    pub open_tables: Option<String>,
    pub now: Moment,
    pub size_bytes: i64,
    pub workers: i64,
    pub writers: i64,
    pub roll_up_age: Option<Duration>,
    pub audit_age: Option<Duration>,
    pub wrong_items: Option<i64>,
    pub watermark_lag: i64,
    /// How many vote ids are left, if the ledger's next range should be there by now.
    pub late_range_ids: Option<i64>,
    pub lost_votes: i64,
}

fn duration(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or_default())
}

fn is_loopback(address: &str) -> bool {
    address
        .parse::<IpAddr>()
        .is_ok_and(|address| address.to_canonical().is_loopback())
}

impl WorkerLedger {
    /// What this login sees of its Postgres.
    ///
    /// # Errors
    /// Also when the database is not migrated.
    pub async fn facts(&self) -> Result<PostgresFacts, LedgerError> {
        let row = sqlx::query_file!("src/ledger/sql/facts.sql", micros(WORKER_ALIVE_LIMIT))
            .fetch_one(&self.database.pool)
            .await?;
        let timeline = self.timeline().await;
        // Without a standby there is nothing that could be hidden.
        let sees_standbys = row.standbys == 0 || row.sees_standbys == Some(true);
        Ok(PostgresFacts {
            version: row.version,
            login: row.login,
            is_standby: row.is_standby,
            is_read_only: row.is_read_only,
            fsync: row.fsync,
            full_page_writes: row.full_page_writes,
            synchronous_commit: row.synchronous_commit,
            synchronous_standby_names: row.synchronous_standby_names,
            standbys: row.standbys,
            synchronous_standbys: sees_standbys.then_some(row.synchronous_standbys),
            standby_lag_bytes: row.standby_lag_bytes,
            archives: row.archives,
            has_archived: !row.never_archived,
            archiving_fails: row.archives && row.archiving_fails == Some(true),
            plain_listeners: row.plain_listeners,
            is_plain: row.is_encrypted == Some(false)
                && row.client_address.is_some_and(|from| !is_loopback(&from)),
            idle_slots: row.idle_slots,
            slot_keeps_bytes: row.slot_keeps_bytes.unwrap_or_default(),
            prepared: row.prepared,
            oldest_prepared: duration(row.oldest_prepared.unwrap_or_default()),
            oldest_transaction: row
                .sees_sessions
                .then(|| duration(row.oldest_transaction.unwrap_or_default())),
            harmful_settings: row.harmful_settings,
            waiting_for_tables: row.waiting_for_tables,
            table_locks: row.table_locks,
            autovacuum: row.autovacuum,
            vacuum_is_off: row.vacuum_is_off,
            transaction_age: row.transaction_age,
            dead_rows_per_mille: (row.dead_rows * 1000.0) as i64,
            connections: row.connections,
            max_connections: row.max_connections,
            timeline,
            is_mighty: row.is_mighty,
            owns_tables: row.owns_tables,
            mighty_logins: row.mighty_logins,
            open_tables: row.open_tables,
            now: Moment::from_micros(row.now),
            size_bytes: row.size_bytes,
            workers: row.workers,
            writers: row.writers,
            roll_up_age: row.roll_up_age.map(duration),
            audit_age: row.audit_age.map(duration),
            wrong_items: row.wrong_items,
            watermark_lag: row.watermark_lag,
            late_range_ids: row.late_range_ids,
            lost_votes: row.lost_votes,
        })
    }

    /// The number that goes up with each promotion. `None`: a standby, or a service that does not say it.
    async fn timeline(&self) -> Option<i32> {
        let asked = sqlx::query_scalar!(
            r#"select ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int as "timeline!""#
        )
        .fetch_one(&self.database.pool)
        .await;
        asked.ok()
    }
}
