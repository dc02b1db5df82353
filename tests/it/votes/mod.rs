//! Votes under load: throttles, cold items, exact counts that are slow to read, batches that hang.

mod cold_items;
mod hanging_batches;
mod slow_counts;
mod throttled_items;
mod throttles;
mod throttles_without_redis;
