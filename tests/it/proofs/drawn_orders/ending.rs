//! The end of an interleaving: what must hold for each item.

use tally::domain::Count;
use tokio::sync::RwLock;

use super::item::{Item, Worker};

/// The most steps from the last drawn step until all is quiescent.
const QUIESCENT_LIMIT: usize = 40;

impl Item {
    /// Checks a quiet item: a live count must be right.
    /// Then a worker saves what is left, and live count, saved count and ledger must agree. Adds
    /// the steps to the trace. Returns what is wrong.
    pub(super) async fn end(&mut self, roll_ups: &RwLock<()>, trace: &mut Vec<String>) -> Result<(), String> {
        let wrong = |what: &str, got: Count, truth: Count| Err(format!("{what} {got}, truth {truth}"));
        let (_, truth) = self.truth().await;
        if let Some((count, _)) = self.read().await.count
            && count != truth
        {
            return wrong("live count", count, truth);
        }
        // Meanwhile no roll-up may lock the item's row: the worker would leave the item out.
        let _no_roll_up = roll_ups.read().await;
        let mut worker = Worker::ReadEpoch;
        for _ in 0..QUIESCENT_LIMIT {
            let read = self.read().await;
            if matches!(worker, Worker::ReadEpoch) && read.is_saved() && read.rebuild.is_none() {
                let (saved, truth) = self.truth().await;
                if saved != truth {
                    return wrong("saved count", saved, truth);
                }
                return match read.count {
                    Some((count, _)) if count != truth => wrong("live count when quiescent", count, truth),
                    _ => Ok(()),
                };
            }
            trace.push(format!("at last: {worker:?}"));
            worker = self.work(worker).await;
        }
        Err("never quiescent".to_owned())
    }
}
