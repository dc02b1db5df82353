//! References to an item or a poll: its id, or the frontend's own key.

use std::fmt;
use std::str::FromStr;

use super::{InvalidItemKey, ItemKey};

/// The prefix of a key where an id may stand.
const KEY: &str = "key:";

/// An id, or the frontend's own key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference<Id> {
    Id(Id),
    Key(ItemKey),
}

impl<Id> Reference<Id> {
    /// Whether it is a key, so that the id must be looked up.
    pub fn is_key(&self) -> bool {
        matches!(self, Self::Key(_))
    }
}

/// Why a text is no reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidReference {
    #[error("it takes a whole number from 1 to {}, or key: and a key", i64::MAX)]
    NeitherIdNorKey,
    #[error(transparent)]
    Key(#[from] InvalidItemKey),
}

impl<Id: FromStr> FromStr for Reference<Id> {
    type Err = InvalidReference;

    fn from_str(text: &str) -> Result<Self, InvalidReference> {
        if let Some(key) = text.strip_prefix(KEY) {
            return Ok(Self::Key(ItemKey::parse(key.to_owned())?));
        }
        let id = text.parse().map_err(|_| InvalidReference::NeitherIdNorKey)?;
        Ok(Self::Id(id))
    }
}

impl<Id: fmt::Display> fmt::Display for Reference<Id> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => id.fmt(out),
            Self::Key(key) => write!(out, "{KEY}{}", key.as_str()),
        }
    }
}
