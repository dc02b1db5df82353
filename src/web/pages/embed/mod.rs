//! `/embed`: the page that makes snippets. `/embed.js`: the elements of the snippets.

use std::sync::LazyLock;

use actix_web::http::header::{self, HeaderValue};
use actix_web::{HttpRequest, HttpResponse};

use crate::web::api::conditional::TagHeader;
use crate::web::describe::pages::Page;
use crate::web::describe::problems;
use crate::web::pages::assets;
use crate::web::pages::html::HTML;
use crate::web::problem::Problem;
use crate::web::transport::kept::{Fresh, Kept};

/// The page loads nothing from any other server.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; \
     form-action 'none'; frame-ancestors 'none'; base-uri 'none'";

static PAGE: LazyLock<Kept> = LazyLock::new(|| {
    let page = assets::addressed(include_str!("page.html"));
    Kept::new(HTML, CONTENT_SECURITY_POLICY, page)
});

/// Makes the page before the first request.
pub(super) fn prepare() {
    LazyLock::force(&PAGE);
}

/// Show the page that makes snippets.
///
/// For browsers. The page makes the two lines of HTML that put a vote on another page, and shows how the vote
/// looks.
#[utoipa::path(
    get,
    path = "/embed",
    operation_id = "showEmbedPage",
    tag = "Pages",
    params(TagHeader),
    responses(Page, EmbedPageProblems,)
)]
pub async fn page(request: HttpRequest) -> HttpResponse {
    PAGE.answer(&request, Fresh::IfAsked)
}

problems!(EmbedPageProblems);

/// Answers with the elements' script. A page of any origin may load it. `access` decides what the elements
/// may ask.
pub async fn elements(request: HttpRequest) -> Result<HttpResponse, Problem> {
    let mut answer = assets::elements(&request)?;
    let any = HeaderValue::from_static("*");
    answer
        .headers_mut()
        .insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, any);
    Ok(answer)
}
