//! Scans over all counters: one worker's own, or one that several workers share.

use super::Counters;
use crate::domain::ItemId;
use crate::live::LiveError;
use crate::live::scripts::{self, text};

/// A page of a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanPage {
    /// In order, each once.
    pub items: Vec<ItemId>,
    /// The cursor at which the next page begins; 0 when this was the last page.
    pub next: u64,
}

impl Counters {
    /// One page of about `size` keys from `cursor` on. A scan begins and ends at 0. It returns
    /// every counter that is there from its begin to its end, some of them twice.
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
            // A key of another type is not Tally's.
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

    /// The next page of the scan that all workers share. `None` when another worker was first
    /// to claim it: ask again.
    ///
    /// # Errors
    /// When Redis is unavailable. The page may have been claimed; the next scan has its
    /// counters again.
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
