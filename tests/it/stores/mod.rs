//! Stores that are not as they should be.

mod outages;
mod readiness;
mod redis_connections;
mod starts;
mod tls;
