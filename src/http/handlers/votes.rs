//! `/v1/items/{id}/votes`: voting.

use actix_web::{HttpResponse, web};
use serde::{Deserialize, Serialize};

use crate::domain::{ItemId, NewVote, Value, VoteId, VoterId};
use crate::http::extract::{Field, Form, Json, PathItem, Takes};
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

#[derive(Serialize)]
struct Answer<'a> {
    vote_id: VoteId,
    item_id: ItemId,
    voter_id: Option<&'a str>,
    value: i16,
    /// The live count, this vote in it; null while Redis is unavailable.
    vote_count: Option<i64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    repeated: bool,
}

impl VoteBody {
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

/// The answer to a vote: 201 to a new one, 200 to a repeat.
///
/// # Errors
/// When there is no such item.
pub fn vote_answer(item_id: ItemId, voter_id: Option<&VoterId>, cast: Cast) -> Result<HttpResponse, Problem> {
    let (vote, vote_count, repeated) = match cast {
        Cast::Accepted { vote, vote_count } => (vote, vote_count, false),
        Cast::Repeated { vote, vote_count } => (vote, vote_count, true),
        Cast::UnknownItem => return Err(Problem::unknown_item(item_id)),
    };
    let answer = Answer {
        vote_id: vote.id,
        item_id,
        voter_id: voter_id.map(VoterId::as_str),
        value: vote.value,
        vote_count,
        repeated,
    };
    let mut response = if repeated {
        HttpResponse::Ok()
    } else {
        HttpResponse::Created()
    };
    Ok(response.json(answer))
}
