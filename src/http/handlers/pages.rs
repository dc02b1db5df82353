//! The page at `/`, embedded in the binary.

use actix_web::HttpResponse;
use actix_web::http::header;

use crate::http::description::problems;

/// The page loads nothing from any other server.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; \
     form-action 'none'; frame-ancestors 'none'; base-uri 'none'";

/// A text that is embedded in the binary.
pub(super) fn file(content_type: &'static str, text: &'static str) -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, content_type))
        .insert_header((header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY))
        .insert_header((header::CACHE_CONTROL, "no-cache"))
        .body(text)
}

/// Shows the page to vote on.
///
/// In a browser: the items, their counts, and a button to vote for each.
#[utoipa::path(
    get,
    path = "/",
    operation_id = "showPage",
    tag = "Pages",
    responses(
        (status = 200, description = "The page.", body = String, content_type = "text/html; charset=utf-8",
            headers(("Cache-Control" = String), ("Content-Security-Policy" = String)),
            example = json!("<!doctype html>…")),
        PageProblems,
    )
)]
pub async fn html() -> HttpResponse {
    file("text/html; charset=utf-8", include_str!("../pages/index.html"))
}

problems!(PageProblems);

pub async fn css() -> HttpResponse {
    file("text/css; charset=utf-8", include_str!("../pages/page.css"))
}

pub async fn script() -> HttpResponse {
    file("text/javascript; charset=utf-8", include_str!("../pages/page.js"))
}
