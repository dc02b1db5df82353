//! Admission: checks an attempt to vote against the throttles.
//!
//! Attempts are batched: many that wait become one call to Redis, whose windows all servers share.
//! Without Redis, each server counts for itself. A window that is known to be full refuses further
//! attempts without Redis.

mod windows;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use self::windows::{FullWindows, OwnWindows};
use crate::batching::take;
use crate::domain::{
    Digest, Full, ItemId, ItemKey, Owner, Throttle, ThrottledBy, Throttles, VoterId, Windows, client_network,
};
use crate::live::{LiveCounts, THROTTLE_CALL_LIMIT_ATTEMPTS};
use crate::telemetry::name;

/// The most attempts that may wait for a call, in all queues of a server together.
pub const ATTEMPT_QUEUE_LIMIT: usize = 16 * THROTTLE_CALL_LIMIT_ATTEMPTS;

/// Who tries to vote on what.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attempt<'a> {
    pub voter: Option<&'a VoterId>,
    /// The client's address; `None`: ignore it.
    pub address: Option<IpAddr>,
    pub item: Option<AttemptedItem<'a>>,
}

/// The item that someone tries to vote on.
#[derive(Clone, Copy, Debug)]
pub enum AttemptedItem<'a> {
    Known(ItemId),
    /// No item has this key yet, and the vote may make one. All servers count such attempts in the
    /// windows of the key. An attempt that makes the item, or finds it made, then takes a place in
    /// the windows of the item too.
    New(&'a ItemKey),
}

/// Why an attempt is not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionRefusal {
    /// A window is full.
    Throttled { throttle: Throttle, left: Duration },
    /// Too many attempts wait, or the server is shutting down.
    Busy,
}

/// The state that a server's threads share. Cheap to clone.
#[derive(Clone)]
pub struct SharedAdmission(Arc<Shared>);

struct Shared {
    throttles: Throttles,
    /// Which Tally this is, once known. It salts the hashes of voters and addresses.
    owner: watch::Receiver<Option<Owner>>,
    own: OwnWindows,
    full: FullWindows,
}

impl SharedAdmission {
    /// Admission with these throttles.
    pub fn new(throttles: Throttles, owner: watch::Receiver<Option<Owner>>) -> Self {
        Self(Arc::new(Shared {
            throttles,
            owner,
            own: OwnWindows::default(),
            full: FullWindows::default(),
        }))
    }
}

/// An attempt that waits for a call.
struct QueuedAttempt {
    windows: Windows,
    answer: oneshot::Sender<Option<Full>>,
}

/// One thread's admission. Its task ends with it, or with its runtime.
pub struct Admission {
    /// `None`: there are no throttles.
    queue: Option<mpsc::Sender<QueuedAttempt>>,
    shared: SharedAdmission,
}

impl Admission {
    /// Starts one thread's admission, with its task on the current runtime. All `threads` share
    /// [`ATTEMPT_QUEUE_LIMIT`].
    pub fn start(shared: &SharedAdmission, live_counts: &LiveCounts, threads: usize) -> Self {
        let queue = (!shared.0.throttles.all().is_empty()).then(|| {
            let (queue, queued) = mpsc::channel(ATTEMPT_QUEUE_LIMIT.div_ceil(threads));
            tokio::spawn(run(shared.clone(), live_counts.clone(), queued));
            queue
        });
        Self {
            queue,
            shared: shared.clone(),
        }
    }

    /// Takes a place for this attempt in each window that applies. An attempt that is refused takes
    /// none.
    ///
    /// # Errors
    /// When a window is full, or too many attempts wait.
    pub async fn admit(&self, attempt: Attempt<'_>) -> Result<(), AdmissionRefusal> {
        let Some(queue) = &self.queue else { return Ok(()) };
        let shared = &self.shared.0;
        let windows = shared.windows(attempt);
        if windows == Windows::default() {
            return Ok(());
        }
        let full = match shared.full.find(&windows, Instant::now()) {
            Some(full) => Some(full),
            None => {
                let (answer, answered) = oneshot::channel();
                let queued = QueuedAttempt { windows, answer };
                queue.try_send(queued).map_err(|_| AdmissionRefusal::Busy)?;
                answered.await.map_err(|_| AdmissionRefusal::Busy)?
            }
        };
        let Some(Full { throttle, left }) = full else {
            return Ok(());
        };
        let throttle = *shared
            .throttles
            .all()
            .get(throttle)
            .ok_or(AdmissionRefusal::Busy)?;
        metrics::counter!(name::THROTTLED, "by" => throttle.by.name()).increment(1);
        Err(AdmissionRefusal::Throttled { throttle, left })
    }
}

impl Shared {
    fn windows(&self, attempt: Attempt<'_>) -> Windows {
        let owner = self.owner.borrow();
        let salt = owner.as_ref().map_or("", |owner| owner.id.as_str());
        self.throttles.windows(|throttle| match throttle.by {
            ThrottledBy::Voter => attempt
                .voter
                .map(|voter| hash(salt, throttle.by, voter.as_str().as_bytes())),
            ThrottledBy::Address => attempt
                .address
                .map(|address| hash(salt, throttle.by, &client_network(address).octets())),
            ThrottledBy::Item => attempt.item.map(|item| match item {
                // Item ids are positive.
                AttemptedItem::Known(id) => id.get().unsigned_abs().into(),
                AttemptedItem::New(key) => hash(salt, throttle.by, key.as_str().as_bytes()),
            }),
        })
    }
}

/// The first 128 bits of a hash, so that nobody reads voters or addresses in Redis.
fn hash(salt: &str, by: ThrottledBy, value: &[u8]) -> u128 {
    let digest = Digest::of(&[salt.as_bytes(), by.name().as_bytes(), value]);
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest.as_bytes()[..16]);
    u128::from_be_bytes(bytes)
}

/// Takes batch after batch, until the queue is closed.
async fn run(
    SharedAdmission(shared): SharedAdmission,
    live_counts: LiveCounts,
    mut queue: mpsc::Receiver<QueuedAttempt>,
) {
    let mut batch = Vec::new();
    loop {
        batch.clear();
        if take(&mut queue, &mut batch, THROTTLE_CALL_LIMIT_ATTEMPTS).await == 0 {
            return;
        }
        let windows: Vec<Windows> = batch.iter().map(|queued| queued.windows).collect();
        let throttles = &shared.throttles;
        let (verdicts, now) = match live_counts.throttle(throttles, &windows).await {
            Ok(verdicts) => (verdicts, Instant::now()),
            // The Redis client has logged it.
            Err(_) => {
                let now = Instant::now();
                (shared.own.take(throttles, &windows, now), now)
            }
        };
        for (queued, verdict) in batch.drain(..).zip(verdicts) {
            if let Some(full) = verdict {
                shared.full.note(&queued.windows, full, now);
            }
            // The caller may have gone.
            let _ = queued.answer.send(verdict);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_voter_and_an_address_have_other_hashes_in_each_tally() {
        assert_ne!(
            hash("one", ThrottledBy::Voter, b"ada"),
            hash("two", ThrottledBy::Voter, b"ada")
        );
        assert_ne!(
            hash("one", ThrottledBy::Voter, b"ada"),
            hash("one", ThrottledBy::Address, b"ada")
        );
    }
}
