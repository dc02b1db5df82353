//! Imports: votes, items and polls from files.

use super::{ItemId, Moment, VoterId};

/// An import's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportId(pub i64);

/// A vote of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedVote {
    /// The line of the file, counted from 1.
    pub line: i64,
    pub item_id: ItemId,
    /// `None`: an anonymous vote.
    pub voter_id: Option<VoterId>,
    /// 1 or −1: what the row adds to the count.
    pub value: i16,
    /// Which of the voter's rows on the item it is: an even one casts a vote, the next odd one takes it back.
    pub change_number: i16,
    /// `None`: now.
    pub cast_at: Option<Moment>,
    /// The vote's number, on an item that numbers its votes. `None`: the next one.
    pub number: Option<i64>,
}

/// How far an import of votes is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    pub id: ImportId,
    pub done_line: i64,
    /// Votes of the file that are new.
    pub stored_votes: i64,
    /// Votes of the file that were there already.
    pub repeated_votes: i64,
    /// Lines that could not be stored.
    pub refused_lines: i64,
    /// When the end of the file was reached.
    pub ended_at: Option<Moment>,
}
