//! What the descriptions of operations share. `#[utoipa::path]` describes each handler where it stands, and a
//! schema describes each body. `openapi` joins them into one document.
//!
//! - `values`: the schemas of numbers and texts, with their limits.
//! - `problems`: the answers that are problems.
//! - `headers`: the headers of answers.
//! - `pages`: the answers that are pages.
//! - `examples`: the answers that several operations share.

pub(super) mod examples;
pub(super) mod headers;
pub(super) mod pages;
pub(super) mod problems;
pub(super) mod values;

pub(super) use problems::problems;
