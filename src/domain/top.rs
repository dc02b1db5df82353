//! Top lists: which items come first, and over which time.

use super::{Count, ItemId, ItemKey, Moment, PollId};

/// What items are ordered by, the most first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TopBy {
    /// Up-votes less down-votes.
    #[default]
    Net,
    /// Up-votes.
    Up,
    /// Up-votes and down-votes together.
    Movement,
}

impl TopBy {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Net, Self::Up, Self::Movement];

    /// Its name in queries.
    pub fn name(self) -> &'static str {
        match self {
            Self::Net => "net",
            Self::Up => "up",
            Self::Movement => "movement",
        }
    }
}

/// Over which time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TopOver {
    /// All votes that are held.
    #[default]
    All,
    /// What changed in the last hour.
    Hour,
    /// What changed in the last day.
    Day,
}

impl TopOver {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::All, Self::Hour, Self::Day];

    /// Its name in queries.
    pub fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Hour => "hour",
            Self::Day => "day",
        }
    }
}

/// Which top list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TopKind {
    pub by: TopBy,
    pub over: TopOver,
    /// Only of this poll's choices; `None`: of all items that lists show.
    pub poll: Option<PollId>,
}

/// An item of a top list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopItem {
    pub id: ItemId,
    pub name: String,
    pub key: Option<ItemKey>,
    pub saved_count: Count,
    /// What changed in the time that the list is over; `None`: it is over all.
    pub change: Option<Count>,
}

/// A top list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopList {
    pub items: Vec<TopItem>,
    /// From when on votes are in it, by the database's clock; `None`: from the first.
    pub since: Option<Moment>,
    /// Up to when votes are in it, about; `None`: no worker has summed any yet.
    pub as_of: Option<Moment>,
}
