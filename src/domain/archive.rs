//! Archives: votes of what has closed, in files instead of in the ledger.

use std::str::FromStr;

use super::{Moment, id};

/// An archive's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchiveId(pub i64);

/// Accepts what [`super::ItemId`] accepts.
impl FromStr for ArchiveId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        id::parse(text).map(Self)
    }
}

/// How far an archive is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArchiveState {
    /// Its file is not checked yet. Nothing is dropped.
    Writing,
    /// Its file has been compared with the ledger. Nothing is dropped.
    Checked,
    /// Some of its votes are dropped.
    Dropping,
    /// All of its votes are dropped.
    Dropped,
    /// It was given up before anything was dropped.
    Cancelled,
}

impl ArchiveState {
    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Writing => "writing",
            Self::Checked => "checked",
            Self::Dropping => "dropping",
            Self::Dropped => "dropped",
            Self::Cancelled => "cancelled",
        }
    }
}

/// The rows of an archive: what its file has, or the ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArchivedVotes {
    pub total: i64,
    /// What their values add up to.
    pub net: i64,
    /// The lowest and the highest id. `None`: there are no rows.
    pub first: Option<i64>,
    pub last: Option<i64>,
}

/// A file that was compared with the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedFile {
    /// SHA-256.
    pub hash: Vec<u8>,
    pub bytes: i64,
    pub votes: ArchivedVotes,
}

/// An archive, and how far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Archive {
    pub id: ArchiveId,
    pub created_at: Moment,
    /// No vote on its items has a higher id.
    pub until_vote_id: i64,
    /// Items, also choices of polls.
    pub items: i64,
    pub polls: i64,
    /// `None`: it has not been checked yet.
    pub file: Option<CheckedFile>,
    /// Rows that are dropped.
    pub dropped_total: i64,
    /// Rows up to this one are dropped.
    pub dropped_vote_id: i64,
    pub state: ArchiveState,
}

impl Archive {
    /// What its file is called.
    pub fn file_name(&self) -> String {
        format!("archive-{}.csv", self.id.0)
    }
}
