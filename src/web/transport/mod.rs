//! What lies below the operations: connections, compression, and what every request has.
//!
//! - `connection`: connections that limit slow and greedy clients.
//! - `observe`: the id, log line and time of every request.
//! - `kept`: answers that never change, with their tags.
//! - `gzip`: compressed answers.

pub(in crate::web) mod connection;
pub(in crate::web) mod gzip;
pub(in crate::web) mod kept;
pub(in crate::web) mod observe;
