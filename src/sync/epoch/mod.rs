//! Epochs. After Redis restarts, fails over or loses its data, no live count is certain. After
//! Postgres crashes or fails over, no visibility snapshot in Redis is.

mod compare;
mod entry;
mod lost_counts;
mod seen;

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use self::compare::Looked;
pub(super) use self::entry::Entry;
use self::lost_counts::Search;
pub(super) use self::seen::{EnteredBuckets, SeenEntries};
use super::{SyncError, Worker};
use crate::ledger::ALIVE_LIMIT_SILENCE;
use crate::live::LiveError;

/// How long the pass that begins a search for lost counts waits for its end. Later ones save counts beside it.
const SEARCH_WAIT: Duration = Duration::from_millis(500);
/// How long a command waits for workers to enter the epoch of its Redis. If they do not, they count in another one; if
/// they are gone, it enters the epoch itself.
const ELSEWHERE_WAIT: Duration = Duration::from_secs(5).saturating_add(ALIVE_LIMIT_SILENCE);
const ELSEWHERE_LOOK_EVERY: Duration = Duration::from_millis(100);

impl Worker {
    /// Compares the current epoch of each bucket with the one that its counters belong to. In another epoch, it
    /// invalidates every counter, since a replica may have missed the last increments. It also
    /// requests a rebuild of every item without a counter whose saved count is not exact, since an
    /// unsaved count was lost. Returns how many counters and items that were. Returns `None` in the
    /// same epoch, and when the worker is stopping or Redis was wiped meanwhile: the next call then
    /// does all of it. A bucket that is moving from one node of a Cluster to another waits until it is there.
    ///
    /// # Errors
    /// When a store is unavailable, or the keys are another Tally's. The epoch is entered only at
    /// the very end, so the next try does all of it again. When some nodes of a Cluster are unavailable, the buckets of
    /// the others are entered all the same.
    pub async fn enter_epoch(&self) -> Result<Option<usize>, SyncError> {
        let deadline = Instant::now() + ELSEWHERE_WAIT;
        loop {
            let entered = self.look_at_epochs(Duration::MAX, Duration::MAX).await;
            match entered {
                Err(SyncError::Elsewhere) if Instant::now() < deadline => sleep(ELSEWHERE_LOOK_EVERY).await,
                Err(error) => {
                    self.give_up_entries().await;
                    return Err(error);
                }
                entered => return entered,
            }
        }
    }

    /// The same for a pass: where the search for lost counts takes long, it goes on beside the passes, and a later one
    /// enters the epoch.
    ///
    /// # Errors
    /// As [`Worker::enter_epoch`].
    pub(super) async fn go_on_entering(&self) -> Result<Option<usize>, SyncError> {
        self.look_at_epochs(SEARCH_WAIT, Duration::ZERO).await
    }

    /// `wait` and `wait_again`: how long to wait for a search that begins now, and for one that began earlier.
    async fn look_at_epochs(&self, wait: Duration, wait_again: Duration) -> Result<Option<usize>, SyncError> {
        let mut entries = self.entries.lock().await;
        self.entered.look_begins();
        if let Err(error) = self.check_owner().await
            && (!self.counters.redis().is_cluster()
                || matches!(error, SyncError::Live(LiveError::Owner { .. })))
        {
            return Err(error);
        }
        let Looked {
            mut entered,
            mut stale,
            mut failure,
        } = self.compare_epochs().await?;
        self.entered.set(&entered);
        let mut under_way = Vec::new();
        for mut entry in entries.drain(..) {
            if let Err(error) = self.retain_current(&mut entry, &mut stale).await {
                failure = failure.or(Some(error));
            }
            if !entry.stale.is_empty() {
                under_way.push((entry, wait_again));
            }
        }
        if !stale.is_empty() {
            match self.begin_entry(stale, &mut failure).await {
                Ok(entry) => under_way.extend(entry.map(|entry| (entry, wait))),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        let mut invalidated = None;
        for (mut entry, wait) in under_way {
            let found = match timeout(wait, entry.search.end()).await {
                Err(_) => {
                    entered.extend(entry.buckets());
                    entries.push(entry);
                    continue;
                }
                Ok(found) => found,
            };
            match found {
                Ok(Some(lost)) => match self.end_entry(entry, lost, &mut entered).await {
                    Ok(None) => {}
                    Ok(Some(all)) => *invalidated.get_or_insert(0) += all,
                    Err(error) => failure = failure.or(Some(error)),
                },
                // The worker is stopping.
                Ok(None) => self.remove_marks(&entry.marks).await,
                Err(error) => {
                    // The counters stay exact: only the search begins again.
                    entry.search = Search::begin(self.clone(), entry.buckets().collect());
                    entered.extend(entry.buckets());
                    entries.push(entry);
                    failure = failure.or(Some(error));
                }
            }
        }
        self.entered.set(&entered);
        failure.map_or(Ok(invalidated), Err)
    }

    /// For a worker that stops: looks which buckets are in an epoch that was entered, and enters none.
    pub(super) async fn look_at_entered(&self) -> Result<(), SyncError> {
        let looked = self.compare_epochs().await?;
        self.entered.set(&looked.entered);
        Ok(())
    }

    /// For a worker that stops: gives up the entries under way, whose marks would stay in Redis for a day.
    pub(super) async fn give_up_entries(&self) {
        let entries = std::mem::take(&mut *self.entries.lock().await);
        for entry in entries {
            self.remove_marks(&entry.marks).await;
        }
    }
}
