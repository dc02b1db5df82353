//! `/docs`: the description of the HTTP API, for people.
//!
//! - `viewer`: the page.
//! - `schemas`: the bodies in words.
//! - `samples`: a call of each operation, with curl and in JavaScript.

mod samples;
mod schemas;
mod viewer;

use std::sync::LazyLock;

use actix_web::{HttpRequest, HttpResponse};
use utoipa::openapi::OpenApi;

use crate::web::api::conditional::TagHeader;
use crate::web::describe::pages::Page;
use crate::web::describe::problems;
use crate::web::pages::assets;
use crate::web::pages::html::HTML;
use crate::web::problem::Problem;
use crate::web::transport::kept::{Fresh, Kept};

/// The page may load its own style sheet and icon.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'";

/// Makes the page of this document.
pub(in crate::web) fn page_of(document: &OpenApi) -> Kept {
    let page = viewer::of(document);
    Kept::new(HTML, CONTENT_SECURITY_POLICY, assets::addressed(&page))
}

/// The page that a server serves. It is app data, because it is made from the table of routes, which contains
/// this module's route.
#[derive(Clone, Copy)]
pub(in crate::web) struct Served(pub &'static LazyLock<Kept>);

/// Show this description as a page.
///
/// One page without script. It loads nothing from any other server.
#[utoipa::path(
    get,
    path = "/docs",
    operation_id = "showDocs",
    tag = "Pages",
    params(TagHeader),
    responses(Page, DocsProblems,)
)]
pub(in crate::web) async fn page(request: HttpRequest) -> Result<HttpResponse, Problem> {
    let served = request.app_data::<Served>().ok_or_else(Problem::internal)?;
    Ok(served.0.answer(&request, Fresh::IfAsked))
}

problems!(DocsProblems);
