//! `/v1/items`: making items, and reading their counts.

use actix_web::http::header;
use actix_web::{HttpResponse, web};
use serde::{Deserialize, Serialize};

use super::polls::open_and_close;
use crate::counts::ItemCount;
use crate::domain::{Count, Item, ItemId, ItemName, ItemRules, Moment, NewItem, PollId};
use crate::http::extract::{Field, Form, Json, PathItem, Query, Takes};
use crate::http::problem::Problem;
use crate::http::state::AppState;

/// Items on a page of the list, unless `limit` says otherwise.
pub const PAGE_DEFAULT_ITEMS: i64 = 100;
/// The most items on a page of the list.
pub const PAGE_LIMIT_ITEMS: i64 = 1000;

/// The body of a new item.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewItemBody {
    name: String,
    /// Whether it takes votes of −1; without it, it does.
    down_votes: Option<bool>,
    /// How many votes may be held on it at once; without it, any number.
    max_votes: Option<i64>,
    /// Whether votes get the numbers 1, 2, 3 and so on; without it, they do not.
    numbered: Option<bool>,
    /// RFC 3339: when votes are taken from.
    opens_at: Option<String>,
    /// RFC 3339: until when votes are taken.
    closes_at: Option<String>,
}

impl Form for NewItemBody {
    const FIELDS: &'static [Field] = &[
        Field::required("name", Takes::Text),
        Field::optional("down_votes", Takes::Boolean),
        Field::optional("max_votes", Takes::Number),
        Field::optional("numbered", Takes::Boolean),
        Field::optional("opens_at", Takes::Text),
        Field::optional("closes_at", Takes::Text),
    ];
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
    /// The current count, up-votes less down-votes; the saved one while Redis is unavailable.
    /// Null for a choice of a poll whose results are hidden: the poll shows them once it closes.
    vote_count: Option<i64>,
    up_count: Option<i64>,
    down_count: Option<i64>,
    /// Whether the count is current; if not, it is as of `saved.counted_at`.
    current: bool,
    saved: SavedBody,
    // The rules, where they are not the default ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    down_votes: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_votes: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    numbered: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    opens_at: Option<Moment>,
    #[serde(skip_serializing_if = "Option::is_none")]
    closes_at: Option<Moment>,
    #[serde(skip_serializing_if = "Option::is_none")]
    poll_id: Option<PollId>,
}

#[derive(Serialize)]
struct SavedBody {
    vote_count: Option<i64>,
    up_count: Option<i64>,
    down_count: Option<i64>,
    /// RFC 3339; null when the item was never saved.
    counted_at: Option<String>,
}

#[derive(Serialize)]
struct ListBody<'a> {
    items: Vec<ItemBody<'a>>,
    /// The `after` of the next page; null on the last page.
    next_after: Option<ItemId>,
}

impl NewItemBody {
    /// The item, if all of it is allowed.
    pub(in crate::http) fn into_item(self) -> Result<NewItem, Problem> {
        let name =
            ItemName::parse(self.name).map_err(|error| Problem::invalid("name", format!("name {error}.")))?;
        if let Some(votes) = self.max_votes.filter(|votes| *votes < 1) {
            let detail = format!("max_votes is {votes}; it takes 1 or more.");
            return Err(Problem::invalid("max_votes", detail));
        }
        let (opens_at, closes_at) = open_and_close(self.opens_at, self.closes_at)?;
        Ok(NewItem {
            name,
            rules: ItemRules {
                takes_down_votes: self.down_votes.unwrap_or(true),
                max_votes: self.max_votes,
                is_numbered: self.numbered.unwrap_or(false),
                opens_at,
                closes_at,
                poll: None,
                hides_count: false,
            },
        })
    }
}

/// The time in this field, if there is one.
pub(super) fn moment(field: &'static str, text: Option<String>) -> Result<Option<Moment>, Problem> {
    let read = |text: String| {
        let moment = text.parse::<Moment>();
        moment.map_err(|error| Problem::invalid(field, format!("{field}: {error}.")))
    };
    text.map(read).transpose()
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

fn body(item: &Item, count: Count, current: bool) -> ItemBody<'_> {
    let rules = item.rules.as_deref().unwrap_or(&ItemRules::DEFAULT);
    let shown = |count: Count| (!rules.hides_count).then_some(count);
    let (count, saved) = (shown(count), shown(item.saved_count));
    ItemBody {
        id: item.id,
        name: &item.name,
        vote_count: count.map(|count| count.net),
        up_count: count.map(Count::ups),
        down_count: count.map(|count| count.downs),
        current,
        saved: SavedBody {
            vote_count: saved.map(|count| count.net),
            up_count: saved.map(Count::ups),
            down_count: saved.map(|count| count.downs),
            // It moves with the count, and so tells of it.
            counted_at: saved.and(item.counted_at).map(|revision| revision.to_string()),
        },
        down_votes: (!rules.takes_down_votes).then_some(false),
        max_votes: rules.max_votes,
        numbered: rules.is_numbered.then_some(true),
        opens_at: rules.opens_at,
        closes_at: rules.closes_at,
        poll_id: rules.poll,
    }
}

pub async fn create(state: web::Data<AppState>, new: Json<NewItemBody>) -> Result<HttpResponse, Problem> {
    let new = new.0.into_item()?;
    let item = state.ledger.create_item(&new).await?;
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
    HttpResponse::Ok().json(body(&read.item, read.count(), read.is_current))
}

pub async fn list(state: web::Data<AppState>, query: Query<ListQuery>) -> Result<HttpResponse, Problem> {
    let ListPage { after, limit, name } = query.0.into_page()?;
    let counts = state.counts.page(after, limit, name.as_deref()).await?;
    let is_full = i64::try_from(counts.len()) == Ok(limit);
    Ok(HttpResponse::Ok().json(ListBody {
        next_after: counts.last().filter(|_| is_full).map(|last| last.item.id),
        items: counts
            .iter()
            .map(|read| body(&read.item, read.count(), read.is_current))
            .collect(),
    }))
}
