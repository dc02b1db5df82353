//! The description of the HTTP interface, in OpenAPI 3.1: one document of what stands beside the
//! handlers, at `/openapi.json`, and the page at `/docs` that shows it.
//!
//! - `shared`: what each operation has alike: headers, credentials, who may ask.
//! - `viewer`: the page; `schemas`: the bodies in words. `samples`: a call of each operation, with curl and in JavaScript.

mod samples;
mod schemas;
mod shared;
mod viewer;

use std::sync::LazyLock;

use actix_web::{HttpRequest, HttpResponse};
use utoipa::OpenApi;

use crate::web::api::conditional::TagHeader;
use crate::web::api::{
    access, api_keys, audits, ballots, batches, edits, health, held_votes, history, items, lists, poll_lists,
    polls, problems as problem_pages, receipts, selections, status, status_history, streams, top, trail,
    voidings, voter, votes,
};
use crate::web::describe::pages::Page;
use crate::web::describe::{problems, values};
use crate::web::openapi::shared::Shared;
use crate::web::pages;
use crate::web::pages::assets;
use crate::web::problem;
use crate::web::transport::kept::{Fresh, Kept};

/// The content type of the document: JSON, which every tool reads.
const CONTENT_TYPE: &str = "application/json";

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
    // In the order of the page. A call of each, one after the other, finds what the calls before it made.
    paths(
        items::create, lists::list, top::show, items::show, history::of_item, edits::item,
        votes::cast, votes::held, votes::change, votes::take_back, batches::cast, held_votes::list, receipts::show,
        polls::create, poll_lists::list, polls::show, history::of_poll, edits::poll, selections::select, selections::selected, selections::take_back,
        ballots::of_item, ballots::of_poll,
        streams::of_item, streams::of_poll, streams::some,
        access::of_item, access::set_item, access::of_poll, access::set_poll,
        voter::create, voter::show, voter::forget,
        api_keys::create, api_keys::list, api_keys::rotate, api_keys::revoke,
        status::show, status_history::show, audits::ask,
        voidings::new::create, voidings::list, voidings::show, voidings::resume, voidings::undo,
        trail::list,
        problem_pages::list, problem_pages::show,
        health::live, health::ready, health::metrics,
        pages::voting::home, pages::voting::item, pages::voting::poll, pages::embed_html, pages::operator_html, document, page,
    ),
    // utoipa finds what bodies name, and not what parameters and problems name.
    components(schemas(
        values::Id, values::ItemReference, values::PollReference, values::VoterId, values::IdempotencyKey,
        values::ProblemSlug, values::ActKind, values::TopBy, values::TopOver, values::HistoryOver, problem::Body<'static>,
        health::NotReady<'static>,
    )),
    modifiers(&Shared),
)]
struct Description;

/// What a page may load: its own style sheet and icon.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'";

/// The document, as text.
static TEXT: LazyLock<String> = LazyLock::new(|| Description::openapi().to_json().unwrap_or_default());

/// The document, as it is sent.
static DOCUMENT: LazyLock<Kept> = LazyLock::new(|| Kept::new(CONTENT_TYPE, CONTENT_SECURITY_POLICY, text()));

/// The page.
static PAGE: LazyLock<Kept> = LazyLock::new(|| {
    let page = viewer::of(&Description::openapi());
    Kept::new(
        "text/html; charset=utf-8",
        CONTENT_SECURITY_POLICY,
        assets::addressed(&page),
    )
});

/// The description of the HTTP interface: OpenAPI 3.1, as JSON.
pub fn text() -> &'static str {
    &TEXT
}

/// Makes the document and the page, which takes some milliseconds, before a request waits for them.
pub(super) fn prepare() {
    LazyLock::force(&DOCUMENT);
    LazyLock::force(&PAGE);
}

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
pub(super) async fn document(request: HttpRequest) -> HttpResponse {
    DOCUMENT.answer(&request, Fresh::IfAsked)
}

problems!(DocumentProblems);

/// Shows this description to people.
///
/// One page, without script, that loads nothing from anywhere else.
#[utoipa::path(
    get,
    path = "/docs",
    operation_id = "showDocs",
    tag = "Pages",
    params(TagHeader),
    responses(Page, DocsProblems,)
)]
pub(super) async fn page(request: HttpRequest) -> HttpResponse {
    PAGE.answer(&request, Fresh::IfAsked)
}

problems!(DocsProblems);
