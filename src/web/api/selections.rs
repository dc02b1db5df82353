//! `/v1/polls/{id}/votes`: the choices that a voter holds in a poll.

use actix_web::http::header;
use actix_web::{HttpResponse, web};
use serde::Serialize;
use utoipa::ToSchema;

use crate::domain::{CHOICES_LIMIT_ITEMS, Found, ItemId, PollId, Refusal, VoteRequest, VoterId};
use crate::votes::Cast;
use crate::web::access::Caller;
use crate::web::api::state::AppState;
use crate::web::describe::{examples, problems, values};
use crate::web::problem::{Problem, VoteProblem};
use crate::web::request::{Json, PathPollReference, PathVoter, form};

form! {
    /// The body of a selection.
    #[derive(ToSchema)]
    #[schema(as = SelectionChange, examples(json!({ "items": [2] })))]
    pub struct SelectionBody {
        /// The `item_id`s of all choices that the voter shall hold.
        #[schema(value_type = Vec<values::Id>, max_items = 100)]
        items: Vec<i64>,
    }
}

impl SelectionBody {
    /// Returns the items, each once.
    ///
    /// # Errors
    /// Fails when there are too many, or one is not an id.
    pub fn into_items(self) -> Result<Vec<ItemId>, Problem> {
        if self.items.len() > CHOICES_LIMIT_ITEMS {
            let detail = format!(
                "items has {}; it takes at most {CHOICES_LIMIT_ITEMS}.",
                self.items.len()
            );
            return Err(Problem::invalid("items", detail));
        }
        let items: Option<Vec<ItemId>> = self.items.into_iter().map(ItemId::new).collect();
        let mut items = items.ok_or_else(|| {
            Problem::invalid(
                "items",
                "items has a number below 1; it takes item_ids of choices.",
            )
        })?;
        items.sort_unstable();
        items.dedup();
        Ok(items)
    }
}

/// The choices that a voter holds in a poll.
#[derive(Serialize, ToSchema)]
#[schema(as = Selection)]
struct SelectionAnswer<'a> {
    #[schema(value_type = values::Id)]
    poll_id: PollId,
    #[schema(value_type = values::VoterId)]
    voter_id: &'a str,
    /// The `item_id`s of the choices.
    #[schema(value_type = Vec<values::Id>)]
    items: Vec<ItemId>,
    /// True if the voter held this already and nothing was stored. Left out otherwise.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    repeated: bool,
}

/// Change a voter's choices in a poll.
///
/// Votes on other choices of the poll are taken back. The request is idempotent.
#[utoipa::path(
    put,
    path = "/v1/polls/{id}/votes/{voter_id}",
    operation_id = "setSelection",
    tag = "Polls",
    params(("id" = values::PollReference, Path, example = json!(1)), ("voter_id" = values::VoterId, Path, description = "The voter, percent-encoded. Instead, the query may have it: `votes?voter_id=`.", example = json!("ada"))),
    request_body(content = SelectionBody, example = json!({ "items": [2] })),
    security(("apiKey" = ["vote"]), ("voterToken" = []), ("voterCookie" = []), ()),
    extensions(("x-open" = json!(["voters"]))),
    responses(
        (status = 200, description = "The choices that the voter holds now.", body = SelectionAnswer,
            headers(("Cache-Control" = String)), example = json!(examples::selection())),
        SelectProblems,
    )
)]
pub async fn select(
    caller: Caller,
    state: web::Data<AppState>,
    id: PathPollReference,
    voter: PathVoter,
    body: Json<SelectionBody>,
) -> Result<HttpResponse, VoteProblem> {
    state.voting.authorize_in_poll(&id.0, &caller, &voter.0).await?;
    let items = body.0.into_items()?;
    let poll = state.references.poll(&id.0).await?;
    state.voting.throttle(&caller, Some(&voter.0), None).await?;
    set(&state, &caller, poll, voter.0, items).await
}

problems!(
    SelectProblems: WRITES, ADDRESSES, BODIES, CALLERS, VOTES;
    BodyTooLarge, NotYourVote, OtherCell, UnknownPoll, NotOpenYet, Closed, TooManyChoices, TooManyChanges, NotInPoll,
    BallotMissing
);

/// Take back a voter's choices in a poll.
///
/// The voter then holds no choice of the poll. The request is idempotent.
#[utoipa::path(
    delete,
    path = "/v1/polls/{id}/votes/{voter_id}",
    operation_id = "takeBackSelection",
    tag = "Polls",
    params(("id" = values::PollReference, Path, example = json!(1)), ("voter_id" = values::VoterId, Path, description = "The voter, percent-encoded. Instead, the query may have it: `votes?voter_id=`.", example = json!("ada"))),
    security(("apiKey" = ["vote"]), ("voterToken" = []), ("voterCookie" = []), ()),
    extensions(("x-open" = json!(["voters"]))),
    responses(
        (status = 200, description = "The voter holds no choice of the poll.", body = SelectionAnswer,
            headers(("Cache-Control" = String)),
            example = json!({ "poll_id": 1, "voter_id": "ada", "items": [] })),
        TakeBackProblems,
    )
)]
pub async fn take_back(
    caller: Caller,
    state: web::Data<AppState>,
    id: PathPollReference,
    voter: PathVoter,
) -> Result<HttpResponse, VoteProblem> {
    state.voting.authorize_in_poll(&id.0, &caller, &voter.0).await?;
    let poll = state.references.poll(&id.0).await?;
    state.voting.throttle(&caller, Some(&voter.0), None).await?;
    set(&state, &caller, poll, voter.0, Vec::new()).await
}

problems!(
    TakeBackProblems: WRITES, ADDRESSES, CALLERS, VOTES;
    NotYourVote, OtherCell, UnknownPoll, NotOpenYet, Closed, BallotMissing
);

async fn set(
    state: &AppState,
    caller: &Caller,
    Found { id: poll_id, run }: Found<PollId>,
    voter_id: VoterId,
    items: Vec<ItemId>,
) -> Result<HttpResponse, VoteProblem> {
    let request = VoteRequest::Select {
        poll_id,
        voter_id: voter_id.clone(),
        items: items.clone(),
    };
    match state
        .votes
        .only_in(run)
        .decide(request, state.voting.source(caller))
        .await?
    {
        Cast::Selected { is_changed } => Ok(selection_answer(poll_id, &voter_id, items, !is_changed)),
        Cast::UnknownPoll => Err(Problem::unknown_poll(poll_id).into()),
        Cast::UnknownItem => Err(Problem::refused(Refusal::NotInPoll).into()),
        Cast::Refused(refusal) => Err(Problem::refused(refusal).into()),
        _ => Err(Problem::internal().into()),
    }
}

/// Retrieve a voter's choices in a poll.
#[utoipa::path(
    get,
    path = "/v1/polls/{id}/votes/{voter_id}",
    operation_id = "showSelection",
    tag = "Polls",
    params(("id" = values::PollReference, Path, example = json!(1)), ("voter_id" = values::VoterId, Path, description = "The voter, percent-encoded. Instead, the query may have it: `votes?voter_id=`.", example = json!("ada"))),
    security(("apiKey" = ["vote"]), ("voterToken" = []), ("voterCookie" = []), ()),
    extensions(("x-open" = json!(["voters"]))),
    responses(
        (status = 200, description = "The choices that the voter holds.", body = SelectionAnswer,
            headers(("Cache-Control" = String)), example = json!(examples::selection())),
        SelectedProblems,
    )
)]
pub async fn selected(
    caller: Caller,
    state: web::Data<AppState>,
    id: PathPollReference,
    voter: PathVoter,
) -> Result<HttpResponse, Problem> {
    state.voting.authorize_in_poll(&id.0, &caller, &voter.0).await?;
    let read = async {
        let poll = state.references.poll(&id.0).await?.id;
        if state.ledger.poll(poll).await?.is_none() {
            return Err(Problem::unknown_poll(poll));
        }
        Ok((poll, state.ledger.selection(poll, &voter.0).await?))
    };
    // Also by its id: a selection read in another run says nothing of the poll that was there.
    let (poll, items) = state.ledger.in_one_run(true, read).await?;
    Ok(selection_answer(poll, &voter.0, items, false))
}

problems!(SelectedProblems: ADDRESSES, CALLERS, STORES; NotYourVote, OtherCell, UnknownPoll);

/// Answers with a selection. `repeated`: the voter held it already and nothing was stored.
pub fn selection_answer(
    poll_id: PollId,
    voter_id: &VoterId,
    items: Vec<ItemId>,
    repeated: bool,
) -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .json(SelectionAnswer {
            poll_id,
            voter_id: voter_id.as_str(),
            items,
            repeated,
        })
}
