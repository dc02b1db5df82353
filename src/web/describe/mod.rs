//! What descriptions of routes share. Each handler is described beside it, by `#[utoipa::path]`, and
//! each body by its schema; `openapi` makes one document of them.
//!
//! - `values`: the schemas of numbers and texts, with their limits.
//! - `problems`: the answers that are problems.
//! - `headers`: the headers of answers.
//! - `pages`: the answers that are pages.
//! - `examples`: the answers that several routes give.

pub(super) mod examples;
pub(super) mod headers;
pub(super) mod pages;
pub(super) mod problems;
pub(super) mod values;

pub(super) use problems::problems;
