//! The handlers, a file a resource. They know no SQL and no Redis.

pub(super) mod access;
pub(super) mod api_keys;
pub(super) mod ballots;
pub(super) mod batches;
mod csv;
pub(super) mod edits;
pub(super) mod health;
pub(super) mod items;
pub(super) mod pages;
pub(super) mod polls;
pub(super) mod problems;
pub(super) mod receipts;
pub(super) mod top;
pub(super) mod voter;
pub(super) mod votes;
