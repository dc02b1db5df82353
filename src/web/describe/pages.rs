//! The answers of pages, which are HTML.

use utoipa::IntoResponses;

/// A page that does not change, or that has everything that was requested.
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
        description = "Not modified: the client has this page.",
        headers(("ETag" = String), ("Cache-Control" = String), ("Content-Security-Policy" = String))
    )]
    Known,
}

/// A page about something that may not exist.
#[derive(IntoResponses)]
#[response(
    status = 404,
    description = "A page that says that it does not exist.",
    content_type = "text/html; charset=utf-8",
    headers(("ETag" = String), ("Cache-Control" = String), ("Content-Security-Policy" = String)),
    example = json!("<!doctype html>…")
)]
#[expect(dead_code, reason = "it only describes an answer")]
pub(in crate::web) struct NothingThere(String);

/// A page about something that lies in another cell.
#[derive(IntoResponses)]
#[response(
    status = 421,
    description = "Another cell has it. The page says that it does not exist.",
    content_type = "text/html; charset=utf-8",
    headers(("ETag" = String), ("Cache-Control" = String), ("Content-Security-Policy" = String), ("Tally-Cell" = String)),
    example = json!("<!doctype html>…")
)]
#[expect(dead_code, reason = "it only describes an answer")]
pub(in crate::web) struct OtherCellThere(String);

/// A page with counts, while Postgres is unavailable.
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
