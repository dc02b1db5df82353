//! The server's client of Redis.

mod breaker;
mod live_counts;
mod repair;
mod suspects;

pub use live_counts::{Counted, LiveCount, LiveCounts, Seed};
pub use suspects::SUSPECTS_LIMIT_ITEMS;
