//! Operations: what each one answers, and what it refuses.

mod bad_input;
mod conditional;
mod held;
mod history;
mod keys_and_edits;
mod lists;
mod names;
pub mod problems;
mod public_reads;
mod refusals;
mod search;
mod top_lists;
mod votes_of;
mod voting;
