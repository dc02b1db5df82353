//! `GET /v1/feed`: many items and polls with their counts, and what a voter holds of them.

use std::collections::{HashMap, HashSet};

use actix_web::http::header;
use actix_web::{HttpResponse, web};
use serde::Serialize;
use utoipa::ToSchema;

use crate::counts::PollCount;
use crate::domain::{ItemId, PollId};
use crate::web::access::Caller;
use crate::web::api::held_votes::{HeldAsked, HeldQuery};
use crate::web::api::items;
use crate::web::api::items::ItemBody;
use crate::web::api::list_places::ListPlace;
use crate::web::api::polls;
use crate::web::api::polls::PollBody;
use crate::web::api::state::AppState;
use crate::web::api::unknown::UnknownBody;
use crate::web::describe::{examples, problems, values};
use crate::web::problem::Problem;
use crate::web::request::Query;

/// Items and polls, and what a voter holds of them.
#[derive(Serialize, ToSchema)]
#[schema(as = Feed)]
struct FeedBody<'a> {
    #[schema(value_type = values::VoterId)]
    voter_id: &'a str,
    /// Those of the items that exist, in the order of the query.
    items: Vec<FeedItemBody<'a>>,
    /// Those of the polls that exist, in the order of the query.
    polls: Vec<FeedPollBody>,
    unknown: UnknownBody,
}

/// An item, its counts, and the voter's vote on it.
#[derive(Serialize, ToSchema)]
#[schema(as = FeedItem)]
struct FeedItemBody<'a> {
    #[serde(flatten)]
    item: ItemBody<'a>,
    /// What the voter holds on the item.
    #[schema(value_type = values::HeldValue)]
    held: i16,
}

/// A poll, its results, and the voter's selection in it.
#[derive(Serialize, ToSchema)]
#[schema(as = FeedPoll)]
struct FeedPollBody {
    #[serde(flatten)]
    poll: PollBody,
    /// The choices that the voter holds: their `item_id`s.
    #[schema(value_type = Vec<values::Id>)]
    held: Vec<ItemId>,
}

/// Show items, polls and a voter's votes.
///
/// All that a page of many items shows: each item and poll as `GET` returns it, and what the voter holds there. What
/// does not exist is left out, and named in `unknown`.
#[utoipa::path(
    get,
    path = "/v1/feed",
    operation_id = "showFeed",
    tag = "Votes",
    params(HeldQuery),
    security(("apiKey" = ["vote"]), ("voterToken" = []), ("voterCookie" = []), ()),
    extensions(("x-open" = json!(["voters"]))),
    responses(
        (status = 200, description = "The items and the polls.", body = FeedBody,
            headers(("Cache-Control" = String)), example = json!(examples::feed())),
        ShowProblems,
    )
)]
pub async fn show(
    caller: Caller,
    state: web::Data<AppState>,
    query: Query<HeldQuery>,
    _place: ListPlace,
) -> Result<HttpResponse, Problem> {
    let asked = query.0.into_asked()?;
    state
        .ledger
        .in_one_run(asked.is_by_key(), read(&caller, &state, &asked))
        .await
}

problems!(ShowProblems: ADDRESSES, CALLERS, STORES; NotYourVote, OtherCell, TooManyLists, TooManyListsOfAddress);

async fn read(caller: &Caller, state: &AppState, asked: &HeldAsked) -> Result<HttpResponse, Problem> {
    let (item_ids, poll_ids) = asked.find(state).await?;
    let items: Vec<ItemId> = item_ids.iter().flatten().copied().collect();
    let mut polls: Vec<PollId> = poll_ids.iter().flatten().copied().collect();
    state
        .voting
        .authorize_on_all(&items, &polls, caller, &asked.voter_id)
        .await?;
    // Before the counts: they have each vote that is shown as held.
    let held = state.ledger.held_votes(&asked.voter_id, &items, &polls).await?;
    let values: HashMap<ItemId, i16> = held.iter().map(|vote| (vote.item_id, vote.value)).collect();
    let items = state.counts.some(&items).await?;
    // Each id may be given once.
    polls.sort_unstable();
    polls.dedup();
    let (polls, _) = state.counts.polls(&polls).await?;
    let by_id: HashMap<PollId, &PollCount> = polls.iter().map(|read| (read.poll.id, read)).collect();
    let there: HashSet<ItemId> = items.iter().map(|read| read.item.id).collect();
    let item_is_unknown = item_ids.iter().map(|id| id.is_none_or(|id| !there.contains(&id)));
    let poll_is_unknown = poll_ids
        .iter()
        .map(|id| id.is_none_or(|id| !by_id.contains_key(&id)));
    let unknown = UnknownBody::new(
        state.voting.options.creates,
        asked.items.iter().zip(item_is_unknown),
        asked.polls.iter().zip(poll_is_unknown),
    );
    let feed_items = items.iter().map(|read| FeedItemBody {
        held: values.get(&read.item.id).copied().unwrap_or_default(),
        item: items::body(&read.item, read.count(), read.is_current),
    });
    let feed_polls = poll_ids
        .iter()
        .flatten()
        .filter_map(|id| by_id.get(id))
        .map(|read| FeedPollBody {
            poll: polls::body(read),
            held: held
                .iter()
                .filter(|vote| vote.poll_id == Some(read.poll.id))
                .map(|vote| vote.item_id)
                .collect(),
        });
    Ok(HttpResponse::Ok()
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .json(FeedBody {
            voter_id: asked.voter_id.as_str(),
            items: feed_items.collect(),
            polls: feed_polls.collect(),
            unknown,
        }))
}
