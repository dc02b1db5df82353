//! What votes are cast on.

use super::{ItemId, PollId};

/// An item, or a poll with its choices. It can be edited, opened to voters, and given ballots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VotedOn {
    Item(ItemId),
    Poll(PollId),
}

/// Writes it as in the trail: `item:1`.
impl std::fmt::Display for VotedOn {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Item(item) => write!(out, "item:{item}"),
            Self::Poll(poll) => write!(out, "poll:{poll}"),
        }
    }
}
