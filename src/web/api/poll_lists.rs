//! `GET /v1/polls`: lists polls with their results.

use actix_web::{HttpRequest, HttpResponse, web};
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use crate::counts::{ItemCount, PollCount};
use crate::domain::{OtherCell, PollId};
use crate::ledger::LedgerError;
use crate::web::api::conditional;
use crate::web::api::conditional::{Found, NotModified, Offered, TagHeader};
use crate::web::api::list_places::ListPlace;
use crate::web::api::lists::search;
use crate::web::api::polls::{PollBody, body};
use crate::web::api::state::AppState;
use crate::web::describe::{examples, problems, values};
use crate::web::problem::Problem;
use crate::web::request::{Query, form, page};

/// Polls on a page by default.
pub const PAGE_DEFAULT_POLLS: i64 = 10;
/// The most polls on a page. Each has up to 100 choices.
pub const PAGE_LIMIT_POLLS: i64 = 100;

form! {
    #[derive(IntoParams)]
    #[into_params(parameter_in = Query)]
    pub struct PollListQuery {
        /// Only polls with ids below this one.
        before: Option<i64>,
        /// The most polls on the page. Defaults to 10.
        #[param(minimum = 1, maximum = 100)]
        limit: Option<i64>,
        /// Only polls whose title has all of these words, or words that begin with them, as in a search of items.
        #[param(max_length = 200)]
        search: Option<String>,
    }
}

/// The polls that a query asks for.
#[derive(Debug, PartialEq, Eq)]
pub struct PollPage {
    pub before: i64,
    pub limit: i64,
    pub search: Option<String>,
}

impl PollListQuery {
    /// Returns the page, if every parameter is allowed.
    pub(in crate::web) fn into_page(self) -> Result<PollPage, Problem> {
        let limit = page::limit(self.limit, PAGE_DEFAULT_POLLS, PAGE_LIMIT_POLLS)?;
        Ok(PollPage {
            before: self.before.unwrap_or(i64::MAX),
            limit,
            search: self.search.map(|text| search("search", text)).transpose()?,
        })
    }
}

/// Polls, and where the next page begins.
#[derive(Serialize, ToSchema)]
#[schema(as = Polls)]
struct PollListBody {
    polls: Vec<PollBody>,
    /// The `before` of the next page. Null on the last page. The last page of a cell leads to the cell before it. A search may have fewer polls on a page, or none, and
    /// a next page all the same, as with items.
    #[schema(required, value_type = Option<values::Id>)]
    next_before: Option<PollId>,
}

/// List polls.
///
/// A page of the polls that are not hidden, with their results. The newest come first.
#[utoipa::path(
    get,
    path = "/v1/polls",
    operation_id = "listPolls",
    tag = "Polls",
    params(PollListQuery, TagHeader),
    responses(
        (status = 200, description = "The polls.", body = PollListBody,
            headers(("ETag" = String), ("Cache-Control" = String), ("Link" = String)),
            example = json!({ "polls": [examples::poll()], "next_before": null })),
        NotModified,
        ListProblems,
    )
)]
pub async fn list(
    request: HttpRequest,
    state: web::Data<AppState>,
    query: Query<PollListQuery>,
    _place: ListPlace,
) -> Result<HttpResponse, Problem> {
    let page = query.0.into_page()?;
    conditional::answer(&request, &state, Offered::Json, async |_| {
        let (polls, read, next_before) = read(&state, &page).await?;
        let body = conditional::json(&PollListBody {
            polls: polls.iter().map(body).collect(),
            next_before,
        })?;
        let next =
            next_before.map(|before| page::next("/v1/polls", request.query_string(), "before", before));
        Ok(Found::with_counts(body, &read).with_next(next))
    })
    .await
}

/// Reads the polls of a page with their results.
///
/// Also returns the live counts that it read for them, and the `before` of the next page, or `None` on the
/// last page.
pub(in crate::web) async fn read(
    state: &AppState,
    page: &PollPage,
) -> Result<(Vec<PollCount>, Vec<ItemCount>, Option<PollId>), LedgerError> {
    let (here, _) = state.references.cell().await?;
    if page.before > 1 {
        // Polls below `before` are asked for.
        OtherCell::check_id(here, page.before - 1, "the page of polls up to")?;
    }
    let (ids, next_before) = state
        .ledger
        .list_polls(page.before, page.limit, page.search.as_deref())
        .await?;
    let (polls, read) = state.counts.polls(&ids).await?;
    // The last page of a cell leads to the cell before it: its polls are taken for older ones.
    Ok((polls, read, next_before.or(PollId::new(here.before_ids()))))
}

problems!(ListProblems: ADDRESSES, STORES; OtherCell, TooManyLists, TooManyListsOfAddress);
