//! `GET /v1/votes`: what a voter holds on many items.

use actix_web::http::header;
use actix_web::{HttpResponse, web};
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use crate::domain::{ItemId, PollId, Reference, VoteId, VoterId};
use crate::web::access::Caller;
use crate::web::api::state::AppState;
use crate::web::describe::{problems, values};
use crate::web::problem::Problem;
use crate::web::request::{Query, form, reference};

/// The most items in one request, beside the polls.
pub const HELD_LIMIT_ITEMS: usize = 1000;
/// The most polls in one request: each has up to 100 choices.
pub const HELD_LIMIT_POLLS: usize = 100;

form! {
    /// Whose votes, and on what: at least one of both lists.
    #[derive(IntoParams)]
    #[into_params(parameter_in = Query)]
    pub struct HeldQuery {
        /// The voter.
        #[param(value_type = values::VoterId, example = json!("ada"))]
        voter_id: String,
        /// Ids of items, or `key:` and a key, separated by commas; at most 1,000.
        #[param(min_length = 1, example = "1")]
        items: Option<String>,
        /// Ids of polls, or `key:` and a key, separated by commas; at most 100.
        #[param(min_length = 1)]
        polls: Option<String>,
    }
}

/// What a query asks for.
#[derive(Debug, PartialEq, Eq)]
pub struct HeldAsked {
    pub voter_id: VoterId,
    pub items: Vec<Reference<ItemId>>,
    pub polls: Vec<Reference<PollId>>,
}

impl HeldQuery {
    /// What is asked for, if all of it is allowed.
    pub(in crate::web) fn into_asked(self) -> Result<HeldAsked, Problem> {
        if self.items.is_none() && self.polls.is_none() {
            let detail = "items: it is missing; this takes items, polls or both.";
            return Err(Problem::malformed("items", detail));
        }
        let voter_id = VoterId::parse(self.voter_id);
        Ok(HeldAsked {
            voter_id: voter_id.map_err(|error| Problem::invalid("voter_id", format!("{error}.")))?,
            items: reference::list("items", self.items.as_deref(), HELD_LIMIT_ITEMS)?,
            polls: reference::list("polls", self.polls.as_deref(), HELD_LIMIT_POLLS)?,
        })
    }
}

/// What a voter holds.
#[derive(Serialize, ToSchema)]
#[schema(as = HeldVotes)]
struct HeldBody<'a> {
    #[schema(value_type = values::VoterId)]
    voter_id: &'a str,
    /// In the order of the items.
    votes: Vec<VoteBody>,
}

/// A vote that is held.
#[derive(Serialize, ToSchema)]
#[schema(as = VoteHeld)]
struct VoteBody {
    #[schema(value_type = values::Id)]
    vote_id: VoteId,
    #[schema(value_type = values::Id)]
    item_id: ItemId,
    /// The poll that the item is a choice of; otherwise left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = values::Id)]
    poll_id: Option<PollId>,
    #[schema(value_type = values::VoteValue)]
    value: i16,
    /// Its number, where votes have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = values::Id)]
    number: Option<i64>,
}

/// Shows what a voter holds on many items.
///
/// On these items and in these polls. What is not there, and what the voter does not hold, is left out.
#[utoipa::path(
    get,
    path = "/v1/votes",
    operation_id = "listVotes",
    tag = "Votes",
    params(HeldQuery),
    security(("apiKey" = ["vote"]), ("voterToken" = []), ("voterCookie" = []), ()),
    extensions(("x-open" = json!(["voters"]))),
    responses(
        (status = 200, description = "The votes.", body = HeldBody, headers(("Cache-Control" = String)),
            example = json!({ "voter_id": "ada", "votes": [{ "vote_id": 1, "item_id": 1, "value": 1 }] })),
        ListProblems,
    )
)]
pub async fn list(
    caller: Caller,
    state: web::Data<AppState>,
    query: Query<HeldQuery>,
) -> Result<HttpResponse, Problem> {
    let asked = query.0.into_asked()?;
    let items = state.references.find_items(&asked.items).await?;
    let items: Vec<ItemId> = items.into_iter().flatten().collect();
    let mut polls: Vec<PollId> = Vec::with_capacity(asked.polls.len());
    for poll in &asked.polls {
        polls.extend(state.references.find_poll(poll).await?);
    }
    state
        .voting
        .authorize_on_all(&items, &polls, &caller, &asked.voter_id)
        .await?;
    let votes = state.ledger.held_votes(&asked.voter_id, &items, &polls).await?;
    let votes = votes.into_iter().map(|vote| VoteBody {
        vote_id: vote.id,
        item_id: vote.item_id,
        poll_id: vote.poll_id,
        value: vote.value,
        number: vote.number,
    });
    Ok(HttpResponse::Ok()
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .json(HeldBody {
            voter_id: asked.voter_id.as_str(),
            votes: votes.collect(),
        }))
}

problems!(ListProblems: ADDRESSES, CALLERS, STORES; NotYourVote);
