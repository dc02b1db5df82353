//! Polls: items as choices under one rule.

use super::{ItemId, ItemKey, ItemName, Moment, PollId};

/// The most choices of one poll: a voter's selection is one request.
pub const CHOICES_LIMIT_ITEMS: usize = 100;

/// A valid poll that is not stored yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPoll {
    /// Follows the rules for an item's name.
    pub title: ItemName,
    /// The frontend's own key.
    pub key: Option<ItemKey>,
    /// 1 to [`CHOICES_LIMIT_ITEMS`].
    pub choices: Vec<ItemName>,
    /// How many choices one voter may hold. 1: another choice moves the vote. `None`: any number.
    pub max_choices: Option<i16>,
    pub opens_at: Option<Moment>,
    pub closes_at: Option<Moment>,
    /// Whether the poll's counts are shown before it closes.
    pub shows_results: bool,
    /// Whether each vote takes a ballot. Then `max_choices` is 1.
    pub by_ballot: bool,
    /// Whether Tally keeps nothing that links a ballot to its vote.
    pub is_secret: bool,
}

/// A choice that was to be added to a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddedChoice {
    /// It is this item.
    New(ItemId),
    /// The poll had a choice of exactly this name: nothing was added.
    There,
}

/// Why a choice is not added to a poll. Then nothing is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChoiceRefusal {
    /// There is no such poll.
    Unknown,
    /// The poll has closed, so its results are final.
    Closed,
    /// Another choice looks the same by this name.
    SameChoice,
    /// The poll has [`CHOICES_LIMIT_ITEMS`] choices.
    Many,
}

/// Whether a poll takes votes, by the database's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollState {
    NotOpenYet,
    Open,
    Closed,
}

/// A poll as it stands in Postgres.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Poll {
    pub id: PollId,
    pub title: String,
    pub key: Option<String>,
    pub is_hidden: bool,
    pub max_choices: Option<i16>,
    pub opens_at: Option<Moment>,
    pub closes_at: Option<Moment>,
    pub shows_results: bool,
    pub by_ballot: bool,
    pub is_secret: bool,
    pub state: PollState,
    /// How many voters hold a choice: the turnout.
    pub voter_count: i64,
}

impl Poll {
    /// Whether the poll's counts may be shown now.
    pub fn shows_counts(&self) -> bool {
        self.shows_results || self.state == PollState::Closed
    }
}
