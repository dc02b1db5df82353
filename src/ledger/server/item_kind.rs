//! How the votes on an item are stored.

use std::time::Duration;

use super::item_reader::ITEM_CACHE_LIMIT;
use crate::cache::Remembers;
use crate::domain::{NewVote, Refusal, Value, VoteOutcome};

/// The most items in the cache of a batch writer's connection: about a megabyte.
pub(crate) const ITEM_CACHE_LIMIT_ITEMS: usize = 100_000;

/// How the votes on an item are stored. It never changes (migrations/0001_items.sql).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ItemKind {
    /// The statements of `plain_votes` store its votes.
    Plain,
    /// The same, and the item takes no down-votes.
    UpOnly,
    /// The item has a rule: the statements of `decisions` store its votes.
    Ruled,
}

impl ItemKind {
    /// The outcome of a vote that `plain_votes` does not store.
    pub fn refusal(self, vote: &NewVote) -> Option<VoteOutcome> {
        match self {
            Self::Ruled => Some(VoteOutcome::NeedsDecision),
            Self::UpOnly if vote.value == Value::DOWN => Some(VoteOutcome::Refused(Refusal::NoDownVotes)),
            Self::Plain | Self::UpOnly => None,
        }
    }
}

/// By the item's id. Items are never deleted (migrations/0001_items.sql forbids it), so an item
/// that was read once exists as long as this is the same database. The end of the connection ends
/// all entries: after a failover or a restart of Postgres, another database may answer. A connection
/// also ends when any other one has reached another run of Postgres.
impl Remembers for ItemKind {
    type Key = i64;
    type Value = Self;
    const LIMIT: usize = ITEM_CACHE_LIMIT_ITEMS;
    const LIMIT_AGE: Option<Duration> = Some(ITEM_CACHE_LIMIT);
}
