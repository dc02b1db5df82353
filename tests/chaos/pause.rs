//! A moment without requests, for the faults of an idle system.

use std::sync::Arc;

use tokio::sync::watch;

/// Shared by the clients and the faults.
#[derive(Clone, Debug, Default)]
pub struct Pause {
    wanted: Arc<watch::Sender<bool>>,
    /// How many clients have sent a request and wait for its answer.
    busy: Arc<watch::Sender<usize>>,
}

/// While this exists, the clients send nothing.
pub struct Paused<'a>(&'a Pause);

/// While this exists, a client has a request under way.
pub struct Busy(Pause);

impl Pause {
    /// Waits until no request is under way. One pause at a time.
    pub async fn begin(&self) -> Paused<'_> {
        self.wanted.send_replace(true);
        let paused = Paused(self);
        let _ = self.busy.subscribe().wait_for(|busy| *busy == 0).await;
        paused
    }

    /// A client calls it before each request, and waits while there is a pause.
    pub async fn go_on(&self) -> Busy {
        loop {
            let _ = self.wanted.subscribe().wait_for(|wanted| !wanted).await;
            self.busy.send_modify(|busy| *busy += 1);
            let busy = Busy(self.clone());
            // A pause may have begun in between.
            if !*self.wanted.borrow() {
                return busy;
            }
        }
    }
}

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        self.0.wanted.send_replace(false);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.send_modify(|busy| *busy -= 1);
    }
}
