//! How the votes on an item are stored.

use crate::domain::{NewVote, Refusal, Value, VoteOutcome};

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
