//! Stores that are not as they should be.

mod outages;
mod readiness;
mod starts;
mod tls;
