//! The HTTP interface.
//!
//! - `server`: listens, serves on each thread, and stops in order.
//! - `routes`: the whole route table.
//! - `handlers`: a file a resource. They know no SQL and no Redis.
//! - `description`: what descriptions of routes share; each stands beside its handler.
//! - `openapi`: all of them in one document, and the page that shows it.
//! - `extract`: reads bodies, paths and queries, strictly.
//! - `access`: who may do what.
//! - `html`: text in HTML.
//! - `assets`, `kept`, `gzip`: what pages load, answers that do not change, and how both are compressed.
//! - `keys`: which items and polls the frontend's own keys are of.
//! - `problem`: every error, as problem+json, and the table of problem types.
//! - `connection`, `limits`: what a client may take of the server.
//! - `status`: how the server is, and was in the last hour.
//! - `streams`: how many live streams there may be, and how they are written.
//! - `voidings`: the voiding that is worked off beside the votes.
//! - `observe`: the id, log line and time of every request.

pub mod access;
mod assets;
mod conditional;
mod connection;
mod description;
mod extract;
mod gzip;
mod handlers;
mod html;
mod kept;
mod keys;
pub mod limits;
mod observe;
mod openapi;
#[cfg(any(test, fuzzing))]
pub(crate) mod parsing;
mod problem;
mod routes;
mod server;
mod state;
mod status;
mod streams;
mod voidings;

pub use connection::ClientLimits;
pub(crate) use connection::REFUSAL_LIMIT_BYTES;
pub(crate) use handlers::api_keys::{ApiKeyBody, LIST_LIMIT_API_KEYS};
pub(crate) use handlers::ballots::BALLOTS_LIMIT;
pub(crate) use handlers::health::PROBE_LIMIT;
pub(crate) use handlers::lists::{PAGE_DEFAULT_ITEMS, PAGE_LIMIT_ITEMS};
pub use server::{Server, ServerOptions, start, threads};

// For the bench: it answers the same requests with other ways of storing votes.
pub use extract::{Json, PathItem, PathPoll, PathVoter};
pub use handlers::items::item_answer;
pub use handlers::selections::{SelectionBody, selection_answer};
pub use handlers::votes::{ChangeBody, VoteBody, vote_answer};
pub use problem::Problem;
// For the tests: answers are held against it.
pub use openapi::text as description;
// For the tests: each of these is sent by some refusal, and has its section in docs/problems.md.
pub use problem::Kind as ProblemKind;
