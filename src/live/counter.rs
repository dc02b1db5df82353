//! An item's counter: the one hash in Redis that everything turns on. This is its only
//! description; `lua/` follows it, and a test holds the two together.
//!
//! | field | holds | written by |
//! |---|---|---|
//! | `count` | the live count, an integer; absent: there is none | `seed`, `count` |
//! | `rev` | the count's revision: Redis time of its last change, µs since 1970, forced to grow | `seed`, `count` |
//! | `saved` | the revision that was last written to the item; equal to `rev`: the count is saved | `mark_saved` |
//! | `snap` | the visibility snapshot: what the seed's exact count had seen, `xmin:xmax:running,…`, or one number where nothing ran | `seed` |
//! | `seeded` | Redis time of the seed, whole seconds since 1970 | `seed` |
//! | `lease` | entitles its holders to seed a missing count: `<µs when taken>:<nonce>` | `count` |
//! | `rebuild` | a request to write the item's exact count from the ledger: a token | `invalidate` |
//!
//! `expire` removes the first five fields, `seed` the lease, `clear_rebuild` the request,
//! and `invalidate` everything. The names are short: each is stored with each counter.
//! Nothing but a lease gives the key a time to live, and a request takes it away again.

use std::time::Duration;

use redis::Value;

use super::LiveError;
use super::scripts::text;
use crate::domain::{ItemId, RedisTime, Revision};

/// All fields of a counter.
pub const COUNTER_FIELDS: [&str; 7] = ["count", "rev", "saved", "snap", "seeded", "lease", "rebuild"];

/// What the worker reads of an item's counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    pub item_id: ItemId,
    /// Redis' time just after it was read.
    pub now: RedisTime,
    /// The live count and its revision; `None` if there is no count.
    pub count: Option<(i64, Revision)>,
    /// The revision last saved.
    pub saved: Option<Revision>,
    /// When it was seeded, to the second.
    pub seeded: Option<RedisTime>,
    /// The request to rebuild this count, if there is one.
    pub rebuild: Option<String>,
}

impl Counter {
    /// The count and its revision, if they are still to be saved.
    pub fn unsaved(&self) -> Option<(i64, Revision)> {
        self.count.filter(|(_, revision)| self.saved != Some(*revision))
    }

    /// The revision of a count that is saved and has not changed for `retention`.
    pub fn idle(&self, retention: Duration) -> Option<Revision> {
        let (_, revision) = self.count?;
        (self.saved == Some(revision) && self.now.since_change(revision) >= retention).then_some(revision)
    }

    /// Whether the count was seeded `limit` ago or earlier.
    pub fn is_older_than(&self, limit: Duration) -> bool {
        self.seeded.is_some_and(|seeded| self.now.since(seeded) >= limit)
    }
}

/// The fields that a [`Counter`] is read from, in the order in which [`counter`]
/// takes them.
pub(super) const WORKER_FIELDS: [&str; 5] = ["count", "rev", "saved", "seeded", "rebuild"];

pub(super) fn counter(item_id: ItemId, now: RedisTime, reply: &Value) -> Result<Counter, LiveError> {
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
            .map(|(count, revision)| (count, Revision::from_micros(revision))),
        saved: number(2).map(Revision::from_micros),
        seeded: number(3).map(RedisTime::from_seconds),
        rebuild: field(4).map(str::to_owned),
    })
}
