//! The answers of pages, which are HTML.

use utoipa::IntoResponses;

/// A page that does not change, or that has all that was asked for.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "it only describes answers")]
pub(in crate::web) enum Page {
    #[response(
        status = 200,
        description = "The page.",
        content_type = "text/html; charset=utf-8",
        headers(("ETag" = String), ("Cache-Control" = String), ("Content-Security-Policy" = String)),
        example = json!("<!doctype html>…")
    )]
    Sent(String),
    #[response(
        status = 304,
        description = "It is the one that the client has.",
        headers(("ETag" = String), ("Cache-Control" = String), ("Content-Security-Policy" = String))
    )]
    Known,
}

/// A page of what may not be there.
#[derive(IntoResponses)]
#[response(
    status = 404,
    description = "A page that says that there is none.",
    content_type = "text/html; charset=utf-8",
    headers(("ETag" = String), ("Cache-Control" = String), ("Content-Security-Policy" = String)),
    example = json!("<!doctype html>…")
)]
#[expect(dead_code, reason = "it only describes an answer")]
pub(in crate::web) struct NothingThere(String);

/// A page with counts, while Postgres does not answer.
#[derive(IntoResponses)]
#[response(
    status = 503,
    description = "The page without the counts.",
    content_type = "text/html; charset=utf-8",
    headers(("ETag" = String), ("Cache-Control" = String), ("Content-Security-Policy" = String), ("Retry-After" = u16)),
    example = json!("<!doctype html>…")
)]
#[expect(dead_code, reason = "it only describes an answer")]
pub(in crate::web) struct WithoutCounts(String);
