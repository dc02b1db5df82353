//! `/ops`: the operator's page.

use std::sync::LazyLock;

use actix_web::{HttpRequest, HttpResponse};

use crate::web::api::conditional::TagHeader;
use crate::web::describe::pages::Page;
use crate::web::describe::problems;
use crate::web::pages::assets;
use crate::web::pages::html::HTML;
use crate::web::transport::kept::{Fresh, Kept};

/// The page loads nothing from any other server, and turns no text into markup.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; \
     form-action 'none'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

static PAGE: LazyLock<Kept> = LazyLock::new(|| {
    let page = assets::addressed(include_str!("page.html"));
    Kept::new(HTML, CONTENT_SECURITY_POLICY, page)
});

/// Makes the page before the first request.
pub(super) fn prepare() {
    LazyLock::force(&PAGE);
}

/// Show the operator's page.
///
/// For browsers. The page shows the state of the server and its workers, and does what an operator does. The
/// page itself has no data. It asks for an API key with the scope `admin`, unless administration is open.
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
