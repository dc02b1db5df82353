//! Votes under load.

mod slow_counts;
mod throttles;
