//! How counts changed lately, in spans of time.

use super::{Count, Moment};

/// Over which time a history is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HistoryOver {
    /// The last hour, in spans of five minutes.
    Hour,
    /// The last day: the last hour in spans of five minutes, what was before in spans of an hour.
    #[default]
    Day,
}

impl HistoryOver {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Hour, Self::Day];

    /// Its name in queries.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
        }
    }
}

/// What votes changed in a span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub starts_at: Moment,
    /// How long it is: 5 or 60.
    pub minutes: i16,
    /// What was taken back counts against what was cast.
    pub change: Count,
}

/// What votes changed lately on some items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// From when on votes are in it, by the database's clock.
    pub since: Moment,
    /// Up to when votes are in it, about; `None`: no worker has summed any yet.
    pub as_of: Option<Moment>,
    /// In the order of the items that were asked for. A span without a change may be missing.
    pub of_items: Vec<Vec<Span>>,
}
