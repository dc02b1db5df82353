//! Reads references to items and polls: an id, or `key:` and a key.

use std::str::FromStr;

use actix_web::dev::Payload;
use actix_web::{FromRequest, HttpRequest};
use futures_util::future;
use serde::Deserialize;

use crate::domain::{InvalidReference, ItemId, PollId, Reference};
use crate::web::problem::Problem;
use crate::web::request::path::decoded;

/// Reads a reference to an item or a poll. `field` is the client's name for it.
///
/// Fails when it is neither an id nor `key:` with a key.
pub(in crate::web) fn parse<Id: FromStr>(field: &'static str, text: &str) -> Result<Reference<Id>, Problem> {
    text.parse().map_err(|error| match error {
        InvalidReference::Key(error) => Problem::invalid(field, format!("{error}.")),
        InvalidReference::NeitherIdNorKey => Problem::malformed(field, format!("{field}: {error}.")),
    })
}

/// Reads the references in a parameter, separated by commas, if it is given.
///
/// Fails as [`parse`] does, or when there are more than `limit`.
pub(in crate::web) fn list<Id: FromStr>(
    field: &'static str,
    text: Option<&str>,
    limit: usize,
) -> Result<Vec<Reference<Id>>, Problem> {
    let Some(text) = text else {
        return Ok(Vec::new());
    };
    let total = text.split(',').count();
    if total > limit {
        let detail = format!("{field} has {total}; it takes at most {limit}.");
        return Err(Problem::invalid(field, detail));
    }
    text.split(',').map(|text| parse(field, text)).collect()
}

/// The `{id}` of a path: a positive 64-bit number, or `key:` and a percent-encoded key.
pub struct PathReference<Id>(pub Reference<Id>);

pub type PathItemReference = PathReference<ItemId>;
pub type PathPollReference = PathReference<PollId>;

/// The reference's place in a path: `/v1/items/{id}`.
const PART: usize = 3;

impl<Id: FromStr> FromRequest for PathReference<Id> {
    type Error = Problem;
    type Future = future::Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        // As it was sent: actix would have decoded a part of it.
        let part = request.uri().path().split('/').nth(PART).unwrap_or_default();
        future::ready(path_reference(part).map(Self))
    }
}

/// Reads a part of a path. Fails as [`parse`] does.
pub(in crate::web) fn path_reference<Id: FromStr>(part: &str) -> Result<Reference<Id>, Problem> {
    if part.bytes().all(|byte| byte.is_ascii_digit()) {
        return parse("id", part);
    }
    parse("id", &decoded("id", part)?)
}

/// An item in a body: a whole number, or `"key:…"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum BodyItem {
    Id(i64),
    Text(String),
}

impl BodyItem {
    /// Returns the reference to the item. Fails as [`parse`] does.
    pub fn into_reference(self, field: &'static str) -> Result<Reference<ItemId>, Problem> {
        match self {
            Self::Id(id) => ItemId::new(id).map(Reference::Id).ok_or_else(|| {
                let detail = format!("{field} is {id}; it takes 1 or more.");
                Problem::invalid(field, detail)
            }),
            Self::Text(text) => parse(field, &text),
        }
    }
}
