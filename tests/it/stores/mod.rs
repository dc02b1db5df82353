//! Stores that are down, slow, unfit, or reached over TLS.

mod failovers;
mod outages;
mod prepared;
mod readiness;
mod redis_connections;
mod redis_errors;
mod settings;
mod standby;
mod starts;
mod tls;
