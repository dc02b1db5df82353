//! The pages of one item or one poll for a frame on another page: the vote alone. Pages of the origins in
//! TALLY_FRAME_ORIGINS may frame them. What they load has relative addresses, so that they work below a path too.

pub(super) mod look;

use std::sync::LazyLock;

use actix_web::{HttpRequest, HttpResponse, web};

use crate::web::api::conditional::TagHeader;
use crate::web::api::state::AppState;
use crate::web::api::{items, polls};
use crate::web::describe::pages::{NothingThere, OtherCellThere, Page, WithoutCounts};
use crate::web::describe::problems;
use crate::web::pages::found::Has;
use crate::web::pages::frames::look::{FrameForm, Look};
use crate::web::pages::html::{Escaped, fill};
use crate::web::pages::voting::markup::{Framed, Single};
use crate::web::pages::{assets, found};
use crate::web::problem::Problem;
use crate::web::request::Query;

/// The page loads nothing from any other server, and has no form. The origins that may frame it follow.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; \
     form-action 'none'; base-uri 'none'; frame-ancestors";

static TEMPLATE: LazyLock<String> = LazyLock::new(|| assets::addressed(include_str!("page.html")));

/// The content of the page before its script runs.
struct Shown<'a> {
    has: Has,
    title: &'a str,
    /// HTML.
    content: String,
}

fn page(request: &HttpRequest, state: &AppState, look: &Look, shown: &Shown<'_>) -> HttpResponse {
    let escaped = |text: &str| Escaped(text).to_string();
    let scheme = look.scheme();
    let body = fill(&TEMPLATE, |name| match name {
        "lang" => escaped(look.language()),
        "dir" => look.direction().to_owned(),
        "scheme" => scheme.map_or_else(String::new, |scheme| {
            format!(" data-scheme=\"{}\"", scheme.name())
        }),
        "accent" => escaped(look.accent()),
        "has" => shown.has.name().to_owned(),
        "title" => escaped(shown.title),
        "content" => shown.content.clone(),
        _ => String::new(),
    });
    let ancestors = state.access.options.frames.ancestors();
    let policy = format!("{CONTENT_SECURITY_POLICY} {ancestors}");
    found::answer(request, shown.has, &policy, body)
}

/// Returns the vote, with what is shown to visitors who cannot vote here. `path` is the path of the page on which
/// they can.
fn content(vote: Single<'_>, path: &str) -> String {
    format!(
        "{}\n<noscript><p class=\"note\" lang=\"en\" dir=\"ltr\">To vote, this page needs JavaScript.</p></noscript>\n\
         <p id=\"own\" class=\"note\" lang=\"en\" dir=\"ltr\" hidden>Your browser keeps no voter in this frame. \
         <a href=\"../..{path}\" target=\"_blank\" rel=\"noopener\">Vote on a page of its own</a></p>",
        Framed(vote)
    )
}

/// Returns what stands in place of a vote that cannot be shown.
fn instead(has: Has, title: &str, nothing: &str) -> String {
    format!(
        "<h1 lang=\"en\" dir=\"ltr\">{title}</h1>\n{}",
        has.instead(nothing)
    )
}

/// Show an item for a frame.
///
/// For browsers. The page has the item alone: its name, its live count and the buttons to vote. Pages of the
/// origins in `TALLY_FRAME_ORIGINS` may frame it.
#[utoipa::path(
    get,
    path = "/items/{id}/frame",
    operation_id = "showItemFrame",
    tag = "Pages",
    params(
        ("id" = String, Path, description = "An id, or `key:` followed by your own key. The page also answers for any other text.", example = json!("1")),
        FrameForm,
        TagHeader,
    ),
    responses(
        Page,
        NothingThere,
        OtherCellThere,
        WithoutCounts,
        ItemFrameProblems,
    )
)]
pub async fn item(
    request: HttpRequest,
    state: web::Data<AppState>,
    form: Query<FrameForm>,
) -> Result<HttpResponse, Problem> {
    let look = Look::try_from(form.0)?;
    let (has, found) = found::item_of(&request, &state).await;
    let shown = Shown {
        has,
        title: found.as_ref().map_or("An item", |read| &read.item.name),
        content: match &found {
            Some(read) => {
                let item = items::body(&read.item, read.count(), read.is_current);
                content(Single::Item(item), &format!("/items/{}", read.item.id))
            }
            None => instead(has, "An item", "There is no such item."),
        },
    };
    Ok(page(&request, &state, &look, &shown))
}

problems!(ItemFrameProblems: ADDRESSES);

/// Show a poll for a frame.
///
/// For browsers. The page has the poll alone. Pages of the origins in `TALLY_FRAME_ORIGINS` may frame it.
#[utoipa::path(
    get,
    path = "/polls/{id}/frame",
    operation_id = "showPollFrame",
    tag = "Pages",
    params(
        ("id" = String, Path, description = "An id, or `key:` followed by your own key. The page also answers for any other text.", example = json!("1")),
        FrameForm,
        TagHeader,
    ),
    responses(
        Page,
        NothingThere,
        OtherCellThere,
        WithoutCounts,
        PollFrameProblems,
    )
)]
pub async fn poll(
    request: HttpRequest,
    state: web::Data<AppState>,
    form: Query<FrameForm>,
) -> Result<HttpResponse, Problem> {
    let look = Look::try_from(form.0)?;
    let (has, found) = found::poll_of(&request, &state).await;
    let shown = Shown {
        has,
        title: found.as_ref().map_or("A poll", |poll| &poll.poll.title),
        content: match &found {
            Some(poll) => content(
                Single::Poll(polls::body(poll)),
                &format!("/polls/{}", poll.poll.id),
            ),
            None => instead(has, "A poll", "There is no such poll."),
        },
    };
    Ok(page(&request, &state, &look, &shown))
}

problems!(PollFrameProblems: ADDRESSES);
