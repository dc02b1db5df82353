//! Counts for readers: items from Postgres, with their live counts.
//!
//! - `reads`: reads of items with their counts.
//! - `polls`: what a reader sees of a poll.
//! - `seeds`: live counts for items that are read often.
//! - `top`: the items that come first.

mod polls;
mod reads;
mod seeds;
mod top;

pub use polls::{ChoiceCount, ChoiceRead, FinalCounts, PollCount};
pub use reads::{CountReader, ItemCount, READ_BATCH_LIMIT_ITEMS, READ_QUEUE_LIMIT_READS, ReadError};
pub use top::{TOP_LIMIT_ITEMS, TopLists};
