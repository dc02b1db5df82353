//! Runs work of an operator on a server: one piece at a time of its kind, alongside the votes, whether or not
//! the client waits.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::ledger::OperatorLedger;
use crate::live::Redis;
use crate::web::problem::{Kind, Problem};

/// How a piece of work ended.
pub enum Ended {
    Done,
    /// The server is stopping. The rest can be resumed.
    Stopped,
    Failed(anyhow::Error),
}

/// Work of one kind, such as a voiding. It is written down in the ledger, so it can be resumed.
pub trait Work: Copy + fmt::Debug + PartialEq + Send + 'static {
    /// What it is, in lower case.
    const WHAT: &str;
    /// The problem type when another one is under way.
    const UNDER_WAY: Kind;

    /// Its id in the ledger.
    fn id(self) -> i64;

    /// Does it, until it is done or `stop` resolves.
    fn run(
        self,
        ledger: OperatorLedger,
        redis: Redis,
        stop: impl Future<Output = ()> + Send,
    ) -> impl Future<Output = Ended> + Send;
}

/// Runs work of one kind. Cheap to clone: all threads of a server share it.
pub struct Runner<W>(Arc<Inner<W>>);

impl<W> Clone for Runner<W> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

struct Inner<W> {
    redis: Redis,
    /// The work continues here after the thread that took the request has ended.
    runtime: Handle,
    place: Mutex<Taken<W>>,
    stop: watch::Sender<bool>,
    /// The work holds a receiver. Once all receivers are gone, the work has ended.
    idle: watch::Sender<()>,
}

#[derive(Clone, Copy)]
enum Taken<W> {
    No,
    /// Work that has no id yet holds the place.
    ByNew,
    By(W),
}

/// The only place. Dropping it frees the place.
pub struct WorkPlace<W: Work> {
    runner: Runner<W>,
    _busy: watch::Receiver<()>,
}

impl<W: Work> Runner<W> {
    /// Must be called within a Tokio runtime. The work runs on this runtime.
    pub fn new(redis: Redis) -> Self {
        Self(Arc::new(Inner {
            redis,
            runtime: Handle::current(),
            place: Mutex::new(Taken::No),
            stop: watch::Sender::new(false),
            idle: watch::Sender::new(()),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Taken<W>> {
        self.0.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the work that is under way on this server.
    pub fn under_way(&self) -> Option<W> {
        match *self.lock() {
            Taken::By(work) => Some(work),
            Taken::No | Taken::ByNew => None,
        }
    }

    /// Takes the place for work that will be created or resumed.
    ///
    /// # Errors
    /// Fails when other work of the kind is under way, or the server is stopping.
    pub fn take(&self) -> Result<WorkPlace<W>, Problem> {
        if *self.0.stop.borrow() {
            return Err(Problem::unavailable("The server is shutting down; try again."));
        }
        let mut taken = self.lock();
        let other = match *taken {
            Taken::No => {
                *taken = Taken::ByNew;
                return Ok(WorkPlace {
                    runner: self.clone(),
                    _busy: self.0.idle.subscribe(),
                });
            }
            Taken::ByNew => format!("Another {}", W::WHAT),
            Taken::By(work) => format!("The {} {}", W::WHAT, work.id()),
        };
        let detail = format!(
            "{other} is under way on this server, which runs one {} at a time; try again later.",
            W::WHAT
        );
        Err(Problem::new(W::UNDER_WAY, detail))
    }

    /// Stops what is under way, and waits this long for it to end. The rest of the work can be resumed.
    pub async fn stop(&self, limit: Duration) {
        self.0.stop.send_replace(true);
        if timeout(limit, self.0.idle.closed()).await.is_err() {
            tracing::warn!("did not end in time, and recovery counts the rest: {}", W::WHAT);
        }
    }
}

impl<W: Work> WorkPlace<W> {
    /// Runs this work in the background.
    pub fn start(self, ledger: OperatorLedger, work: W) {
        *self.runner.lock() = Taken::By(work);
        let runtime = self.runner.0.runtime.clone();
        runtime.spawn(async move {
            let inner = Arc::clone(&self.runner.0);
            let mut stopping = inner.stop.subscribe();
            // A dropped sender means stop, too.
            let stop = async move { drop(stopping.wait_for(|stop| *stop).await) };
            let id = work.id();
            match work.run(ledger, inner.redis.clone(), stop).await {
                Ended::Done => tracing::info!(id, ?work, "done: {}", W::WHAT),
                Ended::Stopped => {
                    tracing::info!(id, "the server is stopping, and this can be resumed: {}", W::WHAT);
                }
                Ended::Failed(error) => {
                    tracing::error!(%error, id, "failed, and can be resumed: {}", W::WHAT);
                }
            }
            drop(self);
        });
    }
}

impl<W: Work> Drop for WorkPlace<W> {
    fn drop(&mut self) {
        *self.runner.lock() = Taken::No;
    }
}
