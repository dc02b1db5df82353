//! Edits of items and polls.

use super::{ItemName, Moment};

/// Times to set; an inner `None` removes a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeEdits {
    pub opens_at: Option<Option<Moment>>,
    pub closes_at: Option<Option<Moment>>,
}

/// What to change of an item or a poll; `None` leaves it unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edit {
    /// An item's name, a poll's title.
    pub name: Option<ItemName>,
    pub is_hidden: Option<bool>,
    pub times: TimeEdits,
}

/// Why an edit is refused. Then nothing is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EditRefusal {
    /// There is no such item or poll.
    Unknown,
    /// The item or poll has closed, so its counts are final.
    Closed,
    /// It would close before it opens.
    Order,
    /// The item was made without a rule: servers remember that its votes need no decision.
    Plain,
    /// The item is a choice: its poll has the times.
    Choice,
    /// A poll whose results are hidden until it closes has to close.
    HiddenResults,
    /// The item is a choice, and another choice of its poll has this name.
    SameChoice,
}
