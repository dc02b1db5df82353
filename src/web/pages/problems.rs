//! `/problems`: what each problem type means. Serves docs/problems.md, which is embedded in the binary.

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse};

use crate::web::describe::{problems, values};
use crate::web::problem::{DOCUMENT, Problem, sections};
use crate::web::transport::POLICY_OF_DATA;

const CONTENT_TYPE: &str = "text/markdown; charset=utf-8";

/// List problem types.
#[utoipa::path(
    get,
    path = "/problems",
    operation_id = "showProblems",
    tag = "Problems",
    responses(
        (status = 200, description = "The document, in Markdown: a section for each problem type.",
            body = String, content_type = "text/markdown; charset=utf-8",
            headers(("Cache-Control" = String), ("Content-Security-Policy" = String)),
            example = json!("# Problems\n\nEach error is `application/problem+json` (RFC 9457). …")),
        PageProblems,
    )
)]
pub async fn list() -> HttpResponse {
    file(DOCUMENT)
}

/// Makes an answer of a text that is embedded in the binary.
fn file(text: &'static str) -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, CONTENT_TYPE))
        .insert_header((header::CONTENT_SECURITY_POLICY, POLICY_OF_DATA))
        .insert_header((header::CACHE_CONTROL, "no-cache"))
        .body(text)
}

problems!(PageProblems);

/// Retrieve a problem type.
///
/// The `type` of each problem is this address.
#[utoipa::path(
    get,
    path = "/problems/{slug}",
    operation_id = "showProblem",
    tag = "Problems",
    params(("slug" = values::ProblemSlug, Path, description = "The last part of a problem's `type`.", example = json!("full"))),
    responses(
        (status = 200, description = "The section of this problem type, in Markdown.",
            body = String, content_type = "text/markdown; charset=utf-8",
            headers(("Cache-Control" = String), ("Content-Security-Policy" = String)),
            example = json!("## full\n\nStatus 409, title \"Full\".\n\n…")),
        ProblemProblems,
    )
)]
pub async fn show(request: HttpRequest) -> Result<HttpResponse, Problem> {
    let slug = request.match_info().query("slug");
    match sections().find(|(heading, _)| *heading == slug) {
        Some((_, text)) => Ok(file(text)),
        None => Err(Problem::not_found(request.path())),
    }
}

problems!(ProblemProblems; NotFound);
