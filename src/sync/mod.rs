//! The sync worker: writes live counts behind to their items, drops what is saved
//! and idle, recounts what was doubted, and proves it all against the ledger.
//!
//! Each part is a step that a caller may take by itself; `schedule` takes them in
//! their time. Several workers may run at once.

mod audit;
mod departure;
mod epoch;
mod flush;
mod schedule;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub use audit::{AuditReport, Repair};
pub use flush::FlushReport;
pub use schedule::run;

use crate::config;
use crate::ledger::{Ledger, LedgerError};
use crate::live::{Counters, LiveError};

/// Why a step did not come to its end. Every step may be taken again.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error(transparent)]
    Live(#[from] LiveError),
}

/// What a worker works on, and how.
#[derive(Clone)]
pub struct Worker {
    ledger: Ledger,
    counters: Counters,
    limits: Limits,
    /// Shared by its clones: a pass that sees it ends with its page.
    stopping: Arc<AtomicBool>,
}

/// A worker's periods and sizes; `config::Worker` documents each.
#[derive(Clone, Debug)]
pub struct Limits {
    pub flush_page: usize,
    pub retention: Duration,
    pub max_age: Duration,
    pub in_flight_limit: Duration,
    pub audit_page: usize,
}

impl From<&config::Worker> for Limits {
    fn from(settings: &config::Worker) -> Self {
        Self {
            flush_page: settings.flush_page,
            retention: settings.retention,
            max_age: settings.max_age,
            in_flight_limit: settings.audit.in_flight_limit,
            audit_page: settings.audit.audit_page,
        }
    }
}

impl Worker {
    /// A worker that does nothing until a step is called, or [`run`].
    pub fn new(ledger: Ledger, counters: Counters, limits: Limits) -> Self {
        Self {
            ledger,
            counters,
            limits,
            stopping: Arc::default(),
        }
    }

    fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
}
