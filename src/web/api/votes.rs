//! `/v1/items/{id}/votes`: casts votes, changes them and takes them back.

use actix_web::http::{StatusCode, header};
use actix_web::{HttpResponse, web};
use serde::Serialize;
use utoipa::ToSchema;

use crate::admission::AttemptedItem;
use crate::domain::{
    BallotHash, Count, Found, IdempotencyKey, ItemId, NewVote, StoredVote, Value, VoteId, VoteRequest,
    VoteSource, VoterId,
};
use crate::votes::{Cast, CastError, QueueOfRun};
use crate::web::access::Caller;
use crate::web::api::idempotency;
use crate::web::api::state::AppState;
use crate::web::describe::{examples, problems, values};
use crate::web::problem::{Problem, VoteProblem};
use crate::web::request::{Json, KeyHeader, PathItemReference, PathVoter, form};

form! {
    /// The body of a vote.
    #[derive(ToSchema)]
    #[schema(as = NewVote, examples(json!({ "voter_id": "ada", "value": 1 })))]
    pub struct VoteBody {
        /// The voter. A vote without one is anonymous and always counts.
        #[schema(value_type = Option<values::VoterId>)]
        voter_id: Option<String>,
        /// 1 or −1. Defaults to 1.
        #[schema(value_type = Option<values::VoteValue>)]
        value: Option<i64>,
        /// The ballot that buys the vote.
        ballot: Option<String>,
    }
}

form! {
    /// The body of a change.
    #[derive(ToSchema)]
    #[schema(as = VoteChange, examples(json!({ "value": -1 })))]
    pub struct ChangeBody {
        /// 1 or −1.
        #[schema(value_type = values::VoteValue)]
        value: i64,
    }
}

impl ChangeBody {
    /// Returns the value that the body asks for.
    pub fn into_value(self) -> Result<Value, Problem> {
        Value::parse(self.value).map_err(|error| {
            let hint = if self.value == 0 {
                "; DELETE takes a vote back"
            } else {
                ""
            };
            Problem::invalid("value", format!("{error}{hint}."))
        })
    }
}

/// A vote, and the counts of its item.
#[derive(Clone, Copy, Serialize, ToSchema)]
#[schema(as = Vote)]
pub(super) struct Answer<'a> {
    /// Null if the voter has never voted on the item, or if the vote is secret.
    #[schema(required, value_type = Option<values::Id>)]
    vote_id: Option<VoteId>,
    #[schema(value_type = values::Id)]
    item_id: ItemId,
    /// Null for an anonymous vote.
    #[schema(required, value_type = Option<values::VoterId>)]
    voter_id: Option<&'a str>,
    /// 0 after a retraction.
    #[schema(value_type = values::HeldValue)]
    value: i16,
    /// The vote's number, on an item that numbers its votes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = values::Id)]
    number: Option<i64>,
    /// The live count, with this vote in it. Null while Redis is unavailable.
    #[schema(required, value_type = Option<values::NetCount>)]
    vote_count: Option<i64>,
    #[schema(required, value_type = Option<values::UpOrDownCount>)]
    up_count: Option<i64>,
    #[schema(required, value_type = Option<values::UpOrDownCount>)]
    down_count: Option<i64>,
    /// True if the voter held this already and nothing was stored. Left out otherwise.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    repeated: bool,
}

impl<'a> Answer<'a> {
    fn new(
        item_id: ItemId,
        voter_id: Option<&'a VoterId>,
        vote: Option<StoredVote>,
        value: i16,
        count: Option<Count>,
    ) -> Self {
        Self {
            vote_id: vote.map(|vote| vote.id),
            item_id,
            voter_id: voter_id.map(VoterId::as_str),
            value,
            number: vote.and_then(|vote| vote.number),
            vote_count: count.map(|count| count.net),
            up_count: count.map(Count::ups),
            down_count: count.map(|count| count.downs),
            repeated: false,
        }
    }
}

/// The vote that a voter holds.
#[derive(Serialize, ToSchema)]
struct HeldVote<'a> {
    #[schema(value_type = values::Id)]
    vote_id: VoteId,
    #[schema(value_type = values::Id)]
    item_id: ItemId,
    #[schema(value_type = values::VoterId)]
    voter_id: &'a str,
    #[schema(value_type = values::VoteValue)]
    value: i16,
    /// The vote's number, on an item that numbers its votes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = values::Id)]
    number: Option<i64>,
}

impl VoteBody {
    /// Makes a body with these fields.
    pub(super) fn new(voter_id: Option<String>, value: Option<i64>, ballot: Option<String>) -> Self {
        Self {
            voter_id,
            value,
            ballot,
        }
    }

    /// Returns the hash of the body's ballot, if it has one.
    pub(super) fn ballot(&self) -> Option<BallotHash> {
        self.ballot.as_deref().map(BallotHash::of)
    }

    /// Returns the vote that the body asks for on this item.
    pub fn into_vote(self, item_id: ItemId) -> Result<NewVote, Problem> {
        let voter_id = self
            .voter_id
            .map(VoterId::parse)
            .transpose()
            .map_err(|error| Problem::invalid("voter_id", format!("{error}.")))?;
        let value = self
            .value
            .map_or(Ok(Value::UP), Value::parse)
            .map_err(|error| Problem::invalid("value", format!("{error}.")))?;
        Ok(NewVote {
            item_id,
            voter_id,
            value,
        })
    }
}

/// Cast a vote.
///
/// An empty body is an anonymous vote of 1, unless a cookie or a token names the voter. A voter who votes
/// again with the same value gets the vote that the voter holds, with 200 and `"repeated": true`. An
/// Idempotency-Key makes an anonymous vote safe to retry too. A vote with a ballot takes no other credential.
#[utoipa::path(
    post,
    path = "/v1/items/{id}/votes",
    operation_id = "castVote",
    tag = "Votes",
    params(
        ("id" = values::ItemReference, Path, example = json!(1)),
        ("Idempotency-Key" = Option<values::IdempotencyKey>, Header,
            description = "A vote is stored once for each key. Secret polls take no key."),
    ),
    request_body(content = VoteBody, example = json!({ "voter_id": "ada", "value": 1 })),
    security(("apiKey" = ["vote"]), ("voterToken" = []), ("voterCookie" = []), ()),
    extensions(("x-open" = json!(["anonymous", "voters"]))),
    responses(
        (status = 201, description = "The vote was stored.", body = Answer, example = json!(examples::vote())),
        (status = 200, description = "The voter holds this vote already.", body = Answer,
            example = json!({
                "vote_id": 1, "item_id": 1, "voter_id": "ada", "value": 1,
                "vote_count": 8, "up_count": 9, "down_count": 1, "repeated": true
            })),
        CastProblems,
    )
)]
pub async fn cast(
    caller: Caller,
    state: web::Data<AppState>,
    id: PathItemReference,
    key: KeyHeader,
    body: Json<VoteBody>,
) -> Result<HttpResponse, VoteProblem> {
    let ballot = body.0.ballot();
    // A vote that is not allowed must fail before an item is made for it.
    let mut vote = body.0.into_vote(ItemId::FIRST)?;
    vote.voter_id = state
        .voting
        .authorize_cast(&id.0, &caller, vote.voter_id, ballot.is_some())
        .await?;
    let casts = ballot.is_none().then_some(vote.value);
    let Found { id: item_id, run } = state
        .voting
        .throttle_and_find_item(&id.0, &caller, vote.voter_id.as_ref(), casts)
        .await?;
    let vote = NewVote { item_id, ..vote };
    let key = key
        .0
        .map(|key| idempotency::of_vote(&caller, &key, &vote, ballot.as_ref()));
    // The batch takes ownership of the vote, and the answer names its voter.
    let voter_id = vote.voter_id.clone();
    let source = state.voting.source(&caller);
    let cast = cast_one(state.votes.only_in(run), vote, ballot, key, source).await?;
    Ok(vote_answer(item_id, voter_id.as_ref(), cast)?)
}

problems!(
    CastProblems: WRITES, ADDRESSES, BODIES, CALLERS, VOTES;
    BodyTooLarge, NotYourVote, OtherCell, UnknownItem, Full, NotOpenYet, Closed, TooManyChoices, TooManyChanges,
    ValueNotTaken, VoterMissing, BallotMissing, BallotNotTaken, BallotNotValid, IdempotencyKeyReused
);

/// Casts one vote. A vote with a ballot or a key goes through the decisions.
pub(super) async fn cast_one(
    votes: QueueOfRun<'_>,
    vote: NewVote,
    ballot: Option<BallotHash>,
    key: Option<IdempotencyKey>,
    source: VoteSource,
) -> Result<Cast, CastError> {
    if ballot.is_none() && key.is_none() {
        return votes.cast(vote, source).await;
    }
    let request = VoteRequest::CastOnce { vote, ballot, key };
    votes.decide(request, source).await
}

/// Change a vote.
///
/// Sets the vote that a voter holds on an item. The request is idempotent. In a poll with one choice it moves
/// the voter's vote to this item.
#[utoipa::path(
    put,
    path = "/v1/items/{id}/votes/{voter_id}",
    operation_id = "setVote",
    tag = "Votes",
    params(("id" = values::ItemReference, Path, example = json!(1)), ("voter_id" = values::VoterId, Path, description = "The voter, percent-encoded. Instead, the query may have it: `votes?voter_id=`.", example = json!("ada"))),
    request_body(content = ChangeBody, example = json!({ "value": -1 })),
    security(("apiKey" = ["vote"]), ("voterToken" = []), ("voterCookie" = []), ()),
    extensions(("x-open" = json!(["voters"]))),
    responses(
        (status = 201, description = "The vote was stored, or moved here from another choice.",
            body = Answer, example = json!(examples::vote())),
        (status = 200, description = "The vote was changed, or the voter holds this vote already.",
            body = Answer,
            example = json!({
                "vote_id": 3, "item_id": 1, "voter_id": "ada", "value": -1,
                "vote_count": 6, "up_count": 8, "down_count": 2
            })),
        ChangeProblems,
    )
)]
pub async fn change(
    caller: Caller,
    state: web::Data<AppState>,
    id: PathItemReference,
    voter: PathVoter,
    body: Json<ChangeBody>,
) -> Result<HttpResponse, VoteProblem> {
    state.voting.authorize_on_item(&id.0, &caller, &voter.0).await?;
    let value = body.0.into_value()?;
    let item = state
        .voting
        .throttle_and_find_item(&id.0, &caller, Some(&voter.0), Some(value))
        .await?;
    set(&state, &caller, item, voter.0, Some(value)).await
}

problems!(
    ChangeProblems: WRITES, ADDRESSES, BODIES, CALLERS, VOTES;
    BodyTooLarge, NotYourVote, OtherCell, UnknownItem, Full, NotOpenYet, Closed, TooManyChoices, TooManyChanges,
    ValueNotTaken, BallotMissing
);

/// Take back a vote.
///
/// The voter then holds no vote on the item. The request is idempotent.
#[utoipa::path(
    delete,
    path = "/v1/items/{id}/votes/{voter_id}",
    operation_id = "takeBackVote",
    tag = "Votes",
    params(("id" = values::ItemReference, Path, example = json!(1)), ("voter_id" = values::VoterId, Path, description = "The voter, percent-encoded. Instead, the query may have it: `votes?voter_id=`.", example = json!("ada"))),
    security(("apiKey" = ["vote"]), ("voterToken" = []), ("voterCookie" = []), ()),
    extensions(("x-open" = json!(["voters"]))),
    responses(
        (status = 200, description = "The voter holds no vote on the item.", body = Answer,
            example = json!({
                "vote_id": 4, "item_id": 1, "voter_id": "ada", "value": 0,
                "vote_count": 7, "up_count": 8, "down_count": 1
            })),
        TakeBackProblems,
    )
)]
pub async fn take_back(
    caller: Caller,
    state: web::Data<AppState>,
    id: PathItemReference,
    voter: PathVoter,
) -> Result<HttpResponse, VoteProblem> {
    state.voting.authorize_on_item(&id.0, &caller, &voter.0).await?;
    let item = state.references.item(&id.0).await?;
    let attempted = AttemptedItem::Known(item.id);
    state
        .voting
        .throttle(&caller, Some(&voter.0), Some(attempted))
        .await?;
    set(&state, &caller, item, voter.0, None).await
}

problems!(
    TakeBackProblems: WRITES, ADDRESSES, CALLERS, VOTES;
    NotYourVote, OtherCell, UnknownItem, NotOpenYet, Closed, BallotMissing
);

async fn set(
    state: &AppState,
    caller: &Caller,
    Found { id: item_id, run }: Found<ItemId>,
    voter_id: VoterId,
    value: Option<Value>,
) -> Result<HttpResponse, VoteProblem> {
    let request = VoteRequest::Set {
        item_id,
        voter_id: voter_id.clone(),
        value,
    };
    let cast = state
        .votes
        .only_in(run)
        .decide(request, state.voting.source(caller))
        .await?;
    Ok(vote_answer(item_id, Some(&voter_id), cast)?)
}

/// Retrieve a vote.
#[utoipa::path(
    get,
    path = "/v1/items/{id}/votes/{voter_id}",
    operation_id = "showVote",
    tag = "Votes",
    params(("id" = values::ItemReference, Path, example = json!(1)), ("voter_id" = values::VoterId, Path, description = "The voter, percent-encoded. Instead, the query may have it: `votes?voter_id=`.", example = json!("ada"))),
    security(("apiKey" = ["vote"]), ("voterToken" = []), ("voterCookie" = []), ()),
    extensions(("x-open" = json!(["voters"]))),
    responses(
        (status = 200, description = "The vote.", body = HeldVote, headers(("Cache-Control" = String)),
            example = json!({ "vote_id": 1, "item_id": 1, "voter_id": "ada", "value": 1 })),
        HeldProblems,
    )
)]
pub async fn held(
    caller: Caller,
    state: web::Data<AppState>,
    id: PathItemReference,
    voter: PathVoter,
) -> Result<HttpResponse, Problem> {
    state.voting.authorize_on_item(&id.0, &caller, &voter.0).await?;
    let read = async {
        let item = state.references.item(&id.0).await?.id;
        let vote = state.ledger.last_vote(item, &voter.0).await?;
        match vote.filter(|vote| vote.value != 0) {
            Some(vote) => Ok((item, vote)),
            None => Err(match state.counts.one(item).await? {
                Some(_) => match state.ledger.archive_of(item).await? {
                    Some(archive) => Problem::votes_archived(item, archive),
                    None => Problem::no_vote(item),
                },
                None => Problem::unknown_item(item),
            }),
        }
    };
    let (item, vote) = state.ledger.in_one_run(id.0.is_key(), read).await?;
    Ok(HttpResponse::Ok()
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .json(HeldVote {
            vote_id: vote.id,
            item_id: item,
            voter_id: voter.0.as_str(),
            value: vote.value,
            number: vote.number,
        }))
}

problems!(HeldProblems: ADDRESSES, CALLERS, STORES; NotYourVote, OtherCell, UnknownItem, NoVote);

/// Returns the answer to a vote: 201 if it is new, 200 otherwise.
///
/// # Errors
/// Fails when there is no such item, or the item does not take the vote.
pub fn vote_answer(item_id: ItemId, voter_id: Option<&VoterId>, cast: Cast) -> Result<HttpResponse, Problem> {
    let (status, answer) = answer(item_id, voter_id, cast)?;
    Ok(HttpResponse::build(status).json(answer))
}

/// Returns the status and the body of the answer to a vote. Fails as [`vote_answer`] does.
pub(super) fn answer(
    item_id: ItemId,
    voter_id: Option<&VoterId>,
    cast: Cast,
) -> Result<(StatusCode, Answer<'_>), Problem> {
    let status = match cast {
        Cast::Accepted { .. } | Cast::Replayed { .. } | Cast::Secret { .. } => StatusCode::CREATED,
        _ => StatusCode::OK,
    };
    let (vote, count, repeated) = match cast {
        Cast::Secret { value, count } => {
            let answer = Answer::new(item_id, voter_id, None, value.get(), count);
            return Ok((status, answer));
        }
        Cast::Accepted { vote, count } | Cast::Changed { vote, count } | Cast::TakenBack { vote, count } => {
            (Some(vote), count, false)
        }
        Cast::Repeated { vote, count } | Cast::Replayed { vote, count } => (Some(vote), count, true),
        Cast::NoVote { count } => (None, count, true),
        Cast::UnknownItem => return Err(Problem::unknown_item(item_id)),
        Cast::Refused(refusal) => return Err(Problem::refused(refusal)),
        Cast::UnknownPoll | Cast::Selected { .. } => return Err(Problem::internal()),
    };
    let value = vote.map_or(0, |vote| vote.value);
    let answer = Answer {
        repeated,
        ..Answer::new(item_id, voter_id, vote, value, count)
    };
    Ok((status, answer))
}
