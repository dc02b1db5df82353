//! An item's counter: the hash in Redis that holds its live count. This is the hash's only
//! description. The scripts in `lua/` follow it, and `tests/it/live/scripts/hash.rs` runs them and
//! compares what they do with this table.
//!
//! | field | holds | written by | removed by |
//! |---|---|---|---|
//! | `count` | the live count, an integer; absent: there is none | `seed`, `count` | `expire`, `invalidate`, `count` |
//! | `downs` | how many of the count's votes are down-votes; absent: none | `seed`, `count` | `expire`, `invalidate`, `count` |
//! | `rev` | the live count's revision: Redis time of its last change, µs since 1970, forced to grow. Without a live count, the floor: the last revision that was given; the next is above it | `seed`, `count`, `claim_rebuild` | `expire`, `clear_rebuild` |
//! | `saved` | the revision that was last written to the item; equal to `rev`: the count is saved | `mark_saved` | `seed`, `expire`, `invalidate`, `count` |
//! | `snap` | the visibility snapshot, under which the count was seeded: `xmin:xmax:running,…`, or one number where xmin is xmax and nothing was running; or `low:xmax:running,…:xmin` with the newest of many | `seed` | `expire`, `invalidate`, `count` |
//! | `seeded` | Redis time of the seed, whole seconds since 1970 | `seed` | `expire`, `invalidate`, `count` |
//! | `lease` | entitles its holders to seed a missing count: `<µs when taken>:<nonce>` | `count` | `seed`, `invalidate` |
//! | `rebuild` | a request to write the item's exact count from the ledger: a token | `invalidate`, `count` | `clear_rebuild`, `mark_saved`, `claim_rebuild` |
//!
//! An item whose live count is unsaved, or that has a rebuild request, is in the index
//! `<prefix>unsaved` (see [`super::keys`]): each script keeps it so.
//!
//! The names are short, because each is stored with each counter.
//!
//! `invalidate` keeps `rev`: a worker may still be about to write or mark the dropped count,
//! so no later count may have its revision.
//!
//! Only a lease without a rebuild request gives the key a time to live
//! ([`LEASE_LIMIT_MS`](super::LEASE_LIMIT_MS)). A seed takes it away again.

use std::time::Duration;

use redis::{Cmd, Value};

use super::scripts::text;
use super::{KeyPrefix, LiveError};
use crate::domain::{Count, ItemId, RedisTime, Revision};

/// All fields of a counter.
pub const COUNTER_FIELDS: [&str; 8] = [
    "count", "downs", "rev", "saved", "snap", "seeded", "lease", "rebuild",
];

/// What the sync worker reads of an item's counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    pub item_id: ItemId,
    /// Redis' time just after the hash was read.
    pub now: RedisTime,
    /// The live count and its revision; `None` if there is no live count.
    pub count: Option<(Count, Revision)>,
    /// The last saved revision.
    pub saved: Option<Revision>,
    /// When the count was seeded, to the second.
    pub seeded: Option<RedisTime>,
    /// The token of the rebuild request, if there is one.
    pub rebuild: Option<String>,
}

impl Counter {
    /// The live count and its revision, if not saved yet.
    pub fn unsaved(&self) -> Option<(Count, Revision)> {
        self.count.filter(|(_, revision)| self.saved != Some(*revision))
    }

    /// Whether its item is in the index: something is to be written.
    pub fn is_to_be_written(&self) -> bool {
        self.unsaved().is_some() || self.rebuild.is_some()
    }

    /// Whether it may be written now, if an item's saves are `spacing` apart. A requested rebuild
    /// does not wait. Neither does a count after a clock that was ahead.
    pub fn is_due(&self, spacing: Duration) -> bool {
        let waits = self
            .saved
            .is_some_and(|saved| saved <= self.now.as_revision() && self.now.since_change(saved) < spacing);
        !waits || self.rebuild.is_some()
    }

    /// The revision of the live count, if it is saved and has not changed for `retention`.
    pub fn idle(&self, retention: Duration) -> Option<Revision> {
        let (_, revision) = self.count?;
        (self.saved == Some(revision) && self.now.since_change(revision) >= retention).then_some(revision)
    }

    /// Whether the live count was seeded at least `limit` ago.
    pub fn is_older_than(&self, limit: Duration) -> bool {
        self.seeded.is_some_and(|seeded| self.now.since(seeded) >= limit)
    }
}

/// Reads these fields of a counter.
pub(super) fn read_fields(keys: &KeyPrefix, item: ItemId, fields: &[&str]) -> Cmd {
    let mut command = redis::cmd("HMGET");
    command.arg(keys.counter(item)).arg(fields);
    command
}

/// The fields in the reply to [`read_fields`]. `None`: someone has put a value of another type
/// there, which holds no count.
///
/// # Errors
/// When Redis refuses to read them.
pub(super) fn fields(reply: Value) -> Result<Option<Vec<Value>>, LiveError> {
    match reply {
        Value::Array(fields) => Ok(Some(fields)),
        Value::ServerError(error) if error.code() == "WRONGTYPE" => Ok(None),
        Value::ServerError(error) => Err(redis::RedisError::from(error).into()),
        reply => Err(LiveError::Reply { name: "HMGET", reply }),
    }
}

/// The fields that [`counter`] takes, in this order.
pub(super) const WORKER_FIELDS: [&str; 6] = ["count", "rev", "saved", "seeded", "rebuild", "downs"];

/// The counter of an item, from the reply to [`read_fields`] of [`WORKER_FIELDS`]. A field that
/// is no number where one belongs counts as absent.
///
/// # Errors
/// As [`fields`].
pub(super) fn counter(item_id: ItemId, now: RedisTime, reply: Value) -> Result<Counter, LiveError> {
    let fields = fields(reply)?.unwrap_or_default();
    let field = |at: usize| fields.get(at).and_then(text);
    let number = |at: usize| field(at)?.parse::<i64>().ok();
    Ok(Counter {
        item_id,
        now,
        count: number(0).zip(number(1)).map(|(net, revision)| {
            let downs = number(5).unwrap_or_default();
            (Count { net, downs }, Revision::from_micros(revision))
        }),
        saved: number(2).map(Revision::from_micros),
        seeded: number(3).map(RedisTime::from_seconds),
        rebuild: field(4).map(str::to_owned),
    })
}
