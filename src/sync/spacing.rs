//! How far apart an item's saves are while someone holds a database snapshot open.
//!
//! Each save of an item leaves an old version of its row, and Postgres removes none that an open
//! snapshot may still read. With a save a second, a report that takes an hour would leave 3,600
//! versions of each item that changes all the time. So the saves of one item are a twentieth of the
//! report's age apart: then, by calculation, there are about 140.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::{SyncError, Worker};
use crate::telemetry::name;

/// The oldest transaction's age in units of the time between two saves, at least.
const AGE_TIMES: u32 = 20;
/// The longest time between two saves of an item, however old a transaction is.
const SPACING_LIMIT: Duration = Duration::from_secs(60);

/// The open transactions, and since when this worker knows of each. Cheap to clone; clones share
/// the state.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenTransactions(Arc<Mutex<HashMap<String, Instant>>>);

impl OpenTransactions {
    /// Takes the transactions that are open now. Returns how far apart the saves of an item should
    /// be.
    fn spacing(&self, open: Vec<String>, now: Instant) -> Duration {
        // No panic leaves the map half changed, so the poison means nothing.
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known_before = std::mem::take(&mut *known);
        for name in open {
            let since = known_before.get(&name).copied().unwrap_or(now);
            known.insert(name, since);
        }
        let ages = known.values().map(|since| now.duration_since(*since));
        let oldest = ages.max().unwrap_or_default();
        (oldest / AGE_TIMES).min(SPACING_LIMIT)
    }
}

impl Worker {
    /// How far apart the saves of an item should be now.
    pub(super) async fn spacing(&self) -> Result<Duration, SyncError> {
        let open = self.ledger.open_transactions().await?;
        let spacing = self.open_transactions.spacing(open, Instant::now());
        metrics::gauge!(name::SAVE_SPACING_SECONDS).set(spacing.as_secs_f64());
        Ok(spacing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spacing_grows_with_the_oldest_transaction_up_to_its_limit_and_ends_with_it() {
        let open = OpenTransactions::default();
        let start = Instant::now();
        let spacing = |names: &[&str], seconds: u64| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            open.spacing(names, start + Duration::from_secs(seconds))
        };
        assert_eq!(spacing(&["report"], 0), Duration::ZERO);
        assert_eq!(spacing(&["report", "vote"], 40), Duration::from_secs(2));
        assert_eq!(spacing(&["report", "another vote"], 100), Duration::from_secs(5));
        assert_eq!(spacing(&["report"], 3600), SPACING_LIMIT);
        assert_eq!(spacing(&["another report"], 3601), Duration::ZERO);
        assert_eq!(spacing(&[], 3700), Duration::ZERO);
    }
}
