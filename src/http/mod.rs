//! The HTTP interface.
//!
//! - `server`: listens, serves on each thread, and stops in order.
//! - `routes`: the whole route table.
//! - `handlers`: a file a resource. They know no SQL and no Redis.
//! - `extract`: reads bodies, paths and queries, strictly.
//! - `problem`: every error, as problem+json.
//! - `connection`, `limits`: what a client may take of the server.
//! - `observe`: the id, log line and time of every request.

mod connection;
mod extract;
mod handlers;
pub mod limits;
mod observe;
#[cfg(any(test, fuzzing))]
pub(crate) mod parsing;
mod problem;
mod routes;
mod server;
mod state;

pub use connection::ClientLimits;
pub(crate) use connection::REFUSAL_LIMIT_BYTES;
pub(crate) use handlers::health::PROBE_LIMIT;
pub(crate) use handlers::items::{PAGE_DEFAULT_ITEMS, PAGE_LIMIT_ITEMS};
pub use server::{Server, ServerOptions, start, threads};

// For the bench: it answers the same requests with other ways of storing votes.
pub use extract::{Json, PathItem};
pub use handlers::items::item_answer;
pub use handlers::votes::{VoteBody, vote_answer};
pub use problem::Problem;
