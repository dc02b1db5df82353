//! Every key that Tally uses in Redis. Each begins with a prefix (setting
//! `TALLY_KEY_PREFIX`), so that several Tallys, or other applications, can share a Redis.
//!
//! | key | type | holds |
//! |---|---|---|
//! | `<prefix>{<item id>}` | string | an item's counter, see [`super::counter`] |
//! | `<prefix>epoch` | string | the known epoch: the one that the counters belong to |
//! | `<prefix>entering:<nonce>` | string | the mark of a worker that is entering an epoch |
//! | `<prefix>moved` | string | a token of the server that followed Sentinels, or the slots of a Cluster, to this Redis last, and may have counted on another one until then. It is a part of the epoch |
//! | `<prefix>unsaved` | set | the index: the keys of the items with an unsaved live count or a rebuild request |
//! | `<prefix>cold` | string | a token: there were votes on cold items, and the saved counts may not have them yet. Each batch with such a vote sets another |
//! | `<prefix>unsaved_scan` | string | the cursor of the scan over the index that several workers share |
//! | `<prefix>scan` | string | the cursor of the scan over all counters that several workers share |
//! | `<prefix>owner` | string | the owner's mark: which Tally the keys belong to, see [`super::owner`] |
//! | `<prefix>throttle:<by>:<interval>s:<of whom>` | string | how many attempts a window of a [throttle](crate::domain::Throttle) has taken |
//! | `<prefix>probe` | string | nothing: it is written and deleted at once, see [`super::probe`] |
//!
//! In a Redis Cluster each [bucket](super::buckets) has all of these keys, with its hash tag behind the prefix:
//! `<prefix>{<tag>}<item id>` is a counter, `<prefix>{<tag>}unsaved` the index of the bucket's items. The cursor `scan` is
//! in the lowest bucket of a primary, for all keys of that primary; all windows of throttles are in the first bucket.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use redis::{RedisWrite, ToRedisArgs};

use super::buckets::{BUCKETS, Bucket};
use crate::domain::{ItemId, Throttle, ThrottledBy};

/// What every key of one Tally begins with: 1 to [`KeyPrefix::LIMIT_BYTES`] letters, digits
/// and `: . _ -`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPrefix(Arc<str>);

/// Why a text is no prefix of keys.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it takes 1 to {} letters, digits and : . _ -", KeyPrefix::LIMIT_BYTES)]
pub struct InvalidKeyPrefix;

impl KeyPrefix {
    /// The most bytes of a prefix: each counter's key holds it.
    pub const LIMIT_BYTES: usize = 32;
    /// The default of `TALLY_KEY_PREFIX`.
    pub const DEFAULT: &str = "tally:";
}

/// The names of all keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    prefix: KeyPrefix,
    is_cluster: bool,
}

impl Keys {
    /// Those in a Redis that is no Cluster.
    pub fn one(prefix: KeyPrefix) -> Self {
        Self {
            prefix,
            is_cluster: false,
        }
    }

    /// Those in a Redis Cluster.
    pub fn of_cluster(prefix: KeyPrefix) -> Self {
        Self {
            prefix,
            is_cluster: true,
        }
    }

    /// What all begin with.
    pub fn prefix(&self) -> &KeyPrefix {
        &self.prefix
    }

    /// How many buckets there are.
    pub(super) fn buckets(&self) -> u8 {
        if self.is_cluster { BUCKETS } else { 1 }
    }

    /// The bucket that has all keys of this item.
    pub(super) fn bucket_of(&self, item: ItemId) -> Bucket {
        if self.is_cluster {
            Bucket::of(item)
        } else {
            Bucket::FIRST
        }
    }

    /// An item's counter. Without a Cluster, the braces would be a hash tag: all keys of an item would be in one slot.
    pub fn counter(&self, item: ItemId) -> CounterKey<'_> {
        CounterKey { keys: self, item }
    }

    /// All counters, for SCAN's MATCH. No character of a prefix has a meaning in a pattern.
    pub(super) fn counters_pattern(&self) -> String {
        format!("{}{{*}}{}", self.prefix, if self.is_cluster { "*" } else { "" })
    }

    fn own(&self, bucket: Bucket, name: &str) -> String {
        if self.is_cluster {
            format!("{}{{{}}}{name}", self.prefix, bucket.tag())
        } else {
            format!("{}{name}", self.prefix)
        }
    }

    /// The known epoch.
    pub(super) fn epoch(&self, bucket: Bucket) -> String {
        self.own(bucket, "epoch")
    }

    /// The token of the server that came to this Redis last, from another one.
    pub(super) fn moved(&self, bucket: Bucket) -> String {
        self.own(bucket, "moved")
    }

    /// The mark of a worker that is entering an epoch.
    pub(super) fn entering(&self, bucket: Bucket, nonce: &str) -> String {
        self.own(bucket, &format!("entering:{nonce}"))
    }

    /// The index of items with an unsaved live count or a rebuild request.
    pub(super) fn unsaved(&self, bucket: Bucket) -> String {
        self.own(bucket, "unsaved")
    }

    /// The token that says that saved counts may lack votes on cold items.
    pub(super) fn cold(&self, bucket: Bucket) -> String {
        self.own(bucket, "cold")
    }

    /// The cursor of the scan over the index that several workers share.
    pub(super) fn unsaved_scan(&self, bucket: Bucket) -> String {
        self.own(bucket, "unsaved_scan")
    }

    /// The cursor of the scan over all counters that several workers share.
    pub(super) fn scan(&self, bucket: Bucket) -> String {
        self.own(bucket, "scan")
    }

    /// The owner's mark.
    pub(super) fn owner(&self, bucket: Bucket) -> String {
        self.own(bucket, "owner")
    }

    /// The key that is written and deleted at once, to see whether Redis takes writes.
    pub(super) fn probe(&self, bucket: Bucket) -> String {
        self.own(bucket, "probe")
    }

    /// A window of a throttle, in the first bucket. For a voter or an address, it shows only a hash.
    pub(super) fn throttle(&self, throttle: &Throttle, of: u128) -> ThrottleKey<'_> {
        ThrottleKey {
            keys: self,
            by: throttle.by,
            interval: throttle.interval,
            of,
        }
    }

    /// The item of a counter's key; `None`: any other key.
    pub fn item_of(&self, key: &str) -> Option<ItemId> {
        let braced = key.strip_prefix(&*self.prefix.0)?.strip_prefix('{')?;
        if !self.is_cluster {
            return braced.strip_suffix('}')?.parse().ok();
        }
        let (tag, id) = braced.split_once('}')?;
        let item = id.parse().ok()?;
        (Bucket::of(item).tag() == tag).then_some(item)
    }
}

impl Default for KeyPrefix {
    fn default() -> Self {
        Self(Self::DEFAULT.into())
    }
}

impl fmt::Display for KeyPrefix {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl FromStr for KeyPrefix {
    type Err = InvalidKeyPrefix;

    fn from_str(text: &str) -> Result<Self, InvalidKeyPrefix> {
        // No brace, which would be a Cluster's hash tag, and no character that has a meaning
        // in a SCAN pattern.
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b":._-".contains(&byte);
        if (1..=Self::LIMIT_BYTES).contains(&text.len()) && text.bytes().all(is_plain) {
            Ok(Self(text.into()))
        } else {
            Err(InvalidKeyPrefix)
        }
    }
}

/// The key of an item's counter: `<prefix>{<item id>}`, or `<prefix>{<tag>}<item id>`.
#[derive(Clone, Copy, Debug)]
pub struct CounterKey<'a> {
    keys: &'a Keys,
    item: ItemId,
}

impl fmt::Display for CounterKey<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (prefix, item) = (&self.keys.prefix, self.item);
        if self.keys.is_cluster {
            write!(out, "{prefix}{{{}}}{item}", Bucket::of(item).tag())
        } else {
            write!(out, "{prefix}{{{item}}}")
        }
    }
}

/// Written straight into the command, without a string of its own. A batch has a key for each of
/// its items.
impl ToRedisArgs for CounterKey<'_> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        out.write_arg_fmt(self);
    }
}

impl redis::ToSingleRedisArg for CounterKey<'_> {}

/// The key of a window of a throttle.
#[derive(Clone, Copy, Debug)]
pub struct ThrottleKey<'a> {
    keys: &'a Keys,
    by: ThrottledBy,
    interval: Duration,
    of: u128,
}

impl fmt::Display for ThrottleKey<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (by, seconds) = (self.by.name(), self.interval.as_secs());
        let own = self.keys.own(Bucket::FIRST, "throttle");
        write!(out, "{own}:{by}:{seconds}s:{:x}", self.of)
    }
}

impl ToRedisArgs for ThrottleKey<'_> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        out.write_arg_fmt(self);
    }
}

impl redis::ToSingleRedisArg for ThrottleKey<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> KeyPrefix {
        text.parse().expect("a prefix")
    }

    #[test]
    fn only_a_counters_key_names_an_item() {
        let keys = Keys::one(KeyPrefix::default());
        let item = ItemId::new(42).expect("positive");
        assert_eq!(keys.counter(item).to_string(), "tally:{42}");
        assert_eq!(keys.item_of("tally:{42}"), Some(item));
        for key in [
            "item:{42}",
            "tally:42",
            "tally:{}",
            "tally:{x}",
            "tally:{-1}",
            "tally:epoch",
            "tally:{42}:x",
            "other:tally:{42}",
        ] {
            assert_eq!(keys.item_of(key), None, "{key}");
        }
    }

    #[test]
    fn in_a_cluster_all_keys_of_a_bucket_have_its_tag() {
        let keys = Keys::of_cluster(KeyPrefix::default());
        let item = ItemId::new(65).expect("positive");
        assert_eq!(keys.counter(item).to_string(), "tally:{Kf}65");
        assert_eq!(keys.unsaved(Bucket::of(item)), "tally:{Kf}unsaved");
        assert_eq!(keys.item_of("tally:{Kf}65"), Some(item));
        for key in [
            "tally:{aR}65",
            "tally:{65}",
            "tally:{Kf}",
            "tally:{Kf}unsaved",
            "tally:{Kf}065x",
        ] {
            assert_eq!(keys.item_of(key), None, "{key}");
        }
    }

    #[test]
    fn two_tallys_share_no_counter_even_if_one_prefix_begins_with_the_other() {
        for keys in [Keys::one, Keys::of_cluster] {
            let (short, long) = (keys(prefix("a:")), keys(prefix("a:a:")));
            let item = ItemId::new(7).expect("positive");
            assert_eq!(short.item_of(&long.counter(item).to_string()), None);
            assert_eq!(long.item_of(&short.counter(item).to_string()), None);
        }
    }

    #[test]
    fn a_prefix_has_no_character_with_a_meaning_in_redis() {
        for text in ["", "a{b}", "a*", "a?", "a[b", "a b", "ä", &"a".repeat(33)] {
            assert_eq!(text.parse::<KeyPrefix>(), Err(InvalidKeyPrefix), "{text:?}");
        }
        assert_eq!(prefix("Votes-2.eu_1:").to_string(), "Votes-2.eu_1:");
    }
}
