//! The items and polls that requests name, by id or by the frontend's own key. Each key is looked up once and
//! remembered.

use std::collections::HashMap;
use std::time::Duration;

use crate::cache::{Asked, Cache, Remembers};
use crate::domain::{Found, ItemId, ItemKey, PollId, Reference};
use crate::ledger::{LedgerError, ServerLedger};
use crate::web::problem::Problem;

/// The most keys that one thread remembers: some 20 MB, if every key has the greatest length.
const KEYS_LIMIT: usize = 50_000;
/// How long a key is remembered. A key never moves to another item in one run of Postgres. But a dump may be
/// restored into tables that connections have open.
const KEYS_LIMIT_AGE: Duration = Duration::from_secs(60);

/// The items of keys. Another run of Postgres ends all entries.
struct ItemKeys;

impl Remembers for ItemKeys {
    type Key = ItemKey;
    type Value = Found<ItemId>;
    const LIMIT: usize = KEYS_LIMIT;
    const LIMIT_AGE: Option<Duration> = Some(KEYS_LIMIT_AGE);
}

/// The polls of keys, as [`ItemKeys`].
struct PollKeys;

impl Remembers for PollKeys {
    type Key = ItemKey;
    type Value = Found<PollId>;
    const LIMIT: usize = KEYS_LIMIT;
    const LIMIT_AGE: Option<Duration> = Some(KEYS_LIMIT_AGE);
}

/// What the client itself named: no run of Postgres vouches for it.
fn named<Id>(id: Id) -> Found<Id> {
    Found { id, run: None }
}

/// Finds what references name: in what one thread remembers of keys, or in the ledger.
pub struct References {
    ledger: ServerLedger,
    item_keys: Cache<ItemKeys>,
    poll_keys: Cache<PollKeys>,
}

impl References {
    /// Remembers nothing yet.
    pub fn new(ledger: ServerLedger) -> Self {
        Self {
            item_keys: Cache::ended_by(ledger.ends()),
            poll_keys: Cache::ended_by(ledger.ends()),
            ledger,
        }
    }

    /// Finds the item of this reference. `None`: no item has this key. Does not check that an id exists.
    pub async fn find_item(
        &self,
        reference: &Reference<ItemId>,
    ) -> Result<Option<Found<ItemId>>, LedgerError> {
        let key = match reference {
            Reference::Id(id) => return Ok(Some(named(*id))),
            Reference::Key(key) => key,
        };
        if let Some(item) = self.item_keys.get(key) {
            return Ok(Some(item));
        }
        let asked = self.item_keys.asking();
        let found = self.ledger.item_with_key(key).await?;
        if let Some(item) = found {
            self.item_keys.add(key.clone(), item, asked);
        }
        Ok(found)
    }

    /// Returns the item of this reference. Fails when no item has this key.
    pub async fn item(&self, reference: &Reference<ItemId>) -> Result<Found<ItemId>, Problem> {
        let found = self.find_item(reference).await?;
        found.ok_or_else(|| Problem::unknown_item(reference))
    }

    /// Notes that an item is about to be created. Its key is remembered as of now.
    pub fn asking(&self) -> Asked {
        self.item_keys.asking()
    }

    /// Remembers the key of an item that was just created.
    pub fn remember_item(&self, key: ItemKey, item: Found<ItemId>, asked: Asked) {
        self.item_keys.add(key, item, asked);
    }

    /// Finds the items of these references, in their order, with one look-up for all unknown keys.
    pub async fn find_items(
        &self,
        references: &[Reference<ItemId>],
    ) -> Result<Vec<Option<Found<ItemId>>>, LedgerError> {
        let unknown: Vec<ItemKey> = references
            .iter()
            .filter_map(|reference| match reference {
                Reference::Key(key) if self.item_keys.get(key).is_none() => Some(key.clone()),
                _ => None,
            })
            .collect();
        let mut found = HashMap::new();
        if !unknown.is_empty() {
            let asked = self.item_keys.asking();
            for (key, item) in self.ledger.items_with_keys(&unknown).await? {
                found.insert(key, item);
            }
            for key in unknown {
                if let Some(item) = found.get(key.as_str()) {
                    self.item_keys.add(key, *item, asked);
                }
            }
        }
        let items = references.iter().map(|reference| match reference {
            Reference::Id(id) => Some(named(*id)),
            Reference::Key(key) => found
                .get(key.as_str())
                .copied()
                .or_else(|| self.item_keys.get(key)),
        });
        Ok(items.collect())
    }

    /// Finds the poll of this reference. `None`: no poll has this key. Does not check that an id exists.
    pub async fn find_poll(
        &self,
        reference: &Reference<PollId>,
    ) -> Result<Option<Found<PollId>>, LedgerError> {
        let key = match reference {
            Reference::Id(id) => return Ok(Some(named(*id))),
            Reference::Key(key) => key,
        };
        if let Some(poll) = self.poll_keys.get(key) {
            return Ok(Some(poll));
        }
        let asked = self.poll_keys.asking();
        let found = self.ledger.poll_with_key(key).await?;
        if let Some(poll) = found {
            self.poll_keys.add(key.clone(), poll, asked);
        }
        Ok(found)
    }

    /// Returns the poll of this reference. Fails when no poll has this key.
    pub async fn poll(&self, reference: &Reference<PollId>) -> Result<Found<PollId>, Problem> {
        let found = self.find_poll(reference).await?;
        found.ok_or_else(|| Problem::unknown_poll(reference))
    }
}
