//! Voiding: taking votes back that should not have been cast.

use std::str::FromStr;

use super::{AddressHash, ApiKeyId, ItemId, Moment, VoterId, id, is_invisible};

/// The longest reason. migrations/0002_votes.sql has the same limit.
pub const REASON_LIMIT_CHARACTERS: usize = 500;

/// Why a text is no reason. The message fits whatever has the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidReason {
    #[error("has {0} characters; it takes 1 to {REASON_LIMIT_CHARACTERS}, and no NUL")]
    Text(usize),
    #[error("has only characters that nobody can see; it takes a visible one")]
    Invisible,
}

/// Checks that a voiding may have this reason.
///
/// # Errors
/// When the text is empty, too long, has a NUL, or has nothing that a reader sees.
pub fn check_reason(text: &str) -> Result<(), InvalidReason> {
    let characters = text.chars().count();
    if !(1..=REASON_LIMIT_CHARACTERS).contains(&characters) || text.contains('\0') {
        return Err(InvalidReason::Text(characters));
    }
    if is_invisible(text) {
        return Err(InvalidReason::Invisible);
    }
    Ok(())
}

/// Selects votes that match all of these; `None`: it does not matter. At least one is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VoteFilter {
    pub voter_id: Option<VoterId>,
    pub item_id: Option<ItemId>,
    /// Cast at this time or later, by the database's clock.
    pub cast_from: Option<Moment>,
    /// Cast before this time.
    pub cast_until: Option<Moment>,
    /// From a client with one of these hashes.
    pub addresses: Option<Vec<AddressHash>>,
    /// Cast with this API key.
    pub api_key: Option<ApiKeyId>,
}

/// A voiding's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VoidingId(pub i64);

/// Accepts what [`super::ItemId`] accepts.
impl FromStr for VoidingId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        id::parse(text).map(Self)
    }
}

/// A voiding, and how far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Voiding {
    pub id: VoidingId,
    pub created_at: Moment,
    pub reason: String,
    /// The votes that it concerns, as in [`VoteFilter`]; `None`: it does not matter.
    pub voter_id: Option<String>,
    pub item_id: Option<ItemId>,
    pub cast_from: Option<Moment>,
    pub cast_until: Option<Moment>,
    /// Whether it only concerns votes from certain clients.
    pub is_by_address: bool,
    /// As in [`VoteFilter`].
    pub api_key: Option<ApiKeyId>,
    /// The last vote that it concerns, and the last that was looked at.
    pub until_vote_id: i64,
    pub done_vote_id: i64,
    /// The last voided vote that undoing looked at; `None`: the voiding is not being undone.
    pub undone_vote_id: Option<i64>,
    pub voided_votes: i64,
    /// Votes that undoing has cast again.
    pub restored_votes: i64,
    /// Votes that undoing had to leave void. Their voters replaced them, their item is full, or
    /// their voter would hold one choice too many.
    pub left_votes: i64,
}

impl Voiding {
    /// Whether all its votes are voided.
    pub fn is_done(&self) -> bool {
        self.done_vote_id >= self.until_vote_id
    }

    /// Whether nothing is left to void, or to undo with `to_undo`.
    pub fn is_finished(&self, to_undo: bool) -> bool {
        if to_undo { self.is_undone() } else { self.is_done() }
    }

    /// Whether the voiding is undone, as far as it can be.
    pub fn is_undone(&self) -> bool {
        self.undone_vote_id.is_some() && self.restored_votes + self.left_votes >= self.voided_votes
    }
}
