//! Walking all counters with a SCAN cursor, alone or shared among workers.

use super::scripts::{self, text};
use super::{Counters, LiveError, keys};
use crate::domain::ItemId;

/// A page of the walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    pub items: Vec<ItemId>,
    /// Where the next page begins; 0 when this was the last.
    pub next: u64,
}

impl Counters {
    /// One page of about `size` keys from `cursor` on; the walk begins and ends at
    /// 0. SCAN returns every counter that is there throughout the walk at least
    /// once, some of them twice.
    ///
    /// # Errors
    /// When Redis is away.
    pub async fn scan(&self, cursor: u64, size: usize) -> Result<Page, LiveError> {
        let mut connection = self.redis.pool.get().await?;
        let (next, keys): (u64, Vec<String>) = redis::cmd("SCAN")
            .arg(cursor)
            .arg("MATCH")
            .arg(keys::COUNTER_PATTERN)
            .arg("COUNT")
            .arg(size)
            // A key of another type is not ours.
            .arg("TYPE")
            .arg("hash")
            .query_async(&mut *connection)
            .await?;
        let mut items: Vec<ItemId> = keys.iter().filter_map(|key| keys::item_of(key)).collect();
        items.sort_unstable();
        items.dedup();
        Ok(Page { items, next })
    }

    /// The next page of the walk that all workers share. `None` when another
    /// worker has claimed it in the meantime: ask again.
    ///
    /// # Errors
    /// When Redis is away; the page may have been claimed, and then waits for the
    /// next walk.
    pub async fn claim_page(&self, size: usize) -> Result<Option<Page>, LiveError> {
        let cursor: Option<u64> = {
            let mut connection = self.redis.pool.get().await?;
            redis::cmd("GET")
                .arg(keys::WALK)
                .query_async(&mut *connection)
                .await?
        };
        let cursor = cursor.unwrap_or(0);
        let page = self.scan(cursor, size).await?;
        let mut connection = self.redis.pool.get().await?;
        let reply = scripts::ADVANCE
            .call_once(&mut *connection, &[keys::WALK], &[cursor, page.next])
            .await?;
        match text(&reply) {
            Some("CLAIMED") => Ok(Some(page)),
            Some("TAKEN") => Ok(None),
            _ => Err(scripts::ADVANCE.unexpected(reply)),
        }
    }
}
