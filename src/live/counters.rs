//! What the sync worker does with counters, over connections of the pool.

use std::time::Duration;

use redis::{Pipeline, RedisError, Value};

use super::keys::CounterKey;
use super::scripts::{self, text};
use super::{LEASE_LIMIT_MS, LiveError, Redis};
use crate::domain::{ItemId, Rev};

/// What the worker needs to know of an item's hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    pub item_id: ItemId,
    /// Redis' time just after it was read.
    pub now: Rev,
    /// The live count and its rev; `None` if there is no count.
    pub count: Option<(i64, Rev)>,
    /// The rev last saved.
    pub saved: Option<Rev>,
    /// When it was seeded, to the second.
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
    /// Each hash is read whole, but one after the other. No script: one would take
    /// Redis four times as long.
    ///
    /// # Errors
    /// When Redis is away.
    pub async fn peek(&self, items: &[ItemId]) -> Result<Vec<Counter>, LiveError> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let mut pipeline = Pipeline::with_capacity(items.len() + 1);
        for item in items {
            pipeline.cmd("HMGET").arg(CounterKey(*item)).arg(&FIELDS);
        }
        // The time last, since others come in between: a recount writes with it as its
        // rev, which must be above that of any count that was thrown away before its
        // token was read. Another worker may still hold such a count.
        pipeline.cmd("TIME");
        let mut connection = self.redis.pool.get().await?;
        let mut replies: Vec<Value> = pipeline.query_async(&mut *connection).await?;
        let time = replies.pop().unwrap_or(Value::Nil);
        let (seconds, micros): (i64, i64) = redis::from_redis_value(time).map_err(RedisError::from)?;
        let now = Rev::from_micros(seconds * 1_000_000 + micros);
        items
            .iter()
            .zip(replies)
            .map(|(item, reply)| counter(*item, now, &reply))
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
        let mut connection = self.redis.pool.get().await?;
        let replies = scripts::MARK_SAVED
            .call(
                &mut *connection,
                counts,
                |(item, _)| CounterKey(*item),
                |_| {},
                |command, (_, rev)| {
                    command.arg(rev.micros());
                },
            )
            .await?;
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
        let retention_us = u64::try_from(retention.as_micros()).unwrap_or(u64::MAX);
        let mut connection = self.redis.pool.get().await?;
        let replies = scripts::EXPIRE
            .call(
                &mut *connection,
                counts,
                |(item, _)| CounterKey(*item),
                |command| {
                    command.arg(retention_us);
                },
                |command, (_, rev)| {
                    command.arg(rev.micros());
                },
            )
            .await?;
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
        let mut connection = self.redis.pool.get().await?;
        let replies = scripts::RECOUNTED
            .call(
                &mut *connection,
                tokens,
                |(item, _)| CounterKey(*item),
                |command| {
                    command.arg(LEASE_LIMIT_MS);
                },
                |command, (_, token)| {
                    command.arg(token);
                },
            )
            .await?;
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
    let replies = scripts::INVALIDATE
        .call(
            connection,
            items,
            |item| CounterKey(*item),
            |_| {},
            |command, _| {
                command.arg(fresh_token());
            },
        )
        .await?;
    for reply in replies {
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

/// The fields that a [`Counter`] is read from, in the order in which [`counter`]
/// takes them.
const FIELDS: [&str; 5] = ["count", "rev", "saved", "seeded", "recount"];

fn counter(item_id: ItemId, now: Rev, reply: &Value) -> Result<Counter, LiveError> {
    let Value::Array(fields) = reply else {
        return Err(LiveError::Reply {
            name: "HMGET",
            reply: reply.clone(),
        });
    };
    let field = |at: usize| fields.get(at).and_then(text);
    let number = |at: usize| field(at)?.parse::<i64>().ok();
    Ok(Counter {
        item_id,
        now,
        count: number(0)
            .zip(number(1))
            .map(|(count, rev)| (count, Rev::from_micros(rev))),
        saved: number(2).map(Rev::from_micros),
        seeded: number(3).map(seeded),
        recount: field(4).map(str::to_owned),
    })
}

/// When a count was seeded. Kept in whole seconds, for Redis' memory; a counter that was
/// made by a Tally before that has µs, which as seconds would be far in the future.
fn seeded(kept: i64) -> Rev {
    const LAST_SECOND: i64 = 1_000_000_000_000;
    Rev::from_micros(if kept < LAST_SECOND {
        kept.saturating_mul(1_000_000)
    } else {
        kept
    })
}
