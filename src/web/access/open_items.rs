//! What voters without a credential may do on single items and in single polls, where the server is
//! closed: asked of the ledger, and remembered for a while.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::domain::{ItemId, OpenTo, PollId};
use crate::ledger::{LedgerError, ServerLedger};

/// How long it is remembered: so long may be voted on what was closed elsewhere.
pub const OPEN_LIMIT_AGE: Duration = Duration::from_secs(10);
/// Items that are remembered, and as many polls: a few megabytes.
const OPEN_LIMIT_ITEMS: usize = 50_000;

/// The open items and polls of a server. Cheap to clone: its threads share what is remembered.
#[derive(Clone)]
pub struct OpenItems {
    ledger: ServerLedger,
    items: Remembered<ItemId>,
    polls: Remembered<PollId>,
}

/// What is known, and since when.
#[derive(Clone)]
struct Remembered<Id>(Arc<Mutex<HashMap<Id, (OpenTo, Instant)>>>);

impl<Id> Default for Remembered<Id> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<Id: Copy + Eq + Hash> Remembered<Id> {
    fn get(&self, id: Id) -> Option<OpenTo> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (to, asked_at) = known.get(&id)?;
        (asked_at.elapsed() < OPEN_LIMIT_AGE).then_some(*to)
    }

    fn add(&self, id: Id, to: OpenTo, asked_at: Instant) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= OPEN_LIMIT_ITEMS {
            known.retain(|_, (_, asked_at)| asked_at.elapsed() < OPEN_LIMIT_AGE);
        }
        if known.len() >= OPEN_LIMIT_ITEMS {
            known.clear();
        }
        known.insert(id, (to, asked_at));
    }

    fn forget(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl OpenItems {
    /// Remembers nothing yet.
    pub fn new(ledger: ServerLedger) -> Self {
        Self {
            ledger,
            items: Remembered::default(),
            polls: Remembered::default(),
        }
    }

    /// To whom these items are open, in their order. One that is not there is open to nobody.
    ///
    /// # Errors
    /// When Postgres is needed and does not answer.
    pub async fn of_items(&self, items: &[ItemId]) -> Result<Vec<OpenTo>, LedgerError> {
        let known: Vec<Option<OpenTo>> = items.iter().map(|item| self.items.get(*item)).collect();
        let unknown = items.iter().zip(&known).filter(|(_, known)| known.is_none());
        let mut unknown: Vec<ItemId> = unknown.map(|(item, _)| *item).collect();
        if unknown.is_empty() {
            return Ok(known.into_iter().flatten().collect());
        }
        unknown.sort_unstable();
        unknown.dedup();
        // It holds from before the question on.
        let asked_at = Instant::now();
        let found: HashMap<ItemId, OpenTo> = self.ledger.open_items(&unknown).await?.into_iter().collect();
        for item in unknown {
            let to = found.get(&item).copied().unwrap_or_default();
            self.items.add(item, to, asked_at);
        }
        let of = |(item, known): (&ItemId, Option<OpenTo>)| {
            known.or_else(|| found.get(item).copied()).unwrap_or_default()
        };
        Ok(items.iter().zip(known).map(of).collect())
    }

    /// To whom a poll is open. One that is not there is open to nobody.
    ///
    /// # Errors
    /// When Postgres is needed and does not answer.
    pub async fn of_poll(&self, poll: PollId) -> Result<OpenTo, LedgerError> {
        if let Some(to) = self.polls.get(poll) {
            return Ok(to);
        }
        let asked_at = Instant::now();
        let to = self.ledger.open_poll(poll).await?.unwrap_or_default();
        self.polls.add(poll, to, asked_at);
        Ok(to)
    }

    /// Forgets all: something was opened or closed here.
    pub fn forget(&self) {
        self.items.forget();
        self.polls.forget();
    }
}
