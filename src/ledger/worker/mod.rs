//! The statements of the sync worker and of `tally audit`: the role `tally_worker`.

mod audit;
mod behind;
mod changes;
mod crashed_writers;
mod delete_old_rows;
mod epochs;
mod events;
mod facts;
mod heartbeat;
mod incarnation;
mod jobs;
mod open_transactions;
mod ranges;
mod roll_up;
mod rules;
mod save_counts;
mod spread;

pub use audit::{AuditRow, Moved};
pub use behind::ItemSpan;
pub use crashed_writers::{Progress, WriterProgress};
pub use delete_old_rows::IDEMPOTENCY_KEY_AGE;
pub use epochs::{ALIVE_LIMIT_SILENCE, EpochNumber, NotedEntries, NotedEntry, Noting};
pub use events::{
    DueEvent, EVENT_DEAD_AGE, EVENT_DELIVERED_AGE, EVENT_LIMIT_AGE, EVENT_LIMIT_REFUSALS, EVENT_LIMIT_WAIT,
    EventFacts, FailedDelivery,
};
pub use facts::PostgresFacts;
pub use heartbeat::{EndedPass, Heartbeat, WORKER_LIMIT_SILENCE};
pub use jobs::{JOB_LEASE_LIFE, Job, JobAttempt, JobLease, RunOutcome};
pub use roll_up::{ROLL_UP_LIMIT_IDS, RollUpProgress, SavingProgress};
pub use rules::BrokenPage;
pub use save_counts::{DEADLOCK_LIMIT_TRIES, RebuiltCount, SaveOutcome, SavedState};
pub use spread::Pacing;
pub(crate) use spread::{SUM_REST_LIMIT, WRITE_REST_LIMIT};

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::LedgerError;
use super::connect::{Database, LOCK_LIMIT, POOL_LIMIT_CONNECTIONS, WORKER_STATEMENT_LIMIT};
use super::exact_counts::ExactCounts;
use super::identity::owner;
use super::losses::{Losses, losses};
use super::runs::Runs;
use super::safe_vote_id::{self, SafeVoteId};
use super::trail;
use crate::domain::{ItemId, NewAct, Owner};
use crate::store_url::StoreUrl;

/// The ledger as the role `tally_worker` may use it. Cheap to clone. Every call fails when Postgres
/// is unavailable or too slow.
#[derive(Clone, Debug)]
pub struct WorkerLedger {
    database: Database,
    /// Whether someone else had locked rows of items a moment ago. Shared by its clones.
    has_locked_rows: Arc<AtomicBool>,
    /// The name by which other workers know this one: its program, and a unique part. Shared by its
    /// clones.
    name: Arc<str>,
    /// Shared by its clones.
    exact: ExactCounts,
    runs: Runs,
}

impl WorkerLedger {
    /// Describes the connection, and makes none yet. `application_name` is shown to Postgres'
    /// operator.
    ///
    /// # Errors
    /// When `database_url` is no URL of a Postgres.
    pub fn new(database_url: impl Into<StoreUrl>, application_name: &str) -> Result<Self, LedgerError> {
        Self::with_statement_limit(database_url, application_name, WORKER_STATEMENT_LIMIT)
    }

    /// The same with another statement timeout.
    ///
    /// # Errors
    /// As [`WorkerLedger::new`].
    pub fn with_statement_limit(
        database_url: impl Into<StoreUrl>,
        application_name: &str,
        limit: Duration,
    ) -> Result<Self, LedgerError> {
        let mut database = Database::new(database_url, application_name, limit, Some(LOCK_LIMIT))?;
        let runs = Runs::default();
        // What was read of one Postgres is written to no other.
        database.pool = database.pool_for(POOL_LIMIT_CONNECTIONS, limit, &runs);
        Ok(Self {
            exact: ExactCounts::new(&database, &runs),
            runs,
            database,
            has_locked_rows: Arc::default(),
            name: format!("{application_name} {:016x}", rand::random::<u64>()).into(),
        })
    }

    /// As [`ServerLedger::keep_finding_promotions`](crate::ledger::ServerLedger::keep_finding_promotions).
    pub async fn keep_finding_promotions(self) {
        self.database.keep_finding_promotions(&self.runs).await;
    }

    /// The name by which other workers know this one, as a holder of jobs.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Up to `limit` item ids above `after`, in order.
    pub async fn item_ids(&self, after: i64, limit: i64) -> Result<Vec<ItemId>, LedgerError> {
        let ids = sqlx::query_scalar!(
            "select id from item where id > $1 order by id limit $2",
            after,
            limit
        )
        .fetch_all(&self.database.pool)
        .await?;
        Ok(ids.into_iter().filter_map(ItemId::new).collect())
    }

    /// The safe vote id: every vote up to it is committed, or will never be. Blocks nobody.
    ///
    /// # Errors
    /// When a transaction that writes votes does not end in time.
    pub async fn safe_vote_id(&self) -> Result<SafeVoteId, LedgerError> {
        // Read first: the id is then of this incarnation, or of a later one, which knows less.
        let incarnation = self.incarnation().await?;
        let (vote_id, read_at) = safe_vote_id::safe_vote_id(&self.database.pool).await?;
        Ok(SafeVoteId {
            vote_id,
            incarnation,
            read_at,
        })
    }

    /// All losses that servers have found.
    pub async fn losses(&self) -> Result<Losses, LedgerError> {
        losses(&self.database.pool).await
    }

    /// Notes an administrative act of this program's login. Returns the row's id.
    pub async fn note_act(&self, act: &NewAct) -> Result<i64, LedgerError> {
        trail::note(&self.database.pool, act, None).await
    }

    /// Checks that this database is fit for Tally.
    ///
    /// # Errors
    /// When it is not ([`LedgerError::is_unfit`]).
    pub async fn check(&self) -> Result<(), LedgerError> {
        self.database.check().await
    }

    /// Which Tally this is.
    ///
    /// # Errors
    /// When the database is not migrated.
    pub async fn owner(&self) -> Result<Owner, LedgerError> {
        owner(&self.database.pool).await
    }

    /// Closes all connections of the pool.
    pub async fn close(&self) {
        self.database.pool.close().await;
    }
}
