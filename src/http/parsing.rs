//! The parsers of requests alone, without HTTP, for `crate::properties`.

use actix_web::ResponseError;
use actix_web::body::MessageBody;
use actix_web::http::header::{self, HeaderMap, HeaderValue};

use super::access::{self, Origins};
use super::extract::{body, idempotency, path, query, reference};
use super::handlers::ballots::BallotsBody;
use super::handlers::batches::{BatchBody, BatchEntry};
use super::handlers::edits::{ItemEditBody, PollEditBody};
use super::handlers::items::{ListQuery, NewItemBody};
use super::handlers::polls::{NewPollBody, SelectionBody};
use super::handlers::votes::VoteBody;
use super::problem::Problem;
use crate::domain::{Ballot, Edit, ItemId, NewItem, NewPoll, NewVote, Reference, VoterId};

pub use super::handlers::ballots::BALLOTS_LIMIT;
pub use super::handlers::items::{Listed, PAGE_LIMIT_ITEMS};

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
pub fn batch(bytes: &[u8]) -> Result<Vec<Result<BatchEntry, Refusal>>, Refusal> {
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
pub fn list(text: &str) -> Result<Listed, Refusal> {
    Ok(query::parse::<ListQuery>(text)?.into_listed()?)
}

/// Reads the body of `PATCH /v1/items/{id}`.
pub fn item_edit(bytes: &[u8]) -> Result<Edit, Refusal> {
    Ok(body::parse::<ItemEditBody>(bytes)?.into_edit()?)
}

/// Reads the body of `PATCH /v1/polls/{id}`.
pub fn poll_edit(bytes: &[u8]) -> Result<Edit, Refusal> {
    Ok(body::parse::<PollEditBody>(bytes)?.into_edit()?)
}

/// Reads the body of `POST /v1/polls/{id}/ballots`.
pub fn ballots(bytes: &[u8]) -> Result<Vec<Ballot>, Refusal> {
    Ok(body::parse::<BallotsBody>(bytes)?.into_ballots()?.0)
}

/// Reads an item in a path.
pub fn item_reference(part: &str) -> Result<Reference<ItemId>, Refusal> {
    Ok(reference::path_reference(part)?)
}

/// Reads the header Authorization.
pub fn authorization(value: &[u8]) -> Option<&str> {
    access::bearer(value)
}

/// Whether a request with this Host and Origin may write, where pages of `allowed` may; `None`: no
/// request can have these headers.
pub fn may_write(allowed: &Origins, host: &[u8], origin: &[u8]) -> Option<bool> {
    let mut headers = HeaderMap::new();
    headers.insert(header::HOST, HeaderValue::from_bytes(host).ok()?);
    headers.insert(header::ORIGIN, HeaderValue::from_bytes(origin).ok()?);
    Some(allowed.may_write(&headers))
}

/// Reads the header Idempotency-Key.
pub fn idempotency_key(value: &[u8]) -> Result<String, Refusal> {
    Ok(idempotency::read(value)?)
}
