//! `/v1/items`: making items, and reading their counts.

use actix_web::http::header;
use actix_web::{HttpResponse, web};
use serde::{Deserialize, Serialize};

use crate::counts::ItemCount;
use crate::domain::{Item, ItemId, ItemName};
use crate::http::extract::{Field, Form, Json, PathItem, Query, Takes};
use crate::http::problem::Problem;
use crate::http::state::AppState;

/// Items on a page of the list, unless `limit` says otherwise.
pub const PAGE_DEFAULT_ITEMS: i64 = 100;
/// The most items on a page of the list.
pub const PAGE_LIMIT_ITEMS: i64 = 1000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewItem {
    name: String,
}

impl Form for NewItem {
    const FIELDS: &'static [Field] = &[Field::required("name", Takes::Text)];
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListQuery {
    /// Only items with ids above this one.
    after: Option<i64>,
    limit: Option<i64>,
    /// Only items of this name.
    name: Option<String>,
}

impl Form for ListQuery {
    const FIELDS: &'static [Field] = &[
        Field::optional("after", Takes::Number),
        Field::optional("limit", Takes::Number),
        Field::optional("name", Takes::Text),
    ];
}

#[derive(Serialize)]
struct ItemBody<'a> {
    id: ItemId,
    name: &'a str,
    /// The current count; the saved one while Redis is unavailable.
    vote_count: i64,
    /// Whether `vote_count` is current; if not, it is as of `saved.counted_at`.
    current: bool,
    saved: SavedBody,
}

#[derive(Serialize)]
struct SavedBody {
    vote_count: i64,
    /// RFC 3339; null when the item was never saved.
    counted_at: Option<String>,
}

#[derive(Serialize)]
struct ListBody<'a> {
    items: Vec<ItemBody<'a>>,
    /// The `after` of the next page; null on the last page.
    next_after: Option<ItemId>,
}

impl NewItem {
    /// The name, if it is allowed.
    pub(in crate::http) fn into_name(self) -> Result<ItemName, Problem> {
        ItemName::parse(self.name).map_err(|error| Problem::invalid("name", format!("{error}.")))
    }
}

/// Which page of the list a query asks for.
#[derive(Debug, PartialEq, Eq)]
pub struct ListPage {
    pub after: i64,
    pub limit: i64,
    pub name: Option<String>,
}

impl ListQuery {
    /// The page, if its limit is allowed.
    pub(in crate::http) fn into_page(self) -> Result<ListPage, Problem> {
        let limit = self.limit.unwrap_or(PAGE_DEFAULT_ITEMS);
        if !(1..=PAGE_LIMIT_ITEMS).contains(&limit) {
            let detail = format!("limit is {limit}; it takes 1 to {PAGE_LIMIT_ITEMS}.");
            return Err(Problem::invalid("limit", detail));
        }
        Ok(ListPage {
            after: self.after.unwrap_or(0),
            limit,
            // No text in Postgres holds a NUL, so no item has such a name.
            name: self.name.map(|name| name.replace('\0', "\u{fffd}")),
        })
    }
}

fn body(item: &Item, vote_count: i64, current: bool) -> ItemBody<'_> {
    ItemBody {
        id: item.id,
        name: &item.name,
        vote_count,
        current,
        saved: SavedBody {
            vote_count: item.saved_count,
            counted_at: item.counted_at.map(|revision| revision.to_string()),
        },
    }
}

pub async fn create(state: web::Data<AppState>, new: Json<NewItem>) -> Result<HttpResponse, Problem> {
    let name = new.0.into_name()?;
    let item = state.ledger.create_item(&name).await?;
    Ok(HttpResponse::Created()
        .insert_header((header::LOCATION, format!("/v1/items/{}", item.id)))
        .json(body(&item, item.saved_count, true)))
}

pub async fn show(state: web::Data<AppState>, id: PathItem) -> Result<HttpResponse, Problem> {
    let read = state.counts.one(id.0).await?;
    let read = read.ok_or_else(|| Problem::unknown_item(id.0))?;
    Ok(item_answer(&read))
}

/// The answer to a read of one item.
pub fn item_answer(read: &ItemCount) -> HttpResponse {
    HttpResponse::Ok().json(body(&read.item, read.vote_count(), read.is_current))
}

pub async fn list(state: web::Data<AppState>, query: Query<ListQuery>) -> Result<HttpResponse, Problem> {
    let ListPage { after, limit, name } = query.0.into_page()?;
    let counts = state.counts.page(after, limit, name.as_deref()).await?;
    let is_full = i64::try_from(counts.len()) == Ok(limit);
    Ok(HttpResponse::Ok().json(ListBody {
        next_after: counts.last().filter(|_| is_full).map(|last| last.item.id),
        items: counts
            .iter()
            .map(|read| body(&read.item, read.vote_count(), read.is_current))
            .collect(),
    }))
}
