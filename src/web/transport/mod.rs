//! What lies below the operations: connections, compression, and what every request has.
//!
//! - `listen`: the address, and the threads that serve.
//! - `connection`: connections that limit slow and greedy clients.
//! - `activity`: what a connection is doing.
//! - `connection_limits`: the limits of clients, as the settings have them.
//! - `drain`: how a server ends without losing a request.
//! - `turns`: one request at a time, whatever a client sends ahead.
//! - `framing`: where each request ends. It ignores offers to speak another protocol.
//! - `observe`: the id, log line and latency of every request.
//! - `kept`: answers that never change.
//! - `tags`: whether a client has an answer already.
//! - `gzip`: compressed answers.

pub(in crate::web) mod activity;
pub(in crate::web) mod connection;
pub(in crate::web) mod connection_limits;
pub(in crate::web) mod drain;
pub(in crate::web) mod framing;
pub(in crate::web) mod gzip;
pub(in crate::web) mod kept;
pub(in crate::web) mod listen;
pub(in crate::web) mod observe;
pub(in crate::web) mod tags;
mod turns;

/// The Content-Security-Policy of answers that are not pages.
pub(in crate::web) const POLICY_OF_DATA: &str = "default-src 'none'; frame-ancestors 'none'";
