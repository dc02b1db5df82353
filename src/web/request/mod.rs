//! Reads what a client sends, strictly: bodies, ids in paths, queries.

pub(super) mod body;
mod form;
pub(super) mod idempotency;
pub(super) mod named;
pub(super) mod page;
pub(super) mod path;
pub(super) mod query;
pub(super) mod reference;

pub use body::Json;
pub(super) use form::{Field, Form, form};
pub use idempotency::{IDEMPOTENCY_KEY_LIMIT_BYTES, KeyHeader};
pub use path::{PathApiKey, PathItem, PathPoll, PathVoiding, PathVote, PathVoter, PathVoterEdit};
pub(super) use query::Query;
pub use reference::{BodyItem, PathItemReference, PathPollReference};
