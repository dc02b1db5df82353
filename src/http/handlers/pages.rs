//! The pages at `/` and `/ops`, embedded in the binary.

use actix_web::HttpResponse;
use actix_web::http::header;

use crate::http::description::problems;

/// The page loads nothing from any other server.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; \
     form-action 'none'; frame-ancestors 'none'; base-uri 'none'";

/// The operator's page also makes no markup of any text.
const OPERATOR_CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; \
     form-action 'none'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// A text that is embedded in the binary.
pub(super) fn file(content_type: &'static str, text: &'static str) -> HttpResponse {
    with_policy(CONTENT_SECURITY_POLICY, content_type, text)
}

fn with_policy(policy: &'static str, content_type: &'static str, text: &'static str) -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, content_type))
        .insert_header((header::CONTENT_SECURITY_POLICY, policy))
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

/// Shows the operator's page.
///
/// In a browser: how the server and its workers are and were, and what an operator does. The page itself
/// holds no data; it asks for an API key with the scope `admin`, unless administration is open.
#[utoipa::path(
    get,
    path = "/ops",
    operation_id = "showOperatorPage",
    tag = "Pages",
    responses(
        (status = 200, description = "The page.", body = String, content_type = "text/html; charset=utf-8",
            headers(("Cache-Control" = String), ("Content-Security-Policy" = String)),
            example = json!("<!doctype html>…")),
        OperatorPageProblems,
    )
)]
pub async fn operator_html() -> HttpResponse {
    with_policy(
        OPERATOR_CONTENT_SECURITY_POLICY,
        "text/html; charset=utf-8",
        include_str!("../pages/ops.html"),
    )
}

problems!(OperatorPageProblems);

pub async fn operator_css() -> HttpResponse {
    file("text/css; charset=utf-8", include_str!("../pages/ops.css"))
}

pub async fn operator_script() -> HttpResponse {
    file("text/javascript; charset=utf-8", include_str!("../pages/ops.js"))
}
