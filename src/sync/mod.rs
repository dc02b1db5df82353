//! The sync worker: keeps the saved counts behind the live counts. It writes live counts to their
//! items, drops counts that are saved and idle, rebuilds counts on request, and proves all counts
//! against the ledger.
//!
//! A caller may take each step by itself; `schedule` takes each at its time. Several workers may
//! run at once.
//!
//! - `schedule`: when each step is taken.
//! - `timetable`: the audits of a worker, and when they are due.
//! - `heartbeat`: says how the worker is.
//! - `checkup`: what `tally doctor` finds, as metrics.
//! - `health`: whether it does its work.
//! - `shown_state`: what it shows while a pass runs.
//! - `flush`: one scan over the index of unsaved counters.
//! - `flush_interval`: how far apart flushes are.
//! - `save_counts`: writes counts to their items, and marks them as saved.
//! - `rebuild`: writes exact counts from the ledger.
//! - `expire_counts`: drops counts that are idle or old.
//! - `slow_scan`: one scan over all counters.
//! - `spacing`: how far apart an item's saves are while someone holds a snapshot.
//! - `ages`: how long counts have been unsaved.
//! - `report`: what a flush did.
//! - `epoch`: whether the live counts are of this epoch.
//! - `crashed_writers`: the votes that a dead server did not count.
//! - `jobs`: what one worker at a time does.
//! - `roll_up`: moves the watermark, and merges recent changes.
//! - `cold_items`: saves the counts of items without a live count.
//! - `audit`: proves counts against the ledger.
//! - `audit_verdict`: what the audit says about an item.
//! - `rules`: proves what rules store against the ledger.
//! - `ranges`: makes the next range of the ledger.
//! - `delete_old_rows`: old idempotency keys and hashes of addresses.
//! - `deliver_events`: sends events to the webhook.
//! - `webhook`: one request to it, and when to send the next.

mod ages;
mod audit;
mod audit_verdict;
mod checkup;
mod cold_items;
mod crashed_writers;
mod delete_old_rows;
mod deliver_events;
mod epoch;
mod expire_counts;
mod flush;
mod flush_interval;
mod health;
mod heartbeat;
mod jobs;
mod ranges;
mod rebuild;
mod report;
mod roll_up;
mod rules;
mod save_counts;
mod schedule;
mod shown_state;
mod slow_scan;
mod spacing;
mod timetable;
mod webhook;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, OnceCell};

pub use audit::{AuditReport, Repair};
pub(crate) use cold_items::COLD_TOKEN_LEAST;
pub(crate) use deliver_events::EVENT_SEND_LIMIT_AGE;
pub(crate) use flush::{COLLECT_LIMIT, COLLECT_LIMIT_COUNTERS, GENTLE_FOR, GENTLE_LIMIT_COUNTERS};
pub(crate) use flush_interval::FLUSH_INTERVAL_LIMIT;
pub use health::{Going, Health, Why};
pub(crate) use heartbeat::BEAT_EVERY;
pub(crate) use jobs::{JOB_WAIT_LIMIT, RENEW_EVERY, RENEW_LIMIT};
pub use report::FlushReport;
pub(crate) use roll_up::{ROLL_UP_EVERY, VOTING_CHUNK_IDS};
pub use rules::RulesReport;
pub use schedule::{Schedule, run};
pub use webhook::{Webhook, WebhookOptions, WebhookUrl};

use crate::domain::Owner;
use crate::ledger::{Job, LedgerError, WorkerLedger};
use crate::live::{Counters, LiveError};

/// Why a step failed. Every step may be retried.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error(transparent)]
    Live(#[from] LiveError),
    #[error("another worker has been doing the job {0} for over {1:?}; try again when it is done")]
    JobTaken(Job, Duration),
    #[error("another worker counts in another Redis since: give this one the same REDIS_URL, and restart it")]
    Elsewhere,
}

impl SyncError {
    /// Whether the stores answer but Tally must not use them.
    pub fn is_unfit(&self) -> bool {
        match self {
            Self::Ledger(error) => error.is_unfit(),
            Self::Live(error) => error.is_unfit(),
            Self::JobTaken(..) | Self::Elsewhere => false,
        }
    }
}

/// A sync worker: its stores and its options. Every step fails when a store is unavailable.
#[derive(Clone)]
pub struct Worker {
    ledger: WorkerLedger,
    counters: Counters,
    options: SyncOptions,
    /// Shared by its clones. A pass that sees it set ends with its page.
    stopping: Arc<AtomicBool>,
    /// Shared by its clones.
    stalls: Arc<Mutex<crashed_writers::Stalls>>,
    /// Shared by its clones.
    held_up: Arc<Mutex<Option<crashed_writers::HeldUp>>>,
    /// Which Tally this is, once Postgres has said so. Shared by its clones.
    owner: Arc<OnceCell<Owner>>,
    /// Shared by its clones.
    watch: shown_state::Watch,
    /// Shared by its clones.
    open_transactions: spacing::OpenTransactions,
    /// Shared by its clones.
    seen_entries: Arc<epoch::SeenEntries>,
    /// Shared by its clones.
    entered: Arc<epoch::EnteredBuckets>,
    /// Entries whose search for lost counts goes on. Shared by its clones.
    entries: Arc<tokio::sync::Mutex<Vec<epoch::Entry>>>,
    /// Whether this worker has given its leases back, and takes none any more. Shared by its clones.
    has_given_back_jobs: Arc<tokio::sync::RwLock<bool>>,
    /// How many vote ids the last roll-up left beyond the watermark. Shared by its clones.
    left_ids: Arc<AtomicI64>,
    /// Shared by its clones.
    cold_votes: Arc<cold_items::ColdVotes>,
}

/// The options of a worker's steps.
#[derive(Clone, Debug)]
pub struct SyncOptions {
    /// About how many counters a page of the scan has.
    pub flush_page: usize,
    /// How long a saved count stays after its last change; `None`: for ever.
    pub retention: Option<Duration>,
    /// How long any live count stays; `None`: for ever.
    pub max_age: Option<Duration>,
    /// How long the roll-up and the audit wait for a stalled batch writer. Such a writer does not
    /// note that its votes are counted.
    pub writer_stall_limit: Duration,
    /// Items on a page of the audit.
    pub audit_page: usize,
}

impl Worker {
    /// A worker that does nothing until a step or [`run`] is called.
    pub fn new(ledger: WorkerLedger, counters: Counters, options: SyncOptions) -> Self {
        Self {
            ledger,
            counters,
            options,
            stopping: Arc::default(),
            has_given_back_jobs: Arc::default(),
            stalls: Arc::default(),
            held_up: Arc::default(),
            owner: Arc::default(),
            watch: shown_state::Watch::default(),
            open_transactions: spacing::OpenTransactions::default(),
            seen_entries: Arc::default(),
            entered: Arc::default(),
            entries: Arc::default(),
            left_ids: Arc::default(),
            cold_votes: Arc::default(),
        }
    }

    /// Checks that the stores are fit for this Tally.
    ///
    /// # Errors
    /// When they are not ([`SyncError::is_unfit`]).
    pub async fn check(&self) -> Result<(), SyncError> {
        self.ledger.check().await?;
        self.counters.check().await?;
        self.counters.epochs().await?;
        self.check_owner().await
    }

    /// Checks that the keys in Redis are this Tally's. Redis may have been wiped, and another Tally
    /// may have claimed it since.
    async fn check_owner(&self) -> Result<(), SyncError> {
        let owner = self.owner.get_or_try_init(|| self.ledger.owner()).await?;
        Ok(self.counters.claim(owner).await?)
    }

    fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
}
