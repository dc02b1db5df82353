//! Votes under load: throttles, and exact counts that are slow to read.

mod slow_counts;
mod throttled_items;
mod throttles;
mod throttles_without_redis;
