//! The pages to vote on: all polls and items, one poll, one item. They are readable without script, because
//! they contain the counts at the time of the request.

mod markup;

use std::str::FromStr;
use std::sync::LazyLock;
use std::time::Duration;

use actix_web::http::header;
use actix_web::http::uri::Authority;
use actix_web::web::Bytes;
use actix_web::{HttpRequest, HttpResponse, web};
use tokio::time::timeout;

use crate::domain::{ItemName, Reference};
use crate::ledger::LedgerError;
use crate::telemetry::trouble;
use crate::web::api::conditional::TagHeader;
use crate::web::api::list_places::ListPlace;
use crate::web::api::lists;
use crate::web::api::lists::{ListPage, PAGE_DEFAULT_ITEMS};
use crate::web::api::poll_lists;
use crate::web::api::poll_lists::{PAGE_DEFAULT_POLLS, PollPage};
use crate::web::api::state::AppState;
use crate::web::api::{items, polls};
use crate::web::describe::pages::{NothingThere, Page, WithoutCounts};
use crate::web::describe::problems;
use crate::web::pages::assets;
use crate::web::pages::html::{Escaped, HTML, fill};
use crate::web::pages::voting::markup::{ItemRow, PollCard, Section, Single, Summary};
use crate::web::problem::Problem;
use crate::web::request::reference;
use crate::web::transport::gzip;
use crate::web::transport::kept::{Fresh, Head};
use crate::web::transport::tags;

/// The longest time that a page waits for its counts. Without them the page says so, and its script tries
/// again.
const READ_LIMIT: Duration = Duration::from_secs(1);
/// When a client should retry a page that has no counts.
const RETRY_AFTER_SECONDS: &str = "5";
/// The text of a page that has no counts. Its script requests the page again.
const UNAVAILABLE: &str =
    "<p class=\"note\">The counts cannot be shown right now. Try again in a moment.</p>";

/// The page loads nothing from any other server. Its one form is the search.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; \
     form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

static TEMPLATE: LazyLock<String> = LazyLock::new(|| assets::addressed(include_str!("page.html")));

/// How much of the request is in the page.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Has {
    All,
    /// The item or the poll does not exist.
    Nothing,
    /// Postgres did not answer in time.
    Unknown,
}

impl Has {
    /// Returns the name that the page's script uses.
    fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Nothing => "nothing",
            Self::Unknown => "unknown",
        }
    }
}

/// The content of the page before its script runs.
struct Shown<'a> {
    has: Has,
    view: &'static str,
    title: &'a str,
    lead: &'a str,
    description: &'a str,
    search: &'a str,
    /// HTML.
    content: String,
}

fn page(request: &HttpRequest, state: &AppState, shown: &Shown<'_>) -> HttpResponse {
    // Previews need an absolute address. TALLY_HSTS says that TLS ends in front of the server.
    let scheme = match state.access.options.hsts {
        Some(_) => "https",
        None => "http",
    };
    let host = request
        .headers()
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    // Without a host, a relative address is the best.
    let host = host.and_then(|host| host.parse::<Authority>().ok());
    let host = host.filter(|host| !host.host().is_empty() && !host.as_str().contains('@'));
    let origin = host.map(|host| format!("{scheme}://{host}")).unwrap_or_default();
    let escaped = |text: &str| Escaped(text).to_string();
    let body = fill(&TEMPLATE, |name| match name {
        "origin" => escaped(&origin),
        "view" => escaped(shown.view),
        "has" => escaped(shown.has.name()),
        "lead" => escaped(shown.lead),
        "description" => escaped(shown.description),
        "title" => escaped(shown.title),
        "search" => escaped(shown.search),
        "content" => shown.content.clone(),
        _ => String::new(),
    });
    let head = Head {
        content_type: HTML,
        policy: CONTENT_SECURITY_POLICY,
        tag: tags::tag_of(body.as_bytes()),
    };
    let mut response = match shown.has {
        Has::All if tags::has(request, &head.tag) => HttpResponse::NotModified(),
        Has::All => HttpResponse::Ok(),
        Has::Nothing => HttpResponse::NotFound(),
        Has::Unknown => HttpResponse::ServiceUnavailable(),
    };
    if shown.has == Has::Unknown {
        response.insert_header((header::RETRY_AFTER, RETRY_AFTER_SECONDS));
    }
    let body = Bytes::from(body);
    let compressed = || gzip::compress(&body, gzip::Effort::Least);
    head.finish(request, response, Fresh::IfAsked, body.clone(), compressed)
}

/// The query of the first page. Unknown parameters and unreadable values are ignored.
#[derive(Default)]
struct Asked {
    search: String,
    /// Only items with ids above this one, and no polls.
    after: Option<i64>,
    /// Only polls with ids below this one, and no items.
    before: Option<i64>,
}

impl Asked {
    fn of(query: &str) -> Self {
        let mut asked = Self::default();
        let pairs = web::Query::<Vec<(String, String)>>::from_query(query);
        for (name, value) in pairs.map(web::Query::into_inner).unwrap_or_default() {
            match name.as_str() {
                // At most as long as a name. Text in Postgres cannot contain NUL.
                "search" => {
                    let text = value.replace('\0', " ");
                    asked.search = text.trim().chars().take(ItemName::LIMIT_CHARACTERS).collect();
                }
                "after" => asked.after = value.parse().ok(),
                "before" => asked.before = value.parse().ok(),
                _ => {}
            }
        }
        asked
    }
}

/// Show the page of polls and items.
///
/// For browsers. The page lists polls and items with live counts, and has a search.
#[utoipa::path(
    get,
    path = "/",
    operation_id = "showPage",
    tag = "Pages",
    params(
        ("search" = Option<String>, Query, description = "Only polls and items with these words in their name."),
        ("after" = Option<String>, Query, description = "Only items with ids above this one, and no polls. A value that is not a number is ignored."),
        ("before" = Option<String>, Query, description = "Only polls with ids below this one, and no items. A value that is not a number is ignored."),
        TagHeader,
    ),
    responses(
        Page,
        WithoutCounts,
        PageProblems,
    )
)]
pub async fn home(
    request: HttpRequest,
    state: web::Data<AppState>,
    place: Result<ListPlace, Problem>,
) -> HttpResponse {
    let asked = Asked::of(request.query_string());
    let found = async {
        // A page has the same words for a busy server and for one without Postgres: try again later.
        let _place = place.ok()?;
        match timeout(READ_LIMIT, found(&state, &asked)).await.ok()? {
            Ok(content) => Some(content),
            Err(error) => {
                trouble!(error, %error; "the ledger did not answer a page");
                None
            }
        }
    };
    let (has, content) = match found.await {
        Some(content) => (Has::All, content),
        None => (Has::Unknown, UNAVAILABLE.to_owned()),
    };
    let lead = "Vote, change your vote, or take it back. The counts are exact and live.";
    let shown = Shown {
        has,
        view: "home",
        title: "Every vote counts once",
        lead,
        description: lead,
        search: &asked.search,
        content,
    };
    page(&request, &state, &shown)
}

problems!(PageProblems);

/// Returns the polls and the items as HTML.
async fn found(state: &AppState, asked: &Asked) -> Result<String, LedgerError> {
    let words = Some(asked.search.as_str()).filter(|words| !words.is_empty());
    let polls = async {
        if asked.after.is_some() {
            return Ok(None);
        }
        let page = PollPage {
            before: asked.before.unwrap_or(i64::MAX),
            limit: PAGE_DEFAULT_POLLS,
            search: words.map(str::to_owned),
        };
        poll_lists::read(state, &page).await.map(Some)
    };
    let items = async {
        if asked.before.is_some() {
            return Ok(None);
        }
        let page = ListPage {
            after: asked.after.unwrap_or(0),
            limit: PAGE_DEFAULT_ITEMS,
            name: None,
            search: words.map(str::to_owned),
            without_choices: true,
        };
        lists::read(state, &page).await.map(Some)
    };
    let (polls, items) = tokio::try_join!(polls, items)?;
    let (found_polls, _, next_before) = polls.unwrap_or_default();
    let (found_items, next_after) = items.unwrap_or_default();
    let rows = found_items
        .iter()
        .map(|read| ItemRow(items::body(&read.item, read.count(), read.is_current)));
    let polls = Section {
        heading: "Polls",
        cards: found_polls
            .iter()
            .map(|poll| PollCard(polls::body(poll)))
            .collect(),
        next: next_before.map(|id| ("before", id.get())),
        search: words,
    };
    let items = Section {
        heading: "Items",
        cards: rows.collect(),
        next: next_after.map(|id| ("after", id.get())),
        search: words,
    };
    let is_last = polls.next.is_none() && items.next.is_none();
    if polls.cards.is_empty() && items.cards.is_empty() && is_last {
        let none = match words {
            _ if asked.after.is_some() || asked.before.is_some() => {
                "There are no more polls or items.".to_owned()
            }
            Some(words) => format!("Nothing has “{}” in its name.", Escaped(words)),
            None => "There is nothing to vote on yet.".to_owned(),
        };
        return Ok(format!("<p class=\"note\">{none}</p>"));
    }
    Ok(format!("{polls}{items}"))
}

/// Show the page of an item.
///
/// For browsers. The page has the item's live count, a chart of the last day, and a button to share it. If
/// there is no such item, the page says so.
#[utoipa::path(
    get,
    path = "/items/{id}",
    operation_id = "showItemPage",
    tag = "Pages",
    params(
        ("id" = String, Path, description = "An id, or `key:` followed by your own key. The page also answers for any other text.", example = json!("1")),
        TagHeader,
    ),
    responses(
        Page,
        NothingThere,
        WithoutCounts,
        ItemPageProblems,
    )
)]
pub async fn item(request: HttpRequest, state: web::Data<AppState>) -> HttpResponse {
    let found = async {
        let reference = reference_in(&request)?;
        let read = async {
            let id = state.references.item(&reference).await?.id;
            let read = state.counts.one(id).await?;
            read.ok_or_else(|| Problem::unknown_item(id))
        };
        state.ledger.in_one_run(reference.is_key(), read).await
    };
    let (has, found) = outcome(timeout(READ_LIMIT, found).await.ok());
    let read = found
        .as_ref()
        .map(|read| items::body(&read.item, read.count(), read.is_current));
    let shown = Shown {
        has,
        view: "item",
        title: found.as_ref().map_or("An item", |read| &read.item.name),
        lead: "",
        description: "Vote and see the live count.",
        search: "",
        content: match read {
            Some(item) => Single::Item(item).to_string(),
            None => instead(has, "There is no such item."),
        },
    };
    page(&request, &state, &shown)
}

problems!(ItemPageProblems);

/// Show the page of a poll.
///
/// For browsers, as the page of an item.
#[utoipa::path(
    get,
    path = "/polls/{id}",
    operation_id = "showPollPage",
    tag = "Pages",
    params(
        ("id" = String, Path, description = "An id, or `key:` followed by your own key. The page also answers for any other text.", example = json!("1")),
        TagHeader,
    ),
    responses(
        Page,
        NothingThere,
        WithoutCounts,
        PollPageProblems,
    )
)]
pub async fn poll(request: HttpRequest, state: web::Data<AppState>) -> HttpResponse {
    let found = async {
        let reference = reference_in(&request)?;
        let read = async {
            let id = state.references.poll(&reference).await?.id;
            let read = state.counts.poll(id).await?;
            read.ok_or_else(|| Problem::unknown_poll(id))
        };
        state.ledger.in_one_run(reference.is_key(), read).await
    };
    let (has, found) = outcome(timeout(READ_LIMIT, found).await.ok());
    let read = found.as_ref().map(|(poll, _)| polls::body(poll));
    let description = read.as_ref().map(|poll| Summary(poll).to_string());
    let shown = Shown {
        has,
        view: "poll",
        title: found.as_ref().map_or("A poll", |(poll, _)| &poll.poll.title),
        lead: "",
        description: description.as_deref().unwrap_or("Vote and see the live results."),
        search: "",
        content: match read {
            Some(poll) => Single::Poll(poll).to_string(),
            None => instead(has, "There is no such poll."),
        },
    };
    page(&request, &state, &shown)
}

problems!(PollPageProblems);

/// Reads the item or poll from the path's second part, as it was sent.
fn reference_in<Id: FromStr>(request: &HttpRequest) -> Result<Reference<Id>, Problem> {
    reference::path_reference(request.uri().path().split('/').nth(2).unwrap_or_default())
}

/// Returns what was found in time, and how much of the request that is.
fn outcome<T>(found: Option<Result<T, Problem>>) -> (Has, Option<T>) {
    match found {
        Some(Ok(found)) => (Has::All, Some(found)),
        Some(Err(problem)) if problem.kind().status().is_client_error() => (Has::Nothing, None),
        Some(Err(_)) | None => (Has::Unknown, None),
    }
}

fn instead(has: Has, nothing: &str) -> String {
    match has {
        Has::Nothing => format!("<p class=\"note\">{nothing}</p>"),
        Has::All | Has::Unknown => UNAVAILABLE.to_owned(),
    }
}
