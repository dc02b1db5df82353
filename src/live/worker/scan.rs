//! Scans over the index of unsaved counters, or over all counters. A worker scans alone, or shares
//! a scan with others.

use std::sync::atomic::Ordering;

use futures_util::future::join_all;
use redis::RedisError;

use super::Counters;
use crate::domain::ItemId;
use crate::live::LiveError;
use crate::live::buckets::Bucket;
use crate::live::groups::groups;
use crate::live::scripts::{self, text};

/// What a scan covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    /// The items in the index: those with an unsaved live count or a rebuild request.
    Unsaved,
    /// All items with a counter. Redis looks at every key of the database.
    All,
}

/// A page of a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanPage {
    /// The items in order, each once.
    pub items: Vec<ItemId>,
    /// The cursor at which the next page begins; 0 when this was the last page.
    pub next: u64,
}

impl Counters {
    /// The parts of a scan: the buckets with something in their index, of those that are `wanted`; or for all items, a
    /// bucket of each primary.
    ///
    /// # Errors
    /// When Redis, or a primary of a Cluster, is unavailable.
    pub async fn parts(&self, scan: Scan, wanted: impl Fn(Bucket) -> bool) -> Result<Vec<Bucket>, LiveError> {
        let buckets = self.redis.buckets();
        if buckets.len() == 1 {
            return Ok(buckets.collect());
        }
        if scan == Scan::All {
            let primaries = self.redis.primaries().await?;
            return Ok(primaries.into_iter().map(|buckets| buckets[0]).collect());
        }
        let looks = buckets.filter(|bucket| wanted(*bucket)).map(|bucket| async move {
            let page = self.scan(scan, bucket, 0, 1).await?;
            Ok::<_, LiveError>((bucket, page.next != 0 || !page.items.is_empty()))
        });
        let mut parts = Vec::new();
        for look in join_all(looks).await {
            let (bucket, has_some) = look?;
            parts.extend(has_some.then_some(bucket));
        }
        Ok(parts)
    }

    /// One page of about `size` items of this part of a scan, from `cursor` on. A part begins and ends at 0. It returns
    /// everything that exists from its begin to its end, some of it twice. A small index is one
    /// page, whatever its size.
    pub async fn scan(
        &self,
        scan: Scan,
        part: Bucket,
        cursor: u64,
        size: usize,
    ) -> Result<ScanPage, LiveError> {
        let keys = self.redis.keys();
        let mut command = match scan {
            Scan::Unsaved => {
                let mut command = redis::cmd("SSCAN");
                command.arg(keys.unsaved(part)).arg(cursor);
                command
            }
            Scan::All => {
                let mut command = redis::cmd("SCAN");
                command.arg(cursor).arg("MATCH").arg(keys.counters_pattern());
                command
            }
        };
        command.arg("COUNT").arg(size);
        let mut connection = self.redis.get(part).await?;
        let read: Result<(u64, Vec<String>), RedisError> = command.query_async(&mut connection).await;
        let (next, found) = match read {
            // Someone has put a value of another type in the place of the index. The scan over all
            // counters puts them back.
            Err(error) if scan == Scan::Unsaved && error.code() == Some("WRONGTYPE") => {
                redis::cmd("DEL")
                    .arg(keys.unsaved(part))
                    .exec_async(&mut connection)
                    .await?;
                (0, Vec::new())
            }
            read => read?,
        };
        let mut items: Vec<ItemId> = found.iter().filter_map(|key| keys.item_of(key)).collect();
        items.sort_unstable();
        items.dedup();
        Ok(ScanPage { items, next })
    }

    /// The next page of the scan over all counters that all workers share: each time of another primary.
    ///
    /// # Errors
    /// As [`Counters::claim_page`].
    pub async fn claim_page_of_all(&self, size: usize) -> Result<Option<ScanPage>, LiveError> {
        let parts = self.parts(Scan::All, |_| true).await?;
        let asked = self.asked_pages.fetch_add(1, Ordering::Relaxed);
        self.claim_page(Scan::All, parts[asked % parts.len()], size).await
    }

    /// The next page of this part of the scan that all workers share. `None`: another worker claimed it first,
    /// so ask again.
    ///
    /// # Errors
    /// When Redis is unavailable. The page may have been claimed: its counters come again in the
    /// next scan.
    pub async fn claim_page(
        &self,
        scan: Scan,
        part: Bucket,
        size: usize,
    ) -> Result<Option<ScanPage>, LiveError> {
        let key = match scan {
            Scan::Unsaved => self.redis.keys().unsaved_scan(part),
            Scan::All => self.redis.keys().scan(part),
        };
        let cursor = self.cursor(part, &key).await?;
        let page = self.scan(scan, part, cursor, size).await?;
        let mut connection = self.redis.get(part).await?;
        let reply = scripts::ADVANCE
            .call_once(&mut connection, &[&key], &[cursor, page.next])
            .await?;
        match text(&reply) {
            Some("CLAIMED") => Ok(Some(page)),
            Some("TAKEN") => Ok(None),
            _ => Err(scripts::ADVANCE.unexpected(reply)),
        }
    }

    /// Where a shared scan stands. If someone else put something there that is no cursor, it is
    /// deleted and the scan begins anew.
    async fn cursor(&self, part: Bucket, key: &str) -> Result<u64, LiveError> {
        let mut connection = self.redis.get(part).await?;
        let read: Result<Option<String>, RedisError> =
            redis::cmd("GET").arg(key).query_async(&mut connection).await;
        let text = match read {
            Ok(text) => text,
            Err(error) if error.code() == Some("WRONGTYPE") => Some(String::new()),
            Err(error) => return Err(error.into()),
        };
        match text.map(|text| text.parse()) {
            None => Ok(0),
            Some(Ok(cursor)) => Ok(cursor),
            Some(Err(_)) => {
                redis::cmd("DEL").arg(key).exec_async(&mut connection).await?;
                Ok(0)
            }
        }
    }

    /// Puts these items into the index, if something else has removed them.
    pub async fn add_unsaved(&self, items: &[ItemId]) -> Result<(), LiveError> {
        let keys = self.redis.keys();
        for group in groups(keys, items, |item| *item) {
            let mut command = redis::cmd("SADD");
            command.arg(keys.unsaved(group.bucket));
            for item in group.entries {
                command.arg(keys.counter(*item));
            }
            let mut connection = self.redis.get(group.bucket).await?;
            command.exec_async(&mut connection).await?;
        }
        Ok(())
    }

    /// How many keys the database has, with those of others; in a Cluster, all primaries together that answer.
    pub async fn keys_in_database(&self) -> Result<u64, LiveError> {
        let mut keys = Err(LiveError::Unavailable);
        for buckets in self.redis.primaries().await? {
            match (self.keys_of(buckets[0]).await, &mut keys) {
                (Ok(more), Ok(keys)) => *keys += more,
                (Ok(first), keys) => *keys = Ok(first),
                (Err(_), Ok(_)) => {}
                (Err(error), keys) => *keys = Err(error),
            }
        }
        keys
    }

    async fn keys_of(&self, bucket: Bucket) -> Result<u64, LiveError> {
        let mut connection = self.redis.get(bucket).await?;
        Ok(redis::cmd("DBSIZE").query_async(&mut connection).await?)
    }
}
