//! Stores that are down, slow, unfit, or reached over TLS.

mod failovers;
mod outages;
mod readiness;
mod redis_connections;
mod starts;
mod tls;
