//! Every key that Tally uses in Redis.

use std::fmt;

use redis::{RedisWrite, ToRedisArgs};

use crate::domain::ItemId;

/// All counters, for SCAN.
pub const COUNTER_PATTERN: &str = "item:{*}";
/// Which run of which Redis the counters belong to (a string, see `epoch`).
pub const EPOCH: &str = "tally:epoch";
/// What the marks of workers that are entering an epoch begin with (strings, see
/// `epoch`).
pub const ENTERING: &str = "tally:entering:";
/// Where the walk that several workers share is (a string: a SCAN cursor).
pub const WALK: &str = "tally:walk";

/// An item's hash, `item:{<id>}`. The braces keep all of an item's keys in one
/// Cluster slot.
#[derive(Clone, Copy, Debug)]
pub struct CounterKey(pub ItemId);

impl fmt::Display for CounterKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "item:{{{}}}", self.0)
    }
}

/// Written straight into the command: a batch has a key for each of its items.
impl ToRedisArgs for CounterKey {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        out.write_arg_fmt(self);
    }
}

impl redis::ToSingleRedisArg for CounterKey {}

/// The item of a counter's key; `None` for a key of someone else's.
pub fn item_of(key: &str) -> Option<ItemId> {
    key.strip_prefix("item:{")?.strip_suffix('}')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counters_key_leads_back_to_its_item() {
        let item = ItemId::new(42).expect("positive");
        assert_eq!(CounterKey(item).to_string(), "item:{42}");
        assert_eq!(item_of("item:{42}"), Some(item));
        for key in [
            "item:42",
            "item:{}",
            "item:{x}",
            "item:{-1}",
            "tally:epoch",
            "item:{42}:x",
        ] {
            assert_eq!(item_of(key), None, "{key}");
        }
    }
}
