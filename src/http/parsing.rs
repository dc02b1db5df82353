//! The parsers of requests alone, without HTTP, for `crate::properties`.

use actix_web::ResponseError;
use actix_web::body::MessageBody;
use actix_web::http::header;

use super::extract::{body, path, query};
use super::handlers::batches::BatchBody;
use super::handlers::items::{ListQuery, NewItemBody};
use super::handlers::polls::{NewPollBody, SelectionBody};
use super::handlers::votes::VoteBody;
use super::problem::Problem;
use crate::domain::{ItemId, NewItem, NewPoll, NewVote, VoterId};

pub use super::handlers::items::{ListPage, PAGE_LIMIT_ITEMS};

/// The answer to a request that is refused.
#[derive(Debug)]
pub struct Refusal {
    pub status: u16,
    pub content_type: String,
    pub body: Vec<u8>,
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        let response = problem.error_response();
        let content_type = response.headers().get(header::CONTENT_TYPE);
        Self {
            status: response.status().as_u16(),
            content_type: content_type
                .and_then(|value| value.to_str().ok())
                .unwrap_or_default()
                .to_owned(),
            body: response
                .into_body()
                .try_into_bytes()
                .map(Into::into)
                .unwrap_or_default(),
        }
    }
}

/// Reads the body of `POST /v1/items/{id}/votes`.
pub fn vote(item_id: ItemId, bytes: &[u8]) -> Result<NewVote, Refusal> {
    Ok(body::parse::<VoteBody>(bytes)?.into_vote(item_id)?)
}

/// Reads the body of `POST /v1/votes`.
pub fn batch(bytes: &[u8]) -> Result<Vec<Result<NewVote, Refusal>>, Refusal> {
    let votes = body::parse::<BatchBody>(bytes)?.into_votes()?;
    Ok(votes
        .into_iter()
        .map(|vote| vote.map_err(Refusal::from))
        .collect())
}

/// Reads the body of `POST /v1/polls`.
pub fn poll(bytes: &[u8]) -> Result<NewPoll, Refusal> {
    Ok(body::parse::<NewPollBody>(bytes)?.into_poll()?)
}

/// Reads the body of `PUT /v1/polls/{id}/votes/{voter_id}`.
pub fn selection(bytes: &[u8]) -> Result<Vec<ItemId>, Refusal> {
    Ok(body::parse::<SelectionBody>(bytes)?.into_items()?)
}

/// Reads a voter in a path.
pub fn voter(text: &str) -> Result<VoterId, Refusal> {
    Ok(path::voter(text)?)
}

/// Reads the body of `POST /v1/items`.
pub fn item(bytes: &[u8]) -> Result<NewItem, Refusal> {
    Ok(body::parse::<NewItemBody>(bytes)?.into_item()?)
}

/// Reads the query of `GET /v1/items`.
pub fn list(text: &str) -> Result<ListPage, Refusal> {
    Ok(query::parse::<ListQuery>(text)?.into_page()?)
}
