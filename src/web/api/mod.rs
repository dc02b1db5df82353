//! The handlers, one file for each resource. They use no SQL and no Redis commands.

use crate::watching::Rendering;

/// Streams show items and polls as `GET` does.
pub(in crate::web) const RENDERING: Rendering = Rendering {
    item: items::shown,
    poll: polls::shown_count,
};

pub(in crate::web) mod access;
pub(in crate::web) mod api_keys;
pub(in crate::web) mod audits;
pub(in crate::web) mod background;
pub(in crate::web) mod ballots;
pub(in crate::web) mod batches;
pub(in crate::web) mod choices;
pub(in crate::web) mod conditional;
pub(in crate::web) mod copies;
mod csv;
pub(in crate::web) mod edits;
pub(in crate::web) mod feed;
mod fields;
pub(in crate::web) mod health;
pub(in crate::web) mod held_votes;
pub(in crate::web) mod history;
mod idempotency;
pub(in crate::web) mod items;
pub(in crate::web) mod known_answers;
pub(in crate::web) mod list_places;
pub(in crate::web) mod lists;
mod named;
pub(in crate::web) mod poll_lists;
pub(in crate::web) mod polls;
pub(in crate::web) mod receipts;
pub(in crate::web) mod runner;
pub(in crate::web) mod selections;
pub(in crate::web) mod state;
pub(in crate::web) mod status;
pub(in crate::web) mod status_history;
pub(in crate::web) mod stream_places;
pub(in crate::web) mod streams;
pub(in crate::web) mod top;
pub(in crate::web) mod trail;
mod unknown;
pub(in crate::web) mod voidings;
pub(in crate::web) mod voter;
pub(in crate::web) mod voter_edits;
pub(in crate::web) mod votes;
pub(in crate::web) mod votes_of;
