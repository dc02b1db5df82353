//! Operations: what each one answers, and what it refuses.

mod bad_input;
mod conditional;
mod keys_and_edits;
mod lists;
pub mod problems;
mod refusals;
mod top_lists;
mod voting;
