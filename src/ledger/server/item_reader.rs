//! Reads of many items at once, over a connection of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::timeout;

use super::ServerLedger;
use super::item_rows::{find, with_rules};
use crate::cache::{OwnCache, Remembers};
use crate::domain::{Item, ItemId, ItemRules};
use crate::ledger::LedgerError;
use crate::ledger::connect::ANSWER_MARGIN;
use crate::ledger::dedicated::DedicatedConnection;
use crate::ledger::error::is_disconnect;
use crate::ledger::settings::KEPT_PLANS;

/// The most items in one reader's cache. They take a few megabytes, or 40 MB if every name is as
/// long as a name may be.
pub(crate) const NAMES_LIMIT_ITEMS: usize = 50_000;
/// How old a cached item may get. An item may vanish, for example when a dump is restored under a
/// running server: it takes votes for no longer than this. A renamed item keeps its old name for no
/// longer.
pub(super) const ITEM_CACHE_LIMIT: Duration = Duration::from_secs(60);

impl ServerLedger {
    /// A reader of items, with a connection of its own.
    pub fn item_reader(&self) -> ItemReader {
        let options = self.database.options.clone().options(KEPT_PLANS);
        ItemReader {
            connection: DedicatedConnection::new(
                options,
                self.database.session.with(&KEPT_PLANS),
                self.database.statement_limit + ANSWER_MARGIN,
                self.runs.clone(),
            ),
            facts: OwnCache::default(),
            edits: Arc::clone(&self.edits),
            edits_seen: 0,
        }
    }
}

/// Reads items by their ids, many at once, over a connection of its own. Over the pool, Postgres
/// would plan each batch again, and the connection would be tested first.
pub struct ItemReader {
    connection: DedicatedConnection,
    /// The facts that were read over this connection.
    facts: OwnCache<ItemFacts>,
    /// [`ServerLedger::edit`] counts them here.
    edits: Arc<AtomicU64>,
    edits_seen: u64,
}

/// What does not change with an item's votes.
#[derive(Clone, Debug)]
pub struct ItemFacts {
    pub name: Arc<str>,
    pub key: Option<Arc<str>>,
    pub is_hidden: bool,
    pub rules: Option<Arc<ItemRules>>,
}

/// By the item's id. An edit on this server ends all entries, and so does the end of their
/// connection, or another run of Postgres that any connection has reached: another database may
/// answer.
impl Remembers for ItemFacts {
    type Key = i64;
    type Value = Self;
    const LIMIT: usize = NAMES_LIMIT_ITEMS;
    const LIMIT_AGE: Option<Duration> = Some(ITEM_CACHE_LIMIT);
}

impl ItemReader {
    /// The facts of these items, in their order; `None` for an item that is not in the cache.
    pub fn cached_facts(&mut self, ids: &[ItemId]) -> Vec<Option<ItemFacts>> {
        let edits = self.edits.load(Ordering::Relaxed);
        if edits != self.edits_seen || !self.connection.is_of_last_run() {
            self.edits_seen = edits;
            self.facts.clear();
        }
        let facts = self.facts.of(ids.iter().map(|id| id.get()));
        facts.into_iter().map(|one| one.cloned()).collect()
    }

    /// The items among these that exist, in no order. Each id may be given once.
    pub async fn read(&mut self, ids: &[ItemId]) -> Result<Vec<Item>, LedgerError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<i64> = ids.iter().map(|id| id.get()).collect();
        let items = loop {
            let (mut connection, was_kept) = self.connection.take().await?;
            if !was_kept {
                self.facts.clear();
            }
            let limit = self.connection.answer_limit;
            let reading = async {
                let rows = find(&mut connection, &ids).await?.into_rows();
                with_rules(&mut connection, rows).await
            };
            match timeout(limit, reading).await {
                Ok(Ok(items)) => {
                    self.connection.keep(connection);
                    break items;
                }
                // Postgres was restarted, for example. Reading again does no harm.
                Ok(Err(LedgerError::Postgres(error))) if was_kept && is_disconnect(&error) => {}
                Ok(Err(error)) => return Err(error),
                Err(_) => return Err(LedgerError::Timeout(limit)),
            }
        };
        let facts = items.iter().map(|item| {
            let facts = ItemFacts {
                name: Arc::clone(&item.name),
                key: item.key.clone(),
                is_hidden: item.is_hidden,
                rules: item.rules.clone(),
            };
            (item.id.get(), facts)
        });
        self.facts.add(facts);
        Ok(items)
    }
}
