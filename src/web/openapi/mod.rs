//! The description of the HTTP interface, in OpenAPI 3.1: one document of what stands beside the
//! handlers, at `/openapi.json`.
//!
//! - `shared`: what each operation has alike: headers, credentials, who may ask.

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
    // The version of the interface, as in its paths. No answer names the program's own.
    info(title = "Tally", version = "1", description = include_str!("about.md")),
    tags(
        (name = "Items", description = "What is voted on, with its counts."),
        (name = "Votes", description = "Casting a vote, changing it, taking it back, and what became of it."),
        (name = "Polls", description = "Several items of which a voter chooses some."),
        (name = "Ballots", description = "One-time tokens, each of which buys one vote."),
        (name = "Streams", description = "Counts as they change: server-sent events."),
        (name = "Access", description = "To whom a single item or poll is open on a closed server."),
        (name = "Voters", description = "Who a browser is as a voter."),
        (name = "API keys", description = "Which there are, making them, and revoking them."),
        (name = "Operating", description = "What an operator does and sees."),
        (name = "Problems", description = "What each error means."),
        (name = "Health", description = "Whether a server is well, and its metrics."),
        (name = "Pages", description = "Pages for people, and this description."),
    ),
    // utoipa finds what bodies name, and not what parameters and problems name.
    components(schemas(
        values::Id, values::ItemReference, values::PollReference, values::VoterId, values::IdempotencyKey,
        values::ProblemSlug, values::ActKind, values::TopBy, values::TopOver, values::HistoryOver, problem::Body<'static>,
        health::NotReady<'static>,
    )),
)]
struct Frame;

/// What a browser may load that shows the document as a page.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'";

/// The document of these operations, each in a document of its own.
pub(super) fn joined(operations: impl Iterator<Item = utoipa::openapi::OpenApi>) -> utoipa::openapi::OpenApi {
    let mut all = Frame::openapi();
    for one in operations {
        all.paths.merge(one.paths);
        let schemas = one.components.map(|components| components.schemas);
        let components = all.components.get_or_insert_default();
        components.schemas.extend(schemas.unwrap_or_default());
    }
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

/// The description that a server serves: app data, since the table of routes, which it is made of, has
/// this module's route in it.
#[derive(Clone, Copy)]
pub(super) struct Served(pub &'static LazyLock<Description>);

/// Shows this description.
///
/// OpenAPI 3.1, for programs that make clients, tests and pages of it.
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
        (status = 304, description = "It is the one that the client has.",
            headers(("ETag" = String), ("Cache-Control" = String), ("Content-Security-Policy" = String))),
        DocumentProblems,
    )
)]
pub async fn document(request: HttpRequest) -> Result<HttpResponse, Problem> {
    let served = request.app_data::<Served>().ok_or_else(Problem::internal)?;
    Ok(served.0.kept.answer(&request, Fresh::IfAsked))
}

problems!(DocumentProblems);
