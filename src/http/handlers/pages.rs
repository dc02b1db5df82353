//! The pages, embedded in the binary.

use actix_web::http::header::{self, HeaderValue};
use actix_web::web::{self, Bytes};
use actix_web::{HttpRequest, HttpResponse};
use percent_encoding::percent_decode_str;

use crate::http::description::{problems, values};
use crate::http::extract::reference;
use crate::http::html::Escaped;
use crate::http::state::AppState;

/// The page loads nothing from any other server.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; \
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

/// What stands in the page to vote on, before its script runs.
struct Shown<'a> {
    view: &'static str,
    reference: &'a str,
    title: &'a str,
    lead: &'a str,
    description: &'a str,
}

/// The page to vote on. No text in it is markup.
fn voting_page(request: &HttpRequest, state: &AppState, shown: &Shown<'_>) -> HttpResponse {
    // Previews take no relative address. Who ends TLS in front of the server says so by TALLY_HSTS.
    let scheme = match state.access.hsts {
        Some(_) => "https",
        None => "http",
    };
    let host = request
        .headers()
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    let origin = host.map(|host| format!("{scheme}://{host}")).unwrap_or_default();
    let mut page = String::from(include_str!("../pages/index.html"));
    for (name, text) in [
        ("{{origin}}", origin.as_str()),
        ("{{view}}", shown.view),
        ("{{reference}}", shown.reference),
        ("{{lead}}", shown.lead),
        ("{{description}}", shown.description),
        // Last: a title may look like one of these.
        ("{{heading}}", shown.title),
        ("{{title}}", shown.title),
    ] {
        page = page.replace(name, &Escaped(text).to_string());
    }
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, "text/html; charset=utf-8"))
        .insert_header((header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY))
        .insert_header((header::CACHE_CONTROL, "no-cache"))
        .body(page)
}

/// Shows the page to vote on.
///
/// In a browser: polls and items, their counts as they change, and a search.
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
pub async fn html(request: HttpRequest, state: web::Data<AppState>) -> HttpResponse {
    let lead = "Vote, change your mind, take it back. The counts are exact, and move as votes come.";
    let shown = Shown {
        view: "home",
        reference: "",
        title: "Every vote counts once",
        lead,
        description: lead,
    };
    voting_page(&request, &state, &shown)
}

problems!(PageProblems);

/// Shows the page of one item.
///
/// In a browser: its counts as they change, how they moved in the last day, and an address to share. The page is
/// there whether or not the item is.
#[utoipa::path(
    get,
    path = "/items/{id}",
    operation_id = "showItemPage",
    tag = "Pages",
    params(("id" = values::ItemReference, Path, example = json!(1))),
    responses(
        (status = 200, description = "The page.", body = String, content_type = "text/html; charset=utf-8",
            headers(("Cache-Control" = String), ("Content-Security-Policy" = String)),
            example = json!("<!doctype html>…")),
        ItemPageProblems,
    )
)]
pub async fn item(request: HttpRequest, state: web::Data<AppState>) -> HttpResponse {
    let asked = reference_in(&request);
    let found = async {
        let id = state.item(&reference::path_reference(&asked).ok()?).await.ok()?;
        Some(state.counts.one(id).await.ok()??.item)
    };
    let found = found.await;
    let shown = Shown {
        view: "item",
        reference: &asked,
        title: found.as_ref().map_or("An item", |item| &item.name),
        lead: "",
        description: "Vote, and see the count move.",
    };
    voting_page(&request, &state, &shown)
}

problems!(ItemPageProblems);

/// Shows the page of one poll.
///
/// As the page of one item.
#[utoipa::path(
    get,
    path = "/polls/{id}",
    operation_id = "showPollPage",
    tag = "Pages",
    params(("id" = values::PollReference, Path, example = json!(1))),
    responses(
        (status = 200, description = "The page.", body = String, content_type = "text/html; charset=utf-8",
            headers(("Cache-Control" = String), ("Content-Security-Policy" = String)),
            example = json!("<!doctype html>…")),
        PollPageProblems,
    )
)]
pub async fn poll(request: HttpRequest, state: web::Data<AppState>) -> HttpResponse {
    let asked = reference_in(&request);
    let found = async {
        let id = state.poll(&reference::path_reference(&asked).ok()?).await.ok()?;
        state.ledger.poll(id).await.ok()?
    };
    let found = found.await;
    let shown = Shown {
        view: "poll",
        reference: &asked,
        title: found.as_ref().map_or("A poll", |poll| &poll.title),
        lead: "",
        description: "Vote, and see the results move.",
    };
    voting_page(&request, &state, &shown)
}

problems!(PollPageProblems);

/// What stands for the item or the poll in the path, decoded if it can be.
fn reference_in(request: &HttpRequest) -> String {
    let part = request.uri().path().rsplit('/').next().unwrap_or_default();
    percent_decode_str(part).decode_utf8_lossy().into_owned()
}

/// Shows the page that makes snippets.
///
/// In a browser: it makes the two lines of HTML that put a vote on another page, and shows them working.
#[utoipa::path(
    get,
    path = "/embed",
    operation_id = "showEmbedPage",
    tag = "Pages",
    responses(
        (status = 200, description = "The page.", body = String, content_type = "text/html; charset=utf-8",
            headers(("Cache-Control" = String), ("Content-Security-Policy" = String)),
            example = json!("<!doctype html>…")),
        EmbedPageProblems,
    )
)]
pub async fn embed_html() -> HttpResponse {
    file("text/html; charset=utf-8", include_str!("../pages/embed.html"))
}

problems!(EmbedPageProblems);

pub async fn css() -> HttpResponse {
    const CSS: &str = concat!(
        include_str!("../pages/tokens.css"),
        include_str!("../pages/page.css")
    );
    file("text/css; charset=utf-8", CSS)
}

pub async fn script() -> HttpResponse {
    file("text/javascript; charset=utf-8", include_str!("../pages/page.js"))
}

pub async fn embed_page_script() -> HttpResponse {
    file(
        "text/javascript; charset=utf-8",
        include_str!("../pages/embed-page.js"),
    )
}

/// The elements. A page of any origin may load them; what they ask is another matter.
pub async fn elements() -> HttpResponse {
    let mut answer = file(
        "text/javascript; charset=utf-8",
        include_str!("../pages/embed.js"),
    );
    let any = HeaderValue::from_static("*");
    answer
        .headers_mut()
        .insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, any);
    answer
}

/// The picture of a page's preview, 1200 by 630.
pub async fn preview() -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, "image/png"))
        .insert_header((header::CACHE_CONTROL, "max-age=86400"))
        .body(Bytes::from_static(include_bytes!("../pages/preview.png")))
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
    file(
        "text/css; charset=utf-8",
        concat!(
            include_str!("../pages/tokens.css"),
            include_str!("../pages/ops.css")
        ),
    )
}

pub async fn operator_script() -> HttpResponse {
    file("text/javascript; charset=utf-8", include_str!("../pages/ops.js"))
}
