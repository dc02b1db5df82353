//! Edits of voters: another voter id, two voters that become one, a voter who is forgotten.

use std::str::FromStr;

use super::{Moment, VoterId, id};

/// What an edit does with a voter's votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VoterEditKind {
    /// They get a voter id that has no votes yet.
    Rename,
    /// They become another voter's. What one voter cannot hold twice is taken back.
    Merge,
    /// They become nobody's.
    Erase,
}

impl VoterEditKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Rename, Self::Merge, Self::Erase];

    /// Its name in the ledger and over HTTP.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rename => "rename",
            Self::Merge => "merge",
            Self::Erase => "erase",
        }
    }
}

/// Accepts a name of [`VoterEditKind::name`].
impl FromStr for VoterEditKind {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|kind| kind.name() == text).ok_or(())
    }
}

/// An edit's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VoterEditId(pub i64);

/// Accepts what [`super::ItemId`] accepts.
impl FromStr for VoterEditId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        id::parse(text).map(Self)
    }
}

/// An edit that is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewVoterEdit {
    pub kind: VoterEditKind,
    /// Whose votes.
    pub from: VoterId,
    /// Whose they become.
    pub to: VoterId,
}

/// Why there is no such edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidVoterEdit {
    #[error("the other voter id is missing; renaming and merging take one")]
    NoOther,
    #[error("the other voter id is set; erasing takes none, since a random id takes the voter's place")]
    Other,
    #[error("the other voter id is the voter's own id; it takes another one")]
    Same,
}

impl NewVoterEdit {
    /// An edit of this voter.
    ///
    /// # Errors
    /// When the other voter is missing, not wanted, or the same.
    pub fn new(kind: VoterEditKind, from: VoterId, to: Option<VoterId>) -> Result<Self, InvalidVoterEdit> {
        let to = match (kind, to) {
            (VoterEditKind::Erase, None) => VoterId::erased(rand::random()),
            (VoterEditKind::Erase, Some(_)) => return Err(InvalidVoterEdit::Other),
            (_, None) => return Err(InvalidVoterEdit::NoOther),
            (_, Some(to)) if to == from => return Err(InvalidVoterEdit::Same),
            (_, Some(to)) => to,
        };
        Ok(Self { kind, from, to })
    }
}

/// An edit of a voter, and how far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VoterEdit {
    pub id: VoterEditId,
    pub kind: VoterEditKind,
    /// Whose votes they were. `None`: the voter was erased.
    pub from_voter_id: Option<String>,
    /// Whose they are now.
    pub to_voter_id: String,
    pub created_at: Moment,
    /// The last vote that it concerns.
    pub until_vote_id: i64,
    /// Of a renaming: up to which vote the new voter id has none.
    pub looked_vote_id: i64,
    /// The last vote that was looked at.
    pub done_vote_id: i64,
    /// Rows of the ledger that have the other voter id.
    pub moved_rows: i64,
    /// Votes that were taken back, since the voter held too many.
    pub taken_back_votes: i64,
    /// `None`: it has not ended.
    pub ended_at: Option<Moment>,
    /// Whether nothing was changed, since the new voter id of a renaming has votes.
    pub is_refused: bool,
}

impl VoterEdit {
    /// How many vote ids it has looked at, and at how many it looks in all. A renaming looks twice.
    pub fn progress(&self) -> (i64, i64) {
        match self.kind {
            VoterEditKind::Rename => (self.looked_vote_id + self.done_vote_id, 2 * self.until_vote_id),
            VoterEditKind::Merge | VoterEditKind::Erase => (self.done_vote_id, self.until_vote_id),
        }
    }

    /// Its state over HTTP.
    pub fn state(&self) -> &'static str {
        match (self.ended_at, self.is_refused) {
            (None, _) => "editing",
            (Some(_), false) => "done",
            (Some(_), true) => "refused",
        }
    }
}

/// What a voter has in the ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VoterSummary {
    /// Votes, changes and retractions.
    pub rows: i64,
    /// Votes that the voter holds.
    pub held_votes: i64,
    /// Items that the voter has voted on.
    pub items: i64,
    /// Items on which another voter, who was named, holds a vote, too.
    pub items_of_both: i64,
    /// When the first and the last row were stored.
    pub first_at: Option<Moment>,
    pub last_at: Option<Moment>,
}

impl VoterSummary {
    /// Adds what comes later.
    pub fn add(&mut self, later: &Self) {
        self.rows += later.rows;
        self.held_votes += later.held_votes;
        self.items += later.items;
        self.items_of_both += later.items_of_both;
        // Rows of an import may be older than rows before them.
        self.first_at = self.first_at.into_iter().chain(later.first_at).min();
        self.last_at = self.last_at.max(later.last_at);
    }
}
