//! Stores that are down, slow, unfit, or reached over TLS.

mod cluster;
mod failovers;
mod lost_votes;
mod outages;
mod password_changes;
mod postgres_hosts;
mod prepared;
mod readiness;
mod redis_addresses;
mod redis_connections;
mod redis_errors;
mod runs;
mod sentinels;
mod settings;
mod standby;
mod standby_waits;
mod starts;
mod tls;
