//! Counts for readers: an item as it stands in Postgres, with its live count.
//!
//! - `reads`: reads of items with their counts.
//! - `polls`: what a reader sees of a poll.

mod polls;
mod reads;

pub use polls::{ChoiceCount, PollCount};
pub use reads::{CountReader, ItemCount, READ_BATCH_LIMIT_ITEMS, READ_QUEUE_LIMIT_READS, ReadError};
