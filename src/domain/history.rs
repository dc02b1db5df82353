//! Recent changes of counts, in spans of time.

use super::{Count, Moment};

/// The time that a history covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HistoryOver {
    /// The last hour, in spans of five minutes.
    Hour,
    /// The last day: the last hour in spans of five minutes, the time before in spans of an hour.
    #[default]
    Day,
}

impl HistoryOver {
    /// All values.
    pub const ALL: [Self; 2] = [Self::Hour, Self::Day];

    /// Its name in queries.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
        }
    }
}

/// The change of a count in a span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub starts_at: Moment,
    /// The span's length: 5 or 60.
    pub minutes: i16,
    /// Votes that were taken back count against those that were cast.
    pub change: Count,
}

/// The recent changes of an item's counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemHistory {
    /// The counts after the last of these changes: all votes that are summed.
    pub total: Count,
    /// In the order of time. A span without a change may be missing.
    pub spans: Vec<Span>,
}

/// The recent changes of some items' counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// The time of the first votes in it, by the database's clock.
    pub since: Moment,
    /// About the time of the last votes in it; `None`: no worker has summed any yet.
    pub as_of: Option<Moment>,
    /// In the order of the request.
    pub of_items: Vec<ItemHistory>,
}
