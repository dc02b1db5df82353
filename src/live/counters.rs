//! What the sync worker does with counters, over connections of the pool.

use super::scripts::{self, Call, text};
use super::{LEASE_LIMIT, LiveError, Redis, keys};
use crate::domain::{ItemId, Rev};
use redis::Value;
use std::time::Duration;

/// An item's hash as `lua/peek.lua` tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    pub item_id: ItemId,
    /// Redis' time when it was read.
    pub now: Rev,
    /// The live count and its rev; `None` if there is no count.
    pub count: Option<(i64, Rev)>,
    /// The rev last saved.
    pub saved: Option<Rev>,
    pub seeded: Option<Rev>,
    /// The recount token, if a recount is asked for.
    pub recount: Option<String>,
}

impl Counter {
    /// The count and its rev, if they are still to be saved.
    pub fn unsaved(&self) -> Option<(i64, Rev)> {
        self.count.filter(|(_, rev)| self.saved != Some(*rev))
    }

    /// The rev of a count that is saved and has not changed for `retention`.
    pub fn idle(&self, retention: Duration) -> Option<Rev> {
        let (_, rev) = self.count?;
        (self.saved == Some(rev) && elapsed(rev, self.now) >= retention).then_some(rev)
    }

    /// Whether the count was seeded `limit` ago or earlier.
    pub fn is_older_than(&self, limit: Duration) -> bool {
        self.seeded
            .is_some_and(|seeded| elapsed(seeded, self.now) >= limit)
    }
}

fn elapsed(from: Rev, to: Rev) -> Duration {
    Duration::from_micros(u64::try_from(to.micros() - from.micros()).unwrap_or(0))
}

/// Whether a count could be marked as saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marked {
    Saved,
    Changed,
}

/// Whether a count could be dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expired {
    Expired,
    Kept,
}

/// Whether a recount token could be cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recounted {
    Recounted,
    Changed,
}

/// The counters of one Redis.
#[derive(Clone)]
pub struct Counters {
    pub(super) redis: Redis,
}

impl Counters {
    /// Over connections of this Redis' pool.
    pub fn new(redis: Redis) -> Self {
        Self { redis }
    }

    /// What these items' hashes hold; an item without a hash has no count and no token.
    ///
    /// # Errors
    /// When Redis is away.
    pub async fn peek(&self, items: &[ItemId]) -> Result<Vec<Counter>, LiveError> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let calls: Vec<Call<0>> = items
            .iter()
            .map(|item| Call {
                key: keys::counter(*item),
                arguments: [],
            })
            .collect();
        let mut connection = self.redis.pool.get().await?;
        let replies = scripts::PEEK.call(&mut *connection, &calls).await?;
        items
            .iter()
            .zip(replies)
            .map(|(item, reply)| counter(*item, reply))
            .collect()
    }

    /// Marks counts as saved, each only if its rev is still the given one.
    ///
    /// # Errors
    /// When Redis is away; any of them may have been marked.
    pub async fn mark_saved(&self, counts: &[(ItemId, Rev)]) -> Result<Vec<Marked>, LiveError> {
        if counts.is_empty() {
            return Ok(Vec::new());
        }
        let calls: Vec<Call<1>> = counts
            .iter()
            .map(|(item, rev)| Call {
                key: keys::counter(*item),
                arguments: [rev.micros().to_string()],
            })
            .collect();
        let mut connection = self.redis.pool.get().await?;
        let replies = scripts::MARK_SAVED.call(&mut *connection, &calls).await?;
        replies
            .into_iter()
            .map(|reply| match text(&reply) {
                Some("SAVED") => Ok(Marked::Saved),
                Some("CHANGED") => Ok(Marked::Changed),
                _ => Err(scripts::MARK_SAVED.unexpected(reply)),
            })
            .collect()
    }

    /// Drops counts, each only if it is saved under the given rev and idle.
    ///
    /// # Errors
    /// When Redis is away; any of them may have been dropped, which is harmless.
    pub async fn expire(
        &self,
        counts: &[(ItemId, Rev)],
        retention: Duration,
    ) -> Result<Vec<Expired>, LiveError> {
        if counts.is_empty() {
            return Ok(Vec::new());
        }
        let retention_us = retention.as_micros().to_string();
        let calls: Vec<Call<2>> = counts
            .iter()
            .map(|(item, rev)| Call {
                key: keys::counter(*item),
                arguments: [rev.micros().to_string(), retention_us.clone()],
            })
            .collect();
        let mut connection = self.redis.pool.get().await?;
        let replies = scripts::EXPIRE.call(&mut *connection, &calls).await?;
        replies
            .into_iter()
            .map(|reply| match text(&reply) {
                Some("EXPIRED") => Ok(Expired::Expired),
                Some("KEPT") => Ok(Expired::Kept),
                _ => Err(scripts::EXPIRE.unexpected(reply)),
            })
            .collect()
    }

    /// Throws counts away and asks for recounts. Always safe, also twice.
    ///
    /// # Errors
    /// When Redis is away; any of them may have been invalidated.
    pub async fn invalidate(&self, items: &[ItemId]) -> Result<(), LiveError> {
        if items.is_empty() {
            return Ok(());
        }
        let mut connection = self.redis.pool.get().await?;
        invalidate(&mut *connection, items).await
    }

    /// Clears recount tokens, each only if it is still the given one.
    ///
    /// # Errors
    /// When Redis is away; any of them may have been cleared.
    pub async fn recounted(&self, tokens: &[(ItemId, String)]) -> Result<Vec<Recounted>, LiveError> {
        if tokens.is_empty() {
            return Ok(Vec::new());
        }
        let lease_limit_ms = LEASE_LIMIT.as_millis().to_string();
        let calls: Vec<Call<2>> = tokens
            .iter()
            .map(|(item, token)| Call {
                key: keys::counter(*item),
                arguments: [token.clone(), lease_limit_ms.clone()],
            })
            .collect();
        let mut connection = self.redis.pool.get().await?;
        let replies = scripts::RECOUNTED.call(&mut *connection, &calls).await?;
        replies
            .into_iter()
            .map(|reply| match text(&reply) {
                Some("RECOUNTED") => Ok(Recounted::Recounted),
                Some("CHANGED") => Ok(Recounted::Changed),
                _ => Err(scripts::RECOUNTED.unexpected(reply)),
            })
            .collect()
    }
}

/// Invalidates over a given connection: the worker's, or the link's.
pub(super) async fn invalidate(
    connection: &mut impl redis::aio::ConnectionLike,
    items: &[ItemId],
) -> Result<(), LiveError> {
    let calls: Vec<Call<1>> = items
        .iter()
        .map(|item| Call {
            key: keys::counter(*item),
            arguments: [fresh_token()],
        })
        .collect();
    for reply in scripts::INVALIDATE.call(connection, &calls).await? {
        if text(&reply) != Some("INVALIDATED") {
            return Err(scripts::INVALIDATE.unexpected(reply));
        }
    }
    Ok(())
}

/// A token that no other caller will ever draw.
pub(super) fn fresh_token() -> String {
    format!("{:016x}", rand::random::<u64>())
}

fn counter(item_id: ItemId, reply: Value) -> Result<Counter, LiveError> {
    let Value::Array(parts) = &reply else {
        return Err(scripts::PEEK.unexpected(reply));
    };
    let number = |at: usize| match parts.get(at) {
        Some(Value::Int(number)) => Some(*number),
        _ => None,
    };
    let Some(now) = number(0) else {
        return Err(scripts::PEEK.unexpected(reply));
    };
    Ok(Counter {
        item_id,
        now: Rev::from_micros(now),
        count: number(1)
            .zip(number(2))
            .map(|(count, rev)| (count, Rev::from_micros(rev))),
        saved: number(3).map(Rev::from_micros),
        seeded: number(4).map(Rev::from_micros),
        recount: parts.get(5).and_then(text).map(str::to_owned),
    })
}
