//! The HTTP API, in modules. Each imports only from those below it in this list.
//!
//! - `server`: puts a server together, and stops it in order.
//! - `worker`: the worker's own HTTP: its health and its metrics.
//! - `routes`: the one table of routes, and what is read from it.
//! - `pages`: pages for people, each with its script and its style.
//! - `openapi`: the description of all operations in one document.
//! - `api`: the operations, by resource. They use no SQL and no Redis commands.
//! - `readiness`: whether votes can be stored, as the server last found out.
//! - `status`: the state of the server, now and in the last hour.
//! - `access`: who may do what.
//! - `references`: the items and polls that requests name.
//! - `describe`: what the descriptions of operations share.
//! - `request`: reads bodies, paths and queries, strictly.
//! - `transport`: connections and their limits, what each request has, compression.
//! - `problem`: every error, as problem+json, and the table of problem types.
//! - `limits`: the limits of clients.

pub mod access;
mod api;
mod describe;
pub mod limits;
mod openapi;
mod pages;
#[cfg(any(test, fuzzing))]
pub(crate) mod parsing;
mod problem;
mod readiness;
mod references;
mod request;
mod routes;
mod server;
mod status;
mod transport;
mod worker;

pub(crate) use api::api_keys::{ApiKeyBody, LIST_LIMIT_API_KEYS};
pub(crate) use api::ballots::BALLOTS_LIMIT;
pub(crate) use api::known_answers::KNOWN_LIMIT_AGE;
pub(crate) use api::lists::{PAGE_DEFAULT_ITEMS, PAGE_LIMIT_ITEMS};
pub(crate) use readiness::{FOUND_LIMIT_AGE, FRESH_LIMIT, LOOK_LIMIT};
pub use server::{Server, ServerOptions, start};
pub(crate) use transport::connection::REFUSAL_LIMIT_BYTES;
pub use transport::connection_limits::ClientLimits;
pub use transport::drain::Drain;
pub use transport::listen::threads;
pub use worker::serve_worker;

// For the bench, which serves the same requests with other ways of storing votes.
pub use api::items::item_answer;
pub use api::selections::{SelectionBody, selection_answer};
pub use api::votes::{ChangeBody, VoteBody, vote_answer};
pub use problem::Problem;
pub use request::{Json, PathItem, PathPoll, PathVoter};
// For the tests, which compare answers with it.
pub use routes::{Route, all as routes, description};
// For the tests: each type is sent by some refusal, and has its section in docs/problems.md.
pub use problem::Kind as ProblemKind;
