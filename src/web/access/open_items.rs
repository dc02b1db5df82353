//! What anyone may do on single items and in single polls of a closed server: looked up in the ledger, and
//! remembered for a while.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::cache::{Cache, Forgets, Remembers};
use crate::domain::{ItemId, OpenTo, PollId};
use crate::ledger::{LedgerError, ServerLedger};

/// How long it is remembered. After an item was closed on another server, votes may be cast this long.
pub const OPEN_LIMIT_AGE: Duration = Duration::from_secs(10);
/// The most items that are remembered, and the most polls: a few megabytes.
const OPEN_LIMIT_ITEMS: usize = 50_000;

/// The open items and polls of a server. Cheap to clone: its threads share what is remembered.
#[derive(Clone)]
pub struct OpenItems {
    ledger: ServerLedger,
    items: Arc<Cache<OpenItem>>,
    polls: Arc<Cache<OpenPoll>>,
}

/// To whom items are open. A change on this server, or another run of Postgres, ends all entries.
struct OpenItem;

impl Remembers for OpenItem {
    type Key = ItemId;
    type Value = OpenTo;
    const LIMIT: usize = OPEN_LIMIT_ITEMS;
    const LIMIT_AGE: Option<Duration> = Some(OPEN_LIMIT_AGE);
}

impl Forgets for OpenItem {}

/// To whom polls are open, as [`OpenItem`].
struct OpenPoll;

impl Remembers for OpenPoll {
    type Key = PollId;
    type Value = OpenTo;
    const LIMIT: usize = OPEN_LIMIT_ITEMS;
    const LIMIT_AGE: Option<Duration> = Some(OPEN_LIMIT_AGE);
}

impl Forgets for OpenPoll {}

impl OpenItems {
    /// Remembers nothing yet.
    pub fn new(ledger: ServerLedger) -> Self {
        Self {
            items: Arc::new(Cache::ended_by(ledger.ends())),
            polls: Arc::new(Cache::ended_by(ledger.ends())),
            ledger,
        }
    }

    /// Returns to whom these items are open, in their order. An unknown item is open to nobody.
    pub async fn of_items(&self, items: &[ItemId]) -> Result<Vec<OpenTo>, LedgerError> {
        let known: Vec<Option<OpenTo>> = items.iter().map(|item| self.items.get(item)).collect();
        let unknown = items.iter().zip(&known).filter(|(_, known)| known.is_none());
        let mut unknown: Vec<ItemId> = unknown.map(|(item, _)| *item).collect();
        if unknown.is_empty() {
            return Ok(known.into_iter().flatten().collect());
        }
        unknown.sort_unstable();
        unknown.dedup();
        let asked = self.items.asking();
        let found: HashMap<ItemId, OpenTo> = self.ledger.open_items(&unknown).await?.into_iter().collect();
        for item in unknown {
            let to = found.get(&item).copied().unwrap_or_default();
            self.items.add(item, to, asked);
        }
        let of = |(item, known): (&ItemId, Option<OpenTo>)| {
            known.or_else(|| found.get(item).copied()).unwrap_or_default()
        };
        Ok(items.iter().zip(known).map(of).collect())
    }

    /// Returns to whom a poll is open. An unknown poll is open to nobody.
    pub async fn of_poll(&self, poll: PollId) -> Result<OpenTo, LedgerError> {
        if let Some(to) = self.polls.get(&poll) {
            return Ok(to);
        }
        let asked = self.polls.asking();
        let to = self.ledger.open_poll(poll).await?.unwrap_or_default();
        self.polls.add(poll, to, asked);
        Ok(to)
    }

    /// Forgets everything, because something was opened or closed here.
    pub fn forget(&self) {
        self.items.forget();
        self.polls.forget();
    }
}
