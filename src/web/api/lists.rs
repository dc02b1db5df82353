//! `GET /v1/items`: lists items with their counts.

use actix_web::{HttpRequest, HttpResponse, web};
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use crate::counts::ItemCount;
use crate::domain::{ItemId, ItemName, OtherCell, Reference, Value};
use crate::ledger::{LedgerError, Listing};
use crate::web::api::conditional;
use crate::web::api::conditional::{Format, Found, NotModified, Offered, TagHeader};
use crate::web::api::csv;
use crate::web::api::items::{ITEM_COLUMNS, ItemBody, body};
use crate::web::api::list_places::ListPlace;
use crate::web::api::state::AppState;
use crate::web::describe::{examples, problems, values};
use crate::web::problem::Problem;
use crate::web::request::{Query, form, page, reference};

/// Items on a page by default.
pub const PAGE_DEFAULT_ITEMS: i64 = 100;
/// The most items on a page.
pub const PAGE_LIMIT_ITEMS: i64 = 1000;

form! {
    #[derive(IntoParams)]
    #[into_params(parameter_in = Query)]
    pub struct ListQuery {
        /// Only items with ids above this one.
        after: Option<i64>,
        /// The most items on the page. Defaults to 100.
        #[param(minimum = 1, maximum = 1000)]
        limit: Option<i64>,
        /// Only items with this name.
        name: Option<String>,
        /// Only items whose name has all of these words, or words that begin with them. Case and accents make no
        /// difference. What is written without spaces, such as Chinese, Thai or emoji, is found by any part. Not
        /// together with `name`.
        #[param(max_length = 200)]
        search: Option<String>,
        /// False leaves out the choices of polls. Defaults to true.
        choices: Option<bool>,
        /// Only these items, in this order: ids, or `key:` followed by your own key, separated by commas. At
        /// most 1,000. Not together with other parameters.
        #[param(min_length = 1)]
        ids: Option<String>,
    }
}

/// Items, and where the next page begins.
#[derive(Serialize, ToSchema)]
#[schema(as = Items)]
struct ListBody<'a> {
    items: Vec<ItemBody<'a>>,
    /// The `after` of the next page. Null on the last page. Where there are several cells, the last page of a cell leads
    /// to the next one. A page looks at about 20,000 items at the most, so it
    /// may have fewer items than `limit`, or none, and a next page all the same.
    #[schema(required, value_type = Option<values::Id>)]
    next_after: Option<ItemId>,
    /// With `ids`: the items that do not exist and that a first vote would create (`TALLY_CREATE_ITEMS`). Left out if
    /// there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    created_by_a_vote: Vec<FutureItemBody<'a>>,
}

/// An item that the first vote on its key creates.
#[derive(Serialize, ToSchema)]
#[schema(as = FutureItem)]
struct FutureItemBody<'a> {
    #[schema(value_type = values::Key)]
    key: &'a str,
    /// False if the item will take no down-votes. Left out otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    down_votes: Option<bool>,
}

/// The page of the list that a query asks for.
#[derive(Debug, PartialEq, Eq)]
pub struct ListPage {
    pub after: i64,
    pub limit: i64,
    pub name: Option<String>,
    pub search: Option<String>,
    pub without_choices: bool,
}

impl ListPage {
    fn listing(&self) -> Listing<'_> {
        match (&self.name, &self.search, self.without_choices) {
            (Some(name), ..) => Listing::Named(name),
            (None, Some(text), without_choices) => Listing::Search {
                text,
                without_choices,
            },
            (None, None, true) => Listing::WithoutChoices,
            (None, None, false) => Listing::All,
        }
    }
}

/// The items that a query asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Listed {
    Page(ListPage),
    /// These items, at most [`PAGE_LIMIT_ITEMS`].
    Items(Vec<Reference<ItemId>>),
}

impl ListQuery {
    /// Returns what the query asks for, if every parameter is allowed.
    pub(in crate::web) fn into_listed(self) -> Result<Listed, Problem> {
        let Some(ids) = &self.ids else {
            return self.into_page().map(Listed::Page);
        };
        let is_alone = self.after.is_none()
            && self.limit.is_none()
            && self.name.is_none()
            && self.search.is_none()
            && self.choices.is_none();
        if !is_alone {
            let detail = "ids: give no other parameters with it.";
            return Err(Problem::malformed("ids", detail));
        }
        let limit = usize::try_from(PAGE_LIMIT_ITEMS).unwrap_or(usize::MAX);
        Ok(Listed::Items(reference::list("ids", Some(ids), limit)?))
    }

    /// Returns the page, if its limit is allowed.
    fn into_page(self) -> Result<ListPage, Problem> {
        let limit = page::limit(self.limit, PAGE_DEFAULT_ITEMS, PAGE_LIMIT_ITEMS)?;
        if self.name.is_some() && (self.search.is_some() || self.choices == Some(false)) {
            let detail = "name: give neither search nor choices with it.";
            return Err(Problem::malformed("name", detail));
        }
        Ok(ListPage {
            after: self.after.unwrap_or(0),
            limit,
            // Text in Postgres cannot contain NUL, so no item has such a name.
            name: self.name.map(|name| name.replace('\0', "\u{fffd}")),
            search: self.search.map(|text| search("search", text)).transpose()?,
            without_choices: self.choices == Some(false),
        })
    }
}

/// List items.
///
/// A page of the items that are not hidden, in order of their ids. With `ids`, exactly those items, hidden or
/// not. Items that do not exist are left out; `created_by_a_vote` names those that a first vote creates.
#[utoipa::path(
    get,
    path = "/v1/items",
    operation_id = "listItems",
    tag = "Items",
    params(ListQuery, TagHeader),
    responses(
        (status = 200, description = "The items. As CSV for spreadsheets, if the Accept header prefers CSV: it begins with a byte-order mark, and a text that would be a formula begins with an apostrophe.",
            headers(("ETag" = String), ("Cache-Control" = String), ("Link" = String)),
            content(
                (ListBody = "application/json", example = json!({ "items": [examples::item()], "next_after": null })),
                (String = "text/csv; charset=utf-8", example = json!(examples::ITEMS_CSV)),
            )),
        NotModified,
        ListProblems,
    )
)]
pub async fn list(
    request: HttpRequest,
    state: web::Data<AppState>,
    query: Query<ListQuery>,
    _place: ListPlace,
) -> Result<HttpResponse, Problem> {
    let listed = query.0.into_listed()?;
    conditional::answer(&request, &state, Offered::JsonOrCsv, async |format| {
        let (counts, next_after, created_by_a_vote) = match &listed {
            Listed::Page(page) => {
                let (counts, next_after) = read(&state, page).await?;
                (counts, next_after, Vec::new())
            }
            Listed::Items(references) => {
                let read = async {
                    let found = state.references.find_items(references).await?;
                    let ids: Vec<ItemId> = found.iter().flatten().map(|item| item.id).collect();
                    let counts = state.counts.some(&ids).await?;
                    let unknown = references.iter().zip(&found).filter(|(_, item)| item.is_none());
                    let future: Vec<FutureItemBody<'_>> = unknown
                        .filter_map(|(reference, _)| future(&state, reference))
                        .collect();
                    Ok::<_, LedgerError>((counts, future))
                };
                let is_by_key = references.iter().any(Reference::is_key);
                let (counts, future) = state.ledger.in_one_run(is_by_key, read).await?;
                (counts, None, future)
            }
        };
        let items = counts
            .iter()
            .map(|read| body(&read.item, read.count(), read.is_current));
        let body = match format {
            Format::Json => conditional::json(&ListBody {
                next_after,
                items: items.collect(),
                created_by_a_vote,
            })?,
            Format::Csv => csv::write(&ITEM_COLUMNS, items.map(|item| item.row()))?,
        };
        let next = next_after.map(|after| page::next("/v1/items", request.query_string(), "after", after));
        Ok(Found::with_counts(body, &counts).with_next(next))
    })
    .await
}

/// What anyone's first vote on an unknown reference creates.
fn future<'a>(state: &AppState, unknown: &'a Reference<ItemId>) -> Option<FutureItemBody<'a>> {
    let Reference::Key(key) = unknown else { return None };
    let item = state.voting.options.creates.item(key, Value::UP)?;
    Some(FutureItemBody {
        key: key.as_str(),
        down_votes: (!item.rules.takes_down_votes).then_some(false),
    })
}

/// Reads the items of a page with their counts.
///
/// Also returns the `after` of the next page, or `None` on the last page.
pub(in crate::web) async fn read(
    state: &AppState,
    page: &ListPage,
) -> Result<(Vec<ItemCount>, Option<ItemId>), LedgerError> {
    let (here, cells) = state.references.cell().await?;
    // 0 is the beginning of each cell's list.
    if page.after > 0 {
        OtherCell::check_id(here, page.after, "the page after")?;
    }
    let (items, next) = state.counts.page(page.after, page.limit, page.listing()).await?;
    // The last page of a cell leads to the next cell.
    let next_cell = || cells.after(here).and_then(|cell| ItemId::new(cell.before_ids()));
    Ok((items, next.or_else(next_cell)))
}

/// Returns a text to search for. Fails when it is longer than any name.
pub(in crate::web) fn search(field: &'static str, text: String) -> Result<String, Problem> {
    let (characters, limit) = (text.chars().count(), ItemName::LIMIT_CHARACTERS);
    if characters > limit {
        let detail = format!("{field} has {characters} characters; it takes at most {limit}.");
        return Err(Problem::invalid(field, detail));
    }
    Ok(text.replace('\0', " "))
}

problems!(ListProblems: ADDRESSES, STORES; OtherCell, TooManyLists, TooManyListsOfAddress);
