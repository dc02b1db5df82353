//! `/v1/votes`: many votes in one request.

use actix_web::{HttpResponse, web};
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::votes::{Answer, VoteBody, answer};
use crate::domain::{ItemId, NewVote, VoterId};
use crate::http::extract::{Field, Form, Json, Takes, body};
use crate::http::limits::{BATCH_BODY_LIMIT_BYTES, BATCH_LIMIT_VOTES};
use crate::http::problem::{self, Problem};
use crate::http::state::AppState;

/// The body of a batch.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchBody {
    votes: Vec<Value>,
}

impl Form for BatchBody {
    const FIELDS: &'static [Field] = &[Field::required("votes", Takes::Objects)];
    const LIMIT_BYTES: usize = BATCH_BODY_LIMIT_BYTES;
}

/// One vote of a batch.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchVote {
    item_id: i64,
    voter_id: Option<String>,
    value: Option<i64>,
}

impl Form for BatchVote {
    const FIELDS: &'static [Field] = &[
        Field::required("item_id", Takes::Number),
        Field::optional("voter_id", Takes::Text),
        Field::optional("value", Takes::Number),
    ];
}

impl BatchBody {
    /// The votes, each if it is allowed.
    pub(in crate::http) fn into_votes(self) -> Result<Vec<Result<NewVote, Problem>>, Problem> {
        if !(1..=BATCH_LIMIT_VOTES).contains(&self.votes.len()) {
            let detail = format!(
                "votes has {}; it takes 1 to {BATCH_LIMIT_VOTES}.",
                self.votes.len()
            );
            return Err(Problem::invalid("votes", detail));
        }
        Ok(self.votes.into_iter().map(vote).collect())
    }
}

fn vote(value: Value) -> Result<NewVote, Problem> {
    // An array would be read as an object, its values in the order of the fields.
    if !value.is_object() {
        let detail = "votes: this one is no object; each takes an object.";
        return Err(Problem::malformed("votes", detail));
    }
    let Some(BatchVote {
        item_id,
        voter_id,
        value,
    }) = BatchVote::deserialize(&value).ok()
    else {
        return Err(body::wrong(value.to_string().as_bytes(), BatchVote::FIELDS));
    };
    let item_id = ItemId::new(item_id).ok_or_else(|| {
        let detail = format!("item_id is {item_id}; it takes 1 or more.");
        Problem::invalid("item_id", detail)
    })?;
    VoteBody::new(voter_id, value).into_vote(item_id)
}

#[derive(Serialize)]
struct BatchAnswer<'a> {
    /// One for each vote, in the order of the votes.
    results: Vec<BatchResult<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum BatchResult<'a> {
    Vote {
        /// What the status of the vote's own answer would be.
        status: u16,
        #[serde(flatten)]
        answer: Answer<'a>,
    },
    /// A problem has its status in it.
    Problem(problem::Body<'a>),
}

/// Casts many votes. Each is answered by itself: one that is wrong does not harm the others.
pub async fn cast(state: web::Data<AppState>, body: Json<BatchBody>) -> Result<HttpResponse, Problem> {
    let votes = body.0.into_votes()?;
    // The queue takes them; the answers name their voters.
    let names: Vec<Option<(ItemId, Option<VoterId>)>> = votes
        .iter()
        .map(|vote| {
            vote.as_ref()
                .ok()
                .map(|vote| (vote.item_id, vote.voter_id.clone()))
        })
        .collect();
    let casts = votes.into_iter().map(async |vote| match vote {
        Ok(vote) => state.votes.cast(vote).await.map_err(Problem::from),
        Err(problem) => Err(problem),
    });
    let casts = join_all(casts).await;
    let ended: Vec<Result<_, Problem>> = names
        .iter()
        .zip(casts)
        .map(|(name, cast)| match (name, cast) {
            (Some((item, voter)), Ok(cast)) => answer(*item, voter.as_ref(), cast),
            (None, Ok(_)) => Err(Problem::internal()),
            (_, Err(problem)) => Err(problem),
        })
        .collect();
    let results = ended.iter().map(|ended| match ended {
        Ok((status, answer)) => BatchResult::Vote {
            status: status.as_u16(),
            answer: *answer,
        },
        Err(problem) => BatchResult::Problem(problem.to_body()),
    });
    Ok(HttpResponse::Ok().json(BatchAnswer {
        results: results.collect(),
    }))
}
