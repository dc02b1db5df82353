//! What the server's client of Redis and its repair tasks share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use redis::aio::MultiplexedConnection;
use tokio::sync::{Notify, RwLock, watch};

use super::breaker::{AllBreakers, CircuitBreaker, Generation};
use super::seen_place::SeenPlace;
use super::suspects::Suspects;
use super::warm_items::{Seeding, WarmItems};
use crate::domain::{ItemId, Owner};
use crate::live::any_connection::AnyConnection;
use crate::live::buckets::Bucket;
use crate::live::{LiveError, Redis};

/// What all clones of [`LiveCounts`](super::LiveCounts) share, and the repair tasks with them.
pub(super) struct State {
    pub redis: Redis,
    /// Those of each bucket, in order. Without a Cluster there is one.
    parts: Vec<Part>,
    pub breakers: Arc<AllBreakers>,
    /// Those that were used.
    pub warm_items: WarmItems,
    /// Those that were read one at a time.
    pub read_items: WarmItems,
    /// Which Tally this is, once Postgres has said so.
    owner: watch::Receiver<Option<Owner>>,
}

/// What is known of a bucket, whose node may fail while others answer.
pub(super) struct Part {
    pub bucket: Bucket,
    pub breaker: CircuitBreaker,
    pub suspects: Suspects,
    pub wake_repair: Notify,
    /// The repair task holds this when suspects come faster than it clears them. Until the circuit
    /// breaker closes, a caller that finds it open waits here and adds no suspects.
    pub back_pressure: RwLock<()>,
    /// [`Redis::number`] when the circuit breaker closed last; before that, of the primary that suspects were repaired at
    /// first; 0: it never has, and none were.
    pub counts_at: AtomicU64,
    /// [`Redis::number`] of the last primary that heard from this server that it comes from another one; 0: none was.
    pub reported_at: AtomicU64,
    /// The connection over which the repair task closed the circuit breaker last. In a Cluster there is none.
    first: Mutex<Option<MultiplexedConnection>>,
    /// Whether the workers' counts are here. While they are elsewhere, the circuit breaker stays open.
    pub place: SeenPlace,
}

impl State {
    pub fn new(
        redis: Redis,
        owner: watch::Receiver<Option<Owner>>,
        suspects_limit_items: usize,
        seeding: Seeding,
        is_shown: bool,
    ) -> Self {
        let buckets = redis.buckets();
        let breakers = AllBreakers::new(buckets.len(), is_shown);
        let limit = suspects_limit_items.div_ceil(buckets.len());
        let parts = buckets.map(|bucket| Part::new(bucket, &breakers, limit));
        Self {
            parts: parts.collect(),
            breakers,
            redis,
            warm_items: WarmItems::new(seeding),
            read_items: WarmItems::new(seeding),
            owner,
        }
    }

    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    pub fn part(&self, bucket: Bucket) -> &Part {
        &self.parts[bucket.index()]
    }

    pub fn part_of(&self, item: ItemId) -> &Part {
        self.part(self.redis.keys().bucket_of(item))
    }

    /// Which Tally this is. Waits until Postgres says so: without Postgres there are no votes to
    /// count.
    ///
    /// # Errors
    /// When the sender is gone: the server stops.
    pub async fn owner(&self) -> Result<Owner, LiveError> {
        let mut owner = self.owner.clone();
        let owner = owner.wait_for(Option::is_some).await.ok();
        owner
            .and_then(|owner| owner.clone())
            .ok_or(LiveError::OwnerUnknown)
    }
}

impl Part {
    fn new(bucket: Bucket, breakers: &Arc<AllBreakers>, suspects_limit_items: usize) -> Self {
        Self {
            bucket,
            breaker: CircuitBreaker::new(breakers),
            suspects: Suspects::new(suspects_limit_items),
            wake_repair: Notify::new(),
            back_pressure: RwLock::default(),
            counts_at: AtomicU64::default(),
            reported_at: AtomicU64::default(),
            first: Mutex::default(),
            place: SeenPlace::default(),
        }
    }

    /// Begins the next generation. This connection was made before all others of it.
    pub fn close(&self, first: &AnyConnection) {
        if let AnyConnection::Own(first) = first {
            *self.first.lock().unwrap_or_else(PoisonError::into_inner) = Some(first.clone());
        }
        self.breaker.close();
    }

    /// Ends that connection.
    pub fn forget_first(&self) {
        *self.first.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The generation, and the connection that was made before all others of it. `None`: the circuit breaker is open, or
    /// it is a Cluster.
    pub fn first(&self) -> Option<(Generation, MultiplexedConnection)> {
        let generation = self.breaker.generation()?;
        let first = self
            .first
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()?;
        Some((generation, first))
    }

    /// Notes the primary at which suspects are repaired. If that is an old one, the new one has to hear of it, also if the
    /// circuit breaker never closed at the old one.
    pub fn note_repairs_at(&self, number: u64) {
        // The only failure is that one is known.
        let _ = self
            .counts_at
            .compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Whether connections that are kept, or repairs, lead to another Redis than this one.
    pub fn has_moved(&self, number: u64) -> bool {
        let known = self.counts_at.load(Ordering::Relaxed);
        known != 0 && known != number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_repaired_at_a_primary_has_moved_once_there_is_another_one() {
        let part = Part::new(Bucket::FIRST, &AllBreakers::new(1, false), 1);
        assert!(!part.has_moved(1), "it counts nowhere yet");
        part.note_repairs_at(1);
        assert!(!part.has_moved(1) && part.has_moved(2));
        part.note_repairs_at(2);
        assert!(part.has_moved(2), "the circuit breaker closes there first");
    }
}
