//! A poll with the counts of its choices, as a reader sees it.

use std::sync::Arc;

use crate::domain::{ItemId, Poll};

/// A poll and what is shown of its counts.
#[derive(Clone, Debug)]
pub struct PollCount {
    pub poll: Poll,
    /// In the order in which they were made.
    pub choices: Vec<ChoiceCount>,
    /// Whether all counts are current; so they are while they are hidden.
    pub is_current: bool,
    /// Whether the poll has closed and the counts never change again.
    pub is_final: bool,
}

/// A choice of a poll and its count.
#[derive(Clone, Debug)]
pub struct ChoiceCount {
    pub item_id: ItemId,
    pub name: Arc<str>,
    /// `None` while the poll hides its results.
    pub net: Option<i64>,
}
