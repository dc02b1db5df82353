//! Whether votes can be stored, as the server last found out. A store that hangs delays no answer.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout, timeout_at};

use crate::domain::Owner;
use crate::ledger::{Migrations, ServerLedger, Writes};
use crate::live::{LiveCounts, LiveError, Redis, Refusal};
use crate::telemetry::{Program, name};
use crate::web::transport::drain::Drain;

/// The longest look at a store. A store that takes longer is unavailable.
pub(crate) const LOOK_LIMIT: Duration = Duration::from_secs(2);
/// How often the server looks while nobody asks.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long an answer waits for looks that are under way.
pub(crate) const FRESH_LIMIT: Duration = Duration::from_millis(100);
/// What was found longer ago than this says nothing any more. It is more than two looks take.
pub(crate) const FOUND_LIMIT_AGE: Duration = Duration::from_secs(5);

/// What a server knows of its stores. Cheap to clone: all threads share it.
#[derive(Clone)]
pub struct Readiness(Arc<Inner>);

struct Inner {
    ledger: ServerLedger,
    redis: Redis,
    live_counts: LiveCounts,
    /// Each store is looked at by itself, so that none waits for another.
    state: Looks<Option<(Writes, Migrations)>>,
    stores_votes: Looks<bool>,
    live: Looks<LiveState>,
    /// Which Tally this is. Redis is not used before Postgres has said so.
    owner: watch::Receiver<Option<Owner>>,
    drain: Drain,
}

/// What a server knows of its stores, in the words of `/health/ready`.
#[derive(Clone, Debug)]
pub struct Known {
    pub postgres: &'static str,
    pub migrations: &'static str,
    pub redis: &'static str,
    /// Why Redis refuses to be used, if it says so.
    pub refusal: Option<String>,
    is_redis_full: bool,
    /// Whether the server is about to stop.
    pub is_draining: bool,
    /// How long ago the oldest of it was found. `None`: some of it was never found out.
    pub age: Option<Duration>,
}

impl Known {
    /// Whether votes can be stored, and the server wants more of them.
    pub fn is_ready(&self) -> bool {
        self.stores_votes() && !self.is_draining
    }

    /// Whether votes can be stored.
    pub fn stores_votes(&self) -> bool {
        self.postgres == READY && self.migrations == READY
    }
}

/// A store that has what a vote needs.
pub const READY: &str = "ready";
const UNAVAILABLE: &str = "unavailable";

impl Readiness {
    pub fn new(
        ledger: &ServerLedger,
        redis: &Redis,
        live_counts: &LiveCounts,
        owner: watch::Receiver<Option<Owner>>,
        drain: &Drain,
    ) -> Self {
        Self(Arc::new(Inner {
            ledger: ledger.clone(),
            redis: redis.clone(),
            live_counts: live_counts.clone(),
            state: Looks::default(),
            stores_votes: Looks::default(),
            live: Looks::default(),
            owner,
            drain: drain.clone(),
        }))
    }

    /// Looks at the stores each second, and whenever someone asks. Never ends.
    pub async fn keep_looking(self) {
        let inner = &*self.0;
        tokio::join!(
            inner.state.keep(|| inner.ledger.state()),
            inner.stores_votes.keep(|| inner.ledger.stores_votes()),
            inner.live.keep(|| live_state(&inner.redis, &inner.live_counts)),
            self.keep_showing(),
        );
    }

    /// What is known of the stores. Asks for a look at each, and waits at most [`FRESH_LIMIT`] for them.
    pub async fn ask(&self) -> Known {
        let inner = &*self.0;
        let until = Instant::now() + FRESH_LIMIT;
        tokio::join!(
            inner.state.fresh(until),
            inner.stores_votes.fresh(until),
            inner.live.fresh(until)
        );
        self.known()
    }

    fn known(&self) -> Known {
        let inner = &*self.0;
        let now = Instant::now();
        let (state, stores_votes, live) = (
            inner.state.found(now),
            inner.stores_votes.found(now),
            inner.live.found(now),
        );
        let age = |found: Option<Duration>, other: Option<Duration>| Some(found?.max(other?));
        let age = age(age(state.age, stores_votes.age), live.age);
        // The votes of this moment know better than the last look.
        let stored_lately = inner.ledger.stored_lately();
        let stores_votes = stored_lately.or(stores_votes.found) == Some(true);
        let (postgres, migrations) = match state.found.flatten() {
            Some((writes, migrations)) => (
                match writes {
                    // There may be no table to lock yet.
                    Writes::Taken if migrations == Migrations::Done && !stores_votes => "not-storing",
                    Writes::Taken => READY,
                    Writes::Standby => "standby",
                    Writes::ReadOnly => "read-only",
                },
                match migrations {
                    Migrations::Done => READY,
                    Migrations::Pending => "pending",
                },
            ),
            None => (UNAVAILABLE, "unknown"),
        };
        let mut live = live.found.unwrap_or_default();
        if live.refusal.is_none() && inner.owner.borrow().is_none() {
            live.name = UNAVAILABLE;
            live.refusal = Some("not used before Postgres has answered once".to_owned());
        }
        let redis = match live.name {
            READY if !inner.live_counts.answers() => UNAVAILABLE,
            name => name,
        };
        Known {
            postgres,
            migrations,
            redis,
            refusal: live.refusal,
            is_redis_full: live.is_full,
            is_draining: inner.drain.is_begun(),
            age,
        }
    }

    async fn keep_showing(&self) {
        let mut ticks = interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            ticks.tick().await;
            let known = self.known();
            metrics::gauge!(name::READY).set(f64::from(u8::from(known.is_ready())));
            metrics::gauge!(name::POSTGRES_AVAILABLE).set(f64::from(u8::from(known.postgres == READY)));
            metrics::gauge!(name::REDIS_FULL).set(f64::from(u8::from(known.is_redis_full)));
            for (pool, uses) in self.0.ledger.pool_uses() {
                metrics::gauge!(name::POOL, "pool" => pool, "state" => "used").set(uses.used as f64);
                metrics::gauge!(name::POOL, "pool" => pool, "state" => "idle").set(uses.idle as f64);
            }
        }
    }
}

/// The state of Redis, and why Redis refuses to be used, if it says so. The reason is no secret, and the log of
/// a server that runs without Redis says it only once.
#[derive(Clone, Debug)]
struct LiveState {
    name: &'static str,
    refusal: Option<String>,
    /// Whether Redis has no memory for what votes write.
    is_full: bool,
}

impl Default for LiveState {
    fn default() -> Self {
        Self {
            name: UNAVAILABLE,
            refusal: None,
            is_full: false,
        }
    }
}

async fn live_state(redis: &Redis, live_counts: &LiveCounts) -> LiveState {
    let probed = redis.takes_writes().await;
    if probed.is_ok() && live_counts.answers() {
        return LiveState {
            name: READY,
            ..LiveState::default()
        };
    }
    let checked = redis.check(Program::Server).await;
    // Redis may take what these two send, and still refuse the server's own calls.
    // Of counts that are elsewhere, it may be an old one.
    let of_calls = live_counts.refusal().filter(|_| !live_counts.are_elsewhere());
    let of_calls = of_calls.map(LiveError::Refused);
    let errors = [checked.err(), probed.err(), of_calls].into_iter().flatten();
    let mut known = errors.filter(|error| error.is_refusal() || error.refusal().is_some());
    match known.next() {
        Some(error) => LiveState {
            name: if error.is_refusal() {
                "refused"
            } else {
                UNAVAILABLE
            },
            is_full: error.refusal().is_some_and(Refusal::is_out_of_memory),
            refusal: Some(error.to_string()),
        },
        None => LiveState {
            refusal: live_counts
                .are_elsewhere()
                .then(|| LiveError::CountedElsewhere.to_string()),
            ..LiveState::default()
        },
    }
}

/// Looks at one thing, again and again, and what the last look found.
struct Looks<Found> {
    /// `None`: the look was cut off.
    last: watch::Sender<Option<(Instant, Option<Found>)>>,
    asked: Notify,
}

/// What a look found, if it is not too old.
struct Found<Value> {
    /// `None`: the look was cut off, or is too old.
    found: Option<Value>,
    /// `None`: no look has ended yet.
    age: Option<Duration>,
}

impl<Value> Default for Looks<Value> {
    fn default() -> Self {
        Self {
            last: watch::channel(None).0,
            asked: Notify::new(),
        }
    }
}

impl<Value: Clone> Looks<Value> {
    /// Never ends.
    async fn keep<Look: Future<Output = Value>>(&self, look: impl Fn() -> Look) {
        loop {
            let found = timeout(LOOK_LIMIT, look()).await.ok();
            self.last.send_replace(Some((Instant::now(), found)));
            // Nobody asked in time: look all the same.
            let _ = timeout(LOOK_EVERY, self.asked.notified()).await;
        }
    }

    /// Asks for a look, and waits for the end of one.
    async fn fresh(&self, until: Instant) {
        let asked_at = Instant::now();
        let mut last = self.last.subscribe();
        self.asked.notify_one();
        let is_fresh = |last: &Option<(Instant, Option<Value>)>| {
            last.as_ref().is_some_and(|(ended_at, _)| *ended_at >= asked_at)
        };
        // What is known is the answer then.
        let _ = timeout_at(until, last.wait_for(is_fresh)).await;
    }

    fn found(&self, now: Instant) -> Found<Value> {
        let last = self.last.borrow();
        let Some((ended_at, found)) = &*last else {
            return Found {
                found: None,
                age: None,
            };
        };
        let age = now.duration_since(*ended_at);
        Found {
            found: found.clone().filter(|_| age < FOUND_LIMIT_AGE),
            age: Some(age),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_look_that_hangs_delays_no_answer_and_is_cut_off_at_its_limit() {
        let looks = Looks::default();
        let hangs = AtomicBool::new(false);
        let looking = looks.keep(|| async {
            if hangs.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            7
        });
        let asking = async {
            let ask = async || {
                looks.fresh(Instant::now() + FRESH_LIMIT).await;
                looks.found(Instant::now())
            };
            assert_eq!(ask().await.found, Some(7));
            hangs.store(true, Ordering::Relaxed);
            let known = ask().await;
            assert_eq!(known.found, Some(7), "it is not cut off yet");
            assert!(known.age.is_some_and(|age| age >= FRESH_LIMIT));
            let cut_off =
                |last: &Option<(Instant, Option<i32>)>| last.is_some_and(|(_, found)| found.is_none());
            looks.last.subscribe().wait_for(cut_off).await.expect("a look");
            assert_eq!(looks.found(Instant::now()).found, None);
            hangs.store(false, Ordering::Relaxed);
            assert_eq!(ask().await.found, Some(7));
        };
        tokio::select! {
            () = looking => {}
            () = asking => {}
        }
    }

    #[tokio::test]
    async fn what_was_found_long_ago_says_nothing() {
        let looks = Looks::default();
        tokio::select! {
            () = looks.keep(|| async { 7 }) => {}
            () = looks.fresh(Instant::now() + FRESH_LIMIT) => {}
        }
        // Nobody looks any more.
        let later = Instant::now() + FOUND_LIMIT_AGE;
        assert_eq!(looks.found(later).found, None);
        assert!(looks.found(later).age.is_some_and(|age| age >= FOUND_LIMIT_AGE));
    }
}
