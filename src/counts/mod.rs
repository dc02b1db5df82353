//! Counts for readers: items as they stand in Postgres, with their live counts, and top lists.

mod reads;
mod top;

pub use reads::{CountReader, ItemCount, READ_BATCH_LIMIT_ITEMS, READ_QUEUE_LIMIT_READS, ReadError};
pub use top::{TOP_LIMIT_ITEMS, TopLists};
