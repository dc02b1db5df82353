//! Scans: over the index of unsaved counters, or over all counters; a worker's own, or one
//! that several workers share.

use super::Counters;
use crate::domain::ItemId;
use crate::live::LiveError;
use crate::live::scripts::{self, text};

/// What a scan goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    /// The items in the index: with an unsaved live count or a rebuild request.
    Unsaved,
    /// All items with a counter. Redis looks at every key of the database for it.
    All,
}

/// A page of a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanPage {
    /// In order, each once.
    pub items: Vec<ItemId>,
    /// The cursor at which the next page begins; 0 when this was the last page.
    pub next: u64,
}

impl Counters {
    /// One page of about `size` items from `cursor` on. A scan begins and ends at 0. It returns
    /// everything that is there from its begin to its end, some of it twice. A small index is
    /// one page, whatever its size.
    ///
    /// # Errors
    /// When Redis is unavailable.
    pub async fn scan(&self, scan: Scan, cursor: u64, size: usize) -> Result<ScanPage, LiveError> {
        let keys = self.redis.keys();
        let mut command = match scan {
            Scan::Unsaved => {
                let mut command = redis::cmd("SSCAN");
                command.arg(keys.unsaved()).arg(cursor);
                command
            }
            Scan::All => {
                let mut command = redis::cmd("SCAN");
                command.arg(cursor).arg("MATCH").arg(keys.counters_pattern());
                // A key of another type is not Tally's.
                command.arg("TYPE").arg("hash");
                command
            }
        };
        command.arg("COUNT").arg(size);
        let mut connection = self.redis.pool.get().await?;
        let (next, found): (u64, Vec<String>) = command.query_async(&mut *connection).await?;
        let item = |found: &String| match scan {
            Scan::Unsaved => found.parse().ok(),
            Scan::All => keys.item_of(found),
        };
        let mut items: Vec<ItemId> = found.iter().filter_map(item).collect();
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
    pub async fn claim_page(&self, scan: Scan, size: usize) -> Result<Option<ScanPage>, LiveError> {
        let key = match scan {
            Scan::Unsaved => self.redis.keys().unsaved_scan(),
            Scan::All => self.redis.keys().scan(),
        };
        let cursor: Option<u64> = {
            let mut connection = self.redis.pool.get().await?;
            redis::cmd("GET").arg(&key).query_async(&mut *connection).await?
        };
        let cursor = cursor.unwrap_or(0);
        let page = self.scan(scan, cursor, size).await?;
        let mut connection = self.redis.pool.get().await?;
        let reply = scripts::ADVANCE
            .call_once(&mut *connection, &[&key], &[cursor, page.next])
            .await?;
        match text(&reply) {
            Some("CLAIMED") => Ok(Some(page)),
            Some("TAKEN") => Ok(None),
            _ => Err(scripts::ADVANCE.unexpected(reply)),
        }
    }

    /// How many keys the database has, also those of others.
    ///
    /// # Errors
    /// When Redis is unavailable.
    pub async fn keys_in_database(&self) -> Result<u64, LiveError> {
        let mut connection = self.redis.pool.get().await?;
        Ok(redis::cmd("DBSIZE").query_async(&mut *connection).await?)
    }
}
