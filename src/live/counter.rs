//! An item's counter: the string in Redis that holds its live count. This is the only description of its
//! format. `lua/counter.lua` follows it for all scripts. `tests/it/live/scripts/states.rs` runs them, and
//! compares what they do with this table.
//!
//! First come 44 bytes, which Redis keeps in the object itself: five numbers in 8 bytes (IEEE 754, which hold
//! whole numbers to 2^53) and one in 4, all little-endian.
//!
//! | part | bytes | holds | written by | removed by |
//! |---|---|---|---|---|
//! | `count` | 0 to 7 | the live count | `seed`, `count` | `expire`, `invalidate`, `count` |
//! | `downs` | 8 to 15 | how many of the count's votes are down-votes | `seed`, `count` | `expire`, `invalidate`, `count` |
//! | `revision` | 16 to 23 | the live count's revision: Redis time of its last change, µs since 1970, forced to grow. Without a live count, the floor: the last revision that was given; the next is above it | `seed`, `count`, `claim_rebuild` | `expire`, `clear_rebuild` |
//! | `saved` | 24 to 31 | the revision that was last written to the item; equal to `revision`: the count is saved | `mark_saved` | `seed`, `expire`, `invalidate`, `count`, `claim_rebuild`, `clear_rebuild` |
//! | `xmax` | 32 to 39 | the visibility snapshot, under which the count was seeded, if nothing was running: it has seen all transactions below | `seed` | `expire`, `invalidate` |
//! | `seeded` | 40 to 43 | Redis time of the seed, whole seconds since 1970; 0: there is no live count | `seed` | `expire`, `invalidate`, `count` |
//! | `lease` | from 44 | entitles its holders to seed a missing count: `<µs when taken>:<nonce>` | `count` | `seed`, `invalidate` |
//! | `request` | from 44 | a request to write the item's exact count from the ledger: a token | `invalidate`, `count` | `clear_rebuild`, `mark_saved`, `claim_rebuild` |
//! | `snapshot` | from 44 | the visibility snapshot in its other forms: `xmin:xmax:running,…`, or `low:xmax:running,…:xmin` with the newest of many | `seed` | `expire`, `invalidate`, `count` |
//!
//! A number that is absent is 0. The last three parts are text: `lease|request|snapshot`. They are rare: if all
//! are absent, the string ends after 44 bytes.
//!
//! An item whose live count is unsaved, or that has a rebuild request, is in the index
//! `<prefix>unsaved` (see [`super::keys`]): each script keeps it so.
//!
//! `invalidate` keeps the revision: a worker may still be about to write or mark the dropped count,
//! so no later count may have it.
//!
//! Only a lease without a rebuild request gives the key a time to live
//! ([`LEASE_LIMIT_MS`](super::LEASE_LIMIT_MS)). A seed takes it away again.

use std::time::Duration;

use redis::{Cmd, Value};

use super::scripts::typed;
use super::{Keys, LiveError};
use crate::domain::{Count, ItemId, RedisTime, Revision};

/// The bytes of the numbers.
const NUMBERS_BYTES: usize = 44;
/// No whole number that Tally writes is as great: revisions are times (µs) before the year 2286.
const WHOLE_LIMIT: f64 = 1e16;

/// The parts of a counter, as they stand in Redis. Numbers that are absent are 0, and texts empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CounterParts {
    pub count: i64,
    pub downs: i64,
    pub revision: i64,
    pub saved: i64,
    pub xmax: i64,
    pub seeded: u32,
    pub lease: String,
    pub request: String,
    pub snapshot: String,
}

impl CounterParts {
    /// Reads a counter's value. `None`: it is no counter's.
    pub fn read(value: &[u8]) -> Option<Self> {
        let (numbers, texts) = value.split_at_checked(NUMBERS_BYTES)?;
        let bytes = |at: usize| numbers.get(at..at + 8)?.try_into().ok();
        let number = |at: usize| whole(f64::from_le_bytes(bytes(at)?));
        let seeded = numbers.get(40..NUMBERS_BYTES)?.try_into().ok()?;
        let mut parts = Self {
            count: number(0)?,
            downs: number(8)?,
            revision: number(16)?,
            saved: number(24)?,
            xmax: number(32)?,
            seeded: u32::from_le_bytes(seeded),
            ..Self::default()
        };
        if !texts.is_empty() {
            let mut texts = std::str::from_utf8(texts).ok()?.split('|').map(str::to_owned);
            parts.lease = texts.next()?;
            parts.request = texts.next()?;
            parts.snapshot = texts.next()?;
            if texts.next().is_some() {
                return None;
            }
        }
        Some(parts)
    }

    /// The live count.
    pub fn live(&self) -> Option<Count> {
        (self.seeded > 0).then_some(Count {
            net: self.count,
            downs: self.downs,
        })
    }
}

/// What stands in a counter's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CounterValue {
    Absent,
    /// Someone else has put a value there.
    NoCounter,
    Parts(CounterParts),
}

fn whole(number: f64) -> Option<i64> {
    (number.fract() == 0.0 && number.abs() < WHOLE_LIMIT).then_some(number as i64)
}

/// What the sync worker reads of an item's counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    pub item_id: ItemId,
    /// Redis' time just after the counter was read.
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
    /// The counter of an item, from its value in Redis. A value that is no counter's holds nothing.
    pub(super) fn of(item_id: ItemId, now: RedisTime, value: Option<Vec<u8>>) -> Self {
        let parts = value
            .and_then(|value| CounterParts::read(&value))
            .unwrap_or_default();
        let revision = |micros: i64| (micros > 0).then(|| Revision::from_micros(micros));
        let is_live = parts.seeded > 0;
        Self {
            item_id,
            now,
            count: parts
                .live()
                .map(|count| (count, Revision::from_micros(parts.revision))),
            saved: revision(parts.saved),
            seeded: is_live.then(|| RedisTime::from_seconds(parts.seeded.into())),
            rebuild: Some(parts.request).filter(|request| !request.is_empty()),
        }
    }

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

/// The most counters that one command reads. Redis serves nobody else meanwhile: some 0.1 ms.
pub(super) const READ_LIMIT_KEYS: usize = 512;

/// Reads the values of the counters of these items, which are of one bucket.
pub(super) fn read_values(keys: &Keys, items: &[&ItemId]) -> Cmd {
    let mut command = redis::cmd("MGET");
    for item in items {
        command.arg(keys.counter(**item));
    }
    command
}

/// The values in the reply to [`read_values`], in order. `None`: there is no value, or one of another type.
///
/// # Errors
/// When Redis refuses to read them.
pub(super) fn values(reply: Value) -> Result<Vec<Option<Vec<u8>>>, LiveError> {
    typed(reply)
}
