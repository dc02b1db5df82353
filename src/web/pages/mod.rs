//! The pages, embedded in the binary.

use std::sync::LazyLock;

use actix_web::http::header::{self, HeaderValue};
use actix_web::{HttpRequest, HttpResponse};

use crate::web::api::conditional::TagHeader;
use crate::web::describe::pages::Page;
use crate::web::describe::problems;
use crate::web::problem::Problem;
use crate::web::transport::kept::{Fresh, Kept};

pub(in crate::web) mod assets;
pub(in crate::web) mod html;
pub(in crate::web) mod voting;

const HTML: &str = "text/html; charset=utf-8";

/// The page loads nothing from any other server.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; \
     form-action 'none'; frame-ancestors 'none'; base-uri 'none'";

/// The operator's page also makes no markup of any text.
const OPERATOR_CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; \
     form-action 'none'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

static EMBED: LazyLock<Kept> = LazyLock::new(|| {
    let page = assets::addressed(include_str!("embed/page.html"));
    Kept::new(HTML, CONTENT_SECURITY_POLICY, page)
});

static OPERATOR: LazyLock<Kept> = LazyLock::new(|| {
    let page = assets::addressed(include_str!("operator/page.html"));
    Kept::new(HTML, OPERATOR_CONTENT_SECURITY_POLICY, page)
});

/// Makes what does not change, before a request waits for it.
pub(in crate::web) fn prepare() {
    assets::prepare();
    LazyLock::force(&EMBED);
    LazyLock::force(&OPERATOR);
}

/// Shows the page that makes snippets.
///
/// In a browser: it makes the two lines of HTML that put a vote on another page, and shows them working.
#[utoipa::path(
    get,
    path = "/embed",
    operation_id = "showEmbedPage",
    tag = "Pages",
    params(TagHeader),
    responses(Page, EmbedPageProblems,)
)]
pub async fn embed_html(request: HttpRequest) -> HttpResponse {
    EMBED.answer(&request, Fresh::IfAsked)
}

problems!(EmbedPageProblems);

/// The elements. A page of any origin may load them; what they ask is another matter.
pub async fn elements(request: HttpRequest) -> Result<HttpResponse, Problem> {
    let mut answer = assets::elements(&request)?;
    let any = HeaderValue::from_static("*");
    answer
        .headers_mut()
        .insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, any);
    Ok(answer)
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
pub async fn operator_html(request: HttpRequest) -> HttpResponse {
    OPERATOR.answer(&request, Fresh::IfAsked)
}

problems!(OperatorPageProblems);
