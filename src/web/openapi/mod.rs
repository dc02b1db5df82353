//! The description of the HTTP API (OpenAPI 3.1) at `/openapi.json`. It is joined from what is written at
//! each handler.
//!
//! - `shared`: what operations have in common: headers, credentials, who may call.
//! - `inline`: numbers and texts, which have no names in the document.

mod inline;
pub(in crate::web) mod shared;

use std::sync::LazyLock;

use actix_web::web::Bytes;
use actix_web::{HttpRequest, HttpResponse};
use utoipa::{Modify as _, OpenApi};

use crate::web::api::conditional::TagHeader;
use crate::web::api::health;
use crate::web::describe::{problems, values};
use crate::web::openapi::shared::Shared;
use crate::web::problem;
use crate::web::problem::Problem;
use crate::web::transport::kept::{Fresh, Kept};

/// The content type of the document: JSON, which every tool reads.
const CONTENT_TYPE: &str = "application/json";

/// The document without its operations.
#[derive(OpenApi)]
#[openapi(
    // The version of the API, as in its paths. No answer tells the program's version.
    info(title = "Tally", version = "1", description = include_str!("about.md")),
    tags(
        (name = "Items", description = "What people vote on, and the counts."),
        (name = "Votes", description = "Cast votes, change them, take them back, and see how far a vote has come."),
        (name = "Polls", description = "Several items, from which a voter chooses."),
        (name = "Ballots", description = "One-time tokens. Each buys one vote."),
        (name = "Streams", description = "Counts as they change: server-sent events."),
        (name = "Access", description = "Who may vote on a single item or poll of a closed server."),
        (name = "Voters", description = "The voter of a browser."),
        (name = "API keys", description = "List, create, rotate and revoke API keys."),
        (name = "Operating", description = "For operators."),
        (name = "Problems", description = "The meaning of each error."),
        (name = "Health", description = "Whether a server is well, and its metrics."),
        (name = "Pages", description = "Pages for people, and this description."),
    ),
    // utoipa finds the schemas that bodies name, but not those that parameters and problems name.
    components(schemas(
        values::Id, values::ItemReference, values::PollReference, values::VoterId, values::IdempotencyKey,
        values::ProblemSlug, values::ActKind, values::TopBy, values::TopOver, values::HistoryOver, values::FrameLanguage,
        values::FrameAccent, values::FrameScheme, values::OEmbedFormat, problem::Body<'static>,
        health::NotReady<'static>,
    )),
)]
struct Frame;

/// What a browser may load when it shows the document as a page.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'";

/// Joins the operations, each of which is a document of its own, into one document.
pub(super) fn joined(operations: impl Iterator<Item = utoipa::openapi::OpenApi>) -> utoipa::openapi::OpenApi {
    let mut all = Frame::openapi();
    for one in operations {
        all.paths.merge(one.paths);
        let schemas = one.components.map(|components| components.schemas);
        let components = all.components.get_or_insert_default();
        components.schemas.extend(schemas.unwrap_or_default());
    }
    inline::values(&mut all);
    Shared.modify(&mut all);
    all
}

/// The description: the document as text, and as it is sent.
pub(super) struct Description {
    text: String,
    kept: Kept,
}

impl Description {
    pub(super) fn of(document: &utoipa::openapi::OpenApi) -> Self {
        let text = document.to_json().unwrap_or_default();
        let body = Bytes::from(text.clone());
        Self {
            kept: Kept::new(CONTENT_TYPE, CONTENT_SECURITY_POLICY, body),
            text,
        }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

/// The description that a server serves. It is app data, because it is made from the table of routes, which
/// contains this module's route.
#[derive(Clone, Copy)]
pub(super) struct Served(pub &'static LazyLock<Description>);

/// Retrieve this description.
///
/// OpenAPI 3.1, for programs that make clients, tests and pages from it.
#[utoipa::path(
    get,
    path = "/openapi.json",
    operation_id = "showDescription",
    tag = "Pages",
    params(TagHeader),
    responses(
        (status = 200, description = "The description.", body = Object, content_type = "application/json",
            headers(("ETag" = String), ("Cache-Control" = String), ("Content-Security-Policy" = String)),
            example = json!({ "openapi": "3.1.0", "info": { "title": "Tally", "version": "1" }, "paths": {} })),
        (status = 304, description = "Not modified: the client has this description.",
            headers(("ETag" = String), ("Cache-Control" = String), ("Content-Security-Policy" = String))),
        DocumentProblems,
    )
)]
pub async fn document(request: HttpRequest) -> Result<HttpResponse, Problem> {
    let served = request.app_data::<Served>().ok_or_else(Problem::internal)?;
    Ok(served.0.kept.answer(&request, Fresh::IfAsked))
}

problems!(DocumentProblems);
