//! The items and polls that requests name, by id or by the frontend's own key. Each key is looked up once and
//! remembered.

use std::collections::HashMap;
use std::time::Duration;

use crate::cache::{Asked, Cache, Remembers};
use crate::domain::{Cell, Cells, Found, ItemId, ItemKey, OtherCell, PollId, Reference, VoteId};
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
///
/// What lies in another cell is not looked for: each method fails then ([`LedgerError::OtherCell`]).
pub struct References {
    ledger: ServerLedger,
    cells: Cells,
    item_keys: Cache<ItemKeys>,
    poll_keys: Cache<PollKeys>,
}

impl References {
    /// Remembers nothing yet.
    pub fn new(ledger: ServerLedger, cells: Cells) -> Self {
        Self {
            item_keys: Cache::ended_by(ledger.ends()),
            poll_keys: Cache::ended_by(ledger.ends()),
            ledger,
            cells,
        }
    }

    /// Returns the cell of this server, and the cells that its settings name.
    pub async fn cell(&self) -> Result<(Cell, Cells), LedgerError> {
        Ok((self.ledger.cell().await?, self.cells))
    }

    /// Checks that the items or polls of these references are not another cell's.
    ///
    /// Before the first connection to Postgres nobody knows which cell this is, and nothing can be stored or found.
    fn check<'a, Id: Copy + 'a>(
        &self,
        kind: &str,
        number: impl Fn(Id) -> i64,
        references: impl IntoIterator<Item = &'a Reference<Id>>,
    ) -> Result<(), OtherCell> {
        let Some(here) = self.ledger.known_cell() else {
            return Ok(());
        };
        for reference in references {
            match reference {
                Reference::Id(id) => OtherCell::check_id(here, number(*id), kind)?,
                Reference::Key(key) => OtherCell::check_key(here, self.cells, key.as_str())?,
            }
        }
        Ok(())
    }

    /// Checks that a new item or poll may have this key here.
    pub async fn check_key(&self, key: Option<&ItemKey>) -> Result<(), LedgerError> {
        match key {
            Some(key) => {
                let here = self.ledger.cell().await?;
                Ok(OtherCell::check_key(here, self.cells, key.as_str())?)
            }
            None => Ok(()),
        }
    }

    /// Checks that a vote is not another cell's.
    pub async fn check_vote(&self, vote: VoteId) -> Result<(), LedgerError> {
        Ok(OtherCell::check_id(
            self.ledger.cell().await?,
            vote.get(),
            "vote",
        )?)
    }

    /// Finds the item of this reference. `None`: no item has this key. Does not check that an id exists.
    pub async fn find_item(
        &self,
        reference: &Reference<ItemId>,
    ) -> Result<Option<Found<ItemId>>, LedgerError> {
        self.check("item", ItemId::get, [reference])?;
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
        self.check("item", ItemId::get, references)?;
        let look_up = async |unknown: &[ItemKey]| self.ledger.items_with_keys(unknown).await;
        self.find_items_by(references, look_up).await
    }

    async fn find_items_by(
        &self,
        references: &[Reference<ItemId>],
        look_up: impl AsyncFnOnce(&[ItemKey]) -> Result<Vec<(String, Found<ItemId>)>, LedgerError>,
    ) -> Result<Vec<Option<Found<ItemId>>>, LedgerError> {
        // What is remembered is taken along at once: its entry may have ended by the time of the answer.
        let mut items: Vec<Option<Found<ItemId>>> = Vec::with_capacity(references.len());
        let mut unknown = Vec::new();
        for reference in references {
            items.push(match reference {
                Reference::Id(id) => Some(named(*id)),
                Reference::Key(key) => {
                    let known = self.item_keys.get(key);
                    if known.is_none() {
                        unknown.push(key.clone());
                    }
                    known
                }
            });
        }
        if unknown.is_empty() {
            return Ok(items);
        }
        let asked = self.item_keys.asking();
        let found = look_up(&unknown).await?;
        let found: HashMap<String, Found<ItemId>> = found.into_iter().collect();
        for key in unknown {
            if let Some(item) = found.get(key.as_str()) {
                self.item_keys.add(key, *item, asked);
            }
        }
        for (item, reference) in items.iter_mut().zip(references) {
            if let (None, Reference::Key(key)) = (&item, reference) {
                *item = found.get(key.as_str()).copied();
            }
        }
        Ok(items)
    }

    /// Finds the poll of this reference. `None`: no poll has this key. Does not check that an id exists.
    pub async fn find_poll(
        &self,
        reference: &Reference<PollId>,
    ) -> Result<Option<Found<PollId>>, LedgerError> {
        self.check("poll", PollId::get, [reference])?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::PostgresRun;

    fn key(text: &str) -> ItemKey {
        ItemKey::parse(text.to_owned()).expect("a key")
    }

    fn item(id: i64) -> Found<ItemId> {
        Found {
            id: ItemId::new(id).expect("positive"),
            run: Some(PostgresRun::new(1)),
        }
    }

    #[tokio::test]
    async fn a_key_that_is_forgotten_while_others_are_looked_up_is_found_all_the_same() {
        // It connects only when it is asked.
        let ledger = ServerLedger::new("postgres://nobody@127.0.0.1:1/none", "test").expect("a URL");
        let references = References::new(ledger, Cells::ONE);
        references.remember_item(key("a"), item(1), references.asking());
        let asked = ["a", "b", "c"].map(|text| Reference::Key(key(text)));
        let found = references
            .find_items_by(&asked, async |unknown| {
                assert_eq!(unknown, [key("b"), key("c")]);
                references.item_keys.end(&key("a"));
                Ok(vec![("b".to_owned(), item(2))])
            })
            .await
            .expect("it is found");
        assert_eq!(found, [Some(item(1)), Some(item(2)), None]);
        assert_eq!(references.item_keys.get(&key("b")), Some(item(2)));
    }
}
