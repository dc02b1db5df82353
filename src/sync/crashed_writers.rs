//! Crashed-writer recovery. A server that dies between a batch's commit and its count leaves votes
//! that nobody counts. The worker rebuilds the counts of their items.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::{SyncError, Worker};
use crate::domain::VoteId;
use crate::ledger::{EpochNumber, Progress, WriterProgress};
use crate::live::Bucket;
use crate::telemetry::name;

/// How long the ticks wait until they try again what some buckets of a Redis Cluster hold up: each try reads all votes that
/// may be uncounted.
const HELD_UP_WAIT: Duration = Duration::from_secs(5);

/// A recovery that some buckets of a Redis Cluster hold up, as long as the same connections are gone in the same epoch.
#[derive(Debug)]
pub(super) struct HeldUp {
    closed: Vec<String>,
    epoch: EpochNumber,
    /// No vote of these writers has a higher id.
    last: VoteId,
    /// The buckets whose items of these votes are invalidated.
    done: Vec<Bucket>,
    since: Instant,
}

impl Worker {
    /// Looks for batch writers whose connection to Postgres is gone. Votes after the last one that
    /// they noted as counted may be committed but not counted. So this invalidates the items of all
    /// votes since. Returns how many items; `None`: no connection is gone, or this worker stops.
    ///
    /// Buckets of a Redis Cluster that cannot be reached, or are between two nodes, hold up no others. What is done of
    /// the others is not done again.
    ///
    /// A server that stops in order or only reconnects is treated like a crashed one. Invalidating
    /// is always safe, so nothing has to tell them apart.
    ///
    /// # Errors
    /// When a store is unavailable. The connections are forgotten only at the very end, so the next
    /// try does all that is not done.
    pub async fn recover_crashed_writers(&self) -> Result<Option<usize>, SyncError> {
        self.recover_unless_held_up_for(Duration::ZERO).await
    }

    /// The same for a pass. Buckets that hold it up are tried again every few seconds: between that, `None`.
    pub(super) async fn go_on_recovering(&self) -> Result<Option<usize>, SyncError> {
        self.recover_unless_held_up_for(HELD_UP_WAIT).await
    }

    async fn recover_unless_held_up_for(&self, wait: Duration) -> Result<Option<usize>, SyncError> {
        // One at a time: the second one would look for writers that the first one forgets.
        let mut held_up = self.held_up.lock().await;
        // Before anything is read: a worker that counts in another Redis by then forgets nobody.
        let epoch = self.epoch_number().await?;
        let mut closed = self.ledger.closed_writers().await?;
        if closed.is_empty() {
            return Ok(None);
        }
        closed.sort_unstable();
        let earlier = match held_up.take() {
            Some(other) if other.epoch != epoch || other.closed != closed => None,
            Some(earlier) if earlier.since.elapsed() < wait => {
                *held_up = Some(earlier);
                return Ok(None);
            }
            earlier => earlier,
        };
        let (mut after, drawn) = self.ledger.ids_left_by(&closed).await?;
        let (last, done) = earlier.map_or((drawn, Vec::new()), |one| (one.last, one.done));
        let all = self.counters.buckets();
        let mut left_out = done.clone();
        let (mut invalidated, mut failure) = (0, None);
        while after < last && left_out.len() < all.len() {
            // The next worker does all of it.
            if self.is_stopping() {
                return Ok(None);
            }
            let (items, end) = self.ledger.items_voted_on(after, last).await?;
            for page in items.chunks(self.options.flush_page) {
                let (number, failed) = self.counters.invalidate_but(page, &mut left_out).await;
                invalidated += number;
                failure = failure.or(failed);
            }
            after = end;
        }
        metrics::counter!(name::INVALIDATIONS, "why" => "crashed_writer").increment(invalidated as u64);
        if let Some(failure) = failure {
            let is_done = |bucket: &Bucket| done.contains(bucket) || !left_out.contains(bucket);
            let done: Vec<Bucket> = all.into_iter().filter(is_done).collect();
            // Otherwise there is nothing to leave out.
            *held_up = (!done.is_empty()).then(|| HeldUp {
                closed,
                epoch,
                last,
                done,
                since: Instant::now(),
            });
            return Err(failure.into());
        }
        self.ledger.forget_writers(&closed, epoch).await?;
        tracing::info!(
            writers = closed.len(),
            items = invalidated,
            "connections of a server are gone: the counts of its newest votes are rebuilt"
        );
        Ok(Some(invalidated))
    }

    /// The vote id above which votes may be in flight: stored but not counted yet. An audit reads
    /// it before what it compares. A roll-up reads it after the safe id, above which all votes are
    /// of a batch writer that has connected since. Batch writers that have not moved for longer
    /// than the stall limit, while votes went on, are left out. A count that misses their votes is
    /// rebuilt, and a server that wakes up adds none of them twice.
    pub(super) async fn in_flight_after(&self) -> Result<VoteId, SyncError> {
        let progress = self.ledger.progress().await?;
        let mut stalls = self.stalls.lock().await;
        Ok(stalls.in_flight_after(progress, self.options.writer_stall_limit, Instant::now()))
    }
}

/// Since when each batch writer has not moved. The time is by the process' own clock, which does
/// not step.
#[derive(Debug, Default)]
pub(super) struct Stalls {
    since: HashMap<String, (VoteId, Instant)>,
}

impl Stalls {
    fn in_flight_after(&mut self, progress: Progress, limit: Duration, now: Instant) -> VoteId {
        let Progress { writers, drawn } = progress;
        let mut since = HashMap::with_capacity(writers.len());
        let mut after = VoteId::LAST;
        for WriterProgress { name, counted } in writers {
            let started = match self.since.get(&name) {
                // A batch writer that has counted all votes need not move.
                Some((before, started)) if *before == counted && counted < drawn => *started,
                _ => now,
            };
            if now.duration_since(started) < limit {
                after = after.min(counted);
            }
            since.insert(name, (counted, started));
        }
        self.since = since;
        after
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(name: &str, counted: i64) -> WriterProgress {
        WriterProgress {
            name: name.to_owned(),
            counted: VoteId::new(counted),
        }
    }

    #[test]
    fn votes_are_in_flight_beyond_the_slowest_batch_writer_until_it_has_stalled_for_long() {
        const LIMIT: Duration = Duration::from_secs(60);
        let mut stalls = Stalls::default();
        let start = Instant::now();
        let mut after = |seconds: u64, drawn: i64, writers: &[WriterProgress]| {
            let progress = Progress {
                writers: writers.to_vec(),
                drawn: VoteId::new(drawn),
            };
            let now = start + Duration::from_secs(seconds);
            stalls.in_flight_after(progress, LIMIT, now).get()
        };
        assert_eq!(
            after(0, 9, &[]),
            VoteId::LAST.get(),
            "without servers nothing is in flight"
        );
        assert_eq!(after(0, 9, &[at("a", 5), at("b", 9)]), 5);
        assert_eq!(after(59, 20, &[at("a", 5), at("b", 20)]), 5);
        assert_eq!(after(60, 30, &[at("a", 5), at("b", 30)]), 30, "a has stalled");
        assert_eq!(after(61, 31, &[at("a", 31), at("b", 30)]), 30, "a has moved");
        assert_eq!(after(62, 31, &[at("a", 31), at("b", 31)]), 31);
        assert_eq!(after(199, 31, &[at("a", 31), at("b", 31)]), 31, "nobody votes");
    }
}
