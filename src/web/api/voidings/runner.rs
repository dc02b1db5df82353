//! Runs the voidings of a server: one at a time, beside the votes, whether or not the client waits.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::domain::VoidingId;
use crate::ledger::OperatorLedger;
use crate::live::Redis;
use crate::votes;
use crate::votes::{Direction, VoidingError};
use crate::web::problem::{Kind, Problem};

/// Runs voidings. Cheap to clone: a server's threads share it.
#[derive(Clone)]
pub struct VoidingRunner(Arc<Inner>);

struct Inner {
    redis: Redis,
    /// The work goes on when a thread that serves has ended.
    runtime: Handle,
    place: Mutex<Taken>,
    stop: watch::Sender<bool>,
    /// Held by the work: gone, when it has ended.
    idle: watch::Sender<()>,
}

#[derive(Clone, Copy, Default)]
enum Taken {
    #[default]
    No,
    /// By a voiding that has no id yet.
    ByNew,
    By(VoidingId, Direction),
}

/// The one place. It is free again when this is dropped.
pub struct VoidingPlace {
    runner: VoidingRunner,
    _busy: watch::Receiver<()>,
}

impl VoidingRunner {
    /// It must be called within a Tokio runtime, on which voidings are worked off.
    pub fn new(redis: Redis) -> Self {
        Self(Arc::new(Inner {
            redis,
            runtime: Handle::current(),
            place: Mutex::default(),
            stop: watch::Sender::new(false),
            idle: watch::Sender::new(()),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.0.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is under way on this server.
    pub fn under_way(&self) -> Option<(VoidingId, Direction)> {
        match *self.lock() {
            Taken::By(id, direction) => Some((id, direction)),
            Taken::No | Taken::ByNew => None,
        }
    }

    /// Takes the place, for a voiding that is to be made or gone on with.
    ///
    /// # Errors
    /// When another one is under way, or the server stops.
    pub fn take(&self) -> Result<VoidingPlace, Problem> {
        if *self.0.stop.borrow() {
            return Err(Problem::unavailable("The server is shutting down; try again."));
        }
        let mut taken = self.lock();
        let other = match *taken {
            Taken::No => {
                *taken = Taken::ByNew;
                return Ok(VoidingPlace {
                    runner: self.clone(),
                    _busy: self.0.idle.subscribe(),
                });
            }
            Taken::ByNew => "Another voiding".to_owned(),
            Taken::By(id, _) => format!("Voiding {}", id.0),
        };
        let detail =
            format!("{other} is under way on this server, which works off one at a time; try again later.");
        Err(Problem::new(Kind::VoidingUnderWay, detail))
    }

    /// Ends what is under way, and waits until it has ended, for so long. What is left can be gone on
    /// with.
    pub async fn stop(&self, limit: Duration) {
        self.0.stop.send_replace(true);
        if timeout(limit, self.0.idle.closed()).await.is_err() {
            tracing::warn!("a voiding did not end in time: what it has not counted is left for recovery");
        }
    }
}

impl VoidingPlace {
    /// Works this voiding off, in the background.
    pub fn start(self, ledger: OperatorLedger, id: VoidingId, direction: Direction) {
        *self.runner.lock() = Taken::By(id, direction);
        let runtime = self.runner.0.runtime.clone();
        runtime.spawn(async move {
            let inner = Arc::clone(&self.runner.0);
            let mut stopping = inner.stop.subscribe();
            // A sender that is gone means stop as well.
            let stop = async { drop(stopping.wait_for(|stop| *stop).await) };
            let ended = votes::run_voiding(&ledger, &inner.redis, id, direction, stop, |_| {}).await;
            match ended {
                Ok(_) => tracing::info!(voiding = id.0, ?direction, "a voiding is worked off"),
                Err(VoidingError::Stopped) => {
                    tracing::info!(voiding = id.0, "the server stops: the voiding can be resumed");
                }
                Err(error) => {
                    tracing::error!(%error, voiding = id.0, "a voiding was not worked off: it can be resumed");
                }
            }
            drop(self);
        });
    }
}

impl Drop for VoidingPlace {
    fn drop(&mut self) {
        *self.runner.lock() = Taken::No;
    }
}
