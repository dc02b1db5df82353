//! `/v1/items/{id}/votes`: voting, changing a vote and taking it back.

use actix_web::http::StatusCode;
use actix_web::{HttpResponse, web};
use serde::{Deserialize, Serialize};

use crate::domain::{Count, ItemId, NewVote, Value, VoteId, VoteRequest, VoterId};
use crate::http::extract::{Field, Form, Json, PathItem, PathVoter, Takes};
use crate::http::problem::Problem;
use crate::http::state::AppState;
use crate::votes::Cast;

/// The body of a vote.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VoteBody {
    /// Who votes. A vote without it is anonymous and always counts.
    voter_id: Option<String>,
    /// 1 or −1. Without it, 1.
    value: Option<i64>,
}

impl Form for VoteBody {
    const FIELDS: &'static [Field] = &[
        Field::optional("voter_id", Takes::Text),
        Field::optional("value", Takes::Number),
    ];
}

/// The body of a change.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChangeBody {
    /// 1 or −1.
    value: i64,
}

impl Form for ChangeBody {
    const FIELDS: &'static [Field] = &[Field::required("value", Takes::Number)];
}

impl ChangeBody {
    /// What the voter wants to hold.
    pub(in crate::http) fn into_value(self) -> Result<Value, Problem> {
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

#[derive(Clone, Copy, Serialize)]
pub(super) struct Answer<'a> {
    /// Null if the voter has never voted on the item.
    vote_id: Option<VoteId>,
    item_id: ItemId,
    voter_id: Option<&'a str>,
    /// 0 after a retraction.
    value: i16,
    #[serde(skip_serializing_if = "Option::is_none")]
    number: Option<i64>,
    /// The live count, this vote in it; null while Redis is unavailable.
    vote_count: Option<i64>,
    up_count: Option<i64>,
    down_count: Option<i64>,
    /// Whether nothing was stored, since it was so already.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    repeated: bool,
}

/// The vote that a voter holds.
#[derive(Serialize)]
struct HeldVote<'a> {
    vote_id: VoteId,
    item_id: ItemId,
    voter_id: &'a str,
    value: i16,
    #[serde(skip_serializing_if = "Option::is_none")]
    number: Option<i64>,
}

impl VoteBody {
    /// A body with these fields.
    pub(super) fn new(voter_id: Option<String>, value: Option<i64>) -> Self {
        Self { voter_id, value }
    }

    /// The vote on this item.
    ///
    /// # Errors
    /// When a value is not allowed.
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

/// Casts a vote.
pub async fn cast(
    state: web::Data<AppState>,
    id: PathItem,
    body: Json<VoteBody>,
) -> Result<HttpResponse, Problem> {
    let vote = body.0.into_vote(id.0)?;
    // The batch takes the vote; the answer names its voter.
    let (item_id, voter_id) = (vote.item_id, vote.voter_id.clone());
    vote_answer(item_id, voter_id.as_ref(), state.votes.cast(vote).await?)
}

/// Sets what a voter holds on an item.
pub async fn change(
    state: web::Data<AppState>,
    id: PathItem,
    voter: PathVoter,
    body: Json<ChangeBody>,
) -> Result<HttpResponse, Problem> {
    set(&state, id.0, voter.0, Some(body.0.into_value()?)).await
}

/// Takes back what a voter holds on an item.
pub async fn take_back(
    state: web::Data<AppState>,
    id: PathItem,
    voter: PathVoter,
) -> Result<HttpResponse, Problem> {
    set(&state, id.0, voter.0, None).await
}

async fn set(
    state: &AppState,
    item_id: ItemId,
    voter_id: VoterId,
    value: Option<Value>,
) -> Result<HttpResponse, Problem> {
    let request = VoteRequest::Set {
        item_id,
        voter_id: voter_id.clone(),
        value,
    };
    vote_answer(item_id, Some(&voter_id), state.votes.decide(request).await?)
}

/// Shows what a voter holds on an item.
pub async fn held(
    state: web::Data<AppState>,
    id: PathItem,
    voter: PathVoter,
) -> Result<HttpResponse, Problem> {
    let vote = state.ledger.last_vote(id.0, &voter.0).await?;
    let Some(vote) = vote.filter(|vote| vote.value != 0) else {
        return Err(match state.counts.one(id.0).await? {
            Some(_) => Problem::no_vote(id.0),
            None => Problem::unknown_item(id.0),
        });
    };
    Ok(HttpResponse::Ok().json(HeldVote {
        vote_id: vote.id,
        item_id: id.0,
        voter_id: voter.0.as_str(),
        value: vote.value,
        number: vote.number,
    }))
}

/// The answer to a vote: 201 to a new one, 200 to a repeat, a change and a retraction.
///
/// # Errors
/// When there is no such item, or it does not take the vote.
pub fn vote_answer(item_id: ItemId, voter_id: Option<&VoterId>, cast: Cast) -> Result<HttpResponse, Problem> {
    let (status, answer) = answer(item_id, voter_id, cast)?;
    Ok(HttpResponse::build(status).json(answer))
}

/// The status and the body of the answer to a vote.
///
/// # Errors
/// As [`vote_answer`].
pub(super) fn answer(
    item_id: ItemId,
    voter_id: Option<&VoterId>,
    cast: Cast,
) -> Result<(StatusCode, Answer<'_>), Problem> {
    let status = match cast {
        Cast::Accepted { .. } => StatusCode::CREATED,
        _ => StatusCode::OK,
    };
    let (vote, count, repeated) = match cast {
        Cast::Accepted { vote, count } | Cast::Changed { vote, count } | Cast::TakenBack { vote, count } => {
            (Some(vote), count, false)
        }
        Cast::Repeated { vote, count } => (Some(vote), count, true),
        Cast::NoVote { count } => (None, count, true),
        Cast::UnknownItem => return Err(Problem::unknown_item(item_id)),
        Cast::Refused(refusal) => return Err(Problem::refused(refusal)),
        Cast::UnknownPoll | Cast::Selected { .. } => return Err(Problem::internal()),
    };
    let answer = Answer {
        vote_id: vote.map(|vote| vote.id),
        item_id,
        voter_id: voter_id.map(VoterId::as_str),
        value: vote.map_or(0, |vote| vote.value),
        number: vote.and_then(|vote| vote.number),
        vote_count: count.map(|count| count.net),
        up_count: count.map(Count::ups),
        down_count: count.map(|count| count.downs),
        repeated,
    };
    Ok((status, answer))
}
