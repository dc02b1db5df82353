//! Top lists: which items come first, over which time.

use super::{Count, ItemId, ItemKey, ItemKeyPrefix, Moment, PollId};

/// What a top list is ordered by, the highest first.
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
    /// All values.
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

/// The time that a top list covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TopOver {
    /// All votes that are held.
    #[default]
    All,
    /// The change in the last hour.
    Hour,
    /// The change in the last day.
    Day,
}

impl TopOver {
    /// All values.
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

/// Says which top list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TopKind {
    pub by: TopBy,
    pub over: TopOver,
    pub of: TopOf,
}

/// Which items a top list ranks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TopOf {
    /// Items that are not hidden.
    Items {
        /// Whether choices of polls are among them.
        with_choices: bool,
        /// Only items whose own key begins with this.
        key_prefix: Option<ItemKeyPrefix>,
    },
    /// The choices of this poll.
    Poll(PollId),
}

impl TopOf {
    /// The poll whose choices are ranked.
    pub fn poll(&self) -> Option<PollId> {
        match self {
            Self::Items { .. } => None,
            Self::Poll(poll) => Some(*poll),
        }
    }
}

/// An item of a top list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopItem {
    pub id: ItemId,
    pub name: String,
    pub key: Option<ItemKey>,
    pub saved_count: Count,
    /// The change in the list's time; `None`: the list covers all time.
    pub change: Option<Count>,
}

/// A top list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopList {
    pub items: Vec<TopItem>,
    /// The time of the first votes in it, by the database's clock; `None`: it has all votes.
    pub since: Option<Moment>,
    /// About the time of the last votes in it; `None`: no worker has summed any yet.
    pub as_of: Option<Moment>,
}
