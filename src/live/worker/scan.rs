//! Scanning all counters with a SCAN cursor, alone or shared among workers.

use super::Counters;
use crate::domain::ItemId;
use crate::live::LiveError;
use crate::live::scripts::{self, text};

/// A page of the scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanPage {
    pub items: Vec<ItemId>,
    /// Where the next page begins; 0 when this was the last.
    pub next: u64,
}

impl Counters {
    /// One page of about `size` keys from `cursor` on; the scan begins and ends at
    /// 0. SCAN returns every counter that is there throughout the scan at least
    /// once, some of them twice.
    ///
    /// # Errors
    /// When Redis is unavailable.
    pub async fn scan(&self, cursor: u64, size: usize) -> Result<ScanPage, LiveError> {
        let mut connection = self.redis.pool.get().await?;
        let (next, keys): (u64, Vec<String>) = redis::cmd("SCAN")
            .arg(cursor)
            .arg("MATCH")
            .arg(self.redis.keys().counters_pattern())
            .arg("COUNT")
            .arg(size)
            // A key of another type is not ours.
            .arg("TYPE")
            .arg("hash")
            .query_async(&mut *connection)
            .await?;
        let mut items: Vec<ItemId> = keys
            .iter()
            .filter_map(|key| self.redis.keys().item_of(key))
            .collect();
        items.sort_unstable();
        items.dedup();
        Ok(ScanPage { items, next })
    }

    /// The next page of the scan that all workers share. `None` when another
    /// worker has claimed it in the meantime: ask again.
    ///
    /// # Errors
    /// When Redis is unavailable; the page may have been claimed, and then waits for the
    /// next scan.
    pub async fn claim_page(&self, size: usize) -> Result<Option<ScanPage>, LiveError> {
        let cursor: Option<u64> = {
            let mut connection = self.redis.pool.get().await?;
            redis::cmd("GET")
                .arg(self.redis.keys().scan())
                .query_async(&mut *connection)
                .await?
        };
        let cursor = cursor.unwrap_or(0);
        let page = self.scan(cursor, size).await?;
        let mut connection = self.redis.pool.get().await?;
        let reply = scripts::ADVANCE
            .call_once(
                &mut *connection,
                &[&self.redis.keys().scan()],
                &[cursor, page.next],
            )
            .await?;
        match text(&reply) {
            Some("CLAIMED") => Ok(Some(page)),
            Some("TAKEN") => Ok(None),
            _ => Err(scripts::ADVANCE.unexpected(reply)),
        }
    }
}
