//! What the sync worker does with known counters.

use std::time::Duration;

use futures_util::future::join_all;
use redis::{Cmd, Value};

use super::{Counters, Scan};
use crate::domain::{ItemId, RedisTime, Revision};
use crate::live::counter::{Counter, CounterParts, CounterValue, READ_LIMIT_KEYS, read_values, values};
use crate::live::groups::{Group, groups, in_order};
use crate::live::scripts::{self, Script, text};
use crate::live::{Bucket, LEASE_LIMIT_MS, LiveError};

/// What `lua/mark_saved.lua` answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkReply {
    /// The live count is marked as saved.
    Saved,
    /// The live count has changed since, or is gone.
    Changed,
}

/// What `lua/expire.lua` answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpireReply {
    /// The live count is gone.
    Expired,
    /// The live count has changed since, is not saved, or was not idle for long enough.
    Kept,
}

/// What `lua/clear_rebuild.lua` answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClearRebuildReply {
    /// The request is gone.
    Cleared,
    /// There is another request, or none.
    Changed,
}

impl Counters {
    /// The counters of these items, in their order.
    pub async fn read(&self, items: &[ItemId]) -> Result<Vec<Counter>, LiveError> {
        let groups = groups(self.redis.keys(), items, |item| *item);
        let read = join_all(groups.iter().map(|group| self.read_group(group))).await;
        let read = read.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(in_order(&groups, read))
    }

    async fn read_group(&self, group: &Group<'_, ItemId>) -> Result<Vec<Counter>, LiveError> {
        let (keys, items) = (self.redis.keys(), group.entries.as_slice());
        let calls = items
            .chunks(READ_LIMIT_KEYS)
            .map(|items| read_values(keys, items));
        let mut commands: Vec<Cmd> = calls.collect();
        // For the ages of counts: that of the Redis that has them.
        commands.push(redis::cmd("TIME"));
        let mut connection = self.redis.get(group.bucket).await?;
        let mut replies = scripts::send(&mut connection, commands.into_iter()).await?;
        let time = replies.pop().unwrap_or(Value::Nil);
        let (seconds, micros): (i64, i64) = scripts::typed(time)?;
        let now = RedisTime::from_time_reply(seconds, micros);
        let mut counters = Vec::with_capacity(items.len());
        for (items, reply) in items.chunks(READ_LIMIT_KEYS).zip(replies) {
            let values = values(reply)?;
            counters.extend(
                items
                    .iter()
                    .zip(values)
                    .map(|(item, value)| Counter::of(**item, now, value)),
            );
        }
        Ok(counters)
    }

    /// Redis' time; of a Cluster, that of the primary whose clock is the furthest behind.
    pub async fn time(&self) -> Result<RedisTime, LiveError> {
        let mut time: Option<RedisTime> = None;
        for mut connection in self.redis.get_each().await? {
            let (seconds, micros): (i64, i64) = redis::cmd("TIME").query_async(&mut connection).await?;
            let of_this = RedisTime::from_time_reply(seconds, micros);
            let is_behind = |known: RedisTime| known.as_revision() <= of_this.as_revision();
            time = time.filter(|known| is_behind(*known)).or(Some(of_this));
        }
        time.ok_or(LiveError::Unavailable)
    }

    /// What stands in the place of an item's counter, with its key.
    ///
    /// # Errors
    /// When Redis is unavailable, or refuses the read.
    pub async fn value(&self, item: ItemId) -> Result<(String, CounterValue), LiveError> {
        let keys = self.redis.keys();
        let key = keys.counter(item).to_string();
        let mut connection = self.redis.get(keys.bucket_of(item)).await?;
        // Not MGET, which takes a value of another type for none.
        let mut read = redis::cmd("GET");
        read.arg(&key);
        let value: Option<Vec<u8>> = match read.query_async(&mut connection).await {
            Ok(value) => value,
            Err(error) if error.code() == Some("WRONGTYPE") => return Ok((key, CounterValue::NoCounter)),
            Err(error) => return Err(error.into()),
        };
        let value = match value.map(|value| CounterParts::read(&value)) {
            None => CounterValue::Absent,
            Some(None) => CounterValue::NoCounter,
            Some(Some(parts)) => CounterValue::Parts(parts),
        };
        Ok((key, value))
    }

    /// Marks live counts as saved. A count is marked only if its revision is still the given one.
    /// Returns a reply for each, in order.
    ///
    /// # Errors
    /// When Redis is unavailable. Each of them may have been marked.
    pub async fn mark_saved(&self, counts: &[(ItemId, Revision)]) -> Result<Vec<MarkReply>, LiveError> {
        self.call(
            &scripts::MARK_SAVED,
            counts,
            |(item, _)| *item,
            |_| {},
            |command, (_, revision)| {
                command.arg(revision.micros());
            },
            |reply| match text(reply)? {
                "SAVED" => Some(MarkReply::Saved),
                "CHANGED" => Some(MarkReply::Changed),
                _ => None,
            },
        )
        .await
    }

    /// Drops live counts. A count is dropped only if it is saved under the given revision and idle
    /// for `retention`. Returns a reply for each, in order.
    ///
    /// # Errors
    /// When Redis is unavailable. Each of them may have been dropped, which does no harm.
    pub async fn expire(
        &self,
        counts: &[(ItemId, Revision)],
        retention: Duration,
    ) -> Result<Vec<ExpireReply>, LiveError> {
        let retention_us = u64::try_from(retention.as_micros()).unwrap_or(u64::MAX);
        self.call(
            &scripts::EXPIRE,
            counts,
            |(item, _)| *item,
            |command| {
                command.arg(retention_us);
            },
            |command, (_, revision)| {
                command.arg(revision.micros());
            },
            |reply| match text(reply)? {
                "EXPIRED" => Some(ExpireReply::Expired),
                "KEPT" => Some(ExpireReply::Kept),
                _ => None,
            },
        )
        .await
    }

    /// Drops live counts and requests rebuilds. Safe to retry.
    ///
    /// # Errors
    /// When Redis is unavailable. Each of them may have been invalidated.
    pub async fn invalidate(&self, items: &[ItemId]) -> Result<(), LiveError> {
        let items: Vec<_> = items.iter().map(|item| (*item, None)).collect();
        self.invalidate_each(&items).await.map(drop)
    }

    /// Invalidates counts that still have these revisions. Returns how many.
    ///
    /// # Errors
    /// When Redis is unavailable. Each of them may have been invalidated.
    pub async fn invalidate_unchanged(&self, counts: &[(ItemId, Revision)]) -> Result<usize, LiveError> {
        let items: Vec<_> = counts
            .iter()
            .map(|(item, revision)| (*item, Some(*revision)))
            .collect();
        let invalidated = self.invalidate_each(&items).await?;
        Ok(invalidated.into_iter().filter(|one| *one).count())
    }

    async fn invalidate_each(&self, items: &[(ItemId, Option<Revision>)]) -> Result<Vec<bool>, LiveError> {
        let groups = groups(self.redis.keys(), items, |(item, _)| *item);
        let invalidated = join_all(groups.iter().map(|group| self.invalidate_group(group))).await;
        let invalidated = invalidated.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(in_order(&groups, invalidated))
    }

    async fn invalidate_group(
        &self,
        group: &Group<'_, (ItemId, Option<Revision>)>,
    ) -> Result<Vec<bool>, LiveError> {
        let mut connection = self.redis.get(group.bucket).await?;
        let keys = self.redis.keys();
        scripts::invalidate(&mut connection, keys, group.bucket, group.entries.clone()).await
    }

    /// Drops live counts and requests rebuilds of items of all buckets but those that are left out. Buckets that fail join
    /// them. Returns how many items it was, and why the first one failed. Safe to retry.
    pub async fn invalidate_but(
        &self,
        items: &[ItemId],
        left_out: &mut Vec<Bucket>,
    ) -> (usize, Option<LiveError>) {
        let items: Vec<_> = items.iter().map(|item| (*item, None)).collect();
        let mut groups = groups(self.redis.keys(), &items, |(item, _)| *item);
        groups.retain(|group| !left_out.contains(&group.bucket));
        let invalidated = join_all(groups.iter().map(|group| self.invalidate_group(group))).await;
        let (mut number, mut failure) = (0, None);
        for (group, invalidated) in groups.iter().zip(invalidated) {
            match invalidated {
                Ok(_) => number += group.entries.len(),
                Err(error) => {
                    left_out.push(group.bucket);
                    failure = failure.or(Some(error));
                }
            }
        }
        (number, failure)
    }

    /// All buckets that Redis has.
    pub fn buckets(&self) -> Vec<Bucket> {
        self.redis.buckets().collect()
    }

    /// Draws revisions for writing exact counts. A revision is drawn only if the rebuild request is
    /// still the given one and there is no live count; `None` otherwise.
    ///
    /// # Errors
    /// When Redis is unavailable. Revisions that were drawn are never drawn again.
    pub async fn claim_rebuilds(
        &self,
        requests: &[(ItemId, String, Option<Revision>)],
    ) -> Result<Vec<Option<Revision>>, LiveError> {
        self.call(
            &scripts::CLAIM_REBUILD,
            requests,
            |(item, ..)| *item,
            |_| {},
            |command, (_, request, counted_at)| {
                command.arg(request).arg(counted_at.map_or(0, Revision::micros));
            },
            claimed,
        )
        .await
    }

    /// Takes items out of the index of unsaved counters, if nothing of them is to be written.
    ///
    /// # Errors
    /// When Redis is unavailable. Each of them may have been taken out.
    pub async fn remove_saved(&self, items: &[ItemId]) -> Result<(), LiveError> {
        self.call(
            &scripts::REMOVE_SAVED,
            items,
            |item| *item,
            |_| {},
            |_, _| {},
            |reply| matches!(text(reply), Some("REMOVED" | "KEPT")).then_some(()),
        )
        .await
        .map(drop)
    }

    /// Clears rebuild requests. A request is cleared only if its token is still the given one.
    /// Returns a reply for each, in order.
    ///
    /// # Errors
    /// When Redis is unavailable. Each of them may have been cleared.
    pub async fn clear_rebuilds(
        &self,
        requests: &[(ItemId, String)],
    ) -> Result<Vec<ClearRebuildReply>, LiveError> {
        self.call(
            &scripts::CLEAR_REBUILD,
            requests,
            |(item, _)| *item,
            |command| {
                command.arg(LEASE_LIMIT_MS);
            },
            |command, (_, token)| {
                command.arg(token);
            },
            |reply| match text(reply)? {
                "CLEARED" => Some(ClearRebuildReply::Cleared),
                "CHANGED" => Some(ClearRebuildReply::Changed),
                _ => None,
            },
        )
        .await
    }

    /// Calls a script for the counters of these entries, like [`Script::call`]. Reads a reply for
    /// each, in order. `read` knows the replies that the script's header names.
    async fn call<Entry, Reply>(
        &self,
        script: &Script,
        entries: &[Entry],
        item: impl Fn(&Entry) -> ItemId,
        shared: impl Fn(&mut Cmd),
        own: impl Fn(&mut Cmd, &Entry),
        read: impl Fn(&Value) -> Option<Reply>,
    ) -> Result<Vec<Reply>, LiveError> {
        let keys = self.redis.keys();
        let groups = groups(keys, entries, &item);
        let calls = groups.iter().map(|group| async {
            let bucket = group.bucket;
            let mut connection = self.redis.get(bucket).await?;
            let called = script
                .call(&mut connection, keys, group, &item, &shared, &own)
                .await;
            if let Err(LiveError::Refused(refusal)) = &called
                && refusal.reply().code == "WRONGTYPE"
            {
                // Most likely the index: a counter of another type looks like a missing one. The next
                // pass finds it well.
                self.scan(Scan::Unsaved, bucket, 0, 1).await?;
            }
            let read = |reply| read(&reply).ok_or_else(|| script.unexpected(reply));
            called?.into_iter().map(read).collect::<Result<Vec<_>, _>>()
        });
        let replies = join_all(calls).await;
        let replies = replies.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(in_order(&groups, replies))
    }
}

/// The revision in a reply of `lua/claim_rebuild.lua`; an inner `None`: there is none.
fn claimed(reply: &Value) -> Option<Option<Revision>> {
    let parts = match reply {
        Value::Array(parts) => (parts.first().and_then(text), parts.get(1).and_then(text)),
        _ => (text(reply), None),
    };
    match parts {
        // A revision that is no number, or too large, comes from a counter that someone else has
        // written. That item waits; the others do not.
        (Some("CLAIMED"), Some(revision)) => Some(revision.parse().ok().map(Revision::from_micros)),
        (Some("LIVE" | "CHANGED"), None) => Some(None),
        _ => None,
    }
}
