//! How the votes on an item are stored.

use crate::domain::{NewVote, Refusal, Value, VoteOutcome};

/// How the votes on an item are stored. It never changes (migrations/0015_rules.sql).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ItemKind {
    /// By the statements of `plain_votes`.
    Plain,
    /// By those statements too, and it takes no down-votes.
    UpOnly,
    /// By those of `decisions`: it has a rule.
    Ruled,
}

impl ItemKind {
    /// The outcome of a vote that the statements of `plain_votes` do not store.
    pub fn refusal(self, vote: &NewVote) -> Option<VoteOutcome> {
        match self {
            Self::Ruled => Some(VoteOutcome::NeedsDecision),
            Self::UpOnly if vote.value == Value::DOWN => Some(VoteOutcome::Refused(Refusal::NoDownVotes)),
            Self::Plain | Self::UpOnly => None,
        }
    }
}
