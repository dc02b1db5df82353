//! Reads what a client sends, strictly: bodies, ids in paths, queries.

pub(super) mod body;
mod path;
pub(super) mod query;

pub use body::Json;
pub use path::PathItem;
pub(super) use query::Query;
