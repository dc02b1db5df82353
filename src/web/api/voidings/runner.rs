//! Runs the voidings of a server: one at a time, alongside the votes, whether or not the client waits.

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

/// Runs voidings. Cheap to clone: all threads of a server share it.
#[derive(Clone)]
pub struct VoidingRunner(Arc<Inner>);

struct Inner {
    redis: Redis,
    /// The work continues here after the thread that took the request has ended.
    runtime: Handle,
    place: Mutex<Taken>,
    stop: watch::Sender<bool>,
    /// The work holds a receiver. Once all receivers are gone, the work has ended.
    idle: watch::Sender<()>,
}

#[derive(Clone, Copy, Default)]
enum Taken {
    #[default]
    No,
    /// A voiding that has no id yet holds the place.
    ByNew,
    By(VoidingId, Direction),
}

/// The only place. Dropping it frees the place.
pub struct VoidingPlace {
    runner: VoidingRunner,
    _busy: watch::Receiver<()>,
}

impl VoidingRunner {
    /// Must be called within a Tokio runtime. Voidings run on this runtime.
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

    /// Returns the voiding that is under way on this server.
    pub fn under_way(&self) -> Option<(VoidingId, Direction)> {
        match *self.lock() {
            Taken::By(id, direction) => Some((id, direction)),
            Taken::No | Taken::ByNew => None,
        }
    }

    /// Takes the place for a voiding that will be created or resumed.
    ///
    /// # Errors
    /// Fails when another voiding is under way, or the server is stopping.
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
        let detail = format!(
            "{other} is under way on this server, which runs one voiding at a time; try again later."
        );
        Err(Problem::new(Kind::VoidingUnderWay, detail))
    }

    /// Stops what is under way, and waits this long for it to end. The rest of the work can be resumed.
    pub async fn stop(&self, limit: Duration) {
        self.0.stop.send_replace(true);
        if timeout(limit, self.0.idle.closed()).await.is_err() {
            tracing::warn!("a voiding did not end in time: recovery counts the rest");
        }
    }
}

impl VoidingPlace {
    /// Runs this voiding in the background.
    pub fn start(self, ledger: OperatorLedger, id: VoidingId, direction: Direction) {
        *self.runner.lock() = Taken::By(id, direction);
        let runtime = self.runner.0.runtime.clone();
        runtime.spawn(async move {
            let inner = Arc::clone(&self.runner.0);
            let mut stopping = inner.stop.subscribe();
            // A dropped sender means stop, too.
            let stop = async { drop(stopping.wait_for(|stop| *stop).await) };
            let ended = votes::run_voiding(&ledger, &inner.redis, id, direction, stop, |_| {}).await;
            match ended {
                Ok(_) => tracing::info!(voiding = id.0, ?direction, "a voiding is done"),
                Err(VoidingError::Stopped) => {
                    tracing::info!(
                        voiding = id.0,
                        "the server is stopping: the voiding can be resumed"
                    );
                }
                Err(error) => {
                    tracing::error!(%error, voiding = id.0, "a voiding failed: it can be resumed");
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
