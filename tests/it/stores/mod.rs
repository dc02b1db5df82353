//! Stores that are down, slow, unfit, or reached over TLS.

mod outages;
mod prepared;
mod readiness;
mod redis_connections;
mod settings;
mod starts;
mod tls;
