//! Counts as a reader sees them: an item as Postgres has it, with its live count.

mod reads;

pub use reads::{CountReader, ItemCount, READ_BATCH_LIMIT_ITEMS, READ_QUEUE_LIMIT_READS, ReadError};
