//! `/v1/items`: creates items and reads their counts.

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, web};
use serde::Serialize;
use utoipa::ToSchema;

use crate::counts::ItemCount;
use crate::domain::{Count, Item, ItemId, ItemRules, Moment, NewItem, PollId, Reference};
use crate::ledger::LedgerError;
use crate::watching::PublicState;
use crate::web::access::Admin;
use crate::web::api::conditional;
use crate::web::api::conditional::{Found, NotModified, Offered, TagHeader};
use crate::web::api::csv;
use crate::web::api::fields::{key, name, open_and_close};
use crate::web::api::state::AppState;
use crate::web::describe::{examples, problems, values};
use crate::web::problem::Problem;
use crate::web::request::{Json, PathItemReference, form};

form! {
    /// The body of a new item.
    #[derive(ToSchema)]
    #[schema(as = NewItem, examples(json!({ "name": "A post", "key": "post-42" })))]
    pub struct NewItemBody {
        #[schema(value_type = values::Name)]
        name: String,
        /// Your own key. It is unique and never changes.
        #[schema(value_type = Option<values::Key>)]
        key: Option<String>,
        /// Whether the item takes votes of −1. Defaults to true.
        down_votes: Option<bool>,
        /// The most votes that may be held on the item at once. Defaults to any number.
        #[schema(value_type = Option<values::Id>)]
        max_votes: Option<i64>,
        /// Whether votes get the numbers 1, 2, 3 and so on. Defaults to false.
        numbered: Option<bool>,
        /// The time at which voting opens (RFC 3339).
        #[schema(value_type = Option<values::Time>)]
        opens_at: Option<String>,
        /// The time at which voting closes (RFC 3339). It must be after `opens_at`.
        #[schema(value_type = Option<values::Time>)]
        closes_at: Option<String>,
        /// Whether each vote needs a ballot. Defaults to false.
        by_ballot: Option<bool>,
    }
}

/// An item and its counts.
#[derive(Serialize, ToSchema)]
#[schema(as = Item)]
pub(in crate::web) struct ItemBody<'a> {
    #[schema(value_type = values::Id)]
    pub(in crate::web) id: ItemId,
    #[schema(value_type = values::Name)]
    pub(in crate::web) name: &'a str,
    /// Your own key, if the item has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = values::Key)]
    key: Option<&'a str>,
    /// True if lists leave the item out. Left out otherwise.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    hidden: bool,
    /// The current count: up-votes less down-votes. While Redis is unavailable, the saved count. Null for a
    /// choice of a poll whose results are hidden until the poll closes.
    #[schema(required, value_type = Option<values::NetCount>)]
    pub(in crate::web) vote_count: Option<i64>,
    #[schema(required, value_type = Option<values::UpOrDownCount>)]
    up_count: Option<i64>,
    #[schema(required, value_type = Option<values::UpOrDownCount>)]
    down_count: Option<i64>,
    /// Whether the count is current. If not, it is as of `saved.counted_at`.
    current: bool,
    saved: SavedBody,
    // Rules appear only where they differ from the default.
    /// False if the item takes no down-votes. Left out otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    down_votes: Option<bool>,
    /// The most votes that may be held on the item at once. Left out if there is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = values::Id)]
    max_votes: Option<i64>,
    /// True if votes get numbers. Left out otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    numbered: Option<bool>,
    /// The time at which voting opens.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = values::Time)]
    opens_at: Option<Moment>,
    /// The time at which voting closes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = values::Time)]
    closes_at: Option<Moment>,
    /// True if each vote needs a ballot. Left out otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    by_ballot: Option<bool>,
    /// The poll that has this item as a choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = values::Id)]
    poll_id: Option<PollId>,
}

/// The counts that are saved in Postgres, usually about a second old. Null where the current ones are hidden.
#[derive(Default, Serialize, ToSchema)]
#[schema(as = SavedCounts)]
struct SavedBody {
    #[schema(required, value_type = Option<values::NetCount>)]
    vote_count: Option<i64>,
    #[schema(required, value_type = Option<values::UpOrDownCount>)]
    up_count: Option<i64>,
    #[schema(required, value_type = Option<values::UpOrDownCount>)]
    down_count: Option<i64>,
    /// RFC 3339. Null if the item was never saved.
    #[schema(required, value_type = Option<values::Time>)]
    counted_at: Option<String>,
}

impl NewItemBody {
    /// Returns the item that the body asks for, if every field is allowed.
    pub(in crate::web) fn into_item(self) -> Result<NewItem, Problem> {
        let name = name("name", self.name)?;
        let key = key(self.key)?;
        if let Some(votes) = self.max_votes.filter(|votes| *votes < 1) {
            let detail = format!("max_votes is {votes}; it takes 1 or more.");
            return Err(Problem::invalid("max_votes", detail));
        }
        let (opens_at, closes_at) = open_and_close(self.opens_at, self.closes_at)?;
        let by_ballot = self.by_ballot.unwrap_or(false);
        Ok(NewItem {
            name,
            key,
            rules: ItemRules {
                takes_down_votes: self.down_votes.unwrap_or(true),
                max_votes: self.max_votes,
                is_numbered: self.numbered.unwrap_or(false),
                opens_at,
                closes_at,
                by_ballot,
                poll: None,
                hides_count: false,
            },
        })
    }
}

/// The columns of a list in CSV.
pub(in crate::web) const ITEM_COLUMNS: [&str; 8] = [
    "id",
    "name",
    "key",
    "vote_count",
    "up_count",
    "down_count",
    "current",
    "poll_id",
];

impl ItemBody<'_> {
    /// Returns the fields for [`ITEM_COLUMNS`]. A field that is null is empty.
    pub(in crate::web) fn row(&self) -> [String; ITEM_COLUMNS.len()] {
        [
            self.id.to_string(),
            csv::text(self.name),
            csv::text(self.key.unwrap_or_default()),
            csv::field(self.vote_count),
            csv::field(self.up_count),
            csv::field(self.down_count),
            self.current.to_string(),
            csv::field(self.poll_id),
        ]
    }
}

pub(in crate::web) fn body(item: &Item, count: Count, current: bool) -> ItemBody<'_> {
    let rules = item.rules.as_deref().unwrap_or(&ItemRules::DEFAULT);
    let shown = |count: Count| (!rules.hides_count).then_some(count);
    let (count, saved) = (shown(count), shown(item.saved_count));
    ItemBody {
        id: item.id,
        name: &item.name,
        key: item.key.as_deref(),
        hidden: item.is_hidden,
        vote_count: count.map(|count| count.net),
        up_count: count.map(Count::ups),
        down_count: count.map(|count| count.downs),
        // For a hidden count, `current` would tell whether there is a live count.
        current: current || rules.hides_count,
        saved: SavedBody {
            vote_count: saved.map(|count| count.net),
            up_count: saved.map(Count::ups),
            down_count: saved.map(|count| count.downs),
            // `counted_at` moves with the count, so it would tell of a hidden count.
            counted_at: saved.and(item.counted_at).map(|revision| revision.to_string()),
        },
        down_votes: (!rules.takes_down_votes).then_some(false),
        max_votes: rules.max_votes,
        numbered: rules.is_numbered.then_some(true),
        opens_at: rules.opens_at,
        closes_at: rules.closes_at,
        by_ballot: rules.by_ballot.then_some(true),
        poll_id: rules.poll,
    }
}

/// Create an item.
///
/// If an equal item has the same key, the answer is that item.
#[utoipa::path(
    post,
    path = "/v1/items",
    operation_id = "createItem",
    tag = "Items",
    request_body(content = NewItemBody, example = json!({ "name": "A post", "key": "post-42" })),
    security(("apiKey" = ["admin"]), ()),
    extensions(("x-open" = json!(["admin"]))),
    responses(
        (status = 201, description = "The item was created.", body = ItemBody, headers(("Location" = String)),
            example = json!({
                "id": 1, "name": "A post", "key": "post-42",
                "vote_count": 0, "up_count": 0, "down_count": 0, "current": true,
                "saved": { "vote_count": 0, "up_count": 0, "down_count": 0, "counted_at": null }
            })),
        (status = 200, description = "An equal item has your key already.", body = ItemBody,
            example = json!(examples::item())),
        CreateProblems,
    )
)]
pub async fn create(
    by: Admin,
    state: web::Data<AppState>,
    new: Json<NewItemBody>,
) -> Result<HttpResponse, Problem> {
    let new = new.0.into_item()?;
    state.references.check_key(new.key.as_ref()).await?;
    let item = match state.ledger.create_item_by(by.0, &new).await {
        Ok(item) => item,
        Err(LedgerError::KeyTaken) => return state.ledger.in_one_run(true, existing(&state, &new)).await,
        Err(error) => return Err(error.into()),
    };
    Ok(HttpResponse::Created()
        .insert_header((header::LOCATION, format!("/v1/items/{}", item.id)))
        .json(body(&item, item.saved_count, true)))
}

problems!(CreateProblems: WRITES, BODIES, CALLERS, STORES; BodyTooLarge, KeyTaken, OtherCell, UnknownItem, OlderServers);

/// Returns the item that has the new item's key: 200 if both are equal, 409 if not.
async fn existing(state: &AppState, new: &NewItem) -> Result<HttpResponse, Problem> {
    let Some(key) = new.key.clone() else {
        return Err(Problem::internal());
    };
    let id = state.references.item(&Reference::Key(key)).await?.id;
    let read = state.counts.one(id).await?;
    let read = read.ok_or_else(|| Problem::unknown_item(id))?;
    let rules = read.item.rules.as_deref().unwrap_or(&ItemRules::DEFAULT);
    if *read.item.name != *new.name.as_str() || *rules != new.rules {
        let detail = format!(
            "Item {id} has this key, but another name or other rules; use another key for another item."
        );
        return Err(Problem::key_taken(detail));
    }
    state.ledger.until_earlier_commits_are_safe().await?;
    Ok(item_answer(&read))
}

/// Retrieve an item.
///
/// The counts are live. Without a live count they are the saved ones, or the exact ones from Postgres.
/// `current` says whether they are current.
#[utoipa::path(
    get,
    path = "/v1/items/{id}",
    operation_id = "showItem",
    tag = "Items",
    params(("id" = values::ItemReference, Path, example = json!(1)), TagHeader),
    responses(
        (status = 200, description = "The item.", body = ItemBody,
            headers(("ETag" = String), ("Cache-Control" = String)), example = json!(examples::item())),
        NotModified,
        ShowProblems,
    )
)]
pub async fn show(
    request: HttpRequest,
    state: web::Data<AppState>,
    id: PathItemReference,
) -> Result<HttpResponse, Problem> {
    conditional::answer(&request, &state, Offered::Json, async |_| {
        let read = async {
            let item = state.references.item(&id.0).await?.id;
            let read = state.counts.one(item).await?;
            let read = read.ok_or_else(|| Problem::unknown_item(&id.0))?;
            let body = conditional::json(&body(&read.item, read.count(), read.is_current))?;
            Ok(Found::with_counts(body, [&read]))
        };
        state.ledger.in_one_run(id.0.is_key(), read).await
    })
    .await
}

problems!(ShowProblems: ADDRESSES, STORES; OtherCell, UnknownItem);

/// Returns the answer to a read of one item.
pub fn item_answer(read: &ItemCount) -> HttpResponse {
    HttpResponse::Ok().json(body(&read.item, read.count(), read.is_current))
}

/// Returns what a stream shows of an item: the same as `GET`. A stream does not report that a current count
/// was saved.
pub(in crate::web) fn shown(read: &ItemCount) -> PublicState {
    let mut body = body(&read.item, read.count(), read.is_current);
    let text = serde_json::to_string(&body).unwrap_or_default();
    if !read.is_current {
        let compared = text.clone();
        return PublicState::new(text, &compared);
    }
    body.saved = SavedBody::default();
    PublicState::new(text, &serde_json::to_string(&body).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn nothing_of_an_item_whose_count_is_hidden_tells_whether_it_has_votes() {
        let rules = ItemRules {
            hides_count: true,
            ..ItemRules::default()
        };
        let shown = |net: i64, live: Option<i64>, is_current: bool| {
            let count = |net| Count { net, downs: 0 };
            let read = ItemCount {
                item: Arc::new(Item {
                    id: ItemId::FIRST,
                    name: "x".into(),
                    key: None,
                    is_hidden: false,
                    rules: Some(Arc::new(rules.clone())),
                    saved_count: count(net),
                    counted_at: None,
                }),
                live_count: live.map(count),
                is_current,
            };
            serde_json::to_string(&body(&read.item, read.count(), read.is_current)).expect("JSON")
        };
        let without_votes = shown(0, None, true);
        for (net, live, is_current) in [
            (0, None, false),
            (0, Some(3), true),
            (3, None, true),
            (3, Some(4), false),
        ] {
            assert_eq!(shown(net, live, is_current), without_votes);
        }
    }
}
