//! The pages to vote on: all polls and items, one poll, one item. They are readable without script, because
//! they contain the counts at the time of the request.

pub(super) mod markup;

use std::sync::LazyLock;

use actix_web::{HttpRequest, HttpResponse, web};
use tokio::time::timeout;

use crate::domain::ItemName;
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
use crate::web::describe::pages::{NothingThere, OtherCellThere, Page, WithoutCounts};
use crate::web::describe::problems;
use crate::web::pages::found::{Has, READ_LIMIT, UNAVAILABLE};
use crate::web::pages::html::{Escaped, fill};
use crate::web::pages::voting::markup::{ItemRow, PollCard, Section, Single, Summary};
use crate::web::pages::{address, assets, found, oembed};
use crate::web::problem::Problem;

/// The page loads nothing from any other server. Its one form is the search.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; \
     form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

static TEMPLATE: LazyLock<String> = LazyLock::new(|| assets::addressed(include_str!("page.html")));

/// The content of the page before its script runs.
struct Shown<'a> {
    has: Has,
    view: &'static str,
    title: &'a str,
    lead: &'a str,
    description: &'a str,
    search: &'a str,
    /// The path of the page's item or poll, for a CMS that makes a frame of it.
    framed: Option<String>,
    /// HTML.
    content: String,
}

fn page(request: &HttpRequest, state: &AppState, shown: &Shown<'_>) -> HttpResponse {
    // Without a host, a relative address is the best.
    let origin = address::origin(request, state).unwrap_or_default();
    let discovery = shown.framed.as_ref();
    let discovery = discovery.and_then(|path| oembed::discovery(request, state, path, shown.title));
    let escaped = |text: &str| Escaped(text).to_string();
    let body = fill(&TEMPLATE, |name| match name {
        "origin" => escaped(&origin),
        "view" => escaped(shown.view),
        "has" => escaped(shown.has.name()),
        "lead" => escaped(shown.lead),
        "description" => escaped(shown.description),
        "title" => escaped(shown.title),
        "search" => escaped(shown.search),
        "discovery" => discovery.clone().unwrap_or_default(),
        "content" => shown.content.clone(),
        _ => String::new(),
    });
    found::answer(request, shown.has, CONTENT_SECURITY_POLICY, body)
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
        framed: None,
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
        OtherCellThere,
        WithoutCounts,
        ItemPageProblems,
    )
)]
pub async fn item(request: HttpRequest, state: web::Data<AppState>) -> HttpResponse {
    let (has, found) = found::item_of(&request, &state).await;
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
        framed: found.as_ref().map(|read| format!("/items/{}", read.item.id)),
        content: match read {
            Some(item) => Single::Item(item).to_string(),
            None => has.instead("There is no such item."),
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
        OtherCellThere,
        WithoutCounts,
        PollPageProblems,
    )
)]
pub async fn poll(request: HttpRequest, state: web::Data<AppState>) -> HttpResponse {
    let (has, found) = found::poll_of(&request, &state).await;
    let read = found.as_ref().map(polls::body);
    let description = read.as_ref().map(|poll| Summary(poll).to_string());
    let shown = Shown {
        has,
        view: "poll",
        title: found.as_ref().map_or("A poll", |poll| &poll.poll.title),
        lead: "",
        description: description.as_deref().unwrap_or("Vote and see the live results."),
        search: "",
        framed: found.as_ref().map(|poll| format!("/polls/{}", poll.poll.id)),
        content: match read {
            Some(poll) => Single::Poll(poll).to_string(),
            None => has.instead("There is no such poll."),
        },
    };
    page(&request, &state, &shown)
}

problems!(PollPageProblems);
