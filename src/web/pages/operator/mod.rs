//! `/ops`: the operator's page.

use std::sync::LazyLock;

use actix_web::{HttpRequest, HttpResponse};

use crate::web::api::conditional::TagHeader;
use crate::web::describe::pages::Page;
use crate::web::describe::problems;
use crate::web::pages::assets;
use crate::web::pages::html::HTML;
use crate::web::transport::kept::{Fresh, Kept};

/// The page loads nothing from any other server, and makes no markup of any text.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; \
     form-action 'none'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

static PAGE: LazyLock<Kept> = LazyLock::new(|| {
    let page = assets::addressed(include_str!("page.html"));
    Kept::new(HTML, CONTENT_SECURITY_POLICY, page)
});

/// Makes the page, before a request waits for it.
pub(super) fn prepare() {
    LazyLock::force(&PAGE);
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
    params(TagHeader),
    responses(Page, OperatorPageProblems,)
)]
pub async fn page(request: HttpRequest) -> HttpResponse {
    PAGE.answer(&request, Fresh::IfAsked)
}

problems!(OperatorPageProblems);
