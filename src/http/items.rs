//! `/v1/items`: making items, and reading their counts.

use actix_web::http::header;
use actix_web::{HttpResponse, web};
use serde::{Deserialize, Serialize};

use super::House;
use super::body::{Json, PathItem};
use super::error::Problem;
use super::query::Query;
use crate::domain::{ItemId, ItemName};
use crate::ledger::Item;

/// Items on a page of the list: when not asked for, and at the most.
pub const PAGE_DEFAULT_ITEMS: i64 = 100;
pub const PAGE_LIMIT_ITEMS: i64 = 1000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewItem {
    name: String,
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

#[derive(Serialize)]
struct ItemBody<'a> {
    id: ItemId,
    name: &'a str,
    /// The live count; the saved one when there is none.
    vote_count: i64,
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
    /// `after` for the next page; null on the last.
    next_after: Option<ItemId>,
}

impl NewItem {
    /// The name that is asked for, if it is one.
    pub(super) fn into_name(self) -> Result<ItemName, Problem> {
        ItemName::parse(self.name).map_err(|error| Problem::invalid("name", format!("{error}.")))
    }
}

/// A page of the list, as it is asked for.
#[derive(Debug, PartialEq, Eq)]
pub struct Page {
    pub after: i64,
    pub limit: i64,
    pub name: Option<String>,
}

impl ListQuery {
    /// The page that is asked for, if its limit is right.
    pub(super) fn into_page(self) -> Result<Page, Problem> {
        let limit = self.limit.unwrap_or(PAGE_DEFAULT_ITEMS);
        if !(1..=PAGE_LIMIT_ITEMS).contains(&limit) {
            let detail = format!("limit is {limit}; it takes 1 to {PAGE_LIMIT_ITEMS}.");
            return Err(Problem::invalid("limit", detail));
        }
        Ok(Page {
            after: self.after.unwrap_or(0),
            limit,
            // PostgreSQL's text holds no NUL, so no item has such a name.
            name: self.name.map(|name| name.replace('\0', "\u{fffd}")),
        })
    }
}

fn body(item: &Item, live: Option<i64>) -> ItemBody<'_> {
    ItemBody {
        id: item.id,
        name: &item.name,
        vote_count: live.unwrap_or(item.saved_count),
        saved: SavedBody {
            vote_count: item.saved_count,
            counted_at: item.counted_at.map(|rev| rev.to_string()),
        },
    }
}

pub async fn create(house: web::Data<House>, new: Json<NewItem>) -> Result<HttpResponse, Problem> {
    let name = new.0.into_name()?;
    let item = house.ledger.create_item(&name).await?;
    Ok(HttpResponse::Created()
        .insert_header((header::LOCATION, format!("/v1/items/{}", item.id)))
        .json(body(&item, None)))
}

pub async fn show(house: web::Data<House>, id: PathItem) -> Result<HttpResponse, Problem> {
    let read = house.gatherer.read(id.0).await?;
    let read = read.ok_or_else(|| Problem::unknown_item(id.0))?;
    Ok(item_answer(&read.item, read.live_count))
}

/// The answer to a read of one item, with its live count if there is one.
pub fn item_answer(item: &Item, live: Option<i64>) -> HttpResponse {
    HttpResponse::Ok().json(body(item, live))
}

pub async fn list(house: web::Data<House>, query: Query<ListQuery>) -> Result<HttpResponse, Problem> {
    let Page { after, limit, name } = query.0.into_page()?;
    let items = house.ledger.items(after, limit, name.as_deref()).await?;
    let ids: Vec<ItemId> = items.iter().map(|item| item.id).collect();
    let live = live_counts(&house, &ids).await;
    let is_full = i64::try_from(items.len()) == Ok(limit);
    Ok(HttpResponse::Ok().json(ListBody {
        items: items
            .iter()
            .zip(live)
            .map(|(item, live)| body(item, live))
            .collect(),
        next_after: items.last().filter(|_| is_full).map(|item| item.id),
    }))
}

/// The live counts, none at all while Redis is away: the link has logged that.
async fn live_counts(house: &House, items: &[ItemId]) -> Vec<Option<i64>> {
    match house.link.read(items).await {
        Ok(counts) => counts.into_iter().map(|one| Some(one?.count)).collect(),
        Err(_) => vec![None; items.len()],
    }
}
