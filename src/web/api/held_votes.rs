//! `GET /v1/votes`: lists the votes of a voter on many items.

use actix_web::http::header;
use actix_web::{HttpResponse, web};
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use crate::domain::{ItemId, PollId, Reference, VoteId, VoterId};
use crate::ledger::LedgerError;
use crate::web::access::Caller;
use crate::web::api::state::AppState;
use crate::web::describe::{problems, values};
use crate::web::problem::Problem;
use crate::web::request::{Query, form, reference};

/// The most items in one request. Polls have their own limit.
pub const HELD_LIMIT_ITEMS: usize = 1000;
/// The most polls in one request. Each has up to 100 choices.
pub const HELD_LIMIT_POLLS: usize = 100;

form! {
    /// The voter, and the items and polls. At least one of both lists is needed.
    #[derive(IntoParams)]
    #[into_params(parameter_in = Query)]
    pub struct HeldQuery {
        /// The voter.
        #[param(value_type = values::VoterId, example = json!("ada"))]
        voter_id: String,
        /// Ids of items, or `key:` followed by your own key, separated by commas. At most 1,000.
        #[param(min_length = 1, example = "1")]
        items: Option<String>,
        /// Ids of polls, or `key:` followed by your own key, separated by commas. At most 100.
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
    /// Returns what the query asks for, if every parameter is allowed.
    pub(in crate::web) fn into_asked(self) -> Result<HeldAsked, Problem> {
        if self.items.is_none() && self.polls.is_none() {
            let detail = "items: it is missing; give items, polls or both.";
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

impl HeldAsked {
    /// Returns whether something is named by its own key.
    pub(in crate::web) fn is_by_key(&self) -> bool {
        self.items.iter().any(Reference::is_key) || self.polls.iter().any(Reference::is_key)
    }

    /// Finds the items and the polls, in the order of the query. `None`: there is no such one.
    pub(in crate::web) async fn find(&self, state: &AppState) -> Result<FoundIds, LedgerError> {
        let items = state.references.find_items(&self.items).await?;
        let mut polls = Vec::with_capacity(self.polls.len());
        for poll in &self.polls {
            polls.push(state.references.find_poll(poll).await?.map(|poll| poll.id));
        }
        Ok((items.into_iter().map(|item| Some(item?.id)).collect(), polls))
    }
}

/// The ids of the items and of the polls that a query names.
type FoundIds = (Vec<Option<ItemId>>, Vec<Option<PollId>>);

/// The votes that a voter holds.
#[derive(Serialize, ToSchema)]
#[schema(as = HeldVotes)]
struct HeldBody<'a> {
    #[schema(value_type = values::VoterId)]
    voter_id: &'a str,
    /// The votes, in the order of the items.
    votes: Vec<VoteBody>,
}

/// A vote that a voter holds.
#[derive(Serialize, ToSchema)]
#[schema(as = VoteHeld)]
struct VoteBody {
    #[schema(value_type = values::Id)]
    vote_id: VoteId,
    #[schema(value_type = values::Id)]
    item_id: ItemId,
    /// Your own key of the item, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = values::Key)]
    key: Option<String>,
    /// The poll that has the item as a choice. Left out for other items.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = values::Id)]
    poll_id: Option<PollId>,
    /// Your own key of that poll, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = values::Key)]
    poll_key: Option<String>,
    #[schema(value_type = values::VoteValue)]
    value: i16,
    /// The vote's number, on an item that numbers its votes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = values::Id)]
    number: Option<i64>,
}

/// List a voter's votes.
///
/// The votes that a voter holds on these items and in these polls. Items and polls that do not exist, and
/// those without a vote of the voter, are left out. `GET /v1/feed` also has the counts, and says what does not
/// exist.
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
            example = json!({ "voter_id": "ada", "votes": [{ "vote_id": 1, "item_id": 1, "key": "post-42", "value": 1 }] })),
        ListProblems,
    )
)]
pub async fn list(
    caller: Caller,
    state: web::Data<AppState>,
    query: Query<HeldQuery>,
) -> Result<HttpResponse, Problem> {
    let asked = query.0.into_asked()?;
    state
        .ledger
        .in_one_run(asked.is_by_key(), read(&caller, &state, &asked))
        .await
}

async fn read(caller: &Caller, state: &AppState, asked: &HeldAsked) -> Result<HttpResponse, Problem> {
    let (items, polls) = asked.find(state).await?;
    let items: Vec<ItemId> = items.into_iter().flatten().collect();
    let polls: Vec<PollId> = polls.into_iter().flatten().collect();
    state
        .voting
        .authorize_on_all(&items, &polls, caller, &asked.voter_id)
        .await?;
    let votes = state.ledger.held_votes(&asked.voter_id, &items, &polls).await?;
    let votes = votes.into_iter().map(|vote| VoteBody {
        vote_id: vote.id,
        item_id: vote.item_id,
        key: vote.key,
        poll_id: vote.poll_id,
        poll_key: vote.poll_key,
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

problems!(ListProblems: ADDRESSES, CALLERS, STORES; NotYourVote, OtherCell);
