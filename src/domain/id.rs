//! Ids of items and polls, and how ids are written.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// An item's id: a positive 64-bit number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct ItemId(i64);

impl ItemId {
    /// The lowest id.
    pub const FIRST: Self = Self(1);

    /// From the ledger's number; `None` if it is not positive.
    pub fn new(id: i64) -> Option<Self> {
        (id > 0).then_some(Self(id))
    }

    /// The number.
    pub fn get(self) -> i64 {
        self.0
    }
}

impl fmt::Display for ItemId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// Accepts a positive number in decimal digits, without leading zeros.
impl FromStr for ItemId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        parse(text).map(Self)
    }
}

/// A poll's id: a positive 64-bit number. In the ledger it is the id of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct PollId(i64);

impl PollId {
    /// From the ledger's number; `None` if it is not positive.
    pub fn new(id: i64) -> Option<Self> {
        (id > 0).then_some(Self(id))
    }

    /// The number.
    pub fn get(self) -> i64 {
        self.0
    }
}

impl fmt::Display for PollId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// Accepts what [`ItemId`] accepts.
impl FromStr for PollId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        parse(text).map(Self)
    }
}

/// Reads a positive 64-bit number in decimal digits, without leading zeros. An id has one spelling,
/// so `+1`, ` 1` and `01` are no ids.
pub(super) fn parse(text: &str) -> Result<i64, ()> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    let id = plain.then(|| text.parse().ok()).flatten();
    id.filter(|id| *id > 0).ok_or(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_id_is_a_positive_64_bit_number_in_plain_digits() {
        assert_eq!("1".parse(), Ok(ItemId(1)));
        assert_eq!("9223372036854775807".parse(), Ok(ItemId(i64::MAX)));
        for text in [
            "",
            "0",
            "-1",
            "+1",
            "01",
            " 1",
            "1.0",
            "one",
            "9223372036854775808",
            "١",
        ] {
            assert_eq!(text.parse::<ItemId>(), Err(()), "{text:?}");
        }
    }
}
