//! Every key that Tally uses in Redis. Each begins with a prefix (setting
//! `TALLY_KEY_PREFIX`), so that several Tallys, or other applications, can share a Redis.
//!
//! | key | type | holds |
//! |---|---|---|
//! | `<prefix>{<item id>}` | string | an item's counter, see [`super::counter`] |
//! | `<prefix>epoch` | string | the known epoch: the one that the counters belong to |
//! | `<prefix>entering:<nonce>` | string | the mark of a worker that is entering an epoch |
//! | `<prefix>moved` | string | a token of the server that followed Sentinels to this Redis last, and may have counted on another one until then. It is a part of the epoch |
//! | `<prefix>unsaved` | set | the index: the keys of the items with an unsaved live count or a rebuild request |
//! | `<prefix>cold` | string | a token: there were votes on cold items, and the saved counts may not have them yet. Each batch with such a vote sets another |
//! | `<prefix>unsaved_scan` | string | the cursor of the scan over the index that several workers share |
//! | `<prefix>scan` | string | the cursor of the scan over all counters that several workers share |
//! | `<prefix>owner` | string | the owner's mark: which Tally the keys belong to, see [`super::owner`] |
//! | `<prefix>throttle:<by>:<interval>s:<of whom>` | string | how many attempts a window of a [throttle](crate::domain::Throttle) has taken |
//! | `<prefix>probe` | string | nothing: it is written and deleted at once, see [`super::probe`] |

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use redis::{RedisWrite, ToRedisArgs};

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

    /// An item's counter. The braces are a Redis Cluster's hash tag: all keys of an item would be
    /// in one slot.
    pub fn counter(&self, item: ItemId) -> CounterKey<'_> {
        CounterKey { prefix: self, item }
    }

    /// All counters, for SCAN's MATCH. No character of a prefix has a meaning in a pattern.
    pub fn counters_pattern(&self) -> String {
        format!("{}{{*}}", self.0)
    }

    /// The known epoch.
    pub fn epoch(&self) -> String {
        format!("{}epoch", self.0)
    }

    /// The token of the server that came to this Redis last, from another one.
    pub fn moved(&self) -> String {
        format!("{}moved", self.0)
    }

    /// The mark of a worker that is entering an epoch.
    pub fn entering(&self, nonce: &str) -> String {
        format!("{}entering:{nonce}", self.0)
    }

    /// The index of items with an unsaved live count or a rebuild request.
    pub fn unsaved(&self) -> String {
        format!("{}unsaved", self.0)
    }

    /// The token that says that saved counts may lack votes on cold items.
    pub fn cold(&self) -> String {
        format!("{}cold", self.0)
    }

    /// The cursor of the scan over the index that several workers share.
    pub fn unsaved_scan(&self) -> String {
        format!("{}unsaved_scan", self.0)
    }

    /// The cursor of the scan over all counters that several workers share.
    pub fn scan(&self) -> String {
        format!("{}scan", self.0)
    }

    /// The owner's mark.
    pub fn owner(&self) -> String {
        format!("{}owner", self.0)
    }

    /// The key that is written and deleted at once, to see whether Redis takes writes.
    pub fn probe(&self) -> String {
        format!("{}probe", self.0)
    }

    /// A window of a throttle. For a voter or an address, it shows only a hash.
    pub fn throttle(&self, throttle: &Throttle, of: u128) -> ThrottleKey<'_> {
        ThrottleKey {
            prefix: self,
            by: throttle.by,
            interval: throttle.interval,
            of,
        }
    }

    /// The item of a counter's key; `None`: any other key.
    pub fn item_of(&self, key: &str) -> Option<ItemId> {
        let id = key.strip_prefix(&*self.0)?.strip_prefix('{')?;
        id.strip_suffix('}')?.parse().ok()
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

/// The key of an item's counter: `<prefix>{<item id>}`.
#[derive(Clone, Copy, Debug)]
pub struct CounterKey<'a> {
    prefix: &'a KeyPrefix,
    item: ItemId,
}

impl fmt::Display for CounterKey<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}{{{}}}", self.prefix, self.item)
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
    prefix: &'a KeyPrefix,
    by: ThrottledBy,
    interval: Duration,
    of: u128,
}

impl fmt::Display for ThrottleKey<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (by, seconds) = (self.by.name(), self.interval.as_secs());
        write!(out, "{}throttle:{by}:{seconds}s:{:x}", self.prefix, self.of)
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
        let keys = KeyPrefix::default();
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
    fn two_tallys_share_no_counter_even_if_one_prefix_begins_with_the_other() {
        let (short, long) = (prefix("a:"), prefix("a:a:"));
        let item = ItemId::new(7).expect("positive");
        assert_eq!(short.item_of(&long.counter(item).to_string()), None);
        assert_eq!(long.item_of(&short.counter(item).to_string()), None);
    }

    #[test]
    fn a_prefix_has_no_character_with_a_meaning_in_redis() {
        for text in ["", "a{b}", "a*", "a?", "a[b", "a b", "ä", &"a".repeat(33)] {
            assert_eq!(text.parse::<KeyPrefix>(), Err(InvalidKeyPrefix), "{text:?}");
        }
        assert_eq!(prefix("Votes-2.eu_1:").to_string(), "Votes-2.eu_1:");
    }
}
