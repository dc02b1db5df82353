//! Counts for readers: an item as it stands in Postgres, with its live count.

mod reads;

pub use reads::{CountReader, ItemCount, READ_BATCH_LIMIT_ITEMS, READ_QUEUE_LIMIT_READS, ReadError};
