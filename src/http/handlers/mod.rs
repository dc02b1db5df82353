//! The handlers, a file a resource. They know no SQL and no Redis.

use crate::watching::Rendering;

/// How streams show items and polls: as `GET` does.
pub(super) const RENDERING: Rendering = Rendering {
    item: items::shown,
    poll: polls::shown_count,
};

pub(super) mod access;
pub(super) mod api_keys;
pub(super) mod audits;
pub(super) mod ballots;
pub(super) mod batches;
mod csv;
pub(super) mod edits;
pub(super) mod health;
pub(super) mod held_votes;
pub(super) mod history;
pub(super) mod items;
pub(super) mod lists;
pub(super) mod pages;
pub(super) mod poll_lists;
pub(super) mod polls;
pub(super) mod problems;
pub(super) mod receipts;
pub(super) mod selections;
pub(super) mod status;
pub(super) mod status_history;
pub(super) mod streams;
pub(super) mod top;
pub(super) mod trail;
pub(super) mod voidings;
pub(super) mod voter;
pub(super) mod votes;
